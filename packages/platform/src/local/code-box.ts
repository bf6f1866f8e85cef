/**
 * Confined runs on this machine: each in a box of bubblewrap, made for it and gone with it. Inside, our program
 * (code-box/program.ts) runs the code as the plugin box does; from outside nothing that it says is believed, and what
 * all its processes take together is watched.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { randomInt } from "node:crypto";
import { access, readdir, readFile, readlink, statfs } from "node:fs/promises";
import { Readable, Writable } from "node:stream";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { readBoxAnswer, toBoxRequest } from "@toolyard/core/boxes/box-protocol";
import type { Confinement, PluginExit, PluginRun, PluginRunner } from "@toolyard/core/ports/plugin-runner";
import { callFilter } from "./call-filter.ts";
import { codeBoxProgram } from "./code-box-program.ts";
import type { Interpreters } from "./interpreters.ts";
import { keepTail } from "./plugin-output.ts";
import { boxOptions, boxProgramPath, findProgram, type Bubblewrap } from "./plugin-wall.ts";
import type { StartedPlace } from "./process-plugin-runner.ts";

export interface CodeBoxOptions {
  /** On which `setpriv` is found. */
  readonly path: string;
  readonly interpreters: Interpreters;
  readonly bubblewrap: Bubblewrap;
  readonly onStart?: (place: StartedPlace) => void;
}

export function createCodeBox(options: CodeBoxOptions): PluginRunner {
  return {
    async run(run) {
      const { confined } = run;
      if (confined === undefined) throw new GatewayError("internal_error", "The code box runs confined code only.");
      return await new Box(options, run, confined).run();
    },
  };
}

/** PATH inside. */
const innerPath = "/usr/local/bin:/usr/bin:/bin";
/** The box itself has to come up, and to hand back what is left. */
const graceMs = 5_000;
const watchMs = 50;
const mostComplaints = 4_096;
/** Node inside, beside the code: what it may take, and its threads. */
const ownMemoryBytes = 268_435_456;
const ownThreads = 24;
/** Node reserves some 600 MB of data without using them. */
const reservedByNode = 805_306_368;
/** Small files are still something of the kernel's: so many names in all. */
const mostInodes = 100_000;

const fds = { options: 3, program: 4, filter: 5, info: 6 };

class Box {
  readonly #options: CodeBoxOptions;
  readonly #run: PluginRun;
  readonly #confined: Confinement;
  /** Why we have ended it. */
  #ended: Pick<PluginExit, "ended" | "exceeded"> | undefined;
  #child: ChildProcess | undefined;

  constructor(options: CodeBoxOptions, run: PluginRun, confined: Confinement) {
    this.#options = options;
    this.#run = run;
    this.#confined = confined;
  }

