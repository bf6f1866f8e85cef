/**
 * From a request to a chat that may run: who asks, what it may use, whether it was asked before.
 * Everything here refuses with a status, before the first byte of an answer.
 */
import { hash } from "node:crypto";
import {
  createCredentialResolver,
  describeMissing,
  findCredential,
  missingCredentials,
} from "../blind/credential-resolver.ts";
import { parseRuntimeConfig } from "../blind/register.ts";
import { nothing, overBudget, type Amount } from "../budgets/budget.ts";
import { noCost } from "../budgets/cost.ts";
import { reserveChat } from "../budgets/reservation.ts";
import { isAgentModel } from "../agents/agent.ts";
import { agentsWorkWithFiles, worksWithFiles } from "../agents/file-tools.ts";
import type { AgentRun } from "../agents/agent-run.ts";
import type { Caller, Scope } from "../callers/caller.ts";
import { readAnswer, type KeptAnswer } from "../calls/kept-answer.ts";
import { admit, afterStale, identify } from "../calls/admit.ts";
import type { Call, CallerLink } from "../calls/call.ts";
import { holdLease } from "../calls/lease.ts";
import { reasonNotKept } from "../calls/new-call.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { catalog, type ErrorCode } from "../errors/catalog.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { newId } from "../ids.ts";
import { knowledgeOf } from "../knowledge/asked.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { forImageModel, isImageChat, largestKept, parseExchange } from "../models/special.ts";
import { requireConnection } from "../oauth/connect.ts";
import type { AdmitInput, AdmitResult, NewCall } from "../ports/calls.ts";
import { Redactor } from "../secrets/redactor.ts";
import type { TenantConfig } from "../tenant-config.ts";
import type { ChatToPrepare, PreparedChat } from "../vcp/pipeline/prepared-chat.ts";
import { restoreTurns, turnKeysOf, mayHoldTurns } from "./kept-turns.ts";
import { insertBeforeLastUser, lateResults, withPictures, type LateResults } from "./late-results.ts";
import { noOffer, offerIn, type Offer } from "./offer.ts";
import { makeRoom } from "./pictures.ts";
import { OriginalRequest } from "./providers/forwardable-body.ts";
import { resolveRoute, type Route } from "./providers/route.ts";
import { parseChatRequest, type ChatRequest, type ToolProtocol } from "./schema.ts";
import { cancelled, interrupted } from "./stop-signal.ts";
import { readChatOutcome } from "./stored-chat.ts";
import type { TextDialect } from "./text-dialect.ts";
import type { ChatInput, OpenedChat } from "./opened-chat.ts";

interface Opened {
  readonly callId: string;
  readonly callerId: string;
  readonly request: ChatRequest;
  readonly rate: AdmitResult["rate"];
}

interface Replay {
  readonly kind: "replay";
  readonly callId: string;
  readonly body: JsonObject;
  /** Instead of `body`, where no chat was asked for. */
  readonly kept?: KeptAnswer;
}

export type Opening =
  | (Opened & { readonly kind: "run"; readonly chat: OpenedChat })
  /** The answer that the same request got before. */
  | (Opened & Replay);

/** Tool slots that a chat with tools asks for when it starts; more are taken when they are needed. */
const slotsPerChat = 4;

const attachWithinMs = 15 * 60_000;

/** Left of that limit for our error to get out and the chat to be settled. */
const marginMs = 1_000;

const maxAdmissions = 8;

interface Prepared {
  readonly request: ChatRequest;
  readonly agent: AgentRun | undefined;
  readonly protocol: ToolProtocol;
  readonly isRelayed: boolean;
  readonly context: CallContext;
  readonly offer: Offer;
  readonly routes: readonly Route[];
  readonly reserved: Amount | undefined;
  readonly credential: (name: string) => Promise<string>;
}

interface Known {
  readonly caller: Caller;
  readonly config: TenantConfig;
  /** The attempt at the same request that this one goes on with. */
  readonly earlier: Call | undefined;
}

/** What is tried next when an earlier call stands in the way. */
type Plan = { readonly attach?: "any" | "broken_off"; readonly supersedes?: Call };

