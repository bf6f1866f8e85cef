/**
 * The wall around a plugin process where bubblewrap is installed: it sees the system's programs, read
 * only, its own directory, and nothing else of the disk; its processes are numbered by themselves and
 * end with it. Without it a plugin runs with the rights of the gateway's user.
 */
import { execFile } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { isAbsolute, join, resolve } from "node:path";
import { promisify } from "node:util";

export interface PluginWall {
  /** Path of `bwrap`, from `findBubblewrap`. */
  readonly program: string;
  /** Whether plugins reach the network. Most call some web service; without it they cannot. */
  readonly network: boolean;
  /** Further paths that plugins may read, such as a language runtime outside /usr. */
  readonly readOnly?: readonly string[];
}

/** What programs need of the system: no home directories, no data, no secrets. */
const systemPaths = [
  "/usr",
  "/bin",
  "/sbin",
  "/lib",
  "/lib32",
  "/lib64",
  "/etc/alternatives",
  "/etc/ca-certificates",
  "/etc/hosts",
  "/etc/ld.so.cache",
  "/etc/localtime",
  "/etc/nsswitch.conf",
  "/etc/pki",
  "/etc/resolv.conf",
  "/etc/ssl",
];

/**
 * The options of `bwrap`, to be given through a file descriptor: a command line can be read by every
 * user, and the environment of the plugin holds its configuration. It does not become the environment
 * of `bwrap` either, which would let a tenant's LD_PRELOAD act outside the wall.
 */
export function wallOptions(
  wall: PluginWall,
  directory: string,
  program: string,
  environment: Readonly<Record<string, string>>,
): readonly string[] {
  const readable = [...systemPaths, ...(wall.readOnly ?? []), program];
  return [
    ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"],
    wall.network ? ["--share-net"] : [],
    ["--uid", "65534", "--gid", "65534"],
    ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"],
    readable.flatMap((path) => ["--ro-bind-try", path, path]),
    ["--bind", directory, directory, "--chdir", directory],
    ["--clearenv", ...Object.entries(environment).flatMap(([name, value]) => ["--setenv", name, value])],
  ].flat();
}

/** `bwrap` on this PATH, if it works here: many containers do not allow what it needs. */
export async function findBubblewrap(path: string): Promise<string | undefined> {
  const program = findProgram("bwrap", path, "/");
  if (program === undefined) return undefined;
  try {
    const probe = wallOptions({ program, network: false }, "/tmp", "/bin/true", {});
    await promisify(execFile)(program, [...probe, "--", "/bin/true"], { env: {}, timeout: 5000 });
    return program;
  } catch {
    return undefined;
  }
}

/**
 * Where the program lies; names with a slash are taken from `directory`. Links are not followed: some
 * programs find their libraries by the name they are called by.
 */
export function findProgram(name: string, path: string, directory: string): string | undefined {
  const candidates = name.includes("/")
    ? [resolve(directory, name)]
    : path
        .split(":")
        .filter(isAbsolute)
        .map((folder) => join(folder, name));
  for (const candidate of candidates) {
    if (isExecutable(candidate)) return candidate;
  }
  return undefined;
}

/** At once: a way through the threads takes ten times as long, and a start has to look twice. */
function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
