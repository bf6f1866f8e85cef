/** Processes of a benchmark: started, kept to a core, measured from /proc, and ended with the benchmark. */
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { openSync, readFileSync } from "node:fs";
import { connect } from "node:net";
import { cpus } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

/** The one under test has a core to itself; load and model back end share the other. */
export const cores = { measured: 0, load: 1 } as const;

const startWithinMs = 20_000;
const ticksPerSecond = Number(execFileSync("getconf", ["CLK_TCK"], { encoding: "utf8" }));
const running = new Set<ChildProcess>();

export interface StartOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly core: number;
  /** Where the process listens once it is ready. */
  readonly port: number;
  /** File for what it writes. */
  readonly output: string;
}

/** Starts a script under this Node and waits for its port. */
export async function startProcess(parameters: readonly string[], options: StartOptions): Promise<number> {
  const { output, port, core, env } = options;
  const file = openSync(output, "a");
  const child = spawn(process.execPath, parameters, {
    cwd: new URL("../../", import.meta.url),
    env: { PATH: process.env["PATH"] ?? "", HOME: process.env["HOME"] ?? "", ...env },
    stdio: ["ignore", file, file],
  });
  running.add(child);
  child.once("exit", () => running.delete(child));
  const { pid } = child;
  if (pid === undefined) throw new Error(`${parameters.join(" ")} could not be started`);
  keepToCore(pid, core);
  for (const until = Date.now() + startWithinMs; !(await listens(port)); await sleep(50)) {
    if (child.exitCode !== null || Date.now() > until) {
      throw new Error(`${parameters.join(" ")} did not start:\n${readFileSync(output, "utf8")}`);
    }
  }
  return pid;
}

/** Lets a process end by itself, with what it still has to write. */
export async function endProcess(pid: number): Promise<void> {
  const child = [...running].find((each) => each.pid === pid);
  if (child === undefined) return;
  const ended = new Promise((done) => child.once("exit", done));
  child.kill("SIGTERM");
  await ended;
}

export async function stopProcesses(): Promise<void> {
  const ends = [...running].map((child) => new Promise((ended) => child.once("exit", ended)));
  for (const child of running) child.kill("SIGKILL");
  await Promise.all(ends);
}

/** All threads of a process, those to come included. Without `taskset`, or with one core, nothing is pinned. */
export function keepToCore(pid: number, core: number): void {
  if (cpus().length < 2) return;
  try {
    execFileSync("taskset", ["-a", "-c", "-p", String(core), String(pid)], { stdio: "ignore" });
  } catch {
    // Measured all the same, with more noise.
  }
}

/** CPU seconds of a process so far, of all its threads, in user and kernel mode. */
export function cpuSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / ticksPerSecond;
}

export function residentBytes(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1_024;
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}
