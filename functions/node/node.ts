/**
 * A node: offers tools of this machine to one tenant of a gateway that it dials, carries calls out, and keeps
 * results until the gateway has them. Asks before it begins a call, so that it never begins one that was taken
 * back; says from time to time what it has in hand (design "Short work in functions, resident work on nodes").
 */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { JsonObject } from "@toolyard/core/json";
import { isJsonObject, parseJson } from "@toolyard/core/json";
import { readAll } from "@toolyard/core/ports/blob-store";
import type { Egress } from "@toolyard/core/ports/egress";
import type { Log } from "@toolyard/core/ports/log";
import { version } from "../version.ts";
import { toOffer, type NodeConfig, type NodeProgram } from "./config.ts";
import { argumentsOf, createExecutor, type Executed, type Executor, type ExecutorDeps } from "./execute.ts";
import { errorOf, GatewayLink, NodeRefused } from "./link.ts";

/** A result that fits into a frame together with the rest of its message. */
const longestInline = 24_000;
const usualBeatMs = 20_000;
const transferMs = 300_000;
/** What was carried out is known for so long, should the gateway offer it again. */
const rememberedMs = 600_000;

export interface NodeOptions extends ExecutorDeps {
  readonly url: string;
  readonly key: string;
  readonly config: NodeConfig;
  /** To links of the gateway. */
  readonly egress: Egress;
  readonly log: Log;
  /** Milliseconds that calls in hand may take once it is told to stop. */
  readonly graceMs: number;
  /** It stands in the tenant's list, or again. */
  readonly onRegistered?: (hidden: readonly string[]) => void;
}

interface Run {
  readonly id: string;
  readonly callId: string;
  readonly stop: AbortController;
  state: "queued" | "in_hand" | "over";
}

/** A tool with what waits for a place. */
interface Desk {
  readonly program: NodeProgram;
  readonly executor: Executor;
  readonly queue: Run[];
  inHand: number;
}

export class Node {
  readonly #options: NodeOptions;
  readonly #link: GatewayLink;
  readonly #instance = randomUUID();
  readonly #desks: ReadonlyMap<string, Desk>;
  readonly #runs = new Map<string, Run>();
  readonly #delivering = new Set<Promise<void>>();
  #beating: NodeJS.Timeout | undefined;
  #isLeaving = false;
  #refusal: NodeRefused | undefined;
  #whenIdle: (() => void) | undefined;

