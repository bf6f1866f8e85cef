/**
 * The call record: audit entry, idempotency key, async task and approval in one row (design "The call").
 *
 * ```
 * queued → running → completed | failed | cancelled | unknown ;  running → input_required → queued
 * queued | input_required → cancelled ;  queued | input_required | running → rejected (before anything was sent)
 * unknown → completed | failed by late evidence; nothing else leaves an end state
 * ```
 */
import type { Amount } from "../budgets/budget.ts";
import type { CallCost } from "../budgets/cost.ts";
import type { Caller, Scope } from "../callers/caller.ts";
import type { ErrorCode } from "../errors/catalog.ts";
import type { JsonValue } from "../json.ts";
import type { Effect, Repeat } from "../tools/effect.ts";
import type { Usage } from "./usage.ts";

export const callStates = [
  "queued",
  "running",
  "input_required",
  "completed",
  "failed",
  "cancelled",
  "unknown",
  "rejected",
] as const;

export type CallState = (typeof callStates)[number];

export const endStates: readonly CallState[] = ["completed", "failed", "cancelled", "unknown", "rejected"];

export interface CallError {
  readonly code: ErrorCode;
  readonly message: string;
  readonly details?: { readonly [key: string]: JsonValue };
}

/** Who stands behind a call, outermost first, for the audit. */
export interface CallerLink {
  readonly kind: string;
  readonly id: string;
}

/** The result as kept: inline text for small ones, else a blob. */
export interface StoredOutcome {
  readonly text: string;
  readonly mediaType: string;
  /** Size of the whole result. */
  readonly bytes: number;
  /** Blob key of the whole result where `text` is only its head. */
  readonly blobKey?: string;
}

export interface Call {
  readonly id: string;
  readonly tenant: string;
  readonly kind: "chat" | "tool";
  /** The chat or the call that asked for this one. */
  readonly parentId: string | null;
  /** The first chat of a row of retries; writes are deduplicated under it. */
  readonly rootId: string | null;
  readonly sessionId: string | null;
  readonly uri: string;
  readonly tool: string;
  readonly toolHash: string | null;
  readonly effect: Effect;
  readonly repeat: Repeat;
  readonly state: CallState;
  /** Claims so far; fences every later write of an older claimant. */
  readonly attempt: number;
  /** Claimants in a row that have gone silent over it, up to the claim in force. */
  readonly interruptions: number;
  /** Epoch milliseconds of the database's clock, as are all times here. */
  readonly leaseUntil: number | null;
  readonly runAt: number | null;
  readonly deadline: number | null;
  /** Worker runs it (`queued` first) instead of the request's own process. */
  readonly async: boolean;
  readonly callerId: string;
  /** End user on whose behalf the caller asks. */
  readonly userId: string | null;
  readonly callerChain: readonly CallerLink[];
  readonly route: string;
  readonly idempotencyKey: string | null;
  /** HMAC under the tenant's key of the canonical input; equal inputs are equal. */
  readonly inputHash: string;
  /** JWE of `SealedInput`; removed some days after the end state. */
  readonly input: string | null;
  /** For people: redacted and capped. */
  readonly inputView: string;
  /** Identity of a write under its root: tool, arguments, occurrence. */
  readonly effectKey: string | null;
  readonly outcome: StoredOutcome | null;
  readonly error: CallError | null;
  readonly usage: Usage | null;
  /** Of the call itself; null where nothing is known yet. */
  readonly cost: CallCost | null;
  /** Held against budgets while it runs. */
  readonly reserved: Amount;
  /** Reserved tool slots of the tenant (CHAT-12). */
  readonly slots: number;
  readonly cancelRequested: boolean;
  readonly approval: {
    readonly by: string;
    readonly at: number;
    readonly decision: "approved" | "rejected";
    readonly reason?: string;
  } | null;
  /** A result that the session's next request still has to receive. */
  readonly delivery: "none" | "due" | "delivered";
  readonly requestId: string;
  readonly traceId: string;
  readonly createdAt: number;
  readonly startedAt: number | null;
  readonly finishedAt: number | null;
}

/** What can be told of a row that holds something else than rows hold. */
export interface UnreadableCall extends Pick<Call, "attempt" | "interruptions" | "effect" | "parentId"> {
  readonly cause: unknown;
}

/** What a worker needs to carry out a call that another process accepted. */
export interface SealedInput {
  readonly arguments: { readonly [key: string]: JsonValue };
  readonly uri: string;
  readonly sessionId?: string;
  /** W3C trace context of what asked for the call. */
  readonly traceparent?: string;
  /** As admitted; a key is read again before the call runs, since it may have been revoked. */
  readonly caller: Caller;
  /** What the caller needs for it, where that is not what tools need. */
  readonly scope?: Scope;
  /** What the back end asked a person for, and where it was answered what. */
  readonly asked?: {
    readonly requests: { readonly [key: string]: JsonValue };
    readonly state?: string;
    readonly responses?: { readonly [key: string]: JsonValue };
  };
}

/** A person's word on a call that waits. */
export interface CallDecision {
  readonly by: string;
  readonly decision: "approved" | "rejected";
  readonly reason?: string;
  /** Of a call that waits for answers: its sealed input with them, and the attempt that had asked. */
  readonly answered?: { readonly input: string; readonly attempt: number };
}
