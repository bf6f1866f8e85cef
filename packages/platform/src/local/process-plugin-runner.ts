/**
 * Plugin processes on this machine (plugin execution over stdio). A process gets a fresh directory as
 * its home and working directory, the environment it was given and nothing of ours, limits on time,
 * output, memory and file size, and a process group that is killed on every way out: whatever a
 * plugin does, the call ends in time and leaves no process and no file behind.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { dirname, isAbsolute, join } from "node:path";
import { Writable } from "node:stream";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { decodeMessages, isAnswerTo } from "@toolyard/core/mcp/json-rpc";
import { Lines } from "@toolyard/core/mcp/lines";
import type { Log } from "@toolyard/core/ports/log";
import type { PluginExit, PluginRun, PluginRunner } from "@toolyard/core/ports/plugin-runner";
import { FirstAnswer } from "@toolyard/core/vcp/async/first-answer";
import { endEscapedProcesses } from "./escaped-processes.ts";
import type { Interpreter, Interpreters } from "./interpreters.ts";
import { readLeftFiles } from "./left-files.ts";
import { ownDirectory } from "./own-directories.ts";
import { keepHead, keepTail } from "./plugin-output.ts";
import { findProgram, wallOptions, type PluginWall } from "./plugin-wall.ts";
import { removeTree } from "./remove-tree.ts";

export interface ProcessPluginRunnerOptions {
  /** PATH of plugins, on which their programs are found. */
  readonly path: string;
  /** Cap on a process's data. Node reserves some 600 MB of it without using them. Default 2 GiB. */
  readonly memoryBytes?: number;
  /** Absent: plugins run with the rights of our user. */
  readonly wall?: PluginWall;
  /** A program with its arguments that closes something to itself and becomes what follows. */
  readonly before?: readonly string[];
  /** Cap on each file. Default: a gigabyte. */
  readonly fileBytes?: number;
  /** Where `python`, `python3` and `node` are; absent: on the PATH. */
  readonly interpreters?: Interpreters;
  /** Cap on processes and threads of the whole user; only where no one else is that user. */
  readonly maxProcesses?: number;
  /** Where fresh directories are made; default: the system's. */
  readonly temporaryDirectory?: string;
  /** Ends what left the plugin's process group. Default: what came after it and carries its directory as HOME. */
  readonly endEscaped?: (directory: string, since: number | undefined) => Promise<void>;
  readonly log?: Log;
  /**
   * This process has the limits itself (`limitedProcess`), and who it is started by ends what it leaves behind: plugins
   * without a wall begin at once then, instead of by way of two other programs.
   */
  readonly isLimited?: boolean;
  /**
   * Told of where something is about to be started, and again of what has been, for whoever has to put things right
   * should this process be lost: a plugin may be the one who ends it.
   */
  readonly onStart?: (place: StartedPlace) => void;
}

export interface StartedPlace {
  readonly directory: string;
  /** Of the process, and of its group; absent: it is not known yet. */
  readonly pid?: number;
}

const maxStderrBytes = 64 * 1024;
const usualFileBytes = 1024 ** 3;
/** Of `ulimit -f`, for the shells of POSIX; one that counts in kilobytes allows twice as much. */
const fileBlock = 512;
/** How long a server that has answered may take to leave once its input has ended. */
const leavingMs = 1_000;
/** How long an output may stay open after its process has ended and its group was killed. */
const drainMs = 500;

// The shell sets limits on itself and becomes the plugin. A limit the system does not know is left out.
// Where memory runs out, the plugin is to go before we are.
const limitAndRun = `
  until [ "$1" = -- ]; do ulimit $1 2>/dev/null || :; shift; done
  { echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null || :
  shift; exec "$@"`;

export function createProcessPluginRunner(options: ProcessPluginRunnerOptions): PluginRunner {
  return {
    async run(run) {
      const started = performance.now();
      let directory: string;
      try {
        // Without links: a plugin that compares its HOME with its working directory finds them equal.
        directory = mkdtempSync(await ownDirectory("plugin", options.temporaryDirectory));
      } catch (cause) {
        const why = `No directory could be made for it where temporary files go (TMPDIR): ${reasonOf(cause)}`;
        return { ...notStarted("spawn", why), durationMs: 0 };
      }
      const place: Place = { directory, pid: undefined };
      try {
        const work = workIn(directory, run);
        if (work !== directory) mkdirSync(work, { mode: 0o700 });
        await layFiles(work, run.files ?? []);
        const ended = await runIn(place, run, options);
        const exit = {
          ...ended,
          durationMs: Math.round(performance.now() - started),
          ...(await leftOf(place, run, options)),
        };
        run.onExit?.(exit);
        return exit;
      } finally {
        await cleanUp(place, options);
      }
    },
  };
}