  constructor(options: NodeOptions) {
    this.#options = options;
    this.#desks = new Map(
      options.config.programs.map((program) => [
        program.name,
        { program, executor: createExecutor(program, options.config, options), queue: [], inHand: 0 },
      ]),
    );
    this.#link = new GatewayLink({
      ...options,
      onOpen: () => this.#register(),
      onEvent: (type, data) => this.#hear(type, data),
    });
  }

  /** Until it is stopped. @throws NodeRefused where the gateway does not want it, or no longer */
  async run(): Promise<void> {
    try {
      await this.#link.run();
      if (this.#refusal !== undefined) throw this.#refusal;
    } finally {
      this.#isLeaving = true;
      clearInterval(this.#beating);
      this.#link.close();
      await Promise.all([...this.#desks.values()].map(({ executor }) => executor.stop()));
    }
  }

  /** Takes nothing new, lets what is in hand end within the grace, and leaves. */
  async stop(): Promise<void> {
    if (this.#isLeaving) return;
    this.#isLeaving = true;
    const { graceMs, config } = this.#options;
    await this.#within(this.#link.ask({ type: "node.leave", name: config.name, instance: this.#instance }), 2_000);
    for (const desk of this.#desks.values()) for (const run of desk.queue.splice(0)) this.#decline(run);
    await this.#within(this.#idle(), graceMs);
    for (const { state, stop } of this.#runs.values()) if (state === "in_hand") stop.abort();
    await this.#within(this.#idle(), 5_000);
    await this.#within(Promise.all([...this.#delivering]), 5_000);
    this.#link.close();
  }

  async #register(): Promise<void> {
    if (this.#isLeaving) return;
    const { config, log, onRegistered } = this.#options;
    const answer = await this.#link.askNow({
      type: "node.register",
      name: config.name,
      version,
      instance: this.#instance,
      tools: config.programs.map((program) => ({ ...toOffer(program) })),
    });
    const error = errorOf(answer);
    if (error !== undefined) {
      if (["permission_denied", "conflict", "invalid_request"].includes(error.code))
        throw new NodeRefused(error.message);
      throw new Error(error.message);
    }
    const beatMs = answer["beat_ms"];
    clearInterval(this.#beating);
    this.#beating = setInterval(() => void this.#beatOnce(), typeof beatMs === "number" ? beatMs : usualBeatMs);
    const hidden = hiddenOf(answer);
    log.log("info", "registered", { node: config.name, count: config.programs.length });
    for (const line of hidden) log.log("warn", line);
    onRegistered?.(hidden);
    // What is in hand may have been given up meanwhile.
    void this.#beatOnce();
  }

  #hear(type: string, data: JsonObject): void {
    const { run, call_id: callId, tool } = data;
    if (type === "node.call" && typeof run === "string" && typeof tool === "string") {
      this.#take({ id: run, callId: String(callId), tool });
    } else if (type === "node.cancel" && typeof run === "string") this.#cancel(run);
    else if (type === "node.replaced") this.#sentAway("Another process has registered under this name; this one ends.");
    else if (type === "node.removed") this.#sentAway("This node was removed from the gateway; it ends.");
  }

  #sentAway(message: string): void {
    this.#refusal ??= new NodeRefused(message);
    void this.stop();
  }

  #take({ id, callId, tool }: { readonly id: string; readonly callId: string; readonly tool: string }): void {
    if (this.#runs.has(id)) return;
    const run: Run = { id, callId, stop: new AbortController(), state: "queued" };
    this.#runs.set(id, run);
    const desk = this.#desks.get(tool);
    if (desk === undefined || this.#isLeaving) {
      this.#decline(run);
      return;
    }
    desk.queue.push(run);
    this.#serve(desk);
  }

  #decline(run: Run): void {
    this.#end(run);
    this.#deliver(run, { status: "declined", mediaType: "text/plain", output: "", message: "the node is stopping" });
  }

  #serve(desk: Desk): void {
    while (desk.inHand < desk.program.concurrency) {
      const run = desk.queue.shift();
      if (run === undefined) return;
      if (run.stop.signal.aborted) {
        this.#end(run);
        continue;
      }
      desk.inHand += 1;
      run.state = "in_hand";
      void this.#carryOut(desk, run).finally(() => {
        desk.inHand -= 1;
        this.#end(run);
        this.#serve(desk);
      });
    }
  }

  async #carryOut(desk: Desk, run: Run): Promise<void> {
    const { log } = this.#options;
    try {
      const answer = await this.#link.ask({ type: "node.accept", run: run.id, instance: this.#instance });
      if (answer?.["type"] !== "node.accepted") return;
      const executed = await this.#execute(desk, run, answer);
      log.log("info", "a call was carried out", {
        call_id: run.callId,
        tool: desk.program.name,
        status: executed.status,
      });
      this.#deliver(run, executed);
    } catch (thrown) {
      log.log("error", "a call was not carried out", { call_id: run.callId, reason: messageOf(thrown) });
      this.#deliver(run, { status: "lost", mediaType: "text/plain", output: "", message: messageOf(thrown) });
    }
  }

  async #execute({ executor }: Desk, run: Run, answer: JsonObject): Promise<Executed> {
    const url = answer["input_url"];
    const input = typeof url === "string" ? parseJson(await this.#download(url)) : answer["input"];
    const args = argumentsOf(input);
    if (args === undefined) throw new Error("the gateway gave no arguments");
    return executor.execute({ run: run.id, arguments: args, signal: run.stop.signal });
  }

  /** Until the gateway has it, over as many connections as it takes. */
  #deliver(run: Run, executed: Executed): void {
    const delivering = this.#deliverResult(run, executed)
      .catch((thrown: unknown) => {
        this.#options.log.log("error", "a result was not delivered", {
          call_id: run.callId,
          reason: messageOf(thrown),
        });
      })
      .finally(() => this.#delivering.delete(delivering));
    this.#delivering.add(delivering);
  }

  async #deliverResult(run: Run, { status, mediaType, output, message }: Executed): Promise<void> {
    const bytes = Buffer.from(output, "utf8");
    const said = { status, media_type: mediaType, ...(message === undefined ? {} : { message }) };
    const own = { run: run.id, instance: this.#instance };
    // What JSON makes of it counts, which can be six times as long.
    const isInline = Buffer.byteLength(JSON.stringify(output)) <= longestInline;
    const refusal = isInline ? undefined : await this.#upload(own, bytes, mediaType);
    const result =
      refusal === undefined
        ? { ...said, ...(isInline ? { output } : { uploaded: true }) }
        : { status: "failed", media_type: "text/plain", message: refusal };
    const answer = await this.#link.ask({ type: "node.result", ...own, ...result });
    const error = answer === undefined ? undefined : errorOf(answer);
    if (error !== undefined) throw new Error(error.message);
  }

  /** @returns why it cannot be kept */
  async #upload(own: JsonObject, bytes: Buffer, mediaType: string): Promise<string | undefined> {
    for (let pauseMs = 500; ; pauseMs = Math.min(30_000, pauseMs * 2)) {
      const answer = await this.#link.ask({
        type: "node.upload",
        ...own,
        bytes: bytes.byteLength,
        media_type: mediaType,
      });
      if (answer === undefined) throw new Error("the node has stopped");
      const error = errorOf(answer);
      if (error !== undefined) return error.message;
      const { url, headers } = answer;
      try {
        const { status } = await this.#request("PUT", String(url), isJsonObject(headers) ? headers : {}, bytes);
        // Something is there already where an earlier try was not heard of.
        if (status < 300 || status === 409 || status === 412) return undefined;
        throw new Error(`the upload was answered with ${status}`);
      } catch (thrown) {
        this.#options.log.log("warn", "a result was not uploaded and will be again", { reason: messageOf(thrown) });
        await sleep(pauseMs);
      }
    }
  }

  async #download(url: string): Promise<string> {
    const { status, body } = await this.#request("GET", url, {});
    if (status !== 200) throw new Error(`the arguments were answered with ${status}`);
    return Buffer.from(body).toString("utf8");
  }

  async #request(
    method: string,
    url: string,
    headers: JsonObject,
    body?: Uint8Array,
  ): Promise<{ readonly status: number; readonly body: Uint8Array }> {
    const answer = await this.#options.egress.request({
      method,
      url,
      headers: Object.entries(headers).map(([name, value]) => [name, String(value)] as const),
      timeoutMs: transferMs,
      ...(body === undefined ? {} : { body }),
    });
    return { status: answer.status, body: await readAll(answer.body) };
  }

  #cancel(id: string): void {
    const run = this.#runs.get(id);
    if (run === undefined) return;
    run.stop.abort();
    if (run.state !== "queued") return;
    for (const { queue } of this.#desks.values()) {
      const at = queue.indexOf(run);
      if (at >= 0) queue.splice(at, 1);
    }
    this.#end(run);
  }

  #end(run: Run): void {
    if (run.state !== "over") setTimeout(() => this.#runs.delete(run.id), rememberedMs).unref();
    run.state = "over";
    if (this.#open().length === 0) this.#whenIdle?.();
  }

  #open(): readonly Run[] {
    return [...this.#runs.values()].filter(({ state }) => state !== "over");
  }

  #idle(): Promise<void> {
    if (this.#open().length === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenIdle = resolve;
    });
  }

  async #beatOnce(): Promise<void> {
    const open = this.#open();
    try {
      const answer = await this.#link.askNow({
        type: "node.beat",
        instance: this.#instance,
        runs: open.map(({ id }) => id),
      });
      const known = stringsOf(answer["known"]);
      if (errorOf(answer) !== undefined || known === undefined) return;
      const cancelled = new Set(stringsOf(answer["cancelled"]));
      for (const { id, state } of open) {
        // One that nobody knows any more was given up, or ended by a result of ours that was not answered.
        if (cancelled.has(id) || (state === "in_hand" && !known.includes(id))) this.#cancel(id);
      }
    } catch {
      // The link is away; it says so itself.
    }
  }

  async #within(work: Promise<unknown>, ms: number): Promise<void> {
    const over = new AbortController();
    await Promise.race([
      work.catch(() => undefined),
      sleep(ms, undefined, { signal: over.signal }).catch(() => undefined),
    ]);
    over.abort();
  }
}

function hiddenOf(answer: JsonObject): readonly string[] {
  const hidden = answer["hidden"];
  if (!Array.isArray(hidden)) return [];
  return hidden.flatMap((each) =>
    isJsonObject(each)
      ? [`'${String(each["name"])}' is hidden by ${String(each["by"])}, which has the name already; rename the tool.`]
      : [],
  );
}

function stringsOf(value: unknown): readonly string[] | undefined {
  return Array.isArray(value) ? value.filter((each) => typeof each === "string") : undefined;
}

function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : "unknown";
}
