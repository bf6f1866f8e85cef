/**
 * The tool calls of one chat, round by round: one batch records what writes or waits before anything
 * is sent, reads ride along with the chat's settlement, reads run together and writes to one service
 * in call order (CHAT-10).
 */
import type { ChatMeter } from "../budgets/chat-meter.ts";
import { noCost } from "../budgets/cost.ts";
import { awaitCall } from "../calls/await-call.ts";
import type { Call } from "../calls/call.ts";
import { outcomeOf, effectKeyOf, newToolCall, refusedCall, type CallPlace } from "../calls/new-call.ts";
import { holdLease, isLeftToOthers } from "../calls/lease.ts";
import { endKeptMs, isSentAgain, recordEndThroughOutage } from "../calls/record-end.ts";
import type { SlotPool } from "../calls/slots.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import type { CallFinish, NewCall } from "../ports/calls.ts";
import type { Adapters } from "./catalog.ts";
import { executeCall, type Execution } from "./execute-call.ts";
import { textForModel, type ToolOutcome } from "./outcome.ts";
import { prepareCall, type DispatchItem, type Preparation, type PreparedCall } from "./prepare.ts";
import { tellNotRun } from "./tool-trace.ts";

export interface ToolRunOptions extends CallPlace {
  readonly chatId: string;
  readonly signal: AbortSignal;
  readonly slots: SlotPool;
  /** Results that come after this answer go to the session's next request. */
  readonly deliverLate: boolean;
  readonly writesBefore: boolean;
  /** The conversation holds content from outside already. */
  readonly readOutsideBefore: boolean;
  /** The chat's bill. */
  readonly meter: ChatMeter;
  /** So many pictures of a result does the model get to see. */
  readonly picturesOf: (outcome: ToolOutcome) => number;
}

export interface RoundCall {
  readonly callId: string;
  readonly tool: string;
  readonly outcome: Promise<ToolOutcome>;
}

export class ToolRun {
  readonly #deps: CoreDeps;
  readonly #adapters: Adapters;
  #context: CallContext;
  #options: ToolRunOptions;
  // Made for the first call, as in most chats there is none.
  #occurrences: Map<string, number> | undefined;
  #lines: Map<string, Promise<unknown>> | undefined;
  readonly #deferred: { readonly row: Promise<NewCall>; readonly started: number; readonly finished: number }[] = [];
  readonly #finishing: Promise<unknown>[] = [];
  /** Those of writes that would be sent again. */
  readonly #endingFirst: Promise<unknown>[] = [];
  /** Such a one that could not be recorded. */
  #lostEnd: GatewayError | undefined;
  /** What has been started and not ended, whether or not somebody still waits for what it comes to. */
  readonly #running = new Set<Promise<unknown>>();
  readonly #toldInTime: string[] = [];
  #hasReadOutside: boolean;
  #hasAskedAgents = false;
  #writeStarted: boolean;

  constructor(deps: CoreDeps, adapters: Adapters, context: CallContext, options: ToolRunOptions) {
    this.#deps = deps;
    this.#adapters = adapters;
    this.#context = context;
    this.#options = options;
    this.#writeStarted = options.writesBefore;
    this.#hasReadOutside = options.readOutsideBefore;
  }

  /** From then on a repetition of the chat is not harmless. */
  get writeStarted(): boolean {
    return this.#writeStarted;
  }

  /** From then on outward writes need approval, in the turns that continue this one, too. */
  get hasReadOutside(): boolean {
    return this.#hasReadOutside;
  }

  /** Something of what they have asked for may still be to come. */
  get hasAskedAgents(): boolean {
    return this.#hasAskedAgents;
  }

  /** From here on somebody else speaks, with what it may use; what happens is the same chat's. */
  goOnAs(context: CallContext, via: NonNullable<CallPlace["via"]>): void {
    this.#context = { ...context, span: this.#context.span };
    this.#options = { ...this.#options, via };
  }

