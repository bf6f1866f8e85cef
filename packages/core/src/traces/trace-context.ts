/** W3C trace context, version 00: the one header by which traces come in and go out. */
import type { Span, TraceParent } from "../ports/traces.ts";
import { randomHex } from "../random-hex.ts";

/** A header that does not follow the standard counts as absent. */
export function parseTraceparent(
  header: string | undefined,
): (TraceParent & { readonly spanId: string; readonly sampled: boolean }) | undefined {
  if (header === undefined) return undefined;
  const [, version, traceId, spanId, flags] =
    /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:$|-)/.exec(header) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined || version === "ff") return undefined;
  if (!/[^0]/.test(traceId) || !/[^0]/.test(spanId)) return undefined;
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

export function formatTraceparent(traceId: string, spanId: string, sampled: boolean): string {
  return `00-${traceId}-${spanId}-${sampled ? "01" : "00"}`;
}

/** Passes on that nobody wants this trace recorded; stands for all spans below it. */
export class UnsampledSpan implements Span {
  readonly traceId: string;
  readonly traceparent: string;

  constructor(traceId: string) {
    this.traceId = traceId;
    this.traceparent = formatTraceparent(traceId, randomHex(8), false);
  }

  child(): Span {
    return this;
  }

  set(): void {
    // Nothing is recorded.
  }

  rename(): void {
    // Nothing is recorded.
  }

  fail(): void {
    // Nothing is recorded.
  }

  end(): void {
    // Nothing is recorded.
  }
}
