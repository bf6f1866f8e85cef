/**
 * The wall around a plugin process where bubblewrap is installed: it sees the system's programs, read
 * only, its own directory, and nothing else of the disk; its processes are numbered by themselves and
 * end with it. Without it a plugin runs with the rights of the gateway's user.
 */
import { execFile } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { dirname, isAbsolute, join, resolve } from "node:path";
import { promisify } from "node:util";

/** Inside a box for code: where its program lies. */
export const boxProgramPath = "/box.cjs";

export interface PluginWall {
  /** Path of `bwrap`, from `findBubblewrap`. */
  readonly program: string;
  /** Whether plugins reach the network. Most call some web service; without it they cannot. */
  readonly network: boolean;
  /** Further paths that plugins may read, such as a language runtime outside /usr. */
  readonly readOnly?: readonly string[];
}

const programPaths = [
  "/usr",
  "/bin",
  "/sbin",
  "/lib",
  "/lib32",
  "/lib64",
  "/etc/alternatives",
  "/etc/fonts",
  "/etc/ld.so.cache",
  "/etc/localtime",
];

/** What programs need of the system: no home directories, no data, no secrets. */
const systemPaths = [
  ...programPaths,
  "/etc/ca-certificates",
  "/etc/hosts",
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

export interface BoxWall {
  readonly program: string;
  /** Further paths that can be read inside: interpreters. */
  readonly readOnly: readonly string[];
  /** Of the one directory that can be written, `/tmp`; it is memory. */
  readonly diskBytes: number;
  readonly environment: Readonly<Record<string, string>>;
  /** Who becomes another user inside; absent: one that is ours outside and nobody's inside. */
  readonly becomes: "another" | undefined;
  /** Descriptors of `bwrap` with the program that is to lie at `boxProgramPath`, and with the filter of system calls. */
  readonly programFd: number;
  readonly filterFd: number;
  /** Where it tells which process is the first inside. */
  readonly infoFd: number;
}

/** Bytes of shared memory, which some libraries ask for. */
const sharedBytes = 16_777_216;

/**
 * The options of `bwrap` for code that nobody has looked at: no network, not even the host's loopback; no process,
 * user, host name or memory of others; nothing that can be written but a file system of its own with an end.
 */
export function boxOptions(wall: BoxWall): readonly string[] {
  const asUser =
    wall.becomes === undefined
      ? ["--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]
      : ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"];
  // What lies below /usr is there with it.
  const readable = [...programPaths, ...wall.readOnly.filter((path) => !path.startsWith("/usr/"))];
  const room = (path: string, bytes: number): string[] => ["--perms", "1777", "--size", `${bytes}`, "--tmpfs", path];
  return [
    ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"],
    asUser,
    ["--die-with-parent", "--new-session", "--hostname", "box"],
    ["--seccomp", `${wall.filterFd}`, "--info-fd", `${wall.infoFd}`],
    ["--proc", "/proc", "--dev", "/dev", ...room("/dev/shm", sharedBytes), "--remount-ro", "/dev"],
    room("/tmp", wall.diskBytes),
    readable.flatMap(above).flatMap((path) => ["--perms", "0755", "--dir", path]),
    readable.flatMap((path) => ["--ro-bind-try", path, path]),
    ["--perms", "0444", "--ro-bind-data", `${wall.programFd}`, boxProgramPath, "--remount-ro", "/", "--chdir", "/tmp"],
    ["--clearenv", ...Object.entries(wall.environment).flatMap(([name, value]) => ["--setenv", name, value])],
  ].flat();
}

/** The directories above a path, outermost first: those that `bwrap` makes by itself nobody else may pass. */
function above(path: string): readonly string[] {
  const directory = dirname(path);
  return directory === "/" ? [] : [...above(directory), directory];
}

export type Bubblewrap =
  | { readonly program: string; readonly missing?: undefined }
  /** What is not there, and what to do, for people. */
  | { readonly program?: undefined; readonly missing: string };

/** `bwrap` on this PATH, if it works here: many containers do not allow what it needs. */
export async function findBubblewrap(path: string): Promise<Bubblewrap> {
  const program = findProgram("bwrap", path, "/");
  if (program === undefined) {
    return { missing: "'bwrap' is not on the gateway's PATH. Install the package 'bubblewrap'" };
  }
  try {
    const probe = wallOptions({ program, network: false }, "/tmp", "/bin/true", {});
    await promisify(execFile)(program, [...probe, "--", "/bin/true"], { env: {}, timeout: 5000 });
    return { program };
  } catch (thrown) {
    return { missing: whyRefused(thrown) };
  }
}

/** By what `bwrap` says: which of the usual refusals of hosts and container engines it has met. */
function whyRefused(thrown: unknown): string {
  const said = complaintOf(thrown);
  const told = said === "" ? "" : ` ('${said}')`;
  if (/proc/i.test(said) && !/max_user_namespaces|setting up uid map/.test(said)) {
    return `'bwrap' may not mount a /proc of its own here${told}. In a container allow it: 'systempaths=unconfined' among the security options (compose.yaml has it)`;
  }
  if (/loopback|RTM_NEWADDR|uid map|Permission denied/.test(said)) {
    return `'bwrap' makes a user namespace here and has no rights in it${told}. On the host set 'sysctl kernel.apparmor_restrict_unprivileged_userns=0' (Ubuntu), and for a container the security option 'apparmor=unconfined'`;
  }
  return `'bwrap' may not make namespaces here${told}. In a container take a seccomp profile that allows it ('seccomp=containers/seccomp.json', as in compose.yaml); on the host 'sysctl user.max_user_namespaces' must not be 0, nor 'kernel.unprivileged_userns_clone' where there is one`;
}

function complaintOf(thrown: unknown): string {
  const said = typeof thrown === "object" && thrown !== null && "stderr" in thrown ? String(thrown.stderr) : "";
  return said.trim().split("\n").at(-1)?.slice(0, 200) ?? "";
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
