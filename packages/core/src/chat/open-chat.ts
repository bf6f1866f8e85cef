/**
 * From a request to a chat that may run: who asks, what it may use, whether it was asked before.
 * Everything here refuses with a status, before the first byte of an answer.
 */
import { hash } from "node:crypto";
import { overBudget, type Amount } from "../budgets/budget.ts";
import { noCost } from "../budgets/cost.ts";
import { reserveChat } from "../budgets/reservation.ts";
import type { Caller, Scope } from "../callers/caller.ts";
import { admit, afterStale, identify } from "../calls/admit.ts";
import type { Call } from "../calls/call.ts";
import { holdLease } from "../calls/lease.ts";
import { reasonNotKept } from "../calls/new-call.ts";
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { knowledgeOf } from "../knowledge/asked.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import type { AdmitResult, NewCall } from "../ports/calls.ts";
import type { TenantConfig } from "../tenant-config.ts";
import type { ChatToPrepare, PreparedChat } from "../vcp/pipeline/prepared-chat.ts";
import { mayHoldTurns, restoreTurns } from "./kept-turns.ts";
import { insertBeforeLastUser, lateResults, withPictures, type LateResults } from "./late-results.ts";
import { makeRoom } from "./pictures.ts";
import { OriginalRequest } from "./providers/forwardable-body.ts";
import type { ChatRequest } from "./schema.ts";
import { cancelled, interrupted } from "./stop-signal.ts";
import type { TextDialect } from "./text-dialect.ts";
import type { ChatInput, OpenedChat } from "./opened-chat.ts";
import { admissionOf, chatRow, refusedRow } from "./chat-row.ts";
import { firstPlan, inNewSession, isLostSession, meetEarlier, type Replay } from "./earlier-attempt.ts";
import { prepareRequest, type PreparedRequest } from "./prepare-request.ts";

interface Opened {
  readonly callId: string;
  readonly callerId: string;
  readonly request: ChatRequest;
  readonly rate: AdmitResult["rate"];
}

export type Opening =
  | (Opened & { readonly kind: "run"; readonly chat: OpenedChat })
  /** The answer that the same request got before. */
  | (Opened & Replay);

/** Left of that limit for our error to get out and the chat to be settled. */
const marginMs = 1_000;

const maxAdmissions = 8;

/** @throws GatewayError whatever refuses the request */
export async function openChat(deps: CoreDeps, input: ChatInput): Promise<Opening> {
  const digest = hash("sha256", input.rawBody, "base64url");
  let plan = firstPlan(input);
  for (let admission = 0, stale = 0; admission < maxAdmissions;) {
    const identifying = identify(deps, input, scopesFor(input));
    const { caller, config } = identifying instanceof Promise ? await identifying : identifying;
    let prepared: PreparedRequest;
    try {
      prepared = await prepareRequest(deps, input, { caller, config, earlier: plan.supersedes });
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

/** @throws GatewayError `error`, unless it came from an outdated configuration */
async function recordRefusal(
  deps: CoreDeps,
  input: ChatInput,
  { caller, config, error }: { readonly caller: Caller; readonly config: TenantConfig; readonly error: GatewayError },
): Promise<void> {
  const refused = refusedRow(input, {
    userId: caller.userId ?? null,
    error: { code: error.code, message: usesConfig(input) ? reasonNotKept : error.message },
  });
  const { tenant, principal } = input;
  const expectedConfigVersion = config.version;
  const limits = { countRequest: input.inner === undefined };
  const admission = { tenant, principal, call: refused, limits, expectedConfigVersion };
  const { result } = await admit(deps, admission, { scope: null });
  if (result.outcome.kind !== "stale_config") throw error;
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
    readonly prepared: PreparedRequest;
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
  given: {
    readonly prepared: PreparedRequest;
    readonly messages: readonly JsonObject[];
    readonly due: readonly Call[];
  },
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
  { context, request, offer, routes }: PreparedRequest,
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
  given: { readonly prepared: PreparedRequest; readonly row: NewCall; readonly messages: readonly JsonObject[] },
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
