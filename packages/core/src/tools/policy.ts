/** When a call may be sent again, and when (design "Retries only for what is safe to repeat"). */
import type { ErrorCode } from "../errors/catalog.ts";
import type { GatewayError } from "../errors/gateway-error.ts";
import type { Delivery } from "../errors/delivery.ts";
import type { Effect, Repeat } from "./effect.ts";

const passingCodes: ReadonlySet<ErrorCode> = new Set(["tool_unreachable", "tool_timeout", "tool_deferred"]);
const passingStatuses = new Set([408, 425, 429, 500, 502, 503, 504]);

/** May the same thing work in a moment? */
export function isPassing(error: GatewayError): boolean {
  if (passingCodes.has(error.code)) return true;
  const status = error.details.extra?.["status"];
  return error.code === "tool_failed" && typeof status === "number" && passingStatuses.has(status);
}

/** Can sending it once more do no harm? */
export function mayRepeat(call: { readonly effect: Effect; readonly repeat: Repeat }, delivery: Delivery): boolean {
  return call.effect === "read" || call.repeat !== "never" || delivery === "not_sent";
}

/**
 * Longest time a back end may ask for (`Retry-After`) that is slept out: who waits holds its slot, its lease and one of
 * the few hands that all tenants share.
 */
const longestRetryAfterMs = 10_000;

/** Is it waited for? What is not ends the call, which tells `retry_after_ms`. @param leftMs of the call's own time */
export function isWaitedFor(retryAfterMs: number | undefined, leftMs: number): boolean {
  return retryAfterMs === undefined || retryAfterMs <= Math.min(longestRetryAfterMs, leftMs);
}

/** Milliseconds before send number `send` + 1: doubling from 200 ms to 10 s, half of it random. */
export function backoffMs(send: number, retryAfterMs: number | undefined, random: () => number = Math.random): number {
  const ceiling = Math.min(10_000, 200 * 2 ** (send - 1));
  return Math.max(retryAfterMs ?? 0, ceiling / 2 + (random() * ceiling) / 2);
}
