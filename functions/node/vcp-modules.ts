/**
 * Modules of VCP plugins that a node holds (VCP-7): a process for each, started when the gateway says that this node
 * is to hold it, given the plugin's files and values, and ended when the gateway says otherwise or has not been heard
 * of for the length of the lease.
 */
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { isJsonObject, type JsonObject, type JsonValue } from "@toolyard/core/json";
import { moduleAnswerType } from "@toolyard/core/nodes/node";
import type { Log } from "@toolyard/core/ports/log";
import { moduleRunSchema, type ModuleRunAnswer, type ModuleRunWire } from "@toolyard/core/vcp/modules/node-wire";
import { faultSchema, linesOf, toldSchema } from "@toolyard/core/vcp/modules/read-answers";
import type { ModuleReport } from "@toolyard/core/vcp/modules/reports";
import type { Fault, HeldQuestion, Told } from "@toolyard/core/vcp/modules/wire";
import { startHeldProcess, type HeldProcess } from "@toolyard/platform/local/held-process";
import { ownDirectory } from "@toolyard/platform/local/own-directories";
import { ended, type Executed, type Execution } from "./executor.ts";
import { nodeIsOlder } from "./frames.ts";
import { messageOf } from "./message-of.ts";
import type { ModuleDesk, OpenedModule } from "./module-desk.ts";
import { layModule, type ModulePlace } from "./module-files.ts";

export interface VcpModulesOptions {
  /** Where modules and what they keep lie; undefined: in a directory that goes with this process. */
  readonly directory: string | undefined;
  /** With packages that modules may require; undefined: only what they bring. */
  readonly packages: string | undefined;
  /** On which programs are found that modules start. */
  readonly path: string;
  readonly log: Log;
  readonly desk: ModuleDesk;
}

/** Beside the time of a question. */
const stuckMs = 2_000;
const closingMs = 2_000;
/** Before what could not be opened is opened again. */
const firstPauseMs = 1_000;
const longestPauseMs = 300_000;

interface Known {
  readonly fingerprint: string;
  /** Undefined: what it is made of could not be had. */
  readonly held: Promise<HeldModule | undefined>;
  report: ModuleReport;
  /** The gateway has the report. */
  isTold: boolean;
  /** What it waited the last time. */
  readonly pauseMs: number;
  /** It could not be opened, and is opened again then; by `performance.now()`. */
  againAt: number;
}

export class VcpModules {
  readonly #options: VcpModulesOptions;
  readonly #known = new Map<string, Known>();
  readonly #ending = new Set<Promise<void>>();
  #refreshing: Promise<void> | undefined;
  #isAskedAgain = false;
  #isStopping = false;
  #lease: NodeJS.Timeout | undefined;
  /** Of modules that have no other; made with the first of them. */
  #temporary: Promise<string> | undefined;

  constructor(options: VcpModulesOptions) {
    this.#options = options;
  }

