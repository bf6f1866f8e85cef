/**
 * A program that is held for as long as its holder lives, and spoken to in lines. When it dies it is started again
 * with growing pauses. Whatever it has started ends with it, also what has left its process group, and all of it
 * ends with the holder.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtemp } from "node:fs/promises";
import type { Log } from "@toolyard/core/ports/log";
import { endMarkedProcesses } from "./escaped-processes.ts";
import { ownDirectory } from "./own-directories.ts";
import { findProgram } from "./plugin-wall.ts";
import { removeTree } from "./remove-tree.ts";

export interface HeldProcessOptions {
  /** For people. */
  readonly name: string;
  readonly command: readonly [string, ...string[]];
  /** In which it runs, and from which a program named by a path is found. */
  readonly directory: string;
  /** On which programs are found. */
  readonly path: string;
  /** Beside PATH and LANG. */
  readonly environment: Readonly<Record<string, string>>;
  /** It is given a directory of its own as HOME and TMPDIR, where its environment names none. */
  readonly hasHome?: boolean;
  readonly maxLineBytes: number;
  readonly log: Log;
  readonly onLine: (line: string) => void;
  /** It runs, for the first time or again. */
  readonly onStart?: () => void;
  /** It does not, and why; it will be started again. */
  readonly onGone: (problem: string) => void;
}

export interface HeldProcess {
  /** Undefined: it runs; else what came of its last start. Waits where it is about to be started again. */
  problem(): Promise<string | undefined>;
  /** Lost where it does not run. */
  write(line: string): void;
  stop(): Promise<void>;
}

const firstPauseMs = 250;
const longestPauseMs = 30_000;
/** A pause so short is waited for by whoever wants something of the process meanwhile. */
const shortPauseMs = 1_000;
/** One that has run for so long is started again at once. */
const steadyMs = 60_000;
/** From the end of its input to SIGTERM, and from there to the end of the process. */
const goodbyeMs = 2_000;
const termMs = 500;
/** In the environment of whatever descends from a process, so that it can be found. */
const mark = "TOOLYARD_HELD_PROCESS";

export function startHeldProcess(options: HeldProcessOptions): HeldProcess {
  return new Held(options);
}

class Held implements HeldProcess {
  readonly #options: HeldProcessOptions;
  readonly #id = randomUUID();
  #child: ChildProcess | undefined;
  #home: string | undefined;
  #startedAt = 0;
  #pauseMs = firstPauseMs;
  #timer: NodeJS.Timeout | undefined;
  /** Lets those go that wait for the end of a pause. */
  #endPause: () => void = () => undefined;
  #isStopping = false;
  #problem = "it has not been started yet";
  #ready: Promise<void>;

  constructor(options: HeldProcessOptions) {
    this.#options = options;
    this.#ready = this.#start();
  }

  async problem(): Promise<string | undefined> {
    await this.#ready;
    return this.#child === undefined || this.#isStopping ? this.#problem : undefined;
  }