/** @throws GatewayError whatever refuses the request */
export async function openChat(deps: CoreDeps, input: ChatInput): Promise<Opening> {
  const digest = hash("sha256", input.rawBody, "base64url");
  let plan = firstPlan(input);
  for (let admission = 0, stale = 0; admission < maxAdmissions;) {
    const identifying = identify(deps, input, scopesFor(input));
    const { caller, config } = identifying instanceof Promise ? await identifying : identifying;
    let prepared: Prepared;
    try {
      prepared = await prepare(deps, input, { caller, config, earlier: plan.supersedes });
    } catch (thrown) {
      await recordRefusal(deps, input, { caller, config, error: toGatewayError(thrown) });
      await afterStale(stale++);
      continue;
    }
    const inputHash = await deps.sealer.hash(input.tenant, prepared.context.config.wrappedKey, digest);
    const row = chatRow(deps, input, { prepared, inputHash, plan });
    let result: AdmitResult;
    try {
      ({ result } = await admit(deps, admissionOf(input, prepared, { row, plan }), { scope: null }));
    } catch (thrown) {
      if (!isLostSession(thrown, prepared, plan)) throw thrown;
      plan = inNewSession(plan);
      continue;
    }
    const { outcome } = result;
    const opened = { callerId: caller.id, request: prepared.request, rate: result.rate };
    // The admission has loaded the newer configuration.
    if (outcome.kind === "stale_config") {
      await afterStale(stale++);
      continue;
    }
    if (outcome.kind === "existing") {
      admission += 1;
      const next = await meetEarlier(deps, outcome, {
        row,
        plan,
        signal: input.stop.signal,
        isChat: input.exchange === undefined,
      });
      if (next.kind === "replay") return { ...next, ...opened };
      plan = next.plan;
      continue;
    }
    deps.reach("chat.admitted");
    const chat = await openAdmitted(deps, input, { prepared, row, result, earlier: plan.supersedes });
    return { kind: "run", chat, ...opened, callId: row.id };
  }
  throw new GatewayError("idempotency_in_progress", "Other attempts at this request keep starting; try again.", {
    retryAfterMs: 1_000,
  });
}

/** Is that of the attempt before gone, which the request does not name? */
function isLostSession(thrown: unknown, { request }: Prepared, { supersedes }: Plan): boolean {
  const isGone = thrown instanceof GatewayError && thrown.code === "session_expired";
  return isGone && request.sessionId === undefined && (supersedes?.sessionId ?? null) !== null;
}

function inNewSession({ supersedes, ...plan }: Plan): Plan {
  return supersedes === undefined ? plan : { ...plan, supersedes: { ...supersedes, sessionId: null } };
}

function scopesFor(input: ChatInput): readonly Scope[] {
  if (input.isNeeded === true || input.inner !== undefined) return [];
  return bringsConfig(input) ? ["chat", "runtime_config"] : ["chat"];
}

function bringsConfig({ body }: ChatInput): boolean {
  return isJsonObject(body) && (body["runtime_config"] ?? null) !== null;
}

function usesConfig(input: ChatInput): boolean {
  return bringsConfig(input) || input.inner?.runtimeConfig !== undefined;
}

/** OpenAI's SDKs say when they repeat a request; other clients do it in silence. */
function firstPlan({ idempotencyKey, isSdkRetry }: ChatInput): Plan {
  if (idempotencyKey !== undefined) return {};
  return { attach: isSdkRetry ? "any" : "broken_off" };
}

/** @throws GatewayError `error`, unless it came from an outdated configuration */
async function recordRefusal(
  deps: CoreDeps,
  input: ChatInput,
  { caller, config, error }: Pick<Known, "caller" | "config"> & { readonly error: GatewayError },
): Promise<void> {
  const refused: NewCall = {
    ...rowFields(input, { userId: caller.userId ?? null }),
    inputHash: "",
    state: "rejected",
    end: {
      state: "rejected",
      error: { code: error.code, message: usesConfig(input) ? reasonNotKept : error.message },
    },
  };
  const { tenant, principal } = input;
  const expectedConfigVersion = config.version;
  const limits = { countRequest: input.inner === undefined };
  const admission = { tenant, principal, call: refused, limits, expectedConfigVersion };
  const { result } = await admit(deps, admission, { scope: null });
  if (result.outcome.kind !== "stale_config") throw error;
}

