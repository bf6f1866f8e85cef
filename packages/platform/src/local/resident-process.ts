/**
 * A program that is held for as long as its holder lives: one JSON request a line in, one JSON answer a line
 * out, matched by `id`, in any order. When it dies it is started again with growing pauses; who waited learns
 * that there will be no answer. Contract of the lines: docs/nodes.md.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "@toolyard/core/json";
import type { Log } from "@toolyard/core/ports/log";
import { findProgram } from "./plugin-wall.ts";

export interface ResidentOptions {
  readonly name: string;
  readonly command: readonly [string, ...string[]];
  readonly directory: string;
  /** On which programs are found. */
  readonly path: string;
  /** The whole environment beside PATH and LANG. */
  readonly environment: Readonly<Record<string, string>>;
  readonly maxLineBytes: number;
  readonly log: Log;
}

export type ResidentAnswer =
  | { readonly kind: "answered"; readonly result: JsonValue }
  | { readonly kind: "refused"; readonly message: string }
  /** It ended, or could not be started, before it had answered. */
  | { readonly kind: "lost"; readonly message: string }
  /** Nothing was sent. */
  | { readonly kind: "not_running"; readonly message: string }
  | { readonly kind: "aborted" };

export interface ResidentProcess {
  ask(request: { readonly id: string; readonly arguments: JsonObject }, signal: AbortSignal): Promise<ResidentAnswer>;
  stop(): Promise<void>;
}

const firstPauseMs = 250;
const longestPauseMs = 30_000;
/** One that has run for so long is started again at once. */
const steadyMs = 60_000;
/** From the end of its input to the end of the process. */
const goodbyeMs = 2_000;

export function startResidentProcess(options: ResidentOptions): ResidentProcess {
  return new Resident(options);
}

interface Waiting {
  readonly give: (answer: ResidentAnswer) => void;
}

class Resident implements ResidentProcess {
  readonly #options: ResidentOptions;
  readonly #waiting = new Map<string, Waiting>();
  #child: ChildProcess | undefined;
  #startedAt = 0;
  #pauseMs = firstPauseMs;
  #timer: NodeJS.Timeout | undefined;
  #isStopping = false;
  /** What came of the last start, for those who ask while it is away. */
  #problem = "it has not been started yet";
  #ready: Promise<void>;

  constructor(options: ResidentOptions) {
    this.#options = options;
    this.#ready = this.#start();
  }

  async ask(
    { id, arguments: args }: { readonly id: string; readonly arguments: JsonObject },
    signal: AbortSignal,
  ): Promise<ResidentAnswer> {
    await this.#ready;
    const stdin = this.#child?.stdin;
    if (stdin === undefined || stdin === null || this.#isStopping) {
      return { kind: "not_running", message: `'${this.#options.name}' is not running: ${this.#problem}` };
    }
    if (signal.aborted) return { kind: "aborted" };
    return new Promise((resolve) => {
      const give = (answer: ResidentAnswer): void => {
        this.#waiting.delete(id);
        signal.removeEventListener("abort", abort);
        resolve(answer);
      };
      const abort = (): void => {
        this.#write({ cancel: id });
        give({ kind: "aborted" });
      };
      signal.addEventListener("abort", abort);
      this.#waiting.set(id, { give });
      this.#write({ id, arguments: args });
    });
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#timer);
    await this.#ready;
    const child = this.#child;
    if (child === undefined) return;
    const ended = new Promise<void>((done) => child.once("close", () => done()));
    child.stdin?.end();
    const timer = setTimeout(() => killGroup(child), goodbyeMs);
    await ended;
    clearTimeout(timer);
  }

  #write(line: JsonObject): void {
    this.#child?.stdin?.write(`${JSON.stringify(line)}\n`);
  }

  async #start(): Promise<void> {
    const { command, directory, path, environment, name, log } = this.#options;
    const [first, ...rest] = command;
    const program = findProgram(first, path, directory);
    if (program === undefined) {
      this.#gone(`the program '${first}' was not found, or cannot be executed`);
      return;
    }
    // The system ends it should we be killed.
    const endWithUs = findProgram("setpriv", path, directory);
    const words = [...(endWithUs === undefined ? [] : [endWithUs, "--pdeathsig", "KILL", "--"]), program, ...rest];
    const child = spawn(words[0] ?? program, words.slice(1), {
      cwd: directory,
      detached: true,
      env: { ...environment, PATH: path, LANG: "C.UTF-8" },
      stdio: ["pipe", "pipe", "pipe"],
    });
    this.#child = child;
    this.#startedAt = performance.now();
    for (const stream of child.stdio) stream?.on("error", () => undefined);
    const lines = splitLines(
      this.#options.maxLineBytes,
      (line) => this.#receive(line),
      () => killGroup(child),
    );
    child.stdout?.on("data", lines);
    child.stderr?.on("data", (part: Buffer) => {
      log.log("debug", "a resident program has written", { tool: name, reason: part.toString("utf8", 0, 2_000) });
    });
    child.once("error", () => undefined);
    child.once("close", (code, signal) => {
      // What it has started may live on.
      killGroup(child);
      this.#gone(`it ended with ${signal === null ? `exit code ${String(code)}` : signal}`);
    });
    log.log("info", "a resident program was started", { tool: name });
  }

  #receive(line: string): void {
    const answer = parseJson(line);
    const id = isJsonObject(answer) ? answer["id"] : undefined;
    if (!isJsonObject(answer) || typeof id !== "string") {
      this.#options.log.log("warn", "a resident program wrote a line that is no answer", { tool: this.#options.name });
      return;
    }
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return;
    const error = answer["error"];
    if (error !== undefined && error !== null) {
      waiting.give({ kind: "refused", message: typeof error === "string" ? error : JSON.stringify(error) });
    } else {
      waiting.give({ kind: "answered", result: answer["result"] ?? null });
    }
  }

  #gone(problem: string): void {
    const { name, log } = this.#options;
    this.#child = undefined;
    this.#problem = problem;
    for (const { give } of this.#waiting.values()) give({ kind: "lost", message: problem });
    if (this.#isStopping) return;
    if (this.#startedAt > 0 && performance.now() - this.#startedAt > steadyMs) this.#pauseMs = firstPauseMs;
    log.log("warn", "a resident program is not running and will be started again", {
      tool: name,
      reason: problem,
      duration_ms: this.#pauseMs,
    });
    this.#timer = setTimeout(() => {
      this.#ready = this.#start();
    }, this.#pauseMs);
    this.#pauseMs = Math.min(longestPauseMs, this.#pauseMs * 2);
  }
}

/** Whole lines of what comes in parts; a line beyond the bound is `tooLong`. */
function splitLines(most: number, give: (line: string) => void, tooLong: () => void): (part: Buffer) => void {
  let parts: Buffer[] = [];
  let kept = 0;
  return (part) => {
    let rest = part;
    for (let at = rest.indexOf(0x0a); at >= 0; at = rest.indexOf(0x0a)) {
      give(Buffer.concat([...parts, rest.subarray(0, at)]).toString("utf8"));
      parts = [];
      kept = 0;
      rest = rest.subarray(at + 1);
    }
    if (rest.byteLength === 0) return;
    parts.push(rest);
    kept += rest.byteLength;
    if (kept > most) tooLong();
  };
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // The whole group has ended.
  }
}