  /** Records the round and starts it; the outcomes come in call order, each when it is there. */
  async startRound(items: readonly DispatchItem[]): Promise<readonly RoundCall[]> {
    const prepared = items.map((item) =>
      prepareCall(this.#adapters, this.#context, item, { hasReadOutside: this.#hasReadOutside }),
    );
    this.#hasReadOutside ||= prepared.some(bringsContentFromOutside);
    this.#hasAskedAgents ||= prepared.some(asksAgent);
    const known = await this.#record(prepared);
    await this.recordedFirst();
    return prepared.map((preparation, at) => this.#start(preparation, items[at]?.arguments ?? "", known));
  }

  /** Rows that were not worth a round trip of their own, for the settlement. */
  deferredRows(): readonly NewCall[] | Promise<readonly NewCall[]> {
    if (this.#deferred.length === 0) return [];
    const now = this.#deps.clock.now();
    return Promise.all(
      this.#deferred.map(async ({ row, started, finished }) => ({
        ...(await row),
        ran: { startedMsAgo: now - started, finishedMsAgo: now - finished },
      })),
    );
  }

  /** Calls whose results would have been told later, and are told in this answer already. */
  get toldInTime(): readonly string[] {
    return this.#toldInTime;
  }

  tellInTime(calls: readonly string[]): void {
    this.#toldInTime.push(...calls);
  }

  /** What the model has made of them is in no answer: the next request is told of them again. */
  tellLater(): void {
    this.#toldInTime.length = 0;
  }