type Exit = Omit<PluginExit, "durationMs" | "left">;

/** Where confined code works; its home is the directory above, so that what programs keep there is none of its files. */
function workIn(directory: string, { confined }: Pick<PluginRun, "confined">): string {
  return confined === undefined ? directory : join(directory, "work");
}

async function leftOf(
  place: Place,
  run: PluginRun,
  options: ProcessPluginRunnerOptions,
): Promise<Pick<PluginExit, "left">> {
  const { confined, files = [] } = run;
  if (confined === undefined) return {};
  // Nobody may change a file into a link between our look at it and our reading.
  await endEscaped(place, options);
  return { left: readLeftFiles(workIn(place.directory, run), { laid: files, ...confined }) };
}

/** Of one call. */
interface Place {
  readonly directory: string;
  /** Once something has been started there. */
  pid: number | undefined;
}

async function runIn(place: Place, run: PluginRun, options: ProcessPluginRunnerOptions): Promise<Exit> {
  const { directory } = place;
  const [name] = run.command;
  // Also: words travel to the wall with a byte 0 between them.
  if ([...run.command, ...Object.entries(run.environment).flat()].some((word) => word.includes("\0"))) {
    return notStarted("spawn", "The command and the environment of a plugin cannot hold a byte 0.");
  }
  const interpreter = await options.interpreters?.find(name);
  const program = interpreter?.program ?? findProgram(name, options.path, directory);
  if (program === undefined) {
    return notStarted("spawn", `The program "${name}" was not found on the plugins' PATH, or cannot be executed.`);
  }
  const endWithUs = findProgram("setpriv", options.path, directory);
  if (run.signal?.aborted === true) return notStarted("aborted", "");
  options.onStart?.({ directory });
  try {
    const child = start({ directory, program, endWithUs, run, options: withPlaces(options, interpreter) });
    place.pid = child.pid;
    if (child.pid !== undefined) options.onStart?.({ directory, pid: child.pid });
    return await watch(child, run, () => endEscaped(place, options));
  } catch (cause) {
    // Thrown before anything ran: too long a command, for example.
    return notStarted("spawn", `The program "${name}" could not be started: ${reasonOf(cause)}`);
  }
}

/** The wall shows what the interpreter is made of, too. */
function withPlaces(
  options: ProcessPluginRunnerOptions,
  interpreter: Interpreter | undefined,
): ProcessPluginRunnerOptions {
  const { wall } = options;
  if (wall === undefined || interpreter === undefined || interpreter.readOnly.length === 0) return options;
  return { ...options, wall: { ...wall, readOnly: [...(wall.readOnly ?? []), ...interpreter.readOnly] } };
}

function start(to: {
  readonly directory: string;
  readonly program: string;
  /** `setpriv`, where there is one: the system ends the plugin should we be killed, and gives it no rights by setuid. */
  readonly endWithUs: string | undefined;
  readonly run: PluginRun;
  readonly options: ProcessPluginRunnerOptions;
}): ChildProcess {
  const { directory, program, run, options } = to;
  const { wall } = options;
  const ours = { PATH: options.path, HOME: directory, TMPDIR: directory, LANG: "C.UTF-8" };
  const told = Object.fromEntries((run.directoryVariables ?? []).map((name) => [name, directory]));
  const environment = { ...run.environment, ...told, ...ours };
  const isReady = options.isLimited === true && wall === undefined;
  const words = [
    isReady ? [] : limiter(to.endWithUs, run, options),
    wall === undefined ? [] : [wall.program, "--args", "3", "--"],
    options.before ?? [],
    [program, ...run.command.slice(1)],
  ].flat();
  const [first = "/bin/sh", ...rest] = words;
  const child = spawn(first, rest, {
    cwd: workIn(directory, run),
    detached: true,
    env: wall === undefined ? environment : ours,
    stdio: ["pipe", "pipe", "pipe", ...(wall === undefined ? [] : ["pipe" as const])],
  });
  const wallInput = child.stdio[3];
  if (wall !== undefined && wallInput instanceof Writable) {
    wallInput.end(
      wallOptions(wall, directory, program, environment)
        .map((word) => `${word}\0`)
        .join(""),
    );
  }
  return child;
}

