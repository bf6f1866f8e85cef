import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../test/support/verifies.ts";
import { parseByteRange } from "./byte-range.ts";

describe(`byte ranges ${verifies("CHAT-19")}`, () => {
  test("reads the three forms, both ends included", () => {
    expect(parseByteRange("bytes=0-0", 10)).toEqual({ start: 0, end: 1 });
    expect(parseByteRange("bytes=2-5", 10)).toEqual({ start: 2, end: 6 });
    expect(parseByteRange("bytes=7-", 10)).toEqual({ start: 7, end: 10 });
    expect(parseByteRange("bytes=-3", 10)).toEqual({ start: 7, end: 10 });
  });

  test("cuts a range at the end of the body", () => {
    expect(parseByteRange("bytes=8-99", 10)).toEqual({ start: 8, end: 10 });
    expect(parseByteRange("bytes=-99", 10)).toEqual({ start: 0, end: 10 });
  });

  test("knows a range that lies behind the body", () => {
    expect(parseByteRange("bytes=10-", 10)).toBe("unsatisfiable");
    expect(parseByteRange("bytes=-0", 10)).toBe("unsatisfiable");
    expect(parseByteRange("bytes=0-", 0)).toBe("unsatisfiable");
  });

  test("ignores what it cannot read", () => {
    for (const header of [
      undefined,
      "",
      "bytes",
      "bytes=",
      "bytes=-",
      "bytes=5-2",
      "bytes=0-1,3-4",
      "items=0-1",
      "bytes=a-b",
    ]) {
      expect(parseByteRange(header, 10)).toBeUndefined();
    }
  });

  test("never leaves the body, whatever is asked for", () => {
    fc.assert(
      fc.property(fc.string(), fc.nat(), fc.nat(), fc.nat(1_000_000), (noise, first, last, size) => {
        for (const header of [noise, `bytes=${first}-${last}`, `bytes=${first}-`, `bytes=-${last}`]) {
          const range = parseByteRange(header, size);
          if (range === undefined || range === "unsatisfiable") continue;
          expect(range.start).toBeGreaterThanOrEqual(0);
          expect(range.start).toBeLessThan(range.end);
          expect(range.end).toBeLessThanOrEqual(size);
        }
      }),
    );
  });
});