  async run(): Promise<PluginExit> {
    const started = performance.now();
    const { signal } = this.#run;
    if (signal?.aborted === true) return toExit({ ended: "aborted" }, started);
    const child = (this.#child = await this.#start());
    const gone = new Promise((resolve) => child.once("close", resolve));
    const abort = (): void => this.#end({ ended: "aborted" });
    signal?.addEventListener("abort", abort);
    const timer = setTimeout(() => this.#end({ ended: "timeout" }), this.#run.timeoutMs + graceMs);
    const watching = this.#watch(child);
    const heard: string[] = [];
    const complaints = keepTail(mostComplaints);
    child.stderr?.on("data", complaints.add);
    try {
      const { onStdout } = this.#run;
      const exit = await readBoxAnswer(withEnd(child.stdout, this.#mostAnswerBytes), {
        onStdout: (part) => {
          heard.push(part);
          onStdout?.(part);
        },
      });
      return this.#ended === undefined ? exit : toExit(this.#ended, started, heard.join(""));
    } catch (thrown) {
      if (this.#ended !== undefined) return toExit(this.#ended, started, heard.join(""));
      if (thrown instanceof GatewayError && thrown.code === "tool_unreachable") throw notStarted(complaints.text());
      // Nothing that it has done is left anywhere: it had no network and no disk but its own.
      throw new GatewayError(
        "tool_failed",
        "The code box was lost while the code ran: the code has ended or disturbed the process beside it. Nothing of what it did is kept.",
        { cause: thrown },
      );
    } finally {
      this.#kill();
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      await gone;
      await watching;
    }
  }

  /** In JSON, and files in base64. */
  get #mostAnswerBytes(): number {
    const { maxFileBytes, maxFiles } = this.#confined;
    return 6 * this.#run.maxOutputBytes + 1.4 * maxFileBytes + 8_192 * maxFiles + 4_194_304;
  }

  async #start(): Promise<ChildProcess> {
    const { bubblewrap, interpreters, path, onStart } = this.#options;
    const filter = callFilter();
    if (bubblewrap.missing !== undefined) throw unavailable(bubblewrap.missing);
    if (filter === undefined) {
      throw unavailable(`there is no filter of system calls for machines of type '${process.arch}'`);
    }
    const [name, ...rest] = this.#run.command;
    const interpreter = await interpreters.find(name);
    const program = interpreter?.program ?? findProgram(name, path, "/");
    if (program === undefined) {
      throw new GatewayError(
        "code_box_unavailable",
        `Code for "${name}" cannot be run here: "${name}" was not found on the gateway's PATH. Install it on the machine of the gateway.`,
      );
    }
    const setpriv = findProgram("setpriv", path, "/");
    // As root we would be root's equal inside, whom no limit of processes holds.
    const becomes = process.getuid?.() === 0 && setpriv !== undefined ? "another" : undefined;
    const environment = { PATH: innerPath, HOME: "/tmp", TMPDIR: "/tmp", LANG: "C.UTF-8" };
    const options = boxOptions({
      program: bubblewrap.program,
      readOnly: [...(interpreter?.readOnly ?? []), program, process.execPath],
      diskBytes: this.#confined.diskBytes,
      environment,
      becomes,
      programFd: fds.program,
      filterFd: fds.filter,
      infoFd: fds.info,
    });
    const child = spawn(
      bubblewrap.program,
      [
        ["--args", `${fds.options}`, "--"],
        becomes === undefined || setpriv === undefined ? [] : anotherUser(setpriv),
        [process.execPath, "--max-semi-space-size=1", "--max-old-space-size=192", boxProgramPath],
        [innerPath, `${this.#processMemory(name)}`],
      ].flat(),
      { cwd: "/", detached: true, env: {}, stdio: ["pipe", "pipe", "pipe", "pipe", "pipe", "pipe", "pipe"] },
    );
    if (child.pid !== undefined) onStart?.({ directory: "", pid: child.pid });
    for (const stream of child.stdio) stream?.on("error", () => undefined);
    child.on("error", () => undefined);
    feed(child, fds.options, options.map((word) => `${word}\0`).join(""));
    feed(child, fds.program, codeBoxProgram);
    feed(child, fds.filter, filter);
    child.stdin?.end(toBoxRequest({ ...this.#run, command: [program, ...rest] }));
    return child;
  }

  #processMemory(name: string): number {
    const { memoryBytes } = this.#confined;
    return name === "node" ? memoryBytes + reservedByNode : memoryBytes;
  }

  #end(why: Pick<PluginExit, "ended" | "exceeded">): void {
    this.#ended ??= why;
    this.#kill();
  }

  #exceeded(what: NonNullable<PluginExit["exceeded"]>): void {
    this.#end({ ended: "aborted", exceeded: what });
  }

  /** The first process inside ends with it, and all others with that one. */
  #kill(): void {
    const pid = this.#child?.pid;
    if (pid === undefined) return;
    try {
      process.kill(-pid, "SIGKILL");
    } catch {
      // It has ended.
    }
  }