async function prepare(deps: CoreDeps, input: ChatInput, { caller, config, earlier }: Known): Promise<Prepared> {
  const asked = input.exchange === undefined ? parseChatRequest(input.body) : parseExchange(input.body, input.exchange);
  const isPicture = input.exchange === undefined && isImageChat(config.settings, asked);
  const isRelayed = isPicture || input.exchange !== undefined;
  const brought =
    asked.runtimeConfig === undefined
      ? input.inner?.runtimeConfig
      : parseRuntimeConfig(asked.runtimeConfig, { egress: deps.egress });
  const known: CallContext = {
    tenant: input.tenant,
    caller,
    config,
    requestId: input.requestId,
    traceId: input.traceId,
    span: input.span,
    redactor: new Redactor(),
    ...(brought === undefined ? {} : { runtimeConfig: brought }),
  };
  const agentModel = isRelayed ? undefined : agentModelOf(config, asked);
  const agent = agentModel === undefined ? undefined : await agentOf(deps, known, { model: agentModel, asked, input });
  const { context } = agent ?? { context: known };
  const request = agent?.request ?? (isPicture ? forImageModel(asked) : asked);
  const protocol = agent?.protocol ?? protocolOf(input, request, config);
  const offer = isRelayed ? noOffer : (agent?.offer ?? offerIn(protocol, deps.adapters, { context, request }));
  // Files that an attempt before has written are in its session, and what comes late of its calls is told there.
  const session = request.sessionId ?? (offer.runsTools ? (earlier?.sessionId ?? newId("session")) : undefined);
  const placed: CallContext = session === undefined ? context : { ...context, sessionId: session };
  if (session !== undefined) agent?.workIn(session);
  if (offer.listed.length > 0) await checkCredentials(deps, placed, offer);
  const routes = resolveRoute(config, request.model, deps.defaultProvider);
  return {
    request,
    agent,
    protocol,
    isRelayed,
    context: placed,
    offer,
    routes,
    reserved: reserveChat({ config, caller }, { request, tools: offer.tools, routes }, deps.clock),
    credential: async (name) => {
      const value = (await createCredentialResolver(deps).resolve(placed, [name])).get(name);
      if (value === undefined) {
        throw new GatewayError(
          "credential_missing",
          `The model back end needs the credential '${name}', which is not stored; add it with PUT /v1/credentials/${name}.`,
          { param: name },
        );
      }
      placed.redactor.add(value);
      return value;
    },
  };
}

function agentModelOf({ settings }: TenantConfig, asked: ChatRequest): string | undefined {
  const model = asked.model ?? settings.default_model;
  return isAgentModel(model) ? model : undefined;
}

/** What it takes to be an agent is read for the chats that ask for one. */
async function agentOf(
  deps: CoreDeps,
  context: CallContext,
  asked: { readonly model: string; readonly asked: ChatRequest; readonly input: ChatInput },
): Promise<AgentRun | undefined> {
  const { openAgentRun } = await import("../agents/agent-run.ts");
  return openAgentRun(deps, context, asked);
}

function protocolOf({ vcp }: ChatInput, { toolProtocol }: ChatRequest, { settings }: TenantConfig): ToolProtocol {
  return vcp !== undefined ? "vcp" : (toolProtocol ?? settings.tool_protocol);
}

/** Presence and readability of what the offered tools need, before the model is asked (BLIND-5). */
async function checkCredentials(deps: CoreDeps, context: CallContext, offer: Offer): Promise<void> {
  const names = new Set(offer.listed.flatMap((tool) => tool.requiredCredentials));
  if (names.size === 0) return;
  for (const tool of offer.listed) {
    const missing = missingCredentials(context, tool.requiredCredentials)[0];
    if (missing === undefined) continue;
    throw new GatewayError(
      "credential_missing",
      `Tool '${tool.name}' needs the credential '${missing}', which ${describeMissing(context, missing)}, or disable the tool.`,
      { param: missing, toolName: tool.name },
    );
  }
  await checkReadable(deps, context, names);
  for (const tool of offer.listed) await requireConnection(deps, context, tool);
}

/** What could be opened stays readable for as long as the snapshot does. */
const readable = new WeakMap<TenantConfig, Set<string>>();

