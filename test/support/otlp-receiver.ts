/**
 * An OTLP/HTTP backend that keeps the spans it is sent, as bytes or as JSON. It reads the wire format by
 * the numbers of opentelemetry-proto, written down here a second time, so that a wrong number shows.
 */
import { gunzipSync } from "node:zlib";
import type { Json } from "./gateway-client.ts";
import { startHttpStub, type HttpStub, type RecordedRequest, type StubReply } from "./http-stub.ts";

export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** Empty: a root. */
  readonly parentSpanId: string;
  readonly name: string;
  readonly kind: "internal" | "server" | "client" | "producer" | "consumer";
  readonly startNs: bigint;
  readonly endNs: bigint;
  readonly attributes: Readonly<Record<string, unknown>>;
  /** The parent is known to be of another process. */
  readonly isRemote: boolean;
  readonly failed: boolean;
  readonly resource: Readonly<Record<string, unknown>>;
}

export interface OtlpReceiver {
  readonly url: string;
  readonly http: HttpStub;
  readonly spans: readonly ReceivedSpan[];
  /** Instead of taking the next requests: what they are answered. */
  refusing: StubReply | undefined;
  /** Spans of a trace, oldest first. */
  trace(traceId: string): readonly ReceivedSpan[];
  close(): Promise<void>;
}

const kinds = ["unspecified", "internal", "server", "client", "producer", "consumer"];

export async function startOtlpReceiver(): Promise<OtlpReceiver> {
  const spans: ReceivedSpan[] = [];
  const http = await startHttpStub((request) => {
    if (receiver.refusing !== undefined) return receiver.refusing;
    if (request.method !== "POST" || request.target !== "/v1/traces") return { status: 404 };
    spans.push(...read(request));
    return { body: "{}" };
  });
  const receiver: OtlpReceiver = {
    url: http.url,
    http,
    spans,
    refusing: undefined,
    trace: (traceId) => spans.filter((span) => span.traceId === traceId).sort((a, b) => Number(a.startNs - b.startNs)),
    close: () => http.close(),
  };
  return receiver;
}

/** What hangs under what, by name, for a comparison at a glance. */
export interface Tree {
  readonly [name: string]: Tree;
}

export function treeOf(spans: readonly ReceivedSpan[], parent?: string): Tree {
  const ids = new Set(spans.map(({ spanId }) => spanId));
  const level = spans.filter((span) =>
    parent === undefined ? !ids.has(span.parentSpanId) : span.parentSpanId === parent,
  );
  const tree: Record<string, Tree> = {};
  for (const span of level) {
    let name = `${span.kind} ${span.name}`;
    for (let count = 2; name in tree; count += 1) name = `${span.kind} ${span.name} #${count}`;
    tree[name] = treeOf(spans, span.spanId);
  }
  return tree;
}

function read({ headers, body }: RecordedRequest): ReceivedSpan[] {
  const bytes = headers["content-encoding"] === "gzip" ? gunzipSync(body) : body;
  return readSpans(String(headers["content-type"]), bytes);
}

/** @throws Error where the bytes are no request of OTLP's trace service */
export function readSpans(type: string, bytes: Buffer): ReceivedSpan[] {
  if (type !== "application/json" && type !== "application/x-protobuf") throw new Error(`content-type ${type}`);
  const request: Json = type === "application/json" ? JSON.parse(bytes.toString("utf8")) : decode(exportRequest, bytes);
  return request["resourceSpans"].flatMap((group: Json) => {
    const resource = toRecord(group["resource"]["attributes"]);
    return group["scopeSpans"].flatMap((scope: Json) => scope["spans"].map((span: Json) => toSpan(span, resource)));
  });
}