  write(line: string): void {
    this.#child?.stdin?.write(`${line}\n`);
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#timer);
    this.#endPause();
    await this.#ready;
    const child = this.#child;
    if (child !== undefined) {
      const ended = new Promise<void>((done) => child.once("close", () => done()));
      child.stdin?.end();
      const asking = setTimeout(() => killGroup(child, "SIGTERM"), goodbyeMs);
      const killing = setTimeout(() => killGroup(child, "SIGKILL"), goodbyeMs + termMs);
      // One that has left the group may hold the pipes open.
      child.once("exit", () => void endMarkedProcesses(mark, this.#id));
      await ended;
      clearTimeout(asking);
      clearTimeout(killing);
    }
    await endMarkedProcesses(mark, this.#id);
    if (this.#home !== undefined) await removeTree(this.#home).catch(() => undefined);
  }

  async #start(): Promise<void> {
    const { command, directory, path, name, log, maxLineBytes, onStart } = this.#options;
    const [first, ...rest] = command;
    // What is said of a start must not show what the environment holds, as the system's own words would.
    if ([...command, ...Object.entries(this.#options.environment).flat()].some((word) => word.includes("\0"))) {
      this.#gone("its command and its environment cannot hold a byte 0");
      return;
    }
    const program = findProgram(first, path, directory);
    if (program === undefined) {
      this.#gone(`the program '${first}' was not found, or cannot be executed`);
      return;
    }
    // The system ends it should we be killed.
    const endWithUs = findProgram("setpriv", path, directory);
    const words = [...(endWithUs === undefined ? [] : [endWithUs, "--pdeathsig", "KILL", "--"]), program, ...rest];
    let child: ChildProcess;
    try {
      const env = await this.#environment();
      child = spawn(words[0] ?? program, words.slice(1), {
        cwd: directory,
        detached: true,
        env,
        stdio: ["pipe", "pipe", "pipe"],
      });
    } catch (cause) {
      // Thrown before anything ran: too long an environment, or no room for its directory.
      this.#gone(`the program '${first}' could not be started: ${reasonOf(cause)}`);
      return;
    }
    this.#child = child;
    this.#startedAt = performance.now();
    for (const stream of child.stdio) stream?.on("error", () => undefined);
    child.stdout?.on(
      "data",
      splitLines(
        maxLineBytes,
        (line) => this.#give(child, line),
        () => killGroup(child, "SIGKILL"),
      ),
    );
    child.stderr?.on("data", (part: Buffer) => {
      log.log("debug", "a held program has written", { tool: name, reason: part.toString("utf8", 0, 2_000) });
    });
    child.once("error", () => undefined);
    child.once("exit", () => {
      // What it has started may live on.
      killGroup(child, "SIGKILL");
      void endMarkedProcesses(mark, this.#id);
    });
    child.once("close", (code, signal) => {
      this.#gone(`it ended with ${signal === null ? `exit code ${String(code)}` : signal}`);
    });
    rememberGroup(child);
    log.log("info", "a held program was started", { tool: name });
    onStart?.();
  }

  /** What cannot be taken ends the program that said it, and not its holder with all that it holds. */
  #give(child: ChildProcess, line: string): void {
    const { name, log, onLine } = this.#options;
    try {
      onLine(line);
    } catch (thrown) {
      // The frames, since it is a mistake of ours; its message may hold what the program said.
      const at = thrown instanceof Error ? (thrown.stack ?? "").match(/^\s+at .*$/m)?.[0].trim() : undefined;
      log.log("error", "what a held program said could not be taken", {
        tool: name,
        error: thrown instanceof Error ? thrown.name : typeof thrown,
        ...(at === undefined ? {} : { at }),
      });
      killGroup(child, "SIGKILL");
    }
  }

  async #environment(): Promise<Record<string, string>> {
    const { environment, path, hasHome = false } = this.#options;
    if (hasHome) this.#home ??= await mkdtemp(await ownDirectory("held"));
    const home = this.#home === undefined ? {} : { HOME: this.#home, TMPDIR: this.#home };
    return { ...home, ...environment, PATH: path, LANG: "C.UTF-8", [mark]: this.#id };
  }

  #gone(problem: string): void {
    const { name, log, onGone } = this.#options;
    this.#child = undefined;
    this.#problem = problem;
    onGone(problem);
    if (this.#isStopping) return;
    if (this.#startedAt > 0 && performance.now() - this.#startedAt > steadyMs) this.#pauseMs = firstPauseMs;
    log.log("warn", "a held program is not running and will be started again", {
      tool: name,
      reason: problem,
      duration_ms: this.#pauseMs,
    });
    const { promise: started, resolve } = Promise.withResolvers<void>();
    this.#endPause = resolve;
    if (this.#pauseMs <= shortPauseMs) this.#ready = started;
    this.#timer = setTimeout(() => {
      this.#ready = this.#start();
      resolve(this.#ready);
    }, this.#pauseMs);
    this.#pauseMs = Math.min(longestPauseMs, this.#pauseMs * 2);
  }
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error && "code" in cause ? String(cause.code) : "unknown reason";
}

/** Whole lines of what comes in parts; a line beyond the bound is `tooLong`, and nothing is read after it. */
function splitLines(most: number, give: (line: string) => void, tooLong: () => void): (part: Buffer) => void {
  let parts: Buffer[] = [];
  let kept = 0;
  let isOver = false;
  const isTooLong = (): boolean => {
    if (kept <= most) return false;
    isOver = true;
    parts = [];
    tooLong();
    return true;
  };
  const keep = (part: Buffer): void => {
    parts.push(part);
    kept += part.byteLength;
  };
  return (part) => {
    if (isOver) return;
    let rest = part;
    for (let at = rest.indexOf(0x0a); at >= 0; at = rest.indexOf(0x0a)) {
      keep(rest.subarray(0, at));
      if (isTooLong()) return;
      give(Buffer.concat(parts).toString("utf8"));
      parts = [];
      kept = 0;
      rest = rest.subarray(at + 1);
    }
    keep(rest);
    isTooLong();
  };
}

function killGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch {
    // The whole group has ended.
  }
}

// When this process ends, whatever still runs ends with it.
const groups = new Set<ChildProcess>();
let endsGroups = false;

function rememberGroup(child: ChildProcess): void {
  if (!endsGroups) {
    endsGroups = true;
    process.on("exit", () => groups.forEach((each) => killGroup(each, "SIGKILL")));
  }
  groups.add(child);
  child.once("close", () => groups.delete(child));
}