async function checkReadable(deps: CoreDeps, context: CallContext, names: ReadonlySet<string>): Promise<void> {
  const known = readable.get(context.config) ?? new Set<string>();
  readable.set(context.config, known);
  const identity = (name: string): string => `${context.caller.userId ?? ""} ${name}`;
  // Values of the request's own are there and readable, and say nothing of those that are stored.
  const unknown = [...names].filter(
    (name) => !known.has(identity(name)) && findCredential(context, name)?.level !== "inline",
  );
  if (unknown.length === 0) return;
  await createCredentialResolver(deps).resolve(context, unknown);
  for (const name of unknown) known.add(identity(name));
}

/** Ended with their process, not for anything in the chat. */
const cutShort: ReadonlySet<ErrorCode> = new Set(["chat_interrupted", "shutting_down"]);

function admissionOf(
  input: ChatInput,
  prepared: Prepared,
  { row, plan }: { readonly row: NewCall; readonly plan: Plan },
): AdmitInput {
  const { request, offer, context, agent } = prepared;
  // Agents, as tools and behind a handover, may be bound to tools that the request itself is not offered.
  const tools = [...offer.gatewayTools.values()];
  const usesWorkspace =
    tools.some(worksWithFiles) ||
    ((agent?.handsOver === true || tools.some(({ kind }) => kind === "AGENT")) && agentsWorkWithFiles(context.config));
  const session = request.sessionId ?? (usesWorkspace ? context.sessionId : undefined);
  const turnKeys = turnKeysOf(request.messages);
  return {
    tenant: input.tenant,
    principal: input.principal,
    call: row,
    limits: { countRequest: input.inner === undefined },
    expectedConfigVersion: context.config.version,
    known: { caller: context.caller, settings: context.config.settings },
    ...(offer.runsTools ? { slots: { wanted: slotsPerChat, required: false } } : {}),
    ...(plan.attach === undefined ? {} : { attach: { withinMs: attachWithinMs, to: plan.attach } }),
    ...(plan.supersedes === undefined ? {} : { supersedes: plan.supersedes.id }),
    ...(turnKeys.length === 0 ? {} : { turnKeys }),
    // Whoever asks for an inner chat has opened the session, and gets what comes late.
    ...(session === undefined || session === input.inner?.sessionId ? {} : { sessionId: session }),
  };
}

function chatRow(
  deps: CoreDeps,
  input: ChatInput,
  { prepared, inputHash, plan }: { readonly prepared: Prepared; readonly inputHash: string; readonly plan: Plan },
): NewCall {
  const { request, context } = prepared;
  const earlier = plan.supersedes;
  return {
    ...rowFields(input, {
      request,
      sessionId: context.sessionId ?? null,
      userId: context.caller.userId ?? null,
      model: prepared.agent?.model ?? prepared.routes[0]?.requestedModel,
      uri: prepared.agent?.uri,
      via: prepared.agent?.via ?? input.inner?.via,
    }),
    reserved: prepared.reserved ?? nothing,
    rootId: earlier === undefined ? (input.inner?.rootId ?? null) : (earlier.rootId ?? earlier.id),
    state: "running",
    inputHash,
    leaseMs: deps.timing.leaseMs,
    // Chats that are relayed are not kept, so they cannot be given again.
    idempotencyKey: prepared.isRelayed && input.exchange === undefined ? null : (input.idempotencyKey ?? null),
  };
}

/** The record of a chat says what was asked for, never what was said. */
function rowFields(
  input: ChatInput,
  known: {
    readonly userId: string | null;
    readonly request?: ChatRequest;
    readonly sessionId?: string | null;
    /** As the request names it, or the one that is meant where it names none. */
    readonly model?: string | undefined;
    readonly uri?: string | undefined;
    readonly via?: readonly CallerLink[] | undefined;
  },
) {
  const { request } = known;
  return {
    id: newId("chat"),
    kind: "chat" as const,
    parentId: input.inner?.parentId ?? input.within ?? null,
    rootId: null,
    sessionId: known.sessionId ?? null,
    uri: known.uri ?? input.exchange ?? "chat",
    tool: known.model ?? request?.model ?? "",
    toolHash: null,
    effect: "read" as const,
    repeat: "never" as const,
    async: false,
    userId: known.userId,
    callerChain: [...(known.via ?? [])],
    route: input.route,
    idempotencyKey: null,
    input: null,
    inputView: JSON.stringify(
      request === undefined
        ? {}
        : { model: request.model ?? null, messages: request.messages.length, stream: request.stream },
    ),
    effectKey: null,
    slots: 0,
    reserved: nothing,
    leaseMs: 0,
    deadlineMs: null,
    runAt: null,
    delivery: "none" as const,
    requestId: request?.clientRequestId ?? input.requestId,
    traceId: input.traceId,
  };
}