function toSpan(span: Json, resource: ReceivedSpan["resource"]): ReceivedSpan {
  if (!/^[0-9a-f]{32}$/.test(span["traceId"]) || !/^[0-9a-f]{16}$/.test(span["spanId"])) throw new Error("ids");
  if ((span["flags"] & 1) !== 1) throw new Error("flags do not say sampled");
  return {
    traceId: span["traceId"],
    spanId: span["spanId"],
    parentSpanId: span["parentSpanId"] ?? "",
    name: span["name"],
    kind: kinds[Number(span["kind"])] as ReceivedSpan["kind"],
    startNs: BigInt(span["startTimeUnixNano"]),
    endNs: BigInt(span["endTimeUnixNano"]),
    attributes: toRecord(span["attributes"] ?? []),
    isRemote: (span["flags"] & 0x200) !== 0,
    failed: Number(span["status"]?.["code"] ?? 0) === 2,
    resource,
  };
}

function toRecord(pairs: readonly Json[]): Record<string, unknown> {
  return Object.fromEntries(pairs.map(({ key, value }) => [key, toValue(value)]));
}

function toValue(value: Json): unknown {
  if ("stringValue" in value) return value["stringValue"];
  if ("boolValue" in value) return value["boolValue"];
  if ("intValue" in value) return Number(value["intValue"]);
  if ("doubleValue" in value) return value["doubleValue"];
  return (value["arrayValue"]["values"] ?? []).map(toValue);
}

// The wire format.

type Shape = Readonly<Record<number, readonly [name: string, type: Shape | string, repeated?: true]>>;

const anyValue: Shape = {
  1: ["stringValue", "text"],
  2: ["boolValue", "bool"],
  3: ["intValue", "int"],
  4: ["doubleValue", "double"],
  5: ["arrayValue", { 1: ["values", { 1: ["stringValue", "text"] }, true] }],
};
const attribute: Shape = { 1: ["key", "text"], 2: ["value", anyValue] };
const spanShape: Shape = {
  1: ["traceId", "hex"],
  2: ["spanId", "hex"],
  3: ["traceState", "text"],
  4: ["parentSpanId", "hex"],
  5: ["name", "text"],
  6: ["kind", "int"],
  7: ["startTimeUnixNano", "fixed"],
  8: ["endTimeUnixNano", "fixed"],
  9: ["attributes", attribute, true],
  10: ["droppedAttributesCount", "int"],
  12: ["droppedEventsCount", "int"],
  14: ["droppedLinksCount", "int"],
  15: ["status", { 2: ["message", "text"], 3: ["code", "int"] }],
  16: ["flags", "fixed"],
};
const exportRequest: Shape = {
  1: [
    "resourceSpans",
    {
      1: ["resource", { 1: ["attributes", attribute, true], 2: ["droppedAttributesCount", "int"] }],
      2: [
        "scopeSpans",
        { 1: ["scope", { 1: ["name", "text"], 2: ["version", "text"] }], 2: ["spans", spanShape, true] },
        true,
      ],
    },
    true,
  ],
};

/** @throws Error for a field that the message does not have */
function decode(shape: Shape, bytes: Buffer): Json {
  const message: Json = {};
  let at = 0;
  const varint = (): bigint => {
    for (let value = 0n, shift = 0n; ; shift += 7n) {
      const byte = bytes[at++] ?? 0;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.length) {
    const tag = Number(varint());
    const [name, type, repeated] = shape[tag >> 3] ?? [];
    if (name === undefined || type === undefined) throw new Error(`unknown field ${tag >> 3}`);
    let value: unknown;
    switch (tag & 7) {
      case 0:
        value = type === "bool" ? varint() === 1n : Number(BigInt.asIntN(64, varint()));
        break;
      case 1:
        value = type === "double" ? bytes.readDoubleLE(at) : bytes.readBigUInt64LE(at);
        at += 8;
        break;
      case 5:
        value = bytes.readUInt32LE(at);
        at += 4;
        break;
      case 2: {
        const length = Number(varint());
        const part = bytes.subarray(at, at + length);
        if (part.length !== length) throw new Error("cut off");
        at += length;
        value = typeof type === "object" ? decode(type, part) : part.toString(type === "hex" ? "hex" : "utf8");
        break;
      }
      default:
        throw new Error(`wire type ${tag & 7}`);
    }
    if (repeated === true) (message[name] ??= []).push(value);
    else message[name] = value;
  }
  return message;
}