/** What stands before a plugin: the end with ours, and the limits. */
function limiter(
  endWithUs: string | undefined,
  run: PluginRun,
  options: ProcessPluginRunnerOptions,
): readonly string[] {
  return [
    ...(endWithUs === undefined ? [] : [endWithUs, "--no-new-privs", "--pdeathsig", "KILL", "--"]),
    "/bin/sh",
    "-c",
    limitAndRun,
    "plugin",
    ...limitsOf(run, options),
    "--",
  ];
}

/** A program that is to be a runner with `isLimited`, as it is started. */
export function limitedProcess(path: string): readonly [string, ...string[]] {
  const setpriv = findProgram("setpriv", path, "/");
  return [
    ...(["/bin/sh", "-c", limitAndRun, "plugins"] as const),
    ...inheritableLimits({}),
    "--",
    ...(setpriv === undefined ? [] : [setpriv, "--no-new-privs", "--"]),
  ];
}

function inheritableLimits({
  memoryBytes = 2 * 1024 ** 3,
  fileBytes = usualFileBytes,
}: Pick<ProcessPluginRunnerOptions, "memoryBytes" | "fileBytes">): readonly string[] {
  return ["-c 0", `-d ${Math.ceil(memoryBytes / 1024)}`, `-f ${Math.ceil(fileBytes / fileBlock)}`];
}

/** What `ulimit` is to be told. */
function limitsOf(run: PluginRun, options: ProcessPluginRunnerOptions): readonly string[] {
  const { maxProcesses } = options;
  const cpuSeconds = Math.ceil((run.timeoutMs / 1000) * availableParallelism()) + 1;
  const limits = [`-t ${cpuSeconds}`, ...inheritableLimits(options)];
  // Shells disagree on the letter; the wrong one is refused.
  return maxProcesses === undefined ? limits : [...limits, `-u ${maxProcesses}`, `-p ${maxProcesses}`];
}

/** Feeds the process, collects what it says and ends it when its time, its output or its caller ends. */
function watch(child: ChildProcess, run: PluginRun, endEscapedOnes: () => Promise<void>): Promise<Exit> {
  return new Promise((resolve) => {
    let ended: PluginExit["ended"] = "exit";
    let failure: string | undefined;
    const closePipes = (): void => child.stdio.forEach((stream) => stream?.destroy());
    const end = (why: PluginExit["ended"]): void => {
      // What happened first is what is told.
      if (ended === "exit" && child.exitCode === null && child.signalCode === null) ended = why;
      killGroup(child);
    };
    const full = (): void => {
      end("output");
      child.stdout?.destroy();
    };
    const answer = awaitAnswer(run, () => end("timeout"));
    const input = new Input(child, run);
    const stdout = keepHead(run.maxOutputBytes, full, (part) => {
      answer.hear(part);
      input.hear(part);
    });
    const stderr = keepTail(maxStderrBytes);
    child.stdout?.on("data", (part: Buffer) => {
      if (!answer.isThere()) stdout.add(part);
    });
    child.stderr?.on("data", stderr.add);
    // A plugin may end before it has read its input; that is its own affair.
    for (const stream of child.stdio) stream?.on("error", () => undefined);
    input.begin();

    const timer = setTimeout(() => end("timeout"), run.timeoutMs);
    const abort = (): void => end("aborted");
    run.signal?.addEventListener("abort", abort);
    rememberGroup(child);

    let drain: NodeJS.Timeout | undefined;
    child.on("exit", () => {
      // Its children die with it. One that left the group may still hold the pipes open.
      killGroup(child);
      drain = setTimeout(() => void endEscapedOnes().then(closePipes, closePipes), drainMs);
    });
    child.on("error", (cause) => {
      ended = "spawn";
      failure = `The program could not be started: ${reasonOf(cause)}`;
      closePipes();
    });
    child.on("close", () => {
      clearTimeout(timer);
      clearTimeout(drain);
      input.stop();
      answer.stop();
      run.signal?.removeEventListener("abort", abort);
      groups.delete(child);
      const exitCode = ended === "exit" ? child.exitCode : null;
      resolve({ stdout: stdout.text(), stderr: failure ?? stderr.text(), exitCode, ended });
    });
  });
}

/** What a process is told: all at once, or with an end that waits for the answer. */
class Input {
  readonly #child: ChildProcess;
  readonly #run: PluginRun;
  readonly #lines = new Lines();
  #leaving: NodeJS.Timeout | undefined;

