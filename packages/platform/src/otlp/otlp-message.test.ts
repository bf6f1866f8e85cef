import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { readSpans } from "../../../../test/support/otlp-receiver.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { encodeSpans, type EndedSpan } from "./otlp-message.ts";

const resource = { attributes: { "service.name": "toolyard" }, scope: { name: "toolyard", version: "1.2.3" } };
const span: EndedSpan = {
  traceId: "4bf92f3577b34da6a3ce929d0e0e4736",
  spanId: "00f067aa0ba902b7",
  parent: { spanId: "53995c3f42cd8ad8", isRemote: false },
  name: "execute_tool lookup",
  kind: "client",
  startedAt: 1_795_000_000_123.456,
  endedAt: 1_795_000_001_000,
  attributes: {
    text: "é∑",
    whole: 300,
    negative: -5,
    fraction: 0.25,
    yes: true,
    no: false,
    list: ["stop", "length"],
    absent: undefined,
  },
  hasFailed: true,
};

/** The same span as OpenTelemetry's own library writes it (@opentelemetry/otlp-transformer 0.223.0). */
const theirs = Buffer.from(
  "CpoCCh4KGgoMc2VydmljZS5uYW1lEgoKCHRvb2x5YXJkEAAS9wEKEQoIdG9vbHlhcmQSBTEuMi4zEuEBChBL+S81d7NNpqPOkp0ODkc2" +
    "EggA8GeqC6kCtyIIU5lcP0LNitgqE2V4ZWN1dGVfdG9vbCBsb29rdXAwAzkASi9j/R7pGEEASm6X/R7pGEoPCgR0ZXh0EgcKBcOp4oiRSgwK" +
    "BXdob2xlEgMYrAJKFwoIbmVnYXRpdmUSCxj7//////////8BShUKCGZyYWN0aW9uEgkhAAAAAAAA0D9KCQoDeWVzEgIQAUoICgJubxICEABK" +
    "HAoEbGlzdBIUKhIKBgoEc3RvcAoICgZsZW5ndGhQAGAAcAB6AhgChQEBAQAA",
  "base64",
);

describe(`spans on the wire ${verifies("CHAT-15")}`, () => {
  test("are the same bytes to a reader as OpenTelemetry's own", () => {
    const [expected] = readSpans("application/x-protobuf", theirs);
    const [read] = readSpans("application/x-protobuf", encodeSpans("http/protobuf", resource, [span]));
    expect(expected?.attributes).toMatchObject({ text: "é∑", negative: -5, list: ["stop", "length"] });
    // A number of milliseconds holds no nanoseconds of this century.
    const exact = { startNs: expected?.startNs };
    expect({ ...read, ...exact }).toEqual(expected);
    expect(Math.abs(Number((read?.startNs ?? 0n) - (expected?.startNs ?? 0n)))).toBeLessThan(1_000);
  });

  test("say the same as JSON", () => {
    const [asBytes] = readSpans("application/x-protobuf", encodeSpans("http/protobuf", resource, [span]));
    expect(readSpans("application/json", encodeSpans("http/json", resource, [span]))).toEqual([asBytes]);
  });

  test("come back as they were, in whatever number and size", () => {
    const value = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.maxSafeInteger(),
      fc.boolean(),
      fc.double({ noNaN: true, noDefaultInfinity: true }).filter((number) => !Object.is(number, -0)),
      fc.array(fc.string()),
    );
    const named = fc.dictionary(fc.stringMatching(/^[a-z.]{1,20}$/), value);
    const many = fc
      .array(named, { minLength: 1, maxLength: 4 })
      .chain((few) => fc.integer({ min: 1, max: 400 }).map((times) => Array(times).fill(few)));
    fc.assert(
      fc.property(many, (attributes) => {
        const spans = attributes.flat().map((each) => ({ ...span, attributes: each }));
        for (const [protocol, type] of [
          ["http/protobuf", "application/x-protobuf"],
          ["http/json", "application/json"],
        ] as const) {
          const read = readSpans(type, encodeSpans(protocol, resource, spans));
          expect(read.map((each) => each.attributes)).toEqual(spans.map((each) => each.attributes));
        }
      }),
      { numRuns: 10 },
    );
  });

  test("cut long values, and never end before they began", () => {
    const long: EndedSpan = { ...span, name: "n".repeat(5_000), attributes: { a: "v".repeat(5_000) }, endedAt: 0 };
    const [read] = readSpans("application/x-protobuf", encodeSpans("http/protobuf", resource, [long]));
    expect(read?.name).toHaveLength(1_024);
    expect(read?.attributes["a"]).toHaveLength(1_024);
    expect(read?.endNs).toBe(read?.startNs);
  });

  test("say of a root that it has no parent, and of a parent elsewhere that it is", () => {
    const spans = [
      { ...span, parent: undefined },
      { ...span, parent: { spanId: "53995c3f42cd8ad8", isRemote: true } },
    ];
    for (const [protocol, type] of [
      ["http/protobuf", "application/x-protobuf"],
      ["http/json", "application/json"],
    ] as const) {
      expect(readSpans(type, encodeSpans(protocol, resource, spans))).toMatchObject([
        { parentSpanId: "", isRemote: false },
        { parentSpanId: "53995c3f42cd8ad8", isRemote: true },
      ]);
    }
  });
});