type Meeting = Replay | { readonly kind: "again"; readonly plan: Plan };

/** The same request was here before: its answer, its error, or a reason to run (again). */
async function meetEarlier(
  deps: CoreDeps,
  existing: { readonly call: Call; readonly by: "key" | "retry" },
  now: { readonly row: NewCall; readonly plan: Plan; readonly signal: AbortSignal; readonly isChat: boolean },
): Promise<Meeting> {
  const { by } = existing;
  // Whoever does not say that this is a retry asks anew; only what was written stays written.
  if (now.plan.attach === "broken_off") return { kind: "again", plan: { supersedes: existing.call } };
  if (by === "key" && existing.call.inputHash !== now.row.inputHash) {
    throw new GatewayError(
      "idempotency_key_reused",
      "This Idempotency-Key was used for another request body; take a new key.",
      { param: "Idempotency-Key" },
    );
  }
  const call = existing.call.state === "running" ? await awaitEnd(deps, existing, now.signal) : existing.call;
  if (call.state === "completed" && !now.isChat) return giveAgain(deps, call, by);
  if (call.state === "completed") {
    const body = await readChatOutcome(deps, call);
    if (body !== undefined) return { kind: "replay", callId: call.id, body };
    if (by === "key") throw answerNotKept(call, "what it is kept in was away");
    return { kind: "again", plan: {} };
  }
  const writeStarted = call.error?.details?.["write_started"] === true;
  const wasCut = call.state === "cancelled" || (call.error !== null && cutShort.has(call.error.code));
  // What was cut short goes on under the same root: its writes are found again, not repeated.
  if (wasCut) return { kind: "again", plan: { supersedes: call } };
  const { code, message } = call.error ?? { code: "internal_error" as const, message: "The earlier request failed." };
  const mayTryAgain = !writeStarted && (by === "retry" || catalog[code].retryable);
  if (mayTryAgain) return { kind: "again", plan: { supersedes: call } };
  throw new GatewayError(code, message, {
    extra: { replayed: true, ...(writeStarted ? { write_started: true } : {}) },
  });
}

/** Of what is no chat. */
async function giveAgain(deps: CoreDeps, call: Call, by: "key" | "retry"): Promise<Meeting> {
  const kept = await readAnswer(deps, call);
  if (kept !== undefined) return { kind: "replay", callId: call.id, body: {}, kept };
  if (by === "retry") return { kind: "again", plan: {} };
  throw answerNotKept(call, `${largestKept} bytes at most are`);
}

function answerNotKept({ id }: Call, why: string): GatewayError {
  return new GatewayError(
    "conflict",
    `The first request with this Idempotency-Key was answered, and its answer was not kept (${why}); take a new key.`,
    { param: "Idempotency-Key", extra: { call_id: id } },
  );
}

/** Waits for a running call where that is asked for; ends one whose process went silent. */
async function awaitEnd(
  deps: CoreDeps,
  { call, by }: { readonly call: Call; readonly by: "key" | "retry" },
  signal: AbortSignal,
): Promise<Call> {
  let current = call;
  for (let waitMs = 50; current.state === "running"; waitMs = Math.min(waitMs * 2, 1_000)) {
    const silent = current.leaseUntil !== null && current.leaseUntil < deps.clock.now();
    // The database has the last word: this machine's clock may be ahead of its own.
    const claimed = silent
      ? await deps.repos.calls.claim(current.tenant, current.id, {
          leaseMs: deps.timing.leaseMs,
          concurrency: Number.MAX_SAFE_INTEGER,
        })
      : "busy";
    if (typeof claimed === "object" && "call" in claimed) {
      await deps.repos.calls.finish(current.tenant, current.id, claimed.call.attempt, {
        state: "failed",
        error: {
          code: "chat_interrupted",
          message: "The process that answered this chat stopped before it was done.",
        },
      });
    } else if (by === "key") {
      throw new GatewayError(
        "idempotency_in_progress",
        "The first request with this Idempotency-Key is still running.",
        {
          param: "Idempotency-Key",
          retryAfterMs: 1_000,
          extra: { call_id: current.id },
        },
      );
    } else {
      await deps.clock.sleep(waitMs, signal);
    }
    current = (await deps.repos.calls.get(current.tenant, current.id)) ?? current;
  }
  return current;
}

