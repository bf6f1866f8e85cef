/**
 * Traces that go to an OTLP backend over HTTP (CHAT-15). Spans wait in memory and leave in batches: on a
 * server every few seconds, in a function before its invocation ends. Whatever the collector does, nobody
 * waits for it longer than `flush` is told to, and what cannot be kept is dropped and counted.
 */
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { toGatewayError } from "@toolyard/core/errors/gateway-error";
import type { Egress } from "@toolyard/core/ports/egress";
import type { Log } from "@toolyard/core/ports/log";
import type { Attributes, Span, SpanKind, SpanStart, Traces } from "@toolyard/core/ports/traces";
import { randomHex } from "@toolyard/core/random-hex";
import { formatTraceparent, UnsampledSpan } from "@toolyard/core/traces/trace-context";
import { contentTypes, encodeSpans, type EndedSpan, type Resource } from "./otlp-message.ts";
import { createSampler, type Sampler } from "./sampler.ts";
import type { OtlpProtocol, SamplerOptions } from "./settings.ts";

export interface OtlpOptions {
  /** Whole address, `…/v1/traces`. */
  readonly url: string;
  readonly protocol: OtlpProtocol;
  readonly headers: Readonly<Record<string, string>>;
  readonly gzip: boolean;
  /** Milliseconds for one request. */
  readonly timeoutMs: number;
  readonly sampler: SamplerOptions;
  readonly resource: Resource;
  /** Milliseconds that a span may wait; undefined: until `flush`. */
  readonly everyMs: number | undefined;
}

export interface OtlpDeps {
  /** Of the operator's own traffic: rules for tools do not hold for it. */
  readonly egress: Egress;
  readonly log: Log;
}

export interface ExportedTraces extends Traces {
  /** Sends what has ended so far; resolves when that is done or the time is up. Never throws. */
  flush(withinMs: number): Promise<void>;
  /** The same for the last time: also where the collector has failed just now. */
  close(withinMs: number): Promise<void>;
}

const mostWaiting = 4_096;
const largestBatch = 512;
/** After a failure the collector is left alone for so long, at first and at most. */
const firstPauseMs = 5_000;
const longestPauseMs = 60_000;
/** Worth a second try (OTLP/HTTP, "Retryable Response Codes"). */
const passing: ReadonlySet<number> = new Set([429, 502, 503, 504]);
const compress = promisify(gzip);

export function createOtlpTraces(options: OtlpOptions, deps: OtlpDeps): ExportedTraces {
  return new OtlpTraces(options, deps);
}

class OtlpTraces implements ExportedTraces {
  readonly #sampler: Sampler;
  readonly #outbox: Outbox;

  constructor(options: OtlpOptions, deps: OtlpDeps) {
    this.#sampler = createSampler(options.sampler);
    this.#outbox = new Outbox(options, deps);
  }

