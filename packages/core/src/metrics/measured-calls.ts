/**
 * Counts calls where their end is written, and nowhere else, so that what all instances counted equals
 * what the calls table holds (CHAT-15).
 */
import type { Call, CallState } from "../calls/call.ts";
import type { Clock } from "../ports/clock.ts";
import type { Metrics } from "../ports/metrics.ts";
import type { FlowRunRepo } from "../ports/flow-runs.ts";
import type { CallFinish, CallRepo, NewCall } from "../ports/calls.ts";
import type { Repos } from "../ports/repos.ts";

/** What is known of a call that has not ended. */
interface Open {
  readonly kind: Call["kind"];
  readonly tool: string;
  readonly since: number;
}

/** A label with more values than this would outgrow every metrics store. */
const mostTools = 500;
const otherTools = "other";
/** Calls whose end this process may see; the oldest are forgotten first. */
const mostOpen = 50_000;

type Measured = Pick<Repos, "calls" | "flowRuns">;

export function measureCalls({ calls, flowRuns }: Measured, metrics: Metrics, clock: Clock): Measured {
  const counter = new CallCounter(metrics, clock);
  return { calls: measuredCalls(calls, counter), flowRuns: measuredRuns(flowRuns, counter) };
}

/** Runs of flows write their steps' calls and ends themselves. */
function measuredRuns(repo: FlowRunRepo, counter: CallCounter): FlowRunRepo {
  return {
    load: (...given) => repo.load(...given),
    changes: (...given) => repo.changes(...given),
    signal: (...given) => repo.signal(...given),
    lastDecided: (...given) => repo.lastDecided(...given),
    recordWithSteps: (...given) => repo.recordWithSteps(...given),
    async write(tenant, write) {
      const written = await repo.write(tenant, write);
      for (const call of write.calls) if (written.states.has(call.id)) counter.written(call);
      for (const { id, finish } of write.ends) if (!isUnderWay(finish)) counter.ended(id, finish);
      return written;
    },
  };
}

function isUnderWay({ state }: CallFinish): boolean {
  return state === "running" || state === "queued";
}

function measuredCalls(repo: CallRepo, counter: CallCounter): CallRepo {
  return {
    ...repo,
    async admit(input) {
      const result = await repo.admit(input);
      if (result.outcome.kind === "admitted" && input.call !== undefined) counter.written(input.call);
      return result;
    },
    async record(tenant, callerId, calls, parent) {
      const results = await repo.record(tenant, callerId, calls, parent);
      const recorded = new Set(results.filter(({ kind }) => kind === "recorded").map(({ id }) => id));
      for (const call of calls) if (recorded.has(call.id)) counter.written(call);
      return results;
    },
    async settle(tenant, input) {
      await repo.settle(tenant, input);
      for (const call of input.calls) counter.written(call);
      for (const { id, finish } of input.finished) counter.ended(id, finish);
      const hasTools = input.calls.length > 0 || counter.hasChildren(input.callId);
      counter.chatEnded(input.callId, input.finish, hasTools);
    },
    async claim(tenant, id, options) {
      const claimed = await repo.claim(tenant, id, options);
      if (typeof claimed === "object" && "call" in claimed) counter.opened(claimed.call);
      return claimed;
    },
    async finish(tenant, id, attempt, finish) {
      const isWritten = await repo.finish(tenant, id, attempt, finish);
      if (isWritten && !isUnderWay(finish)) counter.ended(id, finish);
      return isWritten;
    },
    async resolveUnknown(tenant, id, finish) {
      const isWritten = await repo.resolveUnknown(tenant, id, finish);
      if (isWritten) counter.resolved(id, finish.state);
      return isWritten;
    },
    async decide(tenant, id, decision) {
      const call = await repo.decide(tenant, id, decision);
      if (call?.state === "rejected" && decision.decision === "rejected") counter.closed(call);
      return call;
    },
    async requestCancel(tenant, id) {
      const call = await repo.requestCancel(tenant, id);
      if (call?.state === "cancelled") counter.closed(call);
      return call;
    },
  };
}

class CallCounter {
  readonly #metrics: Metrics;
  readonly #clock: Clock;
  readonly #open = new Map<string, Open>();
  readonly #parents = new Set<string>();
  readonly #tools = new Set<string>();
  /** Ended by a person; a second click must not count again. */
  readonly #closed = new Set<string>();

