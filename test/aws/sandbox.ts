/**
 * Execution environments as Lambda has them for container images, as far as Linux gives them without an
 * engine: a table of processes and a file system of their own, read only but for a few directories, and
 * an unprivileged user. The image's own lines (entry point, environment, the mode of `node`) are read from
 * its Dockerfile and done alike. Needs root, for mounts.
 */
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { RuntimeCommand, RuntimeProcess } from "./runtime-api.ts";
import { runtimeClient } from "./runtime-client.ts";

const dockerfile = readFileSync(join(import.meta.dirname, "../../functions/plugin-box/Dockerfile"), "utf8");
/** Where a plugin could leave something. */
const writable = ["tmp", "var/tmp", "dev/shm", "run/lock"];

/**
 * The first process of an environment: lays out the file system, starts the runtime as its user, buries
 * whoever ends without a parent, and ends with the runtime.
 */
const firstProcess = `
  set -e
  root=$1 uid=$2 node=$3 modules=$4 task=$5 inner=$6; shift 6
  mount -t tmpfs -o mode=755,size=1m tmpfs "$root"
  cd "$root"
  mkdir -p usr etc dev proc var/task var/runtime var/lang/bin ${writable.join(" ")}
  for path in bin sbin lib lib64; do
    if [ -L /$path ]; then cp -P /$path $path; elif [ -d /$path ]; then mkdir $path; mount --bind /$path $path; fi
  done
  mount --bind /usr usr; mount --bind /etc etc
  mount --bind "$task" var/task; mount --bind "$modules" var/runtime
  touch var/lang/bin/node; mount --bind "$node" var/lang/bin/node
  for path in null zero full random urandom; do touch dev/$path; mount --bind /dev/$path dev/$path; done
  ln -s /proc/self/fd dev/fd
  for path in usr etc var/task var/runtime; do mount -o remount,bind,ro $path; done
  for path in ${writable.join(" ")}; do mount -t tmpfs -o mode=1777,size=96m tmpfs $path; done
  mount -t proc proc proc
  mount -o remount,ro "$root"
  as_user="setpriv --reuid $uid --regid $uid --clear-groups --inh-caps=-all --bounding-set=-all --"
  set +e
  # Not a word of a command: tests look for what a plugin runs among the command lines of all processes.
  before=$SANDBOX_BEFORE; unset SANDBOX_BEFORE
  if [ -n "$before" ]; then before=$before chroot . $as_user sh -c 'cd /; eval "$before"'; fi
  chroot . $as_user sh -c "cd /var/task; $inner" runtime "$@" &
  wait $!`;

/** Why there can be none here, or `undefined`. */
export function sandboxMissing(): string | undefined {
  if (process.platform !== "linux") return "a table of processes of one's own needs Linux";
  if (process.getuid?.() !== 0) return "laying out a file system needs root (sudo npm run test:aws)";
  const probe = spawnSync("unshare", [
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "mount",
    "-t",
    "proc",
    "proc",
    "/proc",
  ]);
  return probe.status === 0 ? undefined : `unshare and mount do not work here: ${String(probe.stderr).trim()}`;
}

export interface Sandbox {
  /** Of the runtime, as we see it. */
  readonly pid: number;
  readonly user: number;
  /** The runtime's variables, as root reads them. */
  environment(): string;
  /** Command lines of all processes but the first. */
  processes(): readonly string[];
  /** Everything below the directories that can be written. */
  files(): readonly string[];
}

export interface SandboxOptions {
  /** A script that the environment's user runs before the runtime starts. */
  readonly before?: string;
  /** The runtime has a parent of its own user, as it has where the entry point does not become the runtime. */
  readonly hasParent?: boolean;
  /** Without what the image adds to Lambda's environment. */
  readonly isBare?: boolean;
}

export interface Sandboxes {
  launcher(options?: SandboxOptions): (command: RuntimeCommand) => RuntimeProcess;
  /** The one whose runtime this is. */
  of(environment: { readonly pid: number }): Sandbox;
  close(): void;
}

export function createSandboxes(): Sandboxes {
  const all: RunningSandbox[] = [];
  // Limits on processes count by user: no two environments, and nobody else here, should be the same one.
  const firstUser = 200_000 + Math.floor(Math.random() * 1_000_000_000);
  let directory: string | undefined;
  return {
    launcher: (options = {}) => {
      return (command) => {
        directory ??= makeDirectory();
        const sandbox = new RunningSandbox({ ...options, command, directory, user: firstUser + all.length });
        all.push(sandbox);
        return sandbox;
      };
    },
    of({ pid }) {
      const found = all.find((sandbox) => sandbox.pid === pid);
      if (found === undefined) throw new Error(`no sandbox has a runtime ${pid}`);
      return found;
    },
    close() {
      for (const sandbox of all) sandbox.child.kill("SIGKILL");
      if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** For the roots of file systems, with a `node` as the image has it. */
function makeDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "toolyard-sandbox-"));
  copyFileSync(process.execPath, join(directory, "node"));
  chmodSync(join(directory, "node"), nodeMode());
  return directory;
}