/** Whoever could not say so at its end may have. */
function mayHaveWritten(earlier: Call | undefined): boolean {
  return earlier !== undefined && earlier.error?.details?.["write_started"] !== false;
}

/**
 * What the chat is told besides its request may take as long to read as a tool call, and so may its preparation: meanwhile
 * its row stays ours, and it can be cancelled.
 */
async function openAdmitted(
  deps: CoreDeps,
  input: ChatInput,
  admitted: {
    readonly prepared: Prepared;
    readonly row: NewCall;
    readonly result: AdmitResult;
    readonly earlier: Call | undefined;
  },
): Promise<OpenedChat> {
  const { prepared, row, result, earlier } = admitted;
  const { request, context } = prepared;
  const writesBefore = input.inner === undefined ? mayHaveWritten(earlier) : input.inner.isRepeated;
  const { signal } = input.stop;
  const lease = holdLease(deps, {
    tenant: input.tenant,
    id: row.id,
    attempt: 1,
    pollCancel: true,
    onEnd: (why) => input.stop.abort(why === "lost" ? interrupted() : cancelled()),
  });
  try {
    const due = result.session?.due ?? [];
    // Waited for where there is something to do: most chats have none of it.
    const restored = mayHoldTurns(request.messages)
      ? await restoreTurns(deps, context, {
          messages: request.messages,
          turns: result.turns,
          ended: due.map(({ id }) => id),
        })
      : { messages: request.messages, hasReadOutside: false };
    const read: ReadInProtocol =
      prepared.protocol === "vcp"
        ? await readInVcp(deps, input, { prepared, messages: restored.messages, due })
        : { messages: restored.messages, late: lateResults(due) };
    const late = due.length === 0 ? read.late : await withPictures(deps, context, { late: read.late, due });
    const preparing = prepareForModel(deps, input, { prepared, row, messages: read.messages });
    const conversation = preparing instanceof Promise ? await preparing : preparing;
    // Behind the pipeline: what a tool has said is not for it to work on.
    const messages = insertBeforeLastUser(conversation.messages, late.messages);
    makeRoom(messages);
    const reserved =
      prepared.reserved === undefined
        ? undefined
        : await reserveGrowth(deps, prepared, { reserved: prepared.reserved, callId: row.id, messages });
    if (signal.reason instanceof GatewayError) throw signal.reason;
    return {
      request,
      context,
      offer: prepared.offer,
      agent: prepared.agent,
      routes: prepared.routes,
      isRelayed: prepared.isRelayed,
      credential: prepared.credential,
      dialect: read.dialect,
      callId: row.id,
      rootId: row.rootId ?? row.id,
      writesBefore,
      route: input.route,
      messages,
      late,
      hidden: conversation.hidden,
      sources: conversation.sources,
      hasReadOutside:
        restored.hasReadOutside ||
        due.length > 0 ||
        conversation.sources.length > 0 ||
        input.inner?.readOutside === true,
      slots: result.outcome.kind === "admitted" ? result.outcome.slots : 0,
      idempotencyKey: input.idempotencyKey,
      reserved,
      wallClockMs: conversation.wallClockMs,
      original:
        isJsonObject(input.body) && prepared.agent === undefined
          ? new OriginalRequest(input.rawBody, input.body)
          : undefined,
      stop: input.stop,
    };
  } catch (thrown) {
    const error = signal.reason instanceof GatewayError ? signal.reason : toGatewayError(thrown);
    await deps.repos.calls.finish(input.tenant, row.id, 1, {
      state: error.code === "request_cancelled" ? "cancelled" : "failed",
      error: { code: error.code, message: error.message, details: { write_started: writesBefore } },
    });
    throw error;
  } finally {
    lease.stop();
  }
}

