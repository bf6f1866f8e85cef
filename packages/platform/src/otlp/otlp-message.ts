/** The request of OTLP's trace service (opentelemetry-proto, `ExportTraceServiceRequest`), as JSON and as bytes. */
import type { Attributes, SpanKind } from "@toolyard/core/ports/traces";
import { encodeMessage, type MessageType } from "./protobuf.ts";
import type { OtlpProtocol } from "./settings.ts";

/** A span that has ended. */
export interface EndedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parent: { readonly spanId: string; readonly isRemote: boolean } | undefined;
  readonly name: string;
  readonly kind: SpanKind;
  /** Epoch milliseconds, with fractions. */
  readonly startedAt: number;
  readonly endedAt: number;
  readonly attributes: Attributes;
  readonly hasFailed: boolean;
}

export interface Resource {
  readonly attributes: Attributes;
  /** Of what makes the spans. */
  readonly scope: { readonly name: string; readonly version: string };
}

/** Characters of an attribute's value. */
const longestValue = 1_024;
const kinds: Readonly<Record<SpanKind, number>> = { internal: 1, server: 2, client: 3, producer: 4, consumer: 5 };
const statusError = 2;
/** W3C's flag, and OTLP's own about the parent: whether it is known to be another process's, and whether it is. */
const flags = { sampled: 0x001, isKnown: 0x100, isRemote: 0x200 } as const;

/** The names and numbers are those of opentelemetry-proto 1.x. */
const text: MessageType = [{ name: "stringValue", number: 1, type: "string" }];
const anyValue: MessageType = [
  ...text,
  { name: "boolValue", number: 2, type: "bool" },
  { name: "intValue", number: 3, type: "uint" },
  { name: "doubleValue", number: 4, type: "double" },
  { name: "arrayValue", number: 5, type: [{ name: "values", number: 1, type: text }] },
];
const keyValue: MessageType = [
  { name: "key", number: 1, type: "string" },
  { name: "value", number: 2, type: anyValue },
];
const span: MessageType = [
  { name: "traceId", number: 1, type: "bytes" },
  { name: "spanId", number: 2, type: "bytes" },
  { name: "parentSpanId", number: 4, type: "bytes" },
  { name: "name", number: 5, type: "string" },
  { name: "kind", number: 6, type: "uint" },
  { name: "startTimeUnixNano", number: 7, type: "fixed64" },
  { name: "endTimeUnixNano", number: 8, type: "fixed64" },
  { name: "attributes", number: 9, type: keyValue },
  { name: "status", number: 15, type: [{ name: "code", number: 3, type: "uint" }] },
  { name: "flags", number: 16, type: "fixed32" },
];
const scope: MessageType = [
  { name: "name", number: 1, type: "string" },
  { name: "version", number: 2, type: "string" },
];
const scopeSpans: MessageType = [
  { name: "scope", number: 1, type: scope },
  { name: "spans", number: 2, type: span },
];
const resourceSpans: MessageType = [
  { name: "resource", number: 1, type: [{ name: "attributes", number: 1, type: keyValue }] },
  { name: "scopeSpans", number: 2, type: scopeSpans },
];
const exportRequest: MessageType = [{ name: "resourceSpans", number: 1, type: resourceSpans }];

export const contentTypes: Readonly<Record<OtlpProtocol, string>> = {
  "http/protobuf": "application/x-protobuf",
  "http/json": "application/json",
};

export function encodeSpans(protocol: OtlpProtocol, resource: Resource, spans: readonly EndedSpan[]): Buffer {
  const request = {
    resourceSpans: [
      {
        resource: { attributes: toKeyValues(resource.attributes) },
        scopeSpans: [{ scope: resource.scope, spans: spans.map(toSpan) }],
      },
    ],
  };
  return protocol === "http/json" ? Buffer.from(JSON.stringify(request)) : encodeMessage(exportRequest, request);
}

function toSpan(ended: EndedSpan): Readonly<Record<string, unknown>> {
  return {
    traceId: ended.traceId,
    spanId: ended.spanId,
    parentSpanId: ended.parent?.spanId,
    name: ended.name.slice(0, longestValue),
    kind: kinds[ended.kind],
    startTimeUnixNano: toNanoseconds(ended.startedAt),
    endTimeUnixNano: toNanoseconds(Math.max(ended.startedAt, ended.endedAt)),
    attributes: toKeyValues(ended.attributes),
    status: ended.hasFailed ? { code: statusError } : {},
    flags: flags.sampled | flags.isKnown | (ended.parent?.isRemote === true ? flags.isRemote : 0),
  };
}

/** Decimal digits: a number has not so many. */
function toNanoseconds(milliseconds: number): string {
  const whole = Math.floor(milliseconds);
  return `${whole}${String(Math.floor((milliseconds - whole) * 1_000_000)).padStart(6, "0")}`;
}

function toKeyValues(attributes: Attributes): readonly Readonly<Record<string, unknown>>[] {
  return Object.entries(attributes).flatMap(([key, value]) =>
    value === undefined ? [] : [{ key, value: toValue(value) }],
  );
}

function toValue(value: NonNullable<Attributes[string]>): Readonly<Record<string, unknown>> {
  if (typeof value === "boolean") return { boolValue: value };
  if (typeof value === "number")
    return Number.isSafeInteger(value) ? { intValue: String(value) } : { doubleValue: value };
  if (typeof value === "string") return { stringValue: value.slice(0, longestValue) };
  return { arrayValue: { values: value.map((each) => ({ stringValue: each.slice(0, longestValue) })) } };
}
