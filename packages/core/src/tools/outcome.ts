/** What a tool call came to, as a model, a caller and the record see it. Domain values, never thrown. */
import type { ErrorCode } from "../errors/catalog.ts";
import type { ErrorDetails, GatewayError } from "../errors/gateway-error.ts";
import type { JsonValue } from "../json.ts";

/** A body kept whole in the blob store; read on with `read_result` or `GET /v1/calls/{id}/result`. */
export interface ResultHandle {
  readonly callId: string;
  readonly bytes: number;
  readonly mediaType: string;
  /** Of one in parts: so many pictures are among them; absent: nobody has counted. */
  readonly pictures?: number;
}

/** Of a result of several parts, as MCP servers and VCP plugins give them: is that its media type? */
export function isInParts(mediaType: string): boolean {
  return /^application\/json; profile=(?:mcp|vcp)-result$/.test(mediaType);
}

export interface CompletedOutcome {
  readonly kind: "completed";
  /** What the model reads: text or JSON text, redacted and capped. */
  readonly text: string;
  readonly mediaType: string;
  /** Present where `text` is only the head of the result, or the result is binary. */
  readonly handle?: ResultHandle;
  /** Set where the result was reused: `cache` (CHAT-14) or `replay` (same effect already done). */
  readonly reused?: "cache" | "replay";
}

export interface PendingOutcome {
  readonly kind: "pending";
  readonly reason: "async" | "approval" | "input";
  readonly callId: string;
  /** Where it waits for input: what a person is asked, by name. */
  readonly requests?: { readonly [key: string]: JsonValue };
  /** What the back end has answered first, of those that answer and work on. */
  readonly first?: Pick<CompletedOutcome, "text" | "mediaType" | "handle">;
}

export interface FailedOutcome {
  readonly kind: "failed";
  readonly code: ErrorCode;
  readonly message: string;
  readonly details?: { readonly [key: string]: JsonValue };
}

/** Refused before anything ran: permission, arguments, limits, a person's no. */
export interface RejectedOutcome {
  readonly kind: "rejected";
  readonly code: ErrorCode;
  readonly message: string;
  readonly details?: { readonly [key: string]: JsonValue };
}

/** Of what has come, whole or as a first answer. */
export function handleOf(outcome: ToolOutcome): ResultHandle | undefined {
  if (outcome.kind === "pending") return outcome.first?.handle;
  return outcome.kind === "completed" ? outcome.handle : undefined;
}

type OutcomeDetails = NonNullable<FailedOutcome["details"]>;

/** What an error says besides code and message, as outcome and record keep it. */
export function toOutcomeDetails({ details }: GatewayError): OutcomeDetails | undefined {
  const { param, extra, retryAfterMs } = details;
  if (param === undefined && retryAfterMs === undefined) return extra;
  return {
    ...extra,
    ...(param === undefined ? {} : { param }),
    ...(retryAfterMs === undefined ? {} : { retry_after_ms: Math.ceil(retryAfterMs) }),
  };
}

/** The same as parts of an error again. */
export function toErrorDetails(
  details: OutcomeDetails | undefined,
): Pick<ErrorDetails, "param" | "extra" | "retryAfterMs"> {
  if (details === undefined) return {};
  const { param, retry_after_ms: retryAfterMs, ...extra } = details;
  return {
    extra,
    ...(typeof param === "string" ? { param } : {}),
    ...(typeof retryAfterMs === "number" ? { retryAfterMs } : {}),
  };
}

/** Those of a call that was refused: that its address leads nowhere is the fault of the field that names the tool. */
export function toRefusalDetails(
  { code, details }: Pick<RejectedOutcome, "code" | "details">,
  isUri = true,
): ReturnType<typeof toErrorDetails> {
  const isAddress = code === "invalid_uri" || code === "tool_not_found";
  return { ...(isAddress ? { param: isUri ? "uri" : "name" } : {}), ...toErrorDetails(details) };
}

export type ToolOutcome = CompletedOutcome | PendingOutcome | FailedOutcome | RejectedOutcome;

const pendingMessages = {
  approval: "Waits for a person's approval; the result comes with a later request.",
  input: "The tool asks a person for something first; the result comes with a later request.",
  async: "Still running; the result comes later.",
} as const satisfies Record<PendingOutcome["reason"], string>;

/** What the model reads of an outcome. */
export function textForModel(outcome: ToolOutcome): string {
  switch (outcome.kind) {
    case "completed":
      return outcome.text;
    case "pending":
      if (outcome.first !== undefined) return outcome.first.text;
      return JSON.stringify({
        status: "pending",
        call_id: outcome.callId,
        message: pendingMessages[outcome.reason],
      });
    case "failed":
    case "rejected":
      return JSON.stringify({
        error: {
          code: outcome.code,
          message: outcome.message,
          ...(outcome.details === undefined ? {} : { details: outcome.details }),
        },
      });
    default:
      return outcome satisfies never;
  }
}
