/** What is known of the fate of a request to a back end, said along with the error that it ended in. */
import type { ErrorCode } from "./catalog.ts";
import { GatewayError } from "./gateway-error.ts";

/**
 * Whether a write may have happened: `not_sent` (safe to repeat), `answered` (the back end said no), or
 * `uncertain` (sent, no answer: a write becomes `unknown`).
 */
export type Delivery = "not_sent" | "answered" | "uncertain";

const deliveries = new WeakMap<Error, Delivery>();

/** Marks an error with what is known of the request's fate and returns it, for `throw`. */
export function withDelivery<E extends Error>(error: E, delivery: Delivery): E {
  deliveries.set(error, delivery);
  return error;
}

const silences: ReadonlySet<ErrorCode> = new Set([
  "tool_timeout",
  "tool_unreachable",
  "call_cancelled",
  "internal_error",
]);

/**
 * Unmarked catalogued errors are an answer (the adapter knew what it said); a time-out, a broken
 * connection or a foreign error is `uncertain`: silence is never taken for "not sent".
 */
export function deliveryOf(error: unknown): Delivery {
  const marked = error instanceof Error ? deliveries.get(error) : undefined;
  if (marked !== undefined) return marked;
  return error instanceof GatewayError && !silences.has(error.code) ? "answered" : "uncertain";
}