class RunningSandbox implements RuntimeProcess, Sandbox {
  readonly child: RuntimeProcess["child"];
  readonly user: number;
  readonly #hasParent: boolean;

  constructor(
    options: SandboxOptions & {
      readonly command: RuntimeCommand;
      readonly directory: string;
      readonly user: number;
    },
  ) {
    const { command, directory, user, before = "", hasParent = false, isBare = false } = options;
    const image = isBare ? { entryPoint: [], environment: {} } : readImageLines();
    this.user = user;
    this.#hasParent = hasParent;
    const modules = dirname(dirname(runtimeClient));
    const parameters = [...command.arguments.slice(0, -1), "/var/runtime/aws-lambda-ric/index.mjs"];
    const root = mkdtempSync(join(directory, "root-"));
    const node = join(directory, "node");
    const layOut = [root, String(user), node, modules, command.cwd, hasParent ? '"$@"; exit $?' : 'exec "$@"'];
    const namespaces = ["--mount", "--pid", "--ipc", "--fork", "--kill-child", "--propagation", "private"];
    this.child = spawn(
      "unshare",
      [
        ...namespaces,
        "sh",
        "-c",
        firstProcess,
        "init",
        ...layOut,
        ...image.entryPoint,
        "/var/lang/bin/node",
        ...parameters,
      ],
      {
        env: {
          ...command.env,
          ...image.environment,
          PATH: "/var/lang/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
          LAMBDA_TASK_ROOT: "/var/task",
          SANDBOX_BEFORE: before,
        },
        stdio: ["ignore", "pipe", "pipe"],
      },
    );
  }

  get pid(): number {
    const [started = 0] = childrenOf(this.#first).slice(-1);
    return this.#hasParent ? (childrenOf(started)[0] ?? 0) : started;
  }

  signal(name: NodeJS.Signals): void {
    // The first process ends with its parent, and all others with it.
    if (name === "SIGKILL") this.child.kill(name);
    else for (const pid of this.#pids()) signalIfThere(pid, name);
  }

  environment(): string {
    return read(`/proc/${this.pid}/environ`);
  }

  processes(): readonly string[] {
    return this.#pids()
      .map((pid) => read(`/proc/${pid}/cmdline`).replaceAll("\0", " ").trim())
      .filter((line) => line !== "");
  }

  files(): readonly string[] {
    const found = execFileSync("find", [...writable.map((path) => `./${path}`), "-mindepth", "1"], {
      // The first process works where the others have their root.
      cwd: `/proc/${this.#first}/cwd`,
      encoding: "utf8",
    });
    return found.split("\n").filter((line) => line !== "");
  }

  get #first(): number {
    return childrenOf(this.child.pid ?? 0)[0] ?? 0;
  }

  #pids(): readonly number[] {
    const space = link(`/proc/${this.#first}/ns/pid`);
    const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name) && link(`/proc/${name}/ns/pid`) === space);
    return pids.map(Number).filter((pid) => pid !== this.#first);
  }
}

/** It may have ended since it was listed. */
function signalIfThere(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (thrown) {
    if (!(thrown instanceof Error) || !("code" in thrown) || thrown.code !== "ESRCH") throw thrown;
  }
}

function childrenOf(pid: number): readonly number[] {
  return read(`/proc/${pid}/task/${pid}/children`).trim().split(" ").filter(Boolean).map(Number);
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

function link(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}

interface ImageLines {
  /** What stands before the runtime. */
  readonly entryPoint: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
}

function readImageLines(): ImageLines {
  const words = JSON.parse(/^ENTRYPOINT (.+)$/m.exec(dockerfile)?.[1] ?? "[]") as readonly string[];
  const variables = [...dockerfile.matchAll(/^ENV (\w+)=(\S+)$/gm)].map(([, name = "", value = ""]) => [name, value]);
  return { entryPoint: words.slice(0, -1), environment: Object.fromEntries(variables) };
}

function nodeMode(): number {
  return Number.parseInt(/^RUN chmod (\d+) \/var\/lang\/bin\/node$/m.exec(dockerfile)?.[1] ?? "0755", 8);
}
