/** A span that keeps what it is told, and those below it. */
import type { Attributes, Span, SpanKind } from "@toolyard/core/ports/traces";

export class RecordedSpan implements Span {
  readonly traceId = "0af7651916cd43dd8448eb211c80319c";
  readonly below: RecordedSpan[] = [];
  readonly kind: SpanKind;
  readonly #id: string;
  name: string;
  attributes: Attributes;
  failedWith: readonly string[] = [];
  ends = 0;

  constructor(name = "test", kind: SpanKind = "internal", attributes: Attributes = {}, id = "1") {
    this.name = name;
    this.kind = kind;
    this.attributes = attributes;
    this.#id = id;
  }

  get traceparent(): string {
    return `00-${this.traceId}-${this.#id.padEnd(16, "0")}-01`;
  }

  child(name: string, kind: SpanKind, attributes: Attributes = {}): RecordedSpan {
    const span = new RecordedSpan(name, kind, attributes, `${this.#id}${this.below.length + 1}`);
    this.below.push(span);
    return span;
  }

  set(attributes: Attributes): void {
    this.attributes = { ...this.attributes, ...attributes };
  }

  rename(name: string): void {
    this.name = name;
  }

  fail(code: string): void {
    this.failedWith = [...this.failedWith, code];
  }

  end(): void {
    this.ends += 1;
  }
}
