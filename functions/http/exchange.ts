/**
 * Opens the exchange of a request: its id, its trace, the headers that every answer carries; and
 * closes it with one log line (design "Public contract", headers).
 */
import { newId } from "@toolyard/core/ids";
import type { Metrics } from "@toolyard/core/ports/metrics";
import type { Log } from "@toolyard/core/ports/log";
import type { Span, TraceParent, Traces } from "@toolyard/core/ports/traces";
import { randomHex } from "@toolyard/core/random-hex";
import { formatTraceparent, parseTraceparent, UnsampledSpan } from "@toolyard/core/traces/trace-context";
import { headerOf, type AppContext, type Exchange } from "./app-env.ts";
import { isAlreadySent } from "./sink.ts";

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
    "mcp-session-id, www-authenticate, x-toolyard-call-id, x-toolyard-cost-micros, etag, content-range, " +
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests",
};

export interface ExchangeOptions {
  readonly log: Log;
  readonly metrics?: Metrics | undefined;
  readonly traces?: Traces | undefined;
  /** What the request is answered with where that throws which was to answer it. */
  readonly answerError: (c: AppContext, thrown: unknown) => Response;
}

/** Opens the exchange, has the request answered in it, and closes it. */
export async function answerInExchange(
  c: AppContext,
  { log, metrics, traces, answerError }: ExchangeOptions,
  respond: (c: AppContext) => Response | Promise<Response>,
): Promise<Response> {
  const exchange = toExchange(c, log, traces);
  c.set("exchange", exchange);
  let response: Response;
  try {
    response = await respond(c);
  } catch (thrown) {
    response = answerError(c, thrown);
  }
  if (!isAlreadySent(response)) {
    exchange.status = response.status;
    const { headers } = response;
    for (const [name, value] of Object.entries(exchange.headers)) if (!headers.has(name)) headers.set(name, value);
  }
  writeLine(c, exchange);
  if (metrics !== undefined) measure(metrics, c.req.method, exchange);
  if (exchange.span !== undefined) endSpan(exchange.span, c.req.method, exchange);
  return response;
}

/** Asked every few seconds by balancers and collectors; a span for each would bury the rest. */
const untold: ReadonlySet<string> = new Set(["/health", "/health/live", "/health/ready", "/metrics"]);

/** The path stays out, as in the access log: the route's pattern stands for it. */
function endSpan(span: Span, method: string, exchange: Exchange): void {
  const { route, status = 0 } = exchange;
  if (route !== undefined && untold.has(route)) return;
  if (route !== undefined) span.rename(`${method} ${route}`);
  span.set({
    "http.route": route,
    "http.response.status_code": status,
    "toolyard.request_id": exchange.requestId,
    "toolyard.tenant": exchange.tenant,
    "toolyard.caller": exchange.callerId,
    "toolyard.call.id": exchange.headers["x-toolyard-call-id"],
  });
  if (status >= 500) span.fail(String(status));
  span.end();
}

function measure(metrics: Metrics, method: string, { route = "unmatched", status, startedAt }: Exchange): void {
  metrics.count("toolyard_http_requests_total", { method, route, status: String(status ?? 0) });
  metrics.observe("toolyard_http_request_duration_seconds", { route }, (performance.now() - startedAt) / 1_000);
}

function toExchange(c: AppContext, log: Log, traces: Traces | undefined): Exchange {
  const wanted = headerOf(c, "x-request-id");
  const requestId = wanted !== undefined && /^[\w.:-]{1,128}$/.test(wanted) ? wanted : newId("request");
  const parent = parseTraceparent(headerOf(c, "traceparent"));
  const span = beginSpan(c, traces, parent);
  const traceId = span?.traceId ?? parent?.traceId ?? randomHex(16);
  const traceparent = span?.traceparent ?? formatTraceparent(traceId, randomHex(8), true);
  return {
    requestId,
    traceId,
    span,
    startedAt: performance.now(),
    log,
    headers: { ...answerHeaders, "x-request-id": requestId, traceparent },
  };
}

/** That a caller does not want its trace recorded is passed on, whether or not we record any. */
function beginSpan(c: AppContext, traces: Traces | undefined, parent: TraceParent | undefined): Span | undefined {
  if (traces === undefined) return parent?.sampled === false ? new UnsampledSpan(parent.traceId) : undefined;
  const { method, url } = c.req;
  return traces.begin(method, {
    kind: "server",
    parent,
    attributes: { "http.request.method": method, "url.scheme": url.slice(0, url.indexOf(":")) },
  });
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