  /** Nothing runs any more, all outcomes of recorded calls are in the database, and the other rows are known. */
  finished(): Promise<unknown> | undefined {
    if (this.#running.size === 0 && this.#finishing.length === 0) return undefined;
    return Promise.all(this.#running).then(() => Promise.all(this.#finishing));
  }

  /** What would be sent again is on record, as it has to be before anybody writes after it. */
  recordedFirst(): Promise<unknown> | undefined {
    return this.#endingFirst.length === 0 ? undefined : Promise.all(this.#endingFirst.splice(0));
  }

  async #record(prepared: readonly Preparation[]): Promise<ReadonlyMap<string, Call>> {
    const rows = await Promise.all(
      prepared.flatMap((preparation) => {
        if (preparation.kind === "refused") return [];
        if (preparation.kind === "ready" && isRecordedLater(preparation.call)) return [];
        return [this.#rowOf(preparation)];
      }),
    );
    const existing = new Map<string, Call>();
    if (rows.length === 0) return existing;
    if (rows.some((row) => row.state === "running")) this.#writeStarted = true;
    const { tenant, caller } = this.#context;
    const { chatId, meter } = this.#options;
    const parent = meter.spent === undefined ? undefined : { id: chatId, attempt: 1, spent: meter.spent };
    for (const result of await this.#deps.repos.calls.record(tenant, caller.id, rows, parent)) {
      if (result.kind === "existing") existing.set(result.id, result.call);
    }
    this.#deps.reach("chat.round-recorded");
    return existing;
  }

  #rowOf(preparation: Exclude<Preparation, { kind: "refused" }>): Promise<NewCall> {
    const { call, kind } = preparation;
    const waits = kind === "needs_approval";
    return newToolCall(this.#deps, this.#context, call, {
      ...this.#options,
      state: waits ? "input_required" : "running",
      async: waits,
      effectKey: effectKeyOf(call, this.#occurrenceOf(call)),
      // The chat's own slots cover what it runs; an approved call runs later, on its own.
      slots: waits ? 1 : 0,
      delivery: waits && this.#options.deliverLate ? "due" : "none",
    });
  }

  #occurrenceOf(call: PreparedCall): number {
    const identity = effectKeyOf(call, 0);
    this.#occurrences ??= new Map<string, number>();
    const occurrence = (this.#occurrences.get(identity) ?? 0) + 1;
    this.#occurrences.set(identity, occurrence);
    return occurrence;
  }

  #start(preparation: Preparation, given: DispatchItem["arguments"], existing: ReadonlyMap<string, Call>): RoundCall {
    if (preparation.kind === "refused") {
      tellNotRun(this.#context, preparation);
      this.#defer(
        Promise.resolve(refusedCall(this.#context, this.#options, preparation, given)),
        this.#deps.clock.now(),
      );
      return {
        callId: preparation.id,
        tool: preparation.tool?.name ?? preparation.target,
        outcome: Promise.resolve(preparation.outcome),
      };
    }
    const { call } = preparation;
    const earlier = existing.get(call.id);
    if (earlier !== undefined) return { callId: earlier.id, tool: call.tool.name, outcome: this.#adopt(earlier) };
    if (preparation.kind === "needs_approval") tellNotRun(this.#context, preparation);
    const outcome =
      preparation.kind === "needs_approval"
        ? this.#awaitApproval(call)
        : isRecordedLater(call)
          ? this.#runRead(call)
          : this.#runWrite(call);
    return { callId: call.id, tool: call.tool.name, outcome: this.#watched(outcome) };
  }

  #watched(outcome: Promise<ToolOutcome>): Promise<ToolOutcome> {
    const end = (): boolean => this.#running.delete(ended);
    const ended: Promise<unknown> = outcome.then(end, end);
    this.#running.add(ended);
    return outcome;
  }

  /**
   * An earlier attempt at this chat has made the call. One that was cut short is decided by a worker, and
   * soon; one that was queued from the start may take as long as it likes.
   */
  async #adopt(earlier: Call): Promise<ToolOutcome> {
    if (earlier.async) return this.#told(earlier);
    return outcomeOf(await awaitCall(this.#deps, earlier, this.#options.signal));
  }

  /** Of a call that need not end while somebody waits. */
  #told(call: Call): ToolOutcome {
    const outcome = outcomeOf(call);
    if (outcome.kind !== "pending") this.tellInTime([call.id]);
    return outcome;
  }

  async #runRead(call: PreparedCall): Promise<ToolOutcome> {
    const started = this.#deps.clock.now();
    const { outcome, finish } = await this.#inSlot(call, () => this.#execute(call));
    this.#options.meter.addCall(finish.cost, "deferred");
    const row = newToolCall(this.#deps, this.#context, call, {
      ...this.#options,
      state: "running",
      async: false,
      slots: 0,
      delivery: "none",
    });
    this.#defer(
      row.then((made) => ({ ...made, state: finish.state, end: finish, delivery: this.#deliveryOf(finish) })),
      started,
    );
    return outcome;
  }

  /** Whoever answers what the call asks, the result belongs into this conversation. */
  #deliveryOf({ state }: CallFinish): NewCall["delivery"] {
    const isOpen = state === "input_required" || state === "running" || state === "queued";
    return isOpen && this.#options.deliverLate ? "due" : "none";
  }

  #defer(row: Promise<NewCall>, started: number): void {
    // Waited for with the settlement, which may be long after it has failed.
    row.catch(() => undefined);
    this.#deferred.push({ row, started, finished: this.#deps.clock.now() });
  }

  async #runWrite(call: PreparedCall): Promise<ToolOutcome> {
    this.#lines ??= new Map<string, Promise<unknown>>();
    const before = this.#lines.get(call.service) ?? Promise.resolve();
    // The row is ours while it waits in line, too.
    const lease = holdLease(this.#deps, { tenant: this.#context.tenant, id: call.id, attempt: 1, pollCancel: false });
    const running = before
      .then(() =>
        this.#inSlot(call, () => {
          if (this.#lostEnd !== undefined) throw this.#lostEnd;
          return this.#execute(call);
        }),
      )
      .finally(() => {
        lease.stop();
      });
    const ended = running.then(({ finish }) => {
      this.#options.meter.addCall(finish.cost, "recorded");
      return isLeftToOthers(this.#options.signal, finish) ? undefined : this.#finish(call, finish);
    });
    this.#finishing.push(ended);
    this.#lines.set(call.service, isSentAgain(call) ? ended : running);
    if (isSentAgain(call)) this.#endingFirst.push(ended);
    const { outcome } = await running;
    return outcome;
  }

  async #finish(call: PreparedCall, finish: CallFinish): Promise<void> {
    try {
      const { tenant } = this.#context;
      const end = this.#deliveryOf(finish) === "due" ? withDelivery(finish) : finish;
      const { id, effect, repeat } = call;
      const own = { tenant, id, attempt: 1, effect, repeat };
      const isOurs = await recordEndThroughOutage(this.#deps, own, { finish: end, keepingMs: endKeptMs });
      this.#deps.reach("call.finished");
      if (!isOurs && isSentAgain(call)) await this.#endElsewhere(id);
    } catch (error) {
      // The row keeps its lease until it runs out; then the sweep finds what became of the call.
      const { code } = toGatewayError(error);
      if (isSentAgain(call))
        this.#lostEnd = new GatewayError(
          code,
          `What '${call.tool.name}' came to could not be recorded; nothing is written after it.`,
        );
      this.#deps.log.log("error", "outcome not stored", { call_id: call.id, error: code });
    }
  }

  /** Another process has it since this one stood still, and may be sending it just now. */
  async #endElsewhere(id: string): Promise<void> {
    const row = await this.#deps.repos.calls.get(this.#context.tenant, id);
    if (row !== undefined) await awaitCall(this.#deps, row, this.#options.signal);
  }

  async #execute(call: PreparedCall): Promise<Execution> {
    const { signal, meter, picturesOf } = this.#options;
    const { outcome, finish } = await executeCall(this.#deps, call, this.#context, { attempt: 1, signal });
    const context = meter.contextOf(call.tool, { text: textForModel(outcome), pictures: picturesOf(outcome) });
    return { outcome, finish: { ...finish, cost: { ...(finish.cost ?? noCost), ...context } } };
  }

  async #inSlot(call: PreparedCall, work: () => Promise<Execution>): Promise<Execution> {
    try {
      return await this.#options.slots.run(work);
    } catch (thrown) {
      const error = toGatewayError(thrown);
      return {
        outcome: { kind: "failed", code: error.code, message: error.message },
        finish: {
          state: "failed",
          error: { code: error.code, message: `'${call.tool.name}' was not started. ${error.message}` },
        },
      };
    }
  }

