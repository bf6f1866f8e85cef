/**
 * The one loop: model, tools, model, …, as one stream of events (design "Chat"). Everything that can
 * refuse the request has happened in open-chat.ts; from here on an error is an event.
 */
import type { CallFinish, KeptTurn, SettleInput } from "../ports/calls.ts";
import type { Span } from "../ports/traces.ts";
import type { CoreDeps } from "../core-deps.ts";
import { ChatMeter, type MeteredRound } from "../budgets/chat-meter.ts";
import { tokensOfPrompt } from "../budgets/estimate.ts";
import { answerTokens } from "../budgets/reservation.ts";
import type { StoredOutcome } from "../calls/call.ts";
import { reasonNotKept } from "../calls/new-call.ts";
import { SlotPool } from "../calls/slots.ts";
import { toGatewayError, type GatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import type { DispatchItem } from "../tools/prepare.ts";
import { ToolRun } from "../tools/tool-run.ts";
import { textForModel, type ToolOutcome } from "../tools/outcome.ts";
import { Answer, type Turn } from "./answer.ts";
import { refuseFailure, withWriteStarted } from "./chat-failures.ts";
import { ChatTrace } from "./chat-trace.ts";
import { ChatCollector } from "./collect.ts";
import { Conversation } from "./conversation.ts";
import type { ChatEvent, ToolExecution } from "./events.ts";
import { clientCallId, hasOpaqueFields, keepTurn } from "./kept-turns.ts";
import { LoopGuard } from "./loop-guard.ts";
import { resultsOf } from "./late-results.ts";
import { choiceAfter, choiceFor, dispatchItemOf, isOurs } from "./offer.ts";
import type { OpenedChat } from "./opened-chat.ts";
import { countShown, isOfPictures, picturesMessage, type PicturedResult } from "./pictures.ts";
import type { ProviderEvent } from "./providers/provider.ts";
import { Preamble } from "./preamble.ts";
import { streamWithFallback } from "./providers/route.ts";
import { clientLeft, StopSignal } from "./stop-signal.ts";
import { storeChatOutcome } from "./stored-chat.ts";
import type { AskedCall, TextDialect } from "./text-dialect.ts";
import { toCallEvent, ToldCalls, type CallOwner, type OwnedCall } from "./told-calls.ts";
import { ToolReport } from "./tool-report.ts";
import type { AgentVoice } from "./voice.ts";

/**
 * Events of the chat as they come, those that come together as one: the last is `finish` or `error`; then
 * its settlement. Never throws.
 */
export function runChat(
  deps: CoreDeps,
  chat: OpenedChat,
  take?: TakeChatEvents,
): AsyncGenerator<readonly ChatEvent[], void, void> {
  return new ChatRun(deps, chat, take).events();
}

/**
 * Takes events at once that the reader waits for, as `TakeEvents` of providers: deltas only.
 * @returns a promise where the next ones have to wait until it is resolved
 */
export type TakeChatEvents = (events: readonly ChatEvent[]) => Promise<void> | undefined;

/** Steps besides the model's answer. */
type Steps<Result = void> = AsyncGenerator<readonly ChatEvent[], Result, void>;

class ChatRun {
  readonly #deps: CoreDeps;
  /** Changes where another agent goes on with the conversation. */
  #chat: OpenedChat;
  readonly #take: TakeChatEvents | undefined;
  readonly #tools: ToolRun;
  readonly #guard: LoopGuard;
  readonly #meter: ChatMeter;
  readonly #trace: ChatTrace | undefined;
  readonly #stop: StopSignal;
  /** Undefined where the answer will not be kept. */
  readonly #collector: ChatCollector | undefined;
  readonly #conversation: Conversation;
  /** Made for the first tool. */
  #report: ToolReport | undefined;
  /** The model has been told that it asks for the same again and again. */
  #toldRepetition = false;
  #stoppedBy: ToolExecution["stopped_by"];
  readonly #answer: Answer;
  /** Made for the first of them. */
  #toldCalls: ToldCalls | undefined;
  #keptTurn: KeptTurn | undefined;
  #settled = false;
  #ended: CallFinish["state"] | undefined;
  #error: GatewayError | undefined;

  constructor(deps: CoreDeps, chat: OpenedChat, take: TakeChatEvents | undefined) {
    this.#deps = deps;
    this.#chat = chat;
    this.#take = take;
    this.#conversation = new Conversation(chat);
    this.#answer = new Answer({
      choices: chat.request.choices,
      dialect: chat.dialect,
      preamble: Preamble.of(chat),
      calls: () => this.#calls,
    });
    this.#guard = new LoopGuard(chat.agent?.limits ?? chat.context.config.settings);
    const mayBeKept = chat.idempotencyKey !== undefined || chat.offer.runsTools || chat.late.ids.length > 0;
    this.#collector = mayBeKept ? new ChatCollector() : undefined;
    this.#meter = createMeter(deps, chat, (name) => this.#chat.offer.listed.some((tool) => tool.name === name));
    chat.agent?.meteredBy(() => ({ tokens: this.#meter.cost.tokens, micros: this.#meter.totalMicros }));
    this.#trace = ChatTrace.of(chat);
    this.#stop = new StopSignal(deps, chat, () => this.#meter.spent);
    const limit = chat.context.config.settings.concurrent_tool_calls;
    const slots = new SlotPool(
      chat.slots,
      { limit, take: (wanted) => deps.repos.calls.takeSlots(chat.context.tenant, chat.callId, wanted, limit) },
      deps.clock,
    );
    const context = this.#trace === undefined ? chat.context : { ...chat.context, span: this.#trace.span };
    this.#tools = new ToolRun(deps, deps.adapters, context, {
      chatId: chat.callId,
      route: chat.route,
      parentId: chat.callId,
      rootId: chat.rootId,
      signal: this.#stop.signal,
      slots,
      meter: this.#meter,
      picturesOf: (outcome) =>
        this.#conversation.showsPictures || chat.dialect?.shows(outcome) === true ? countShown(outcome) : 0,
      deliverLate: chat.context.sessionId !== undefined,
      writesBefore: chat.writesBefore,
      readOutsideBefore: chat.hasReadOutside,
      ...(chat.agent === undefined ? {} : { via: chat.agent.via }),
    });
  }

  async *events(): Steps {
    try {
      for (let choice = this.#chat.request.toolChoice; ; choice = choiceAfter(this.#chat.request.toolChoice)) {
        this.#answer.startRound();
        this.#toldCalls?.startRound();
        const metered = this.#meter.startRound(this.#promptTokens);
        const traced = this.#trace?.startRound(metered);
        const round = traced ?? metered;
        try {
          for await (const batch of this.#askModel(choice, round, traced?.span)) {
            const events = this.#translate(batch, round);
            if (events.length > 0) yield this.#told(events);
          }
        } catch (thrown) {
          traced?.fail(this.#stop.reasonAsError() ?? thrown);
          throw thrown;
        } finally {
          round.end();
        }
        const recording = this.#tools.recordedFirst();
        if (recording !== undefined) await recording;
        const turn = this.#turnWithCalls();
        if (turn === undefined) {
          yield this.#told(this.#finish());
          return;
        }
        const { dialect } = this.#chat;
        if (!(dialect?.asks === true ? yield* this.#runAsked(dialect, turn) : yield* this.#runTurn(turn))) return;
      }
    } catch (thrown) {
      yield this.#told([this.#failureOf(thrown)]);
    } finally {
      await this.#end();
    }
  }

  /** Undefined where the answer is complete as it is. */
  #turnWithCalls(): Turn | undefined {
    const { turn } = this.#answer;
    // What asks in text is whole by its marks, also where the reply was cut behind it.
    if (turn !== undefined && this.#chat.dialect?.asks === true) return turn;
    if (turn === undefined || turn.calls.length === 0 || turn.finishReason === "length") return undefined;
    return this.#chat.request.choices > 1 ? undefined : turn;
  }

  /** Runs what is ours of the turn's calls. False: that was the answer. */
  async *#runTurn(turn: Turn): Steps<boolean> {
    const owned = turn.calls.map((call, at) => this.#calls.own(call, 0, at));
    const ours = owned.filter(({ owner }) => owner === "gateway");
    const { agent, offer } = this.#chat;
    const items = ours.map(({ call }) => agent?.itemOf(call) ?? dispatchItemOf(offer, call));
    yield this.#told(owned.map((own) => toCallEvent(own)));
    if (ours.length > 0) {
      agent?.admit();
      this.#guard.admitRound(turn.calls, this.#meter.usage);
      await this.#meter.admitTools(items.map(({ target }) => target));
    }
    const outcomes = yield* this.#runTools(
      ours.map(({ clientId }) => clientId),
      items,
    );
    const results = [
      ...ours.map(({ call }, at) => toToolMessage(call.id, outcomes[at])),
      ...(await this.#picturesOf(outcomes.map((outcome, at) => ({ tool: ours[at]?.call.name ?? "", outcome })))),
    ];
    if (ours.length < owned.length) {
      yield* this.#finishForClient(turn, owned, results);
      return false;
    }
    if (this.#report?.waitsForPerson === true) {
      await this.#tools.recordedFirst();
      yield this.#told(this.#finishForApproval());
      return false;
    }
    this.#conversation.add(turn.message, ...results);
    if (agent !== undefined) yield* this.#goOn(agent);
    // What is recorded is on its own bill; the chat's must not hold it a second time.
    if (this.#meter.isLimited) await this.#tools.finished();
    await this.#meter.admitTurn(this.#promptTokens);
    return true;
  }

  /** In a message behind them, where the model sees any. */
  async #picturesOf(results: readonly PicturedResult[]): Promise<readonly JsonObject[]> {
    if (!this.#conversation.showsPictures) return [];
    const message = await picturesMessage(this.#deps, this.#chat.context, results);
    return message === undefined ? [] : [message];
  }

  /** By another agent, where this one has handed over. */
  async *#goOn(agent: AgentVoice): Steps {
    agent.admit();
    const next = await agent.next(this.#conversation.messages);
    if (next === undefined) return;
    const { from, to, reason, chat, messages } = next;
    yield this.#told([{ type: "handoff", from, to, reason }]);
    this.#chat = { ...this.#chat, ...chat };
    this.#answer.goOnIn(chat.dialect);
    this.#conversation.goOnWith(messages);
    this.#guard.goOnWith(agent.limits);
    this.#tools.goOnAs(chat.context, agent.via);
  }

  #told(events: readonly ChatEvent[]): readonly ChatEvent[] {
    if (this.#collector !== undefined) for (const event of events) this.#collector.add(event);
    return events;
  }

  #failureOf(thrown: unknown): ChatEvent {
    const reason = this.#stop.reasonAsError() ?? toGatewayError(thrown);
    const error = this.#conversation.explain(reason, this.#stop.isCancelled);
    if (error.code === "internal_error") {
      const { cause } = error;
      this.#deps.log.log("error", "chat failed unexpectedly", {
        call_id: this.#chat.callId,
        request_id: this.#chat.context.requestId,
        error: this.#chat.context.redactor.redact(
          cause instanceof Error ? (cause.stack ?? cause.message) : String(cause),
        ),
      });
    }
    this.#error = this.#tools.writeStarted ? withWriteStarted(error) : error;
    this.#ended = this.#stop.isCancelled ? "cancelled" : "failed";
    return { type: "error", error: this.#error, toolExecution: this.#toolExecution() };
  }

  /** Stops what runs and writes what became of it; once, however the chat ended. */
  async #end(): Promise<void> {
    if (this.#ended === undefined) {
      // The consumer left in the middle: the client is gone.
      this.#ended = "cancelled";
      this.#stop.abandon();
      this.#error = clientLeft();
    }
    try {
      await this.#settle();
    } catch (error) {
      this.#deps.log.log("error", "chat not settled", {
        call_id: this.#chat.callId,
        error: toGatewayError(error).code,
      });
    } finally {
      this.#stop.end();
      this.#trace?.end({ state: this.#ended, code: this.#error?.code, usage: this.#meter.reported?.usage });
    }
  }

  #askModel(
    toolChoice: JsonValue | undefined,
    round: MeteredRound,
    span: Span | undefined,
  ): AsyncIterable<readonly ProviderEvent[]> {
    const { request, offer, routes, credential, original } = this.#chat;
    const { egress, clock, log, defaultProvider } = this.#deps;
    const take = this.#take;
    const body: JsonObject = {
      ...request.passthrough,
      messages: this.#conversation.messages,
      ...(offer.tools === undefined ? {} : { tools: [...offer.tools] }),
      ...(offer.tools === undefined || toolChoice === undefined ? {} : { tool_choice: choiceFor(offer, toolChoice) }),
    };
    // Back ends refuse it where there are none.
    if (offer.tools === undefined) delete body["parallel_tool_calls"];
    return streamWithFallback(
      { egress, clock, log, credential, span, ...(defaultProvider === undefined ? {} : { defaultProvider }) },
      {
        routes,
        body,
        ...(original === undefined || this.#answer.round > 1 ? {} : { original }),
        stream: request.stream,
        signal: this.#stop.signal,
        toolsFor: offer.toolsFor,
        onRoute: (route) => round.answeredBy(route),
        sayLess: (failure) => this.#conversation.sayLess(failure),
        take: take && ((batch) => take(this.#told(this.#translate(batch, round)))),
      },
    );
  }

  get #calls(): ToldCalls {
    this.#toldCalls ??= new ToldCalls({
      ownerOf: (name) => this.#ownerOf(name),
      isContinuedFromKept: () => this.#isContinuedFromKept,
    });
    return this.#toldCalls;
  }

  readonly #promptTokens = (): number => tokensOfPrompt(this.#conversation.messages, this.#chat.offer.tools);

  #translate(batch: readonly ProviderEvent[], round: MeteredRound): readonly ChatEvent[] {
    const events: ChatEvent[] = [];
    this.#conversation.answered();
    this.#chat.original?.letGo();
    for (const event of batch) {
      round.see(event);
      this.#answer.read(event, events);
    }
    return events;
  }

  /** Is the turn, where it ends with calls of the client, to be continued with what is kept of it alone? */
  get #isContinuedFromKept(): boolean {
    const { offer, request } = this.#chat;
    if (request.choices > 1) return false;
    return (offer.mayMix && !request.manual) || this.#conversation.tellsMore;
  }

  #ownerOf(name: string): CallOwner {
    if (this.#chat.request.manual || this.#chat.request.choices > 1) return "client";
    if (isOurs(this.#chat.offer, name)) return "gateway";
    // An unknown name is answered by us, so that the model can correct itself.
    return this.#chat.request.clientToolNames.has(name) ? "client" : "gateway";
  }

  /** Outcomes in the order of the calls, told under these ids as they come. */
  async *#runTools(ids: readonly string[], items: readonly DispatchItem[]): Steps<readonly ToolOutcome[]> {
    if (items.length === 0) return [];
    const started = await this.#tools.startRound(items);
    const outcomes: ToolOutcome[] = [];
    for (const [at, running] of started.entries()) {
      const outcome = await running.outcome;
      this.#report ??= new ToolReport(this.#deps.publicUrl);
      yield this.#told([this.#report.add(running.tool, ids[at] ?? "", outcome)]);
      outcomes.push(outcome);
      if (this.#chat.request.failOnToolError) refuseFailure(running.tool, outcome);
    }
    this.#deps.reach("chat.round-finished");
    this.#stop.throwIfStopped();
    return outcomes;
  }

  /** Runs what the model asks for in its text. False: that was the answer. */
  async *#runAsked(dialect: TextDialect, turn: Turn): Steps<boolean> {
    const asked = await this.#admitAsked(dialect);
    if (asked === undefined) {
      yield this.#told(this.#finishAtLimit(turn));
      return false;
    }
    const ids = asked.map(() => clientCallId(newId("call"), false));
    yield this.#told(asked.flatMap(({ call }, at) => this.#tellAsked(call, ids[at] ?? "")));
    const outcomes = yield* this.#runInOrder(asked, ids);
    const { text, messages, goesOn } = await dialect.answer(turn.message, outcomes);
    const pictures = await this.#picturesOf(
      outcomes.flatMap((outcome, at) =>
        dialect.shows(outcome) ? [] : [{ tool: asked[at]?.call.name ?? "", outcome }],
      ),
    );
    if (text !== "") yield this.#told([{ type: "text-delta", text, choice: 0 }]);
    const theirs =
      turn.finishReason === "length" ? [] : turn.calls.filter(({ name }) => this.#ownerOf(name) === "client");
    if (theirs.length > 0) {
      const owned = theirs.map((call) => this.#calls.own(call, 0, turn.calls.indexOf(call)));
      yield this.#told(owned.map((own) => toCallEvent(own)));
      yield* this.#finishForClient(turn, owned, [...messages.slice(1), ...pictures]);
      return false;
    }
    const isAsked = this.#report?.waitsForPerson === true;
    if (isAsked || !goesOn) {
      await this.#tools.recordedFirst();
      yield this.#told(isAsked ? this.#finishForApproval() : this.#finish());
      return false;
    }
    const conversation = this.#conversation;
    conversation.add(...messages, ...pictures);
    const inTime = await dialect.update(conversation.messages);
    this.#tools.tellInTime(inTime);
    // In the place of a placeholder are their words.
    const ended = conversation.showsPictures ? await resultsOf(this.#deps, this.#chat.context.tenant, inTime) : [];
    conversation.add(...(await this.#picturesOf(ended)));
    if (this.#chat.agent !== undefined) yield* this.#goOn(this.#chat.agent);
    if (this.#meter.isLimited) await this.#tools.finished();
    await this.#meter.admitTurn(this.#promptTokens);
    return true;
  }

  /** Undefined where the reply is the last that this chat may have, whatever it asks for. */
  async #admitAsked(dialect: TextDialect): Promise<readonly AskedCall[] | undefined> {
    if (this.#answer.round > dialect.mostRounds) {
      this.#stoppedBy = "rounds";
      return undefined;
    }
    const { hidden, agent } = this.#chat;
    agent?.admit();
    const { messages } = this.#conversation;
    const meant = await dialect.calls(messages.filter((one) => !hidden.has(one) && !isOfPictures(one)));
    const asked =
      agent === undefined ? meant : meant.map((one) => ({ ...one, item: agent.itemOf(one.call) ?? one.item }));
    const repeated = this.#guard.admitAsked(
      asked.map(({ call }) => call),
      this.#meter.usage,
    );
    if (repeated.size === 0) return asked;
    if (this.#toldRepetition) {
      this.#stoppedBy = "repeated_call";
      return undefined;
    }
    // The model is told once; a call that goes round and round ends the chat after that.
    this.#toldRepetition = true;
    return asked.map((one, at) => {
      const refusal = repeated.get(at);
      return refusal === undefined ? one : { ...one, item: { ...one.item, refusal } };
    });
  }

  #tellAsked(call: AskedCall["call"], id: string): readonly ChatEvent[] {
    const index = this.#calls.nextIndex(0);
    const { name, arguments: text } = call;
    return [
      { type: "tool-call-delta", owner: "gateway", index, id, name, arguments: text, choice: 0 },
      {
        type: "tool-call",
        owner: "gateway",
        index,
        call: { id, type: "function", function: { name, arguments: text } },
        choice: 0,
      },
    ];
  }

  /** Those that go first, together; then the others, together. */
  async *#runInOrder(asked: readonly AskedCall[], ids: readonly string[]): Steps<readonly ToolOutcome[]> {
    await this.#meter.admitTools(asked.map(({ item }) => item.target));
    const outcomes = new Map<number, ToolOutcome>();
    for (const isFirst of [true, false]) {
      const group = [...asked.keys()].filter((at) => asked[at]?.isFirst === isFirst);
      const came = yield* this.#runTools(
        group.map((at) => ids[at] ?? ""),
        group.flatMap((at) => asked[at]?.item ?? []),
      );
      for (const [place, outcome] of came.entries()) outcomes.set(group[place] ?? -1, outcome);
    }
    return asked.flatMap((_one, at) => outcomes.get(at) ?? []);
  }

  #finishAtLimit(turn: Turn): readonly ChatEvent[] {
    this.#answer.endAtLimit(turn);
    return this.#finish();
  }

  async *#finishForClient(turn: Turn, owned: readonly OwnedCall[], results: readonly JsonObject[]): Steps {
    const { offer, context } = this.#chat;
    const { before, late } = this.#conversation.added();
    const mixed = before.length > 0 || owned.some(({ owner }) => owner === "gateway");
    if (mixed || offer.mayMix || hasOpaqueFields(turn.message)) {
      const theirs = owned.filter(({ owner }) => owner === "client");
      this.#keptTurn = await keepTurn(this.#deps, context, {
        before,
        late,
        message: turn.message,
        ids: Object.fromEntries(theirs.map(({ clientId, call }) => [clientId, call.id])),
        results,
        inline: mixed && context.runtimeConfig !== undefined,
        readOutside: this.#tools.hasReadOutside,
      });
    }
    const events = this.#told(this.#finish());
    // The client's next request may reach another instance before our last byte is acknowledged.
    if (this.#keptTurn !== undefined) await this.#settle();
    yield events;
  }

  /** Approval never holds an invocation: the turn ends with text that names call and link. */
  #finishForApproval(): readonly ChatEvent[] {
    const text = `${this.#answer.hasText ? "\n\n" : ""}${this.#report?.requests() ?? ""}`;
    this.#answer.endWithOwnText();
    this.#tools.tellLater();
    this.#conversation.tellLateAgain();
    return [{ type: "text-delta", text, choice: 0 }, ...this.#finish()];
  }

  #finish(): readonly ChatEvent[] {
    const { reported } = this.#meter;
    this.#ended = "completed";
    const { body, bytes, reasons } = this.#answer;
    const { sources } = this.#chat;
    const finish: ChatEvent = {
      type: "finish",
      reasons,
      toolExecution: this.#toolExecution(),
      ...(sources.length === 0 ? {} : { sources }),
      micros: this.#meter.totalMicros,
      ...(body === undefined ? {} : { body }),
      ...(bytes === undefined || sources.length > 0 ? {} : { bytes }),
    };
    return reported === undefined ? [finish] : [{ type: "usage", ...reported }, finish];
  }

  #toolExecution(): ToolExecution | undefined {
    return this.#report?.execution(this.#chat.context.sessionId ?? "", this.#stoppedBy);
  }

  async #settle(): Promise<void> {
    if (this.#settled) return;
    this.#settled = true;
    const running = this.#tools.finished();
    if (running !== undefined) await running;
    this.#deps.reach("chat.before-settle");
    const state = this.#ended ?? "failed";
    const outcome =
      state === "completed" && this.#collector !== undefined && this.#isWorthKeeping()
        ? await this.#keepOutcome(this.#collector.body())
        : undefined;
    const error = this.#error;
    const deferred = this.#tools.deferredRows();
    await this.#deps.repos.calls.settle(this.#chat.context.tenant, {
      callId: this.#chat.callId,
      attempt: 1,
      finish: {
        state,
        ...(outcome === undefined ? {} : { outcome }),
        ...(error === undefined
          ? {}
          : {
              error: {
                code: error.code,
                message: this.#chat.context.runtimeConfig === undefined ? error.message : reasonNotKept,
                details: { write_started: this.#tools.writeStarted },
              },
            }),
        cost: this.#meter.cost,
        ...(this.#meter.usage === undefined ? {} : { usage: this.#meter.usage }),
      },
      calls: deferred instanceof Promise ? await deferred : deferred,
      finished: [],
      // What a model made of them is in no answer where there is none: they are told again, unless that cannot help.
      delivered: [
        ...(state === "completed" || state === "failed" ? this.#conversation.lateTold(state === "completed") : []),
        ...(state === "completed" ? this.#tools.toldInTime : []),
      ],
      ...(this.#keptTurn === undefined ? {} : { keepTurn: this.#keptTurn }),
      ...this.#sessionToKeep(),
    });
    this.#deps.reach("chat.settled");
  }

  /** One that the request did not name is begun where something may still be to come, for whoever goes on in it. */
  #sessionToKeep(): Pick<SettleInput, "sessionId" | "beginsSession"> {
    const { request, context } = this.#chat;
    if (request.sessionId !== undefined) return { sessionId: request.sessionId };
    const isOver = this.#report?.hasPending !== true && !this.#tools.hasAskedAgents;
    if (context.sessionId === undefined || isOver) return {};
    return { sessionId: context.sessionId, beginsSession: true };
  }

  /** Undefined where it cannot be kept: what the chat has done and cost is on record all the same. */
  async #keepOutcome(body: JsonObject): Promise<StoredOutcome | undefined> {
    try {
      return await storeChatOutcome(this.#deps, this.#chat, body);
    } catch (thrown) {
      const { code } = toGatewayError(thrown);
      this.#deps.log.log("error", "a chat's answer could not be kept", { call_id: this.#chat.callId, code });
      return undefined;
    }
  }

  /** A retry of a plain chat may ask the model again; one that ran tools, told of late results or has a key must not. */
  #isWorthKeeping(): boolean {
    return (
      this.#chat.idempotencyKey !== undefined ||
      this.#report?.hasCalled === true ||
      this.#conversation.lateIds.length > 0
    );
  }
}

function createMeter(
  deps: CoreDeps,
  { callId, context, request, reserved, routes }: OpenedChat,
  isListed: (name: string) => boolean,
): ChatMeter {
  const { tenant, config } = context;
  return new ChatMeter({
    prices: config.prices,
    clock: deps.clock,
    routes,
    reserved,
    isListed,
    answerTokens: answerTokens(request, config),
    reserve: (amount, spent) => deps.repos.calls.reserve(tenant, callId, 1, { amount, spent }),
  });
}

function toToolMessage(id: string, outcome: ToolOutcome | undefined): JsonObject {
  return { role: "tool", tool_call_id: id, content: outcome === undefined ? "" : textForModel(outcome) };
}
