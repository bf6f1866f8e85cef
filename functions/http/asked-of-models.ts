/** What a request asks of a model, and what the answer's headers say of it: the same for chats and all else (VCP-17). */
import type { Presented } from "@toolyard/core/callers/authenticate";
import type { Opening } from "@toolyard/core/chat/open-chat";
import type { ChatInput } from "@toolyard/core/chat/opened-chat";
import { headerOf, hostOf, type AppContext } from "./app-env.ts";
import { readIdempotencyKey } from "./idempotency-key.ts";
import { setRateLimitHeaders } from "./rate-limit-headers.ts";
import { wholeAnswerLimit } from "./silence.ts";

export interface Asked extends Pick<ChatInput, "exchange" | "vcp"> {
  readonly presented: Presented;
  readonly body: unknown;
  readonly bytes: Uint8Array;
}

/** @throws GatewayError `invalid_request` for an `Idempotency-Key` that is none */
export function toChatInput(c: AppContext, asked: Asked, stop: AbortController): ChatInput {
  const { requestId, traceId, span } = c.get("exchange");
  const idempotencyKey = readIdempotencyKey(c);
  const timeLimitMs = Math.min(
    Number(headerOf(c, "x-stainless-timeout")) * 1_000 || Number.POSITIVE_INFINITY,
    hostOf(c).lambda?.remainingMs() ?? Number.POSITIVE_INFINITY,
  );
  return {
    ...asked.presented,
    requestId,
    traceId,
    span,
    route: c.req.path,
    vcp: asked.vcp,
    exchange: asked.exchange,
    body: asked.body,
    rawBody: asked.bytes,
    isSdkRetry: Number(headerOf(c, "x-stainless-retry-count")) > 0,
    stop,
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
    ...(Number.isFinite(timeLimitMs) ? { timeLimitMs } : {}),
    ...wholeAnswerLimit(c),
  };
}

export function setOpeningHeaders(c: AppContext, { rate, callerId, callId, kind }: Opening): void {
  const exchange = c.get("exchange");
  exchange.callerId = callerId;
  setRateLimitHeaders(exchange.headers, rate);
  exchange.headers["x-toolyard-call-id"] = callId;
  if (kind === "replay") exchange.headers["idempotent-replayed"] = "true";
}