  async #watch(child: ChildProcess): Promise<void> {
    const first = await firstInside(child);
    if (first === undefined) return;
    const inside = await readlink(`/proc/${first}/ns/pid`).catch(() => undefined);
    if (inside === undefined) return;
    const { memoryBytes, maxProcesses } = this.#confined;
    let hasOwnRoot = false;
    while (child.exitCode === null && child.signalCode === null) {
      const pids = await processesIn(inside);
      const taken = await memoryOf(pids);
      if (taken.threads > maxProcesses + ownThreads) this.#exceeded("processes");
      // Pages that processes share are counted once, which takes longer to find out.
      const limit = memoryBytes + ownMemoryBytes;
      if (taken.bytes > limit && (await sharedMemoryOf(pids)) > limit) this.#exceeded("memory");
      // Until the box has a root of its own, what is there is this machine's.
      hasOwnRoot ||= await isThere(`/proc/${first}/root${boxProgramPath}`);
      const disk = hasOwnRoot ? await statfs(`/proc/${first}/root/tmp`).catch(() => undefined) : undefined;
      if (disk !== undefined && disk.files - disk.ffree > mostInodes) this.#exceeded("memory");
      await new Promise((resolve) => setTimeout(resolve, watchMs));
    }
  }
}

function unavailable(why: string): GatewayError {
  return new GatewayError("code_box_unavailable", `Code cannot be run here: ${why} (docs/native-tools.md).`);
}

function notStarted(complaints: string): GatewayError {
  const why = complaints.trim().slice(0, 300);
  return new GatewayError("code_box_unavailable", `The code box could not be made, and nothing was run: ${why}`);
}

/** Nobody else on this machine: who shares a user shares its limits, and may look into its processes. */
function anotherUser(setpriv: string): readonly string[] {
  const id = `${0x70000000 + randomInt(0x0fffffff)}`;
  return [setpriv, "--reuid", id, "--regid", id, "--clear-groups", "--inh-caps=-all", "--no-new-privs", "--"];
}

function feed(child: ChildProcess, fd: number, body: string | Uint8Array): void {
  const stream = child.stdio[fd];
  if (stream instanceof Writable) stream.end(body);
}

function toExit(why: Pick<PluginExit, "ended" | "exceeded">, since: number, stdout = ""): PluginExit {
  return { ...why, stdout, stderr: "", exitCode: null, durationMs: Math.round(performance.now() - since) };
}

async function* withEnd(bytes: Readable | null, most: number): AsyncGenerator<Uint8Array, void> {
  let read = 0;
  for await (const part of bytes ?? []) {
    read += (part as Buffer).byteLength;
    if (read > most) throw new GatewayError("tool_failed", "The code box has said more than it may.");
    yield part as Buffer;
  }
}

async function firstInside(child: ChildProcess): Promise<number | undefined> {
  const info = child.stdio[fds.info];
  if (!(info instanceof Readable)) return undefined;
  let text = "";
  for await (const part of info) text += String(part);
  const pid = Number(/"child-pid"\s*:\s*(\d+)/.exec(text)?.[1]);
  return Number.isInteger(pid) ? pid : undefined;
}

function isThere(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

async function processesIn(namespace: string): Promise<readonly string[]> {
  const names = (await readdir("/proc").catch(() => [])).filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(names.map((pid) => readlink(`/proc/${pid}/ns/pid`).catch(() => undefined)));
  return names.filter((_, at) => found[at] === namespace);
}

interface Taken {
  readonly bytes: number;
  readonly threads: number;
}

async function memoryOf(pids: readonly string[]): Promise<Taken> {
  const each = await Promise.all(
    pids.map(async (pid) => {
      const status = await readFile(`/proc/${pid}/status`, "latin1").catch(() => "");
      const numberOf = (name: string): number => Number(new RegExp(`^${name}:\\s*(\\d+)`, "m").exec(status)?.[1] ?? 0);
      return { bytes: 1_024 * numberOf("VmRSS"), threads: numberOf("Threads") };
    }),
  );
  return each.reduce((sum, one) => ({ bytes: sum.bytes + one.bytes, threads: sum.threads + one.threads }), {
    bytes: 0,
    threads: 0,
  });
}

async function sharedMemoryOf(pids: readonly string[]): Promise<number> {
  const each = await Promise.all(
    pids.map(async (pid) => {
      const rollup = await readFile(`/proc/${pid}/smaps_rollup`, "latin1").catch(() => "");
      return 1_024 * Number(/^Pss:\s*(\d+)/m.exec(rollup)?.[1] ?? 0);
    }),
  );
  return each.reduce((sum, bytes) => sum + bytes, 0);
}