  constructor(metrics: Metrics, clock: Clock) {
    this.#metrics = metrics;
    this.#clock = clock;
  }

  /** A row was written: it has ended already, or it is open from now on. */
  written(call: NewCall): void {
    if (call.parentId !== null) this.#rememberParent(call.parentId);
    if (call.end === undefined) {
      this.#remember(call.id, { kind: call.kind, tool: call.tool, since: this.#clock.now() });
      return;
    }
    const ran = call.ran === undefined ? 0 : call.ran.startedMsAgo - call.ran.finishedMsAgo;
    const info = { kind: call.kind, tool: call.tool };
    if (call.kind === "chat") this.#countChat(call.end, { ms: ran, hasTools: false });
    else this.#countTool(info.tool, call.end, ran);
  }

  opened(call: Call): void {
    this.#remember(call.id, { kind: call.kind, tool: call.tool, since: this.#clock.now() });
  }

  ended(id: string, finish: CallFinish): void {
    const open = this.#open.get(id);
    this.#open.delete(id);
    // Of whatever kind: runs of flows and of agents have children, too.
    const hasTools = this.#parents.delete(id);
    const ms = open === undefined ? 0 : this.#clock.now() - open.since;
    if (open?.kind === "chat") this.#countChat(finish, { ms, hasTools });
    else this.#countTool(open?.tool ?? "", finish, ms);
  }

  chatEnded(id: string, finish: CallFinish, hasTools: boolean): void {
    const open = this.#open.get(id);
    this.#open.delete(id);
    this.#parents.delete(id);
    this.#countChat(finish, { ms: open === undefined ? 0 : this.#clock.now() - open.since, hasTools });
  }

  hasChildren(id: string): boolean {
    return this.#parents.has(id);
  }

  closed(call: Call): void {
    if (this.#closed.has(call.id)) return;
    if (this.#closed.size >= mostOpen) this.#closed.clear();
    this.#closed.add(call.id);
    this.#open.delete(call.id);
    this.#parents.delete(call.id);
    const finish = { state: call.state === "rejected" ? "rejected" : "cancelled" } as const;
    this.#countTool(call.tool, call.error === null ? finish : { ...finish, error: call.error }, 0);
  }

  resolved(id: string, state: CallState): void {
    this.#metrics.count("toolyard_tool_calls_resolved_total", {
      tool: this.#toolLabel(this.#open.get(id)?.tool ?? ""),
      state,
    });
  }

  #remember(id: string, open: Open): void {
    forgetOldest(this.#open);
    this.#open.set(id, open);
  }

  /** The end of one that ends elsewhere is never seen here. */
  #rememberParent(id: string): void {
    if (this.#parents.has(id)) return;
    forgetOldest(this.#parents);
    this.#parents.add(id);
  }

  #countTool(tool: string, finish: CallFinish, ms: number): void {
    const label = this.#toolLabel(tool);
    this.#metrics.count("toolyard_tool_calls_total", {
      tool: label,
      state: finish.state,
      code: finish.error?.code ?? "",
    });
    if (ms > 0) this.#metrics.observe("toolyard_tool_call_duration_seconds", { tool: label }, ms / 1_000);
  }

  #countChat(finish: CallFinish, how: { readonly ms: number; readonly hasTools: boolean }): void {
    const tools = how.hasTools ? "yes" : "no";
    this.#metrics.count("toolyard_chats_total", { state: finish.state, code: finish.error?.code ?? "", tools });
    if (how.ms > 0) this.#metrics.observe("toolyard_chat_duration_seconds", { tools }, how.ms / 1_000);
    if (finish.usage === undefined) return;
    this.#metrics.count("toolyard_tokens_total", { kind: "prompt" }, finish.usage.prompt_tokens);
    this.#metrics.count("toolyard_tokens_total", { kind: "completion" }, finish.usage.completion_tokens);
  }

  #toolLabel(tool: string): string {
    if (this.#tools.has(tool)) return tool;
    if (this.#tools.size >= mostTools) return otherTools;
    this.#tools.add(tool);
    return tool;
  }
}

function forgetOldest(known: Map<string, unknown> | Set<string>): void {
  if (known.size < mostOpen) return;
  const oldest = known.keys().next().value;
  if (oldest !== undefined) known.delete(oldest);
}
