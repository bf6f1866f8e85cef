/**
 * A call as its caller and the audit read it (CHAT-13): who asked for what, when, and what came of it.
 * The sealed arguments never leave the database; what is shown of them was redacted when the row was made.
 */
import { noCost } from "../budgets/cost.ts";
import { hasScope, type Caller } from "../callers/caller.ts";
import type { Call, CallerLink, CallState } from "./call.ts";
import type { Usage } from "./usage.ts";
import { parseJson, type JsonValue } from "../json.ts";
import { inputRequestsOf } from "./new-call.ts";
import { toRfc3339 } from "../time.ts";

/** Characters of a result shown with its call; the whole is at `result.url`. */
const previewLength = 2_000;

export interface CallView {
  readonly id: string;
  readonly object: "call";
  readonly kind: Call["kind"];
  readonly state: CallState;
  readonly tool: string;
  readonly uri: string;
  readonly effect: Call["effect"];
  readonly async: boolean;
  readonly attempt: number;
  readonly interruptions: number;
  readonly parent_id: string | null;
  readonly root_id: string | null;
  readonly session_id: string | null;
  readonly caller: { readonly id: string; readonly chain: readonly CallerLink[] };
  readonly route: string;
  readonly idempotency_key: string | null;
  /** Redacted arguments; text where they were cut or never were JSON. */
  readonly input: JsonValue;
  readonly result: CallResultView | null;
  /** What a person is asked, by name, before the call goes on. */
  readonly input_requests: JsonValue;
  readonly error: { readonly code: string; readonly message: string; readonly details?: JsonValue } | null;
  readonly usage: Usage | null;
  readonly cost: CallCostView | null;
  readonly cancel_requested: boolean;
  readonly approval: CallApprovalView | null;
  readonly request_id: string;
  readonly trace_id: string;
  readonly created_at: string;
  readonly started_at: string | null;
  readonly finished_at: string | null;
  readonly duration_ms: number | null;
}

/** In micro-units, as prices are. */
export interface CallCostView {
  /** Of the call itself: a chat's model tokens, a tool's price. */
  readonly micros: number;
  readonly tokens: number;
  /** What a tool call put into its chat's prompts: its schema and its result. The chat's cost holds it. */
  readonly context_tokens: number;
  readonly context_micros: number;
  /** With the calls below it that have ended. */
  readonly total_micros: number;
  /** The back end did not tell all of the tokens. */
  readonly estimated: boolean;
}

export interface CallResultView {
  readonly preview: string;
  /** `preview` is the whole result. */
  readonly complete: boolean;
  readonly media_type: string;
  readonly bytes: number;
  readonly url: string;
}

export interface ArchivedCallView extends Omit<CallView, "result"> {
  readonly result: Omit<CallResultView, "url"> | null;
}

export interface CallApprovalView {
  readonly decision: "approved" | "rejected";
  readonly by: string;
  readonly at: string;
  readonly reason: string | null;
}

/** @param costBelow what the calls below it have cost */
export function viewCall(call: Call, costBelow: number): CallView {
  return {
    id: call.id,
    object: "call",
    kind: call.kind,
    state: call.state,
    tool: call.tool,
    uri: call.uri,
    effect: call.effect,
    async: call.async,
    attempt: call.attempt,
    interruptions: call.interruptions,
    parent_id: call.parentId,
    root_id: call.rootId,
    session_id: call.sessionId,
    caller: { id: call.callerId, chain: call.callerChain },
    route: call.route,
    idempotency_key: call.idempotencyKey,
    input: parseJson(call.inputView) ?? call.inputView,
    result: viewResult(call),
    input_requests: inputRequestsOf(call) ?? null,
    error: viewError(call),
    usage: call.usage,
    cost: viewCost(call, costBelow),
    cancel_requested: call.cancelRequested,
    approval: viewApproval(call),
    request_id: call.requestId,
    trace_id: call.traceId,
    created_at: toRfc3339(call.createdAt),
    started_at: call.startedAt === null ? null : toRfc3339(call.startedAt),
    finished_at: call.finishedAt === null ? null : toRfc3339(call.finishedAt),
    duration_ms: call.startedAt === null || call.finishedAt === null ? null : call.finishedAt - call.startedAt,
  };
}

/** As a line of an archive: with all that its row held of the result, since there is nothing else any more. */
export function viewArchivedCall(call: Call, costBelow: number): ArchivedCallView {
  const { outcome } = call;
  const result =
    outcome === null
      ? null
      : {
          preview: outcome.text,
          complete: outcome.blobKey === undefined,
          media_type: outcome.mediaType,
          bytes: outcome.bytes,
        };
  return { ...viewCall(call, costBelow), result };
}

function viewCost({ cost }: Call, below: number): CallCostView | null {
  if (cost === null && below === 0) return null;
  const { micros, tokens, context_tokens, context_micros, estimated } = cost ?? noCost;
  return { micros, tokens, context_tokens, context_micros, total_micros: micros + below, estimated };
}

function viewResult({ id, outcome }: Call): CallResultView | null {
  if (outcome === null) return null;
  const preview = cutText(outcome.text, previewLength);
  return {
    preview,
    complete: outcome.blobKey === undefined && preview.length === outcome.text.length,
    media_type: outcome.mediaType,
    bytes: outcome.bytes,
    url: `/v1/calls/${id}/result`,
  };
}

function viewError(call: Call): CallView["error"] {
  const { error } = call;
  if (error === null || inputRequestsOf(call) !== undefined) return null;
  return {
    code: error.code,
    message: error.message,
    ...(error.details === undefined ? {} : { details: { ...error.details } }),
  };
}

function viewApproval({ approval }: Call): CallApprovalView | null {
  if (approval === null) return null;
  return {
    decision: approval.decision,
    by: approval.by,
    at: toRfc3339(approval.at),
    reason: approval.reason ?? null,
  };
}

/** The first `length` characters, never half of a surrogate pair. */
function cutText(text: string, length: number): string {
  if (text.length <= length) return text;
  const last = text.charCodeAt(length - 1);
  return text.slice(0, last >= 0xd800 && last <= 0xdbff ? length - 1 : length);
}

/**
 * Who may read a call: its own caller, holders of `calls`, and for calls that wait for a person (or
 * did) those who decide about them. For anybody else it does not exist.
 */
export function maySeeCall(caller: Caller, call: Call): boolean {
  if (call.callerId === caller.id || hasScope(caller, "calls")) return true;
  return hasScope(caller, "approve") && (call.state === "input_required" || call.approval !== null);
}
