/**
 * What happened within what, for a request and all that it set off (CHAT-15). A span is handed down with
 * the call context; where nothing is traced there is none, and `context.span?.child(…)` costs a look at
 * a field. Attributes hold names, numbers and codes: never what was said, sent or answered, and nothing
 * secret. Adapter: OTLP over HTTP.
 */
export type SpanKind = "internal" | "server" | "client" | "producer" | "consumer";

/** Undefined: left out. */
export type Attributes = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;

export interface Span {
  /** 32 hex digits. */
  readonly traceId: string;
  /** W3C trace context that names this span as the parent. */
  readonly traceparent: string;
  child(name: string, kind: SpanKind, attributes?: Attributes): Span;
  /** What is known later; an attribute set twice has its last value. */
  set(attributes: Attributes): void;
  rename(name: string): void;
  /** It did not do what it was for. @param code catalogued error code, or an HTTP status */
  fail(code: string): void;
  /** Once; what comes afterwards changes nothing. A span that is never ended is never told of. */
  end(): void;
}

/** Where a trace comes from. */
export interface TraceParent {
  readonly traceId: string;
  /** Undefined: only the trace is known. */
  readonly spanId: string | undefined;
  /** Undefined: nobody has decided. */
  readonly sampled: boolean | undefined;
}

export interface SpanStart {
  readonly kind: SpanKind;
  readonly parent?: TraceParent | undefined;
  readonly attributes?: Attributes;
  /** Milliseconds ago. */
  readonly startedMsAgo?: number;
}

export interface Traces {
  /** The first span of a piece of work in this process; the sampler decides whether it is recorded. */
  begin(name: string, start: SpanStart): Span;
}
