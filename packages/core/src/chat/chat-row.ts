/** A chat on record: its row, and what is asked of the admission beside it. */
import { nothing } from "../budgets/budget.ts";
import { agentsWorkWithFiles, worksWithFiles } from "../agents/file-tools.ts";
import type { CallError, CallerLink } from "../calls/call.ts";
import type { CoreDeps } from "../core-deps.ts";
import { newId } from "../ids.ts";
import type { AdmitInput, NewCall } from "../ports/calls.ts";
import { turnKeysOf } from "./kept-turns.ts";
import type { ChatRequest } from "./schema.ts";
import type { ChatInput } from "./opened-chat.ts";
import type { AttemptPlan } from "./earlier-attempt.ts";
import type { PreparedRequest } from "./prepare-request.ts";

/** Tool slots that a chat with tools asks for when it starts; more are taken when they are needed. */
const slotsPerChat = 4;

/** How long a request that comes again may mean the one before. */
const attachWithinMs = 15 * 60_000;

/** What is asked of the admission of a chat beside its row. */
export function admissionOf(
  input: ChatInput,
  prepared: PreparedRequest,
  { row, plan }: { readonly row: NewCall; readonly plan: AttemptPlan },
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

/** The row that a chat begins with. */
export function chatRow(
  deps: CoreDeps,
  input: ChatInput,
  {
    prepared,
    inputHash,
    plan,
  }: { readonly prepared: PreparedRequest; readonly inputHash: string; readonly plan: AttemptPlan },
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

/** The row of a chat that was refused before it could begin. */
export function refusedRow(input: ChatInput, { userId, error }: Refusal): NewCall {
  return { ...rowFields(input, { userId }), inputHash: "", state: "rejected", end: { state: "rejected", error } };
}

interface Refusal {
  readonly userId: string | null;
  readonly error: CallError;
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