  async execute({ arguments: args, signal }: Pick<Execution, "arguments" | "signal">): Promise<Executed> {
    const parsed = moduleRunSchema.safeParse(args);
    if (!parsed.success) return ended("declined", nodeIsOlder);
    const { plugin, fingerprint } = parsed.data;
    if (this.#known.get(plugin)?.fingerprint !== fingerprint) await this.refresh();
    const held = await this.#known.get(plugin)?.held;
    if (held === undefined) return ended("declined", `this node does not hold the module of '${plugin}'`);
    return held.answer(parsed.data, signal);
  }

  /** Asks the gateway what is to be held, and sees to it. One after the other, however often it is called. */
  async refresh(): Promise<void> {
    if (this.#refreshing !== undefined) {
      // What is asked for now may have come after that was answered.
      this.#isAskedAgain = true;
      return this.#refreshing;
    }
    this.#refreshing = this.#refreshUntilQuiet().finally(() => (this.#refreshing = undefined));
    return this.#refreshing;
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#lease);
    for (const plugin of this.#known.keys()) this.#release(plugin);
    await Promise.all(this.#ending);
    const temporary = await this.#temporary?.catch(() => undefined);
    if (temporary !== undefined) await rm(temporary, { recursive: true, force: true });
  }

  async #refreshUntilQuiet(): Promise<void> {
    do {
      this.#isAskedAgain = false;
      await this.#refreshOnce();
    } while (this.#isAskedAgain && !this.#isStopping);
  }

  async #refreshOnce(): Promise<void> {
    const { desk, log } = this.#options;
    const reporting = [...this.#known.values()].filter(({ isTold }) => !isTold);
    const reports = reporting.map(({ report }) => report);
    try {
      const answer = await desk.hold(reports);
      if (answer === undefined || this.#isStopping) return;
      for (const [at, known] of reporting.entries()) known.isTold = known.report === reports[at];
      this.#renew(answer.leaseMs);
      const wanted = new Map(answer.modules.map(({ plugin, fingerprint }) => [plugin, fingerprint]));
      for (const [plugin, { fingerprint }] of this.#known)
        if (wanted.get(plugin) !== fingerprint) this.#release(plugin);
      for (const [plugin, fingerprint] of wanted) {
        const known = this.#known.get(plugin);
        if (known === undefined || known.againAt <= performance.now()) this.#hold(plugin, fingerprint, known?.pauseMs);
      }
    } catch (thrown) {
      log.log("warn", "the gateway did not say which modules this node is to hold", { reason: messageOf(thrown) });
    }
  }

  /** Without a word of the gateway another node may hold them by then. */
  #renew(leaseMs: number): void {
    clearTimeout(this.#lease);
    this.#lease = setTimeout(() => {
      if (this.#known.size > 0) this.#options.log.log("warn", "the gateway is away; modules are ended", {});
      for (const plugin of this.#known.keys()) this.#release(plugin);
    }, leaseMs);
    this.#lease.unref();
  }

  #hold(plugin: string, fingerprint: string, paused = firstPauseMs / 2): void {
    const report: ModuleReport = { plugin, fingerprint, state: "starting", message: null };
    const held = this.#open(plugin, fingerprint);
    const pauseMs = Math.min(longestPauseMs, paused * 2);
    const known: Known = { fingerprint, held, report, isTold: false, pauseMs, againAt: Number.POSITIVE_INFINITY };
    this.#known.set(plugin, known);
  }

  async #open(plugin: string, fingerprint: string): Promise<HeldModule | undefined> {
    const { desk, directory, log } = this.#options;
    const tell = (state: ModuleReport["state"], message: string | null): void =>
      this.#tellState({ plugin, fingerprint, state, message: message?.slice(0, 2_000) ?? null });
    try {
      const opened = await desk.open(plugin);
      const place = await layModule(opened, {
        directory: directory ?? (await this.#temporaryDirectory()),
        download: (url) => desk.download(url),
      });
      return new HeldModule(opened, place, { ...this.#options, tell });
    } catch (thrown) {
      log.log("error", "a module cannot be held", { tool: plugin, reason: messageOf(thrown) });
      const known = this.#known.get(plugin);
      if (known?.fingerprint === fingerprint) known.againAt = performance.now() + known.pauseMs;
      tell("failed", messageOf(thrown));
      return undefined;
    }
  }

  #temporaryDirectory(): Promise<string> {
    const made = (this.#temporary ??= ownDirectory("modules").then((start) => mkdtemp(start)));
    // No room now: the next module is to try again.
    made.catch(() => (this.#temporary = undefined));
    return made;
  }

  #tellState(report: ModuleReport): void {
    const known = this.#known.get(report.plugin);
    if (known === undefined || known.fingerprint !== report.fingerprint) return;
    known.report = report;
    known.isTold = false;
    void this.refresh();
  }

  #release(plugin: string): void {
    const known = this.#known.get(plugin);
    if (known === undefined) return;
    this.#known.delete(plugin);
    const ending = known.held.then((held) => held?.stop()).finally(() => this.#ending.delete(ending));
    this.#ending.add(ending);
  }
}

interface HeldOptions extends VcpModulesOptions {
  readonly tell: (state: ModuleReport["state"], message: string | null) => void;
}

type Answered = JsonObject;

/** One module's process. */
class HeldModule {
  readonly #opened: OpenedModule;
  readonly #place: ModulePlace;
  readonly #options: HeldOptions;
  readonly #waiting = new Map<string, (answer: Answered | undefined) => void>();
  #process: HeldProcess;
  #word = "";
  /** What is wrong with it, once that is known. */
  #opening: Promise<Fault | undefined> = Promise.resolve(undefined);
  #inHand = 0;
  #isStopping = false;
  #whenIdle: (() => void) | undefined;

  constructor(opened: OpenedModule, place: ModulePlace, options: HeldOptions) {
    this.#opened = opened;
    this.#place = place;
    this.#options = options;
    this.#process = this.#start();
  }

  async answer({ ask, timeout_ms: timeoutMs }: ModuleRunWire, signal: AbortSignal): Promise<Executed> {
    this.#inHand += 1;
    try {
      const problem = await this.#process.problem();
      if (problem !== undefined) return ended("declined", `it is not running: ${problem}`);
      const fault = await this.#opening;
      if (fault !== undefined) return answered({ failed: fault });
      return await this.#ask({ ...ask, id: randomUUID(), timeoutMs }, signal);
    } finally {
      this.#inHand -= 1;
      if (this.#inHand === 0) this.#whenIdle?.();
    }
  }

  /** When it has nothing in hand, or will not come to an end. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    if (this.#inHand > 0) {
      const late = Promise.withResolvers<void>();
      this.#whenIdle = late.resolve;
      setTimeout(late.resolve, closingMs).unref();
      await late.promise;
    }
    await this.#send({ id: "close", kind: "close" }, closingMs);
    await this.#process.stop();
  }

  #start(): HeldProcess {
    const { path, log, packages } = this.#options;
    const { spec, maxBytes } = this.#opened;
    return startHeldProcess({
      name: spec.name,
      command: [process.execPath, this.#place.hostFile, "held"],
      directory: this.#place.projectDirectory,
      path,
      environment: { ...spec.environment, ...(packages === undefined ? {} : { NODE_PATH: packages }) },
      hasHome: true,
      // As base64, with room for what is around it.
      maxLineBytes: maxBytes * 2 + 65_536,
      log,
      onLine: (line) => this.#hear(line),
      onStart: () => this.#begin(),
      onGone: (problem) => this.#forget(problem),
    });
  }

  /** Every run of the process loads the module anew. */
  #begin(): void {
    this.#word = randomUUID();
    const { spec, maxBytes } = this.#opened;
    const { tell, log } = this.#options;
    const question = {
      id: "open",
      kind: "open",
      word: this.#word,
      plugin: spec,
      directory: this.#place.directory,
      maxBytes,
    };
    // Written when the process can take it, which is after this.
    this.#opening = Promise.resolve()
      .then(() => this.#send(question as HeldQuestion, undefined))
      .then((answer) => {
        const failed = faultSchema.safeParse(answer?.["failed"]);
        const fault = failed.success ? failed.data : undefined;
        if (fault !== undefined)
          log.log("error", "a module cannot be used", { tool: spec.name, reason: fault.message });
        if (answer !== undefined) tell(fault === undefined ? "running" : "failed", fault?.message ?? null);
        return fault;
      });
  }

  async #ask(question: Extract<HeldQuestion, { timeoutMs: number }>, signal: AbortSignal): Promise<Executed> {
    const gone = Promise.withResolvers<"aborted">();
    const leave = (): void => gone.resolve("aborted");
    signal.addEventListener("abort", leave, { once: true });
    if (signal.aborted) leave();
    const answering = this.#send(question, undefined);
    try {
      const answer = await Promise.race([answering, gone.promise, after(question.timeoutMs + stuckMs)]);
      if (answer === "aborted") {
        this.#write({ kind: "cancel", id: question.id });
        void this.#restartUnless(answering);
        return ended("cancelled", "it was stopped");
      }
      if (answer === "late") {
        await this.#restart();
        return ended("timed_out", `it did not answer within ${question.timeoutMs} ms and was started again`);
      }
      return answer === undefined ? ended("lost", "its process ended") : toExecuted(answer);
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  /** Whoever lives says something to what was cancelled. */
  async #restartUnless(answering: Promise<Answered | undefined>): Promise<void> {
    if ((await Promise.race([answering, after(stuckMs)])) === "late") await this.#restart();
  }

  async #restart(): Promise<void> {
    const stuck = this.#process;
    if (this.#isStopping) return;
    this.#options.log.log("warn", "a module does not react and is started again", { tool: this.#opened.plugin });
    await stuck.stop();
    if (this.#process === stuck) this.#process = this.#start();
  }

  /** @returns undefined where the process ended first, or the time */
  #send(question: HeldQuestion, withinMs: number | undefined): Promise<Answered | undefined> {
    return new Promise((give) => {
      this.#waiting.set(question.id, give);
      if (withinMs !== undefined) setTimeout(() => give(undefined), withinMs).unref();
      this.#write(question);
    });
  }

  #write(question: HeldQuestion): void {
    this.#process.write(JSON.stringify(question));
  }

  #hear(line: string): void {
    for (const answer of linesOf(line, this.#word)) {
      if (!isJsonObject(answer)) continue;
      const told = toldSchema.safeParse(answer["told"]);
      if (told.success) this.#tellWatchers(told.data);
      const { id } = answer;
      if (typeof id !== "string") continue;
      this.#waiting.get(id)?.(answer);
      this.#waiting.delete(id);
    }
  }

  #tellWatchers(told: Told): void {
    this.#options.desk.tell(told);
  }

  #forget(problem: string): void {
    if (!this.#isStopping) this.#options.tell("failed", problem);
    for (const give of this.#waiting.values()) give(undefined);
    this.#waiting.clear();
  }
}

function after(ms: number): Promise<"late"> {
  return new Promise((resolve) => {
    setTimeout(() => resolve("late"), ms).unref();
  });
}

function toExecuted(answer: Answered): Executed {
  const failed = faultSchema.safeParse(answer["failed"]);
  const result: JsonValue = answer["result"] ?? null;
  return answered(failed.success ? { failed: failed.data } : { result });
}

function answered(answer: ModuleRunAnswer): Executed {
  return { status: "completed", mediaType: moduleAnswerType, output: JSON.stringify(answer) };
}
