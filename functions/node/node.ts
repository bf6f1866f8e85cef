/**
 * A node: offers tools of this machine to one tenant of a gateway that it dials, carries calls out, and keeps
 * results until the gateway has them. Asks before it begins a call, so that it never begins one that was taken
 * back; says from time to time what it has in hand (design "Short work in functions, resident work on nodes").
 */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { schemaProblem } from "@toolyard/core/errors/schema-problems";
import type { JsonObject } from "@toolyard/core/json";
import { NewsPace } from "@toolyard/core/mcp/news-pace";
import { offeredToolsSchema, type NodeTool } from "@toolyard/core/nodes/node";
import type { Egress } from "@toolyard/core/ports/egress";
import type { Log } from "@toolyard/core/ports/log";
import type { MessageConsumers } from "@toolyard/core/ports/message-consumer";
import { moduleProgram } from "@toolyard/core/vcp/modules/node-wire";
import { SubscriptionHolder } from "@toolyard/core/subscriptions/holder";
import { version } from "../version.ts";
import { offersOf, type NodeConfig, type VcpModulesConfig } from "./config.ts";
import { ended, type Executed, type Executor } from "./executor.ts";
import { AnsweredError, readBeaten, readDone, readRegistered, type NodeEvent } from "./frames.ts";
import { createFileExecutor } from "./files.ts";
import { GatewayLink, LinkLost, NodeRefused, type LinkHandlers, type NodeLink } from "./link.ts";
import { McpServers } from "./mcp-servers.ts";
import { messageOf } from "./message-of.ts";
import { createModuleDesk } from "./module-desk.ts";
import { createProgramExecutor, type ProgramDeps } from "./programs.ts";
import { RunTransfers } from "./run-transfers.ts";
import { createDesk } from "./subscriptions.ts";
import { VcpModules } from "./vcp-modules.ts";

/** Calls that run and wait; all of them are named in each beat. */
const mostOpen = 400;
/** What was carried out is known for so long, should the gateway offer it again. */
const rememberedMs = 600_000;
/** How far a call is, is told so often at most. */
const progressMs = 500;
const longestNote = 1_000;
const changedMs = 100;

export interface NodeOptions extends ProgramDeps {
  readonly url: string;
  readonly key: string;
  readonly config: NodeConfig;
  /** To links of the gateway. */
  readonly egress: Egress;
  /** Of brokers that subscriptions are at; absent: it holds none. */
  readonly consumers?: MessageConsumers;
  readonly log: Log;
  /** Milliseconds that calls in hand may take once it is told to stop. */
  readonly graceMs: number;
  /** It stands in the tenant's list, or again. */
  readonly onRegistered?: () => void;
  /** How it reaches its gateway; absent: over a connection of its own. */
  readonly createLink?: (handlers: LinkHandlers) => NodeLink;
  /** Names this run of the program; absent: made here. */
  readonly instance?: string;
  /** A tool that another node offers otherwise is left out and said, instead of ending the node. */
  readonly onTaken?: (tool: string, why: string) => void;
  /** Something else of the tenant has the tool's name. */
  readonly onHidden?: (tool: string, by: string) => void;
}

/** A tool that is carried out otherwise than by a program of the configuration. */
export interface Offering {
  readonly offer: NodeTool;
  readonly executor: Executor;
}

interface Run {
  readonly id: string;
  readonly callId: string;
  readonly stop: AbortController;
  state: "queued" | "in_hand" | "over";
  /** When it was last told how far it is. */
  toldAt: number;
}

/** A tool with what waits for a place. */
interface Desk {
  readonly name: string;
  /** Calls at once. */
  readonly concurrency: number;
  readonly executor: Executor;
  readonly queue: Run[];
  inHand: number;
}

export class Node {
  readonly #options: NodeOptions;
  readonly #link: NodeLink;
  readonly #instance: string;
  readonly #transfers: RunTransfers;
  #offers: readonly NodeTool[];
  #desks: ReadonlyMap<string, Desk>;
  readonly #servers: McpServers;
  readonly #modules: VcpModules | undefined;
  /** Services whose tools have changed, which is about to be told. */
  readonly #changed = new Set<string>();
  /** By service, how often that is. */
  readonly #paces = new Map<string, NewsPace>();
  readonly #runs = new Map<string, Run>();
  readonly #delivering = new Set<Promise<void>>();
  readonly #holder: SubscriptionHolder | undefined;
  #beating: NodeJS.Timeout | undefined;
  #isLeaving = false;
  #refusal: NodeRefused | undefined;
  #whenIdle: (() => void) | undefined;

