/**
 * The same request was here before: its answer, its error, or a reason to run (again). OpenAI's SDKs repeat requests by
 * themselves and send no key, so an attempt is also known by its caller and its body.
 */
import { readAnswer, type KeptAnswer } from "../calls/kept-answer.ts";
import type { Call } from "../calls/call.ts";
import type { CoreDeps } from "../core-deps.ts";
import { catalog, type ErrorCode } from "../errors/catalog.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { largestKept } from "../models/special.ts";
import type { NewCall } from "../ports/calls.ts";
import { readChatOutcome } from "./stored-chat.ts";
import type { ChatInput } from "./opened-chat.ts";
import type { PreparedRequest } from "./prepare-request.ts";

export interface Replay {
  readonly kind: "replay";
  readonly callId: string;
  readonly body: JsonObject;
  /** Instead of `body`, where no chat was asked for. */
  readonly kept?: KeptAnswer;
}

/** What is tried next when an earlier call stands in the way. */
export type AttemptPlan = { readonly attach?: "any" | "broken_off"; readonly supersedes?: Call };

/** OpenAI's SDKs say when they repeat a request; other clients do it in silence. */
export function firstPlan({ idempotencyKey, isSdkRetry }: ChatInput): AttemptPlan {
  if (idempotencyKey !== undefined) return {};
  return { attach: isSdkRetry ? "any" : "broken_off" };
}

/** Is that of the attempt before gone, which the request does not name? */
export function isLostSession(thrown: unknown, { request }: PreparedRequest, { supersedes }: AttemptPlan): boolean {
  const isGone = thrown instanceof GatewayError && thrown.code === "session_expired";
  return isGone && request.sessionId === undefined && (supersedes?.sessionId ?? null) !== null;
}

export function inNewSession({ supersedes, ...plan }: AttemptPlan): AttemptPlan {
  return supersedes === undefined ? plan : { ...plan, supersedes: { ...supersedes, sessionId: null } };
}

/** Ended with their process, not for anything in the chat. */
const cutShort: ReadonlySet<ErrorCode> = new Set(["chat_interrupted", "shutting_down"]);

type Meeting = Replay | { readonly kind: "again"; readonly plan: AttemptPlan };

/** The same request was here before: its answer, its error, or a reason to run (again). */
export async function meetEarlier(
  deps: CoreDeps,
  existing: { readonly call: Call; readonly by: "key" | "retry" },
  now: { readonly row: NewCall; readonly plan: AttemptPlan; readonly signal: AbortSignal; readonly isChat: boolean },
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
