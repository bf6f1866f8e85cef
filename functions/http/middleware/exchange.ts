/**
 * Opens the exchange of a request: its id, its trace, the headers that every answer carries; and
 * closes it with one log line (design "Public contract", headers).
 */
import { newId } from "@toolyard/core/ids";
import type { Metrics } from "@toolyard/core/ports/metrics";
import type { Log } from "@toolyard/core/ports/log";
import { headerOf, hostOf, type AppContext, type Exchange } from "../app-env.ts";
import { randomHex } from "../random-hex.ts";
import { isAlreadySent } from "../sink.ts";

/** Nothing in an answer is for a shared cache or another origin's eyes; callers are told apart by their key. */
const answerHeaders: Readonly<Record<string, string>> = {
  "cache-control": "private, no-store",
  vary: "Authorization",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  // Keys are sent by hand, never by the browser, so any page may ask.
  "access-control-allow-origin": "*",
  "access-control-expose-headers":
    "x-request-id, traceparent, retry-after, x-should-retry, idempotent-replayed, ratelimit, ratelimit-policy, " +
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests",
};

export interface ExchangeOptions {
  readonly log: Log;
  readonly isDraining: () => boolean;
  readonly metrics?: Metrics | undefined;
}

/** Opens the exchange, has the request answered in it, and closes it. */
export async function answerInExchange(
  c: AppContext,
  { log, isDraining, metrics }: ExchangeOptions,
  answer: () => Promise<Response>,
): Promise<Response> {
  const exchange = toExchange(c, log);
  c.set("exchange", exchange);
  if (isDraining() && hostOf(c).incoming !== undefined) exchange.headers["connection"] = "close";
  const response = await answer();
  if (!isAlreadySent(response)) {
    exchange.status = response.status;
    const { headers } = response;
    for (const [name, value] of Object.entries(exchange.headers)) if (!headers.has(name)) headers.set(name, value);
  }
  writeLine(c, exchange);
  if (metrics !== undefined) measure(metrics, c.req.method, exchange);
  return response;
}

function measure(metrics: Metrics, method: string, { route = "unmatched", status, startedAt }: Exchange): void {
  metrics.count("toolyard_http_requests_total", { method, route, status: String(status ?? 0) });
  metrics.observe("toolyard_http_request_duration_seconds", { route }, (performance.now() - startedAt) / 1_000);
}

function toExchange(c: AppContext, log: Log): Exchange {
  const wanted = headerOf(c, "x-request-id");
  const requestId = wanted !== undefined && /^[\w.:-]{1,128}$/.test(wanted) ? wanted : newId("request");
  const { traceId, flags } = readTrace(headerOf(c, "traceparent"));
  const traceparent = `00-${traceId}-${randomHex(8)}-${flags}`;
  return {
    requestId,
    traceId,
    startedAt: performance.now(),
    log,
    headers: { ...answerHeaders, "x-request-id": requestId, traceparent },
  };
}

/** W3C trace context: a header that does not follow it counts as absent. */
function readTrace(traceparent: string | undefined): { readonly traceId: string; readonly flags: string } {
  const [, version, traceId, spanId, flags] =
    /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:$|-)/.exec(traceparent ?? "") ?? [];
  const known = traceId !== undefined && flags !== undefined && spanId !== undefined && version !== "ff";
  if (known && /[^0]/.test(traceId) && /[^0]/.test(spanId)) return { traceId, flags };
  return { traceId: randomHex(16), flags: "01" };
}

/** The route's pattern stands for the path, which may hold the token of a callback. */
function writeLine(c: AppContext, exchange: Exchange): void {
  exchange.log.log("info", "request", {
    request_id: exchange.requestId,
    trace_id: exchange.traceId,
    method: c.req.method,
    route: exchange.route ?? "unmatched",
    status: exchange.status,
    duration_ms: Math.round((performance.now() - exchange.startedAt) * 10) / 10,
    tenant: exchange.tenant,
    caller: exchange.callerId,
  });
}