  /** Approval holds nothing; `approval_wait_s` lets a quick decision answer in the same turn. */
  async #awaitApproval(call: PreparedCall): Promise<ToolOutcome> {
    const { tenant, config } = this.#context;
    const until = this.#deps.clock.now() + config.settings.approval_wait_s * 1_000;
    while (this.#deps.clock.now() < until && !this.#options.signal.aborted) {
      await this.#deps.clock.sleep(500, this.#options.signal).catch(() => undefined);
      const row = await this.#deps.repos.calls.get(tenant, call.id);
      const outcome = row === undefined ? undefined : this.#told(row);
      if (outcome !== undefined && outcome.kind !== "pending") return outcome;
    }
    return { kind: "pending", reason: "approval", callId: call.id };
  }
}

/** Reads are not worth a round trip; what goes on from its own record has to have one before it begins. */
function isRecordedLater({ effect, repeat }: PreparedCall): boolean {
  return effect === "read" && repeat !== "resume";
}

/** What comes of a call that goes on is for the session's next chat. */
function withDelivery(finish: CallFinish): CallFinish {
  const { continued, worksOn, parked } = finish;
  return {
    ...finish,
    ...(continued === undefined ? {} : { continued: { ...continued, delivery: "due" } }),
    ...(worksOn === undefined ? {} : { worksOn: { ...worksOn, delivery: "due" } }),
    ...(parked === undefined ? {} : { parked: { ...parked, delivery: "due" } }),
  };
}

/** Whatever comes of the call: the text of an error is somebody else's as well. */
function bringsContentFromOutside(preparation: Preparation): boolean {
  return preparation.kind !== "refused" && preparation.call.tool.outputTrust === "outside";
}

function asksAgent(preparation: Preparation): boolean {
  return preparation.kind !== "refused" && preparation.call.tool.kind === "AGENT";
}