  begin(name: string, start: SpanStart): Span {
    const { parent } = start;
    const traceId = parent?.traceId ?? randomHex(16);
    if (!this.#sampler(traceId, parent?.sampled)) return new UnsampledSpan(traceId);
    const startedAt = Date.now() - (start.startedMsAgo ?? 0);
    const above = parent?.spanId === undefined ? undefined : { spanId: parent.spanId, isRemote: true };
    return new RecordedSpan(name, start, { outbox: this.#outbox, traceId, parent: above, startedAt });
  }

  flush(withinMs: number): Promise<void> {
    return this.#outbox.flush(withinMs);
  }

  close(withinMs: number): Promise<void> {
    this.#outbox.resume();
    return this.#outbox.flush(withinMs);
  }
}

interface Origin {
  readonly outbox: Outbox;
  readonly traceId: string;
  readonly parent: EndedSpan["parent"];
  readonly startedAt: number;
}

class RecordedSpan implements Span {
  readonly traceId: string;
  readonly traceparent: string;
  readonly #spanId = randomHex(8);
  readonly #origin: Origin;
  readonly #kind: SpanKind;
  /** Durations are of the clock that is never set. */
  readonly #mark: number;
  readonly #attributes: Record<string, Attributes[string]>;
  #name: string;
  #hasFailed = false;
  #hasEnded = false;

  constructor(name: string, { kind, attributes, startedMsAgo = 0 }: Omit<SpanStart, "parent">, origin: Origin) {
    this.#mark = performance.now() - startedMsAgo;
    this.traceId = origin.traceId;
    this.traceparent = formatTraceparent(origin.traceId, this.#spanId, true);
    this.#name = name;
    this.#kind = kind;
    this.#origin = origin;
    this.#attributes = { ...attributes };
  }

  child(name: string, kind: SpanKind, attributes: Attributes = {}): Span {
    const { outbox, traceId } = this.#origin;
    const parent = { spanId: this.#spanId, isRemote: false };
    return new RecordedSpan(name, { kind, attributes }, { outbox, traceId, parent, startedAt: this.#now() });
  }

  set(attributes: Attributes): void {
    if (this.#hasEnded) return;
    Object.assign(this.#attributes, attributes);
  }

  rename(name: string): void {
    if (this.#hasEnded) return;
    this.#name = name;
  }

  fail(code: string): void {
    if (this.#hasEnded) return;
    this.#hasFailed = true;
    // The first reason is the nearest.
    this.#attributes["error.type"] ??= code;
  }

  end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    const { outbox, traceId, parent, startedAt } = this.#origin;
    outbox.put({
      traceId,
      spanId: this.#spanId,
      parent,
      name: this.#name,
      kind: this.#kind,
      startedAt,
      endedAt: this.#now(),
      attributes: this.#attributes,
      hasFailed: this.#hasFailed,
    });
  }

  #now(): number {
    return this.#origin.startedAt + (performance.now() - this.#mark);
  }
}

/** Spans on their way out. */
class Outbox {
  readonly #options: OtlpOptions;
  readonly #deps: OtlpDeps;
  #waiting: EndedSpan[] = [];
  #dropped = 0;
  #timer: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;
  #pauseMs = 0;
  #pausedUntil = 0;

  constructor(options: OtlpOptions, deps: OtlpDeps) {
    this.#options = options;
    this.#deps = deps;
  }

  put(span: EndedSpan): void {
    if (this.#waiting.length >= mostWaiting) {
      this.#dropped += 1;
      return;
    }
    this.#waiting.push(span);
    if (this.#options.everyMs === undefined) return;
    if (this.#waiting.length === largestBatch) void this.#drain();
    this.#schedule(this.#options.everyMs);
  }

  resume(): void {
    this.#pausedUntil = 0;
  }

  #schedule(ms: number): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#drain();
    }, ms).unref();
  }

  async flush(withinMs: number): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    let late: NodeJS.Timeout | undefined;
    const tooLate = new Promise<void>((resolve) => {
      late = setTimeout(resolve, withinMs);
    });
    await Promise.race([this.#drain(), tooLate]);
    clearTimeout(late);
  }

  /** One at a time; who comes while one is sending has what is left sent after it. */
  async #drain(): Promise<void> {
    while (this.#sending !== undefined) await this.#sending;
    if (this.#waiting.length === 0 || performance.now() < this.#pausedUntil) return;
    this.#sending = this.#sendAll().finally(() => {
      this.#sending = undefined;
    });
    await this.#sending;
  }

  async #sendAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, largestBatch);
      const failure = await this.#send(batch).catch((thrown: unknown) => ({
        reason: toGatewayError(thrown).code,
        mayPass: true,
        afterMs: 0,
      }));
      if (failure === undefined) {
        this.#pauseMs = 0;
        continue;
      }
      if (failure.mayPass) this.#waiting = [...batch, ...this.#waiting].slice(0, mostWaiting);
      else this.#dropped += batch.length;
      this.#pause(failure);
      return;
    }
  }

  /** Undefined: they have arrived. */
  async #send(batch: readonly EndedSpan[]): Promise<Failure | undefined> {
    const { url, protocol, headers, timeoutMs, resource } = this.#options;
    const encoded = encodeSpans(protocol, resource, batch);
    const body = this.#options.gzip ? await compress(encoded) : encoded;
    const {
      status,
      headers: received,
      body: answer,
    } = await this.#deps.egress.request({
      method: "POST",
      url,
      headers: [
        ...Object.entries(headers),
        ["content-type", contentTypes[protocol]],
        ...(this.#options.gzip ? [["content-encoding", "gzip"] as const] : []),
        ["user-agent", `toolyard-otlp/${resource.scope.version}`],
      ],
      body,
      timeoutMs,
      peer: "the OTLP endpoint",
    });
    // Read to its end, so that the connection can be used again.
    for await (const _part of answer) continue;
    if (status >= 200 && status < 300) return undefined;
    const afterMs = Number(received["retry-after"]) * 1_000 || 0;
    return { reason: String(status), mayPass: passing.has(status), afterMs };
  }

  #pause({ reason, afterMs }: Failure): void {
    this.#pauseMs = Math.min(longestPauseMs, Math.max(firstPauseMs, this.#pauseMs * 2, afterMs));
    this.#pausedUntil = performance.now() + this.#pauseMs;
    this.#deps.log.log("warn", "traces could not be exported; look at OTEL_EXPORTER_OTLP_ENDPOINT and _HEADERS", {
      reason,
      count: this.#dropped,
    });
    this.#dropped = 0;
    if (this.#options.everyMs !== undefined) this.#schedule(this.#pauseMs);
  }
}

interface Failure {
  /** An HTTP status or an error code. */
  readonly reason: string;
  readonly mayPass: boolean;
  readonly afterMs: number;
}