  constructor(child: ChildProcess, run: PluginRun) {
    this.#child = child;
    this.#run = run;
  }

  begin(): void {
    const { stdin, answersId } = this.#run;
    if (answersId === undefined) this.#child.stdin?.end(stdin);
    else this.#child.stdin?.write(stdin);
  }

  hear(part: string): void {
    const { answersId } = this.#run;
    if (answersId === undefined || this.#leaving !== undefined) return;
    // Programs write much that is no message.
    const messages = this.#lines
      .feed(part)
      .filter((line) => line.includes('"id"'))
      .flatMap(decodeMessages);
    if (!messages.some((message) => isAnswerTo(message, answersId))) return;
    this.#leaving = setTimeout(() => killGroup(this.#child), leavingMs);
    this.#child.stdin?.end();
  }

  stop(): void {
    clearTimeout(this.#leaving);
  }
}

interface AwaitedAnswer {
  readonly hear: (part: string) => void;
  /** Nobody is interested in what comes now. */
  readonly isThere: () => boolean;
  readonly stop: () => void;
}

/** Of a plugin that answers first and works on; of others all that they say is the answer. */
function awaitAnswer({ answerWithinMs, onStdout }: PluginRun, onLate: () => void): AwaitedAnswer {
  if (answerWithinMs === undefined) {
    return { hear: (part) => onStdout?.(part), isThere: () => false, stop: () => undefined };
  }
  const first = new FirstAnswer();
  const timer = setTimeout(onLate, answerWithinMs);
  return {
    hear(part) {
      if (first.add(part) !== undefined) clearTimeout(timer);
      onStdout?.(part);
    },
    isThere: () => first.found !== undefined,
    stop: () => clearTimeout(timer),
  };
}

function notStarted(ended: "aborted" | "spawn", stderr: string): Exit {
  return { stdout: "", stderr, exitCode: null, ended };
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error && "code" in cause ? String(cause.code) : "unknown reason";
}

function killGroup({ pid }: Pick<ChildProcess, "pid">): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // The whole group has ended.
  }
}

/** What is left of a run whose runner is gone. */
export async function endAbandoned({ directory, pid }: StartedPlace): Promise<void> {
  killGroup({ pid });
  await endEscapedProcesses(directory, pid);
  await removeTree(directory);
}

// Groups that live now. When this process ends, whatever still runs ends with it.
const groups = new Set<ChildProcess>();
let endsGroups = false;

function rememberGroup(child: ChildProcess): void {
  if (!endsGroups) {
    endsGroups = true;
    process.on("exit", () => groups.forEach(killGroup));
  }
  groups.add(child);
}

const smallFile = 65_536;

/** @throws GatewayError `invalid_definition` for a path that would leave the directory or is taken */
async function layFiles(directory: string, files: NonNullable<PluginRun["files"]>): Promise<void> {
  for (const { path, body } of files) {
    const steps = path.split("/");
    if (isAbsolute(path) || /[\\\0]/.test(path) || steps.some((step) => step === "" || step === "." || step === "..")) {
      throw new GatewayError("invalid_definition", `The plugin file "${path}" must be a relative path without "..".`, {
        param: "files",
      });
    }
    const target = join(directory, ...steps);
    try {
      if (steps.length > 1) await mkdir(dirname(target), { recursive: true, mode: 0o700 });
      // Small ones at once: a way through the threads takes ten times as long.
      if (body.byteLength <= smallFile) writeFileSync(target, body, { flag: "wx", mode: 0o700 });
      else await writeFile(target, body, { flag: "wx", mode: 0o700 });
    } catch (cause) {
      throw new GatewayError("invalid_definition", `The plugin file "${path}" cannot be laid down beside the others.`, {
        param: "files",
        cause,
      });
    }
  }
}

function endEscaped({ directory, pid }: Place, options: ProcessPluginRunnerOptions): Promise<void> {
  return (options.endEscaped ?? endEscapedProcesses)(directory, pid);
}

async function cleanUp(place: Place, options: ProcessPluginRunnerOptions): Promise<void> {
  const { directory } = place;
  try {
    await endEscaped(place, options);
    await removeTree(directory);
  } catch (cause) {
    // The call has its answer; a left-over directory is the operator's to see.
    options.log?.log("warn", "The directory of a plugin call could not be removed.", {
      directory,
      reason: reasonOf(cause),
    });
  }
}