interface ReadInProtocol {
  readonly messages: readonly JsonObject[];
  readonly dialect?: TextDialect | undefined;
  readonly late: LateResults;
}

/** The dialect of the chats that speak one is loaded for them alone. */
async function readInVcp(
  deps: CoreDeps,
  input: ChatInput,
  given: { readonly prepared: Prepared; readonly messages: readonly JsonObject[]; readonly due: readonly Call[] },
): Promise<ReadInProtocol> {
  const { prepared, messages, due } = given;
  const { context, request, offer } = prepared;
  const { openVcpDialect } = await import("../vcp/dialect/vcp-dialect.ts");
  return openVcpDialect(deps, {
    context,
    isStream: request.stream,
    showsResults: input.vcp?.showsResults === true || context.config.settings.show_vcp,
    runsTools: offer.runsTools,
    messages,
    contextTokens: request.contextTokens,
    due,
    hasSession: request.sessionId !== undefined,
  });
}

const nothingHidden: ReadonlySet<JsonObject> = new Set();

/**
 * What the chat is told besides its request has to fit into the budgets, too. One trip more, where one applies and the
 * conversation has grown.
 * @throws GatewayError `cost_exceeded`
 */
async function reserveGrowth(
  deps: CoreDeps,
  { context, request, offer, routes }: Prepared,
  {
    reserved,
    callId,
    messages,
  }: { readonly reserved: Amount; readonly callId: string; readonly messages: readonly JsonObject[] },
): Promise<Amount> {
  const plan = { request: { ...request, messages }, tools: offer.tools, routes };
  const amount = reserveChat(context, plan, deps.clock) ?? reserved;
  if (amount.tokens <= reserved.tokens && amount.micros <= reserved.micros) return reserved;
  const refusal = await deps.repos.calls.reserve(context.tenant, callId, 1, { amount, spent: { cost: noCost } });
  if (refusal !== undefined) throw overBudget("cost_exceeded", refusal);
  return amount;
}

/** What the pipeline makes of the conversation, for chats that it applies to; loaded for them alone. */
function prepareForModel(
  deps: CoreDeps,
  input: ChatInput,
  given: { readonly prepared: Prepared; readonly row: NewCall; readonly messages: readonly JsonObject[] },
): PreparedChat | Promise<PreparedChat> {
  const { prepared, row, messages } = given;
  const { context, request, agent, offer, routes, protocol, isRelayed } = prepared;
  const wallClockMs = Math.min(
    wallClockOf(context.config, limitOf(input, request)),
    agent?.leftMs ?? Number.POSITIVE_INFINITY,
  );
  const isOpen = !isRelayed && input.within === undefined;
  const { message_pipeline: pipeline, chat_knowledge_bases: usual } = context.config.settings;
  const isWhole = isOpen && (protocol === "vcp" || pipeline === "all");
  const knowledge = isOpen ? knowledgeOf(request.knowledge, agent === undefined ? usual : []) : undefined;
  if (!isWhole && knowledge === undefined) {
    return { messages, hidden: nothingHidden, sources: [], wallClockMs };
  }
  const plan = { request, tools: offer.tools, routes };
  const asked = { callId: row.id, messages, plan, isWhole, knowledge };
  return runPipeline(deps, context, { ...asked, wallClockMs, stop: input.stop });
}

async function runPipeline(deps: CoreDeps, context: CallContext, chat: ChatToPrepare): Promise<PreparedChat> {
  const { prepareChat } = await import("../vcp/pipeline/prepare-chat.ts");
  return prepareChat(deps, context, chat);
}

function limitOf({ timeLimitMs, wholeLimitMs }: ChatInput, { stream }: ChatRequest): number | undefined {
  if (stream || wholeLimitMs === undefined) return timeLimitMs;
  return Math.min(wholeLimitMs, timeLimitMs ?? Number.POSITIVE_INFINITY);
}

function wallClockOf(config: TenantConfig, timeLimitMs: number | undefined): number {
  const own = config.settings.wall_clock_ms;
  return timeLimitMs === undefined ? own : Math.max(1_000, Math.min(own, timeLimitMs - marginMs));
}
