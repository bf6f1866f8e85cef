import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { formatTraceparent, parseTraceparent, UnsampledSpan } from "./trace-context.ts";

const hex = (length: number): fc.Arbitrary<string> =>
  fc.stringMatching(new RegExp(`^[0-9a-f]{${length}}$`)).filter((text) => text.length === length && /[^0]/.test(text));

describe("traceparent", () => {
  test("is read as it was written", () => {
    fc.assert(
      fc.property(hex(32), hex(16), fc.boolean(), (traceId, spanId, sampled) => {
        expect(parseTraceparent(formatTraceparent(traceId, spanId, sampled))).toEqual({ traceId, spanId, sampled });
      }),
    );
  });

  test("of a later version is read as far as this one goes", () => {
    const header = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03-more";
    expect(parseTraceparent(header)).toMatchObject({ spanId: "00f067aa0ba902b7", sampled: true });
  });

  test.each([
    undefined,
    "",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
    "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
    "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
  ])("that does not follow the standard counts as absent: %s", (header) => {
    expect(parseTraceparent(header)).toBeUndefined();
  });
});

test("a span that nobody wants stands for all below it and says so to others", () => {
  const span = new UnsampledSpan("4bf92f3577b34da6a3ce929d0e0e4736");
  expect(span.child()).toBe(span);
  expect(parseTraceparent(span.traceparent)).toMatchObject({ traceId: span.traceId, sampled: false });
});