  constructor(options: NodeOptions) {
    this.#options = options;
    const { config, path, log, consumers, instance = randomUUID() } = options;
    this.#instance = instance;
    this.#offers = offersOf(config);
    this.#servers = new McpServers({
      directory: config.directory,
      path,
      log,
      onToolsChanged: (service) => this.#tellToolsChanged(service),
    });
    const handlers: LinkHandlers = { onOpen: () => this.#register(), onEvent: (event) => this.#hear(event) };
    this.#link = options.createLink?.(handlers) ?? new GatewayLink({ ...options, ...handlers });
    this.#transfers = new RunTransfers({ link: this.#link, instance, egress: options.egress, log });
    this.#modules = config.vcpModules && this.#createModules(config.vcpModules);
    const desks = [
      ...config.programs.map((program) => toDesk(program, createProgramExecutor(program, config, options))),
      ...config.mcpServers.map((program) =>
        toDesk(program, { execute: (execution) => this.#servers.execute(program, execution) }),
      ),
      ...modulesDesk(config.vcpModules, this.#modules),
      ...this.#offers
        .filter(({ kind }) => kind === "files")
        .map((offer) => toDesk(offer, createFileExecutor(config.files))),
    ];
    this.#desks = new Map(desks.map((desk) => [desk.name, desk]));
    this.#holder = config.holdsSubscriptions && consumers !== undefined ? this.#createHolder(consumers) : undefined;
  }

  /** Offers these tools instead of those before, now or as soon as the gateway can be reached. @throws NodeRefused */
  async offer(offerings: readonly Offering[]): Promise<void> {
    this.#offers = offerings.map(({ offer }) => offer);
    this.#desks = new Map(offerings.map(({ offer, executor }) => [offer.name, toDesk(offer, executor)]));
    try {
      await this.#register();
    } catch (thrown) {
      if (!(thrown instanceof LinkLost)) throw thrown;
    }
  }

  #createHolder(consumers: MessageConsumers): SubscriptionHolder {
    const { config, log } = this.#options;
    const upload: RunTransfers["store"] = (url, headers, body) => this.#transfers.store(url, headers, body);
    const onRefused = (message: string): void => this.#sentAway(message);
    const desk = createDesk({ link: this.#link, node: config.name, instance: this.#instance, upload, onRefused });
    return new SubscriptionHolder({ desk, consumers, log, newDelivery: () => randomUUID() });
  }

  #createModules({ directory, packages }: VcpModulesConfig): VcpModules {
    const { config, path, log } = this.#options;
    const download = async (url: string): Promise<Uint8Array> => {
      const { status, body } = await this.#transfers.request("GET", url);
      if (status !== 200) throw new Error(`the files were answered with ${status}`);
      return body;
    };
    return new VcpModules({
      directory,
      packages,
      path,
      log,
      desk: createModuleDesk({ link: this.#link, node: config.name, instance: this.#instance, download }),
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
      await this.#holder?.stop(0);
      await Promise.all([
        this.#servers.stop(),
        this.#modules?.stop(),
        ...[...this.#desks.values()].map(({ executor }) => executor.stop?.()),
      ]);
    }
  }

  /** Takes nothing new, lets what is in hand end within the grace, and leaves. */
  async stop(): Promise<void> {
    if (this.#isLeaving) return;
    this.#isLeaving = true;
    const { graceMs, config } = this.#options;
    const leave = { type: "node.leave", name: config.name, instance: this.#instance };
    await this.#within(this.#link.ask(leave, readDone), 2_000);
    for (const desk of this.#desks.values()) {
      for (const run of desk.queue.splice(0)) this.#decline(run, "the node is stopping");
    }
    await Promise.all([this.#within(this.#idle(), graceMs), this.#within(this.#stopHolding(graceMs), graceMs + 5_000)]);
    for (const { state, stop } of this.#runs.values()) if (state === "in_hand") stop.abort();
    await this.#within(this.#idle(), 5_000);
    await this.#within(Promise.all(this.#delivering), 5_000);
    this.#link.close();
  }

  async #stopHolding(graceMs: number): Promise<void> {
    await this.#holder?.stop(graceMs);
  }

  async #register(): Promise<void> {
    if (this.#isLeaving) return;
    const { config, log, onRegistered, onHidden } = this.#options;
    const registered = await this.#askToRegister();
    clearInterval(this.#beating);
    this.#beating = setInterval(() => void this.#beat(), registered.beat_ms);
    log.log("info", "registered", { node: config.name, count: this.#desks.size });
    for (const { name, by } of registered.hidden) {
      log.log("warn", `'${name}' is hidden by ${by}, which has the name already; rename the tool`, { tool: name });
      onHidden?.(name, by);
    }
    this.#holder?.start();
    this.#holder?.refresh();
    onRegistered?.();
    // What is in hand may have been given up meanwhile.
    void this.#beat();
  }

  /** @throws NodeRefused where trying again is of no use */
  async #askToRegister(): Promise<ReturnType<typeof readRegistered>> {
    const { config, onTaken } = this.#options;
    this.#requireUsable();
    const tools = this.#offers.map(toOffered);
    const own = { name: config.name, version, instance: this.#instance };
    try {
      return await this.#link.askNow({ type: "node.register", ...own, tools }, readRegistered);
    } catch (thrown) {
      const taken = thrown instanceof AnsweredError && thrown.code === "conflict" ? thrown.tool : undefined;
      if (onTaken !== undefined && taken !== undefined && this.#offers.some(({ name }) => name === taken)) {
        this.#offers = this.#offers.filter(({ name }) => name !== taken);
        onTaken(taken, thrown instanceof Error ? thrown.message : "");
        return this.#askToRegister();
      }
      const isFinal =
        thrown instanceof AnsweredError &&
        ["permission_denied", "conflict", "invalid_request", "invalid_response", "concurrency_limited"].includes(
          thrown.code,
        );
      throw isFinal ? new NodeRefused(thrown.message) : thrown;
    }
  }

  /** So that what a gateway does not know afterwards is of another release. @throws NodeRefused */
  #requireUsable(): void {
    const checked = offeredToolsSchema().safeParse(this.#offers);
    if (checked.success) return;
    const { path, says } = schemaProblem(checked.error);
    throw new NodeRefused(`What this node offers cannot be used: '${["tools", ...path].join(".")}' ${says}.`);
  }

  #hear(event: NodeEvent): void {
    switch (event.type) {
      case "node.call":
        return this.#take(event.data);
      case "node.cancel":
        return this.#cancel(event.data.run);
      case "node.look":
        return void this.#beat();
      case "node.replaced":
        return this.#sentAway("Another process has registered under this name; this one ends.");
      case "node.removed":
        return this.#sentAway("This node was removed from the gateway; it ends.");
      case "subscription.changed":
        return this.#holder?.refresh();
      default:
        return event satisfies never;
    }
  }

  #sentAway(message: string): void {
    this.#refusal ??= new NodeRefused(message);
    void this.stop();
  }

  #take({ run: id, call_id: callId, tool }: Extract<NodeEvent, { type: "node.call" }>["data"]): void {
    if (this.#runs.has(id)) return;
    const run: Run = { id, callId, stop: new AbortController(), state: "queued", toldAt: Number.NEGATIVE_INFINITY };
    this.#runs.set(id, run);
    const desk = this.#desks.get(tool);
    if (desk === undefined) return this.#decline(run, "the node does not offer it any more");
    if (this.#isLeaving) return this.#decline(run, "the node is stopping");
    if (this.#open().length > mostOpen) return this.#decline(run, "the node has too many calls in hand");
    desk.queue.push(run);
    this.#serve(desk);
  }

  #decline(run: Run, message: string): void {
    this.#end(run);
    this.#deliver(run, ended("declined", message));
  }

  #serve(desk: Desk): void {
    while (desk.inHand < desk.concurrency) {
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
    let isBegun = false;
    try {
      const input = await this.#transfers.inputOf(run, run.stop.signal);
      if (input === undefined) return;
      isBegun = true;
      const executed = await desk.executor.execute({
        run: run.id,
        arguments: input.arguments,
        signal: run.stop.signal,
        traceId: input.trace_id,
        onProgress: (progress) => this.#tellProgress(run, progress),
      });
      log.log("info", "a call was carried out", {
        call_id: run.callId,
        tool: desk.name,
        status: executed.status,
      });
      this.#deliver(run, executed);
    } catch (thrown) {
      log.log("error", "a call was not carried out", { call_id: run.callId, reason: messageOf(thrown) });
      this.#deliver(run, ended(isBegun ? "lost" : "declined", messageOf(thrown)));
    }
  }

  /** Best effort: what matters comes with the result. */
  #tellProgress(run: Run, { progress, total, message }: JsonObject): void {
    const now = performance.now();
    if (typeof progress !== "number" || now - run.toldAt < progressMs) return;
    run.toldAt = now;
    const said = {
      progress,
      ...(typeof total === "number" ? { total } : {}),
      ...(typeof message === "string" ? { message: message.slice(0, longestNote) } : {}),
    };
    const tell = { type: "node.progress", run: run.id, instance: this.#instance, ...said };
    void this.#link.askNow(tell, readDone).catch(() => undefined);
  }

  /** Servers may say it many times at once, and without an end. */
  #tellToolsChanged(service: string): void {
    if (this.#isLeaving || this.#changed.has(service)) return;
    this.#changed.add(service);
    const pace = this.#paces.get(service) ?? new NewsPace({ now: () => performance.now() });
    this.#paces.set(service, pace);
    const tell = async (): Promise<void> => {
      await sleep(Math.max(changedMs, pace.waitMs), undefined, { ref: false });
      this.#changed.delete(service);
      if (this.#isLeaving) return;
      pace.look();
      await this.#link.ask({ type: "node.tools_changed", service, instance: this.#instance }, readDone);
    };
    void tell().catch((thrown: unknown) => {
      this.#options.log.log("warn", "changed tools were not told", { service, reason: messageOf(thrown) });
    });
  }

  #deliver(run: Run, executed: Executed): void {
    const delivering = this.#transfers
      .deliver(run, executed)
      .catch((thrown: unknown) => {
        this.#options.log.log("error", "a result was not delivered", {
          call_id: run.callId,
          reason: messageOf(thrown),
        });
      })
      .finally(() => this.#delivering.delete(delivering));
    this.#delivering.add(delivering);
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

  async #beat(): Promise<void> {
    const open = this.#open();
    void this.#modules?.refresh();
    try {
      const held = this.#servers.services.map((each) => ({ ...each }));
      const beat = {
        type: "node.beat",
        instance: this.#instance,
        runs: open.map(({ id }) => id),
        ...(held.length === 0 ? {} : { held }),
      };
      const { known, cancelled, stop } = await this.#link.askNow(beat, readBeaten);
      this.#servers.stopServices(stop);
      for (const { id, state } of open) {
        // One that nobody knows any more was given up, or ended by a result of ours that was not answered.
        if (cancelled.includes(id) || (state === "in_hand" && !known.includes(id))) this.#cancel(id);
      }
    } catch (thrown) {
      // A link that is away says so itself, and what passes is said again with the next beat.
      if (!(thrown instanceof AnsweredError) || thrown.isPassing) return;
      this.#options.log.log("warn", "the gateway was not told what this node has in hand", { reason: thrown.message });
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

/** What is as it would be anyway is left unsaid: a gateway of an older release does not know its name. */
function toOffered({ sensitive, ...offer }: NodeTool): JsonObject {
  return { ...offer, ...(sensitive ? { sensitive } : {}) };
}

function modulesDesk(config: VcpModulesConfig | undefined, modules: VcpModules | undefined): readonly Desk[] {
  if (config === undefined || modules === undefined) return [];
  return [toDesk({ name: moduleProgram, ...config }, { execute: (execution) => modules.execute(execution) })];
}

function toDesk({ name, concurrency }: Pick<Desk, "name" | "concurrency">, executor: Executor): Desk {
  return { name, concurrency, executor, queue: [], inHand: 0 };
}
