import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { keepHead, keepTail } from "./plugin-output.ts";

/** A text, its bytes in parts of any size. */
const inParts = fc
  .tuple(fc.string({ unit: "grapheme", maxLength: 80 }), fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }))
  .map(([text, sizes]) => {
    const bytes = Buffer.from(text, "utf8");
    const parts: Buffer[] = [];
    for (let at = 0, turn = 0; at < bytes.byteLength; turn += 1) {
      const size = sizes[turn % sizes.length] ?? 1;
      parts.push(bytes.subarray(at, at + size));
      at += size;
    }
    return { text, parts };
  });

describe("keeping the beginning of an output", () => {
  test("gives the text back whole, however its bytes were split", () => {
    fc.assert(
      fc.property(inParts, ({ text, parts }) => {
        const output = keepHead(10_000, () => expect.fail("there was room"));
        for (const part of parts) output.add(part);
        expect(output.text()).toBe(text);
      }),
    );
  });

  test("gives whole characters of the beginning where the limit cuts it, and says so once", () => {
    fc.assert(
      fc.property(inParts, fc.nat(40), ({ text, parts }, limit) => {
        let full = 0;
        const output = keepHead(limit, () => (full += 1));
        for (const part of parts) output.add(part);
        const bytes = Buffer.byteLength(text);
        expect(full).toBe(bytes > limit ? 1 : 0);
        expect(text.startsWith(output.text())).toBe(true);
        expect(Buffer.byteLength(output.text())).toBeGreaterThan(Math.min(limit, bytes) - 4);
      }),
    );
  });

  test("keeps a byte order mark, which is the reader's to judge", () => {
    const output = keepHead(100, () => undefined);
    output.add(Buffer.from("\uFEFF{}", "utf8"));
    expect(output.text()).toBe("\uFEFF{}");
  });
});

describe("keeping the end of an output", () => {
  test("gives whole characters of the end, as many as fit", () => {
    fc.assert(
      fc.property(inParts, fc.integer({ min: 1, max: 40 }), ({ text, parts }, limit) => {
        const output = keepTail(limit);
        for (const part of parts) output.add(part);
        expect(text.endsWith(output.text())).toBe(true);
        expect(Buffer.byteLength(output.text())).toBeLessThanOrEqual(limit);
        expect(Buffer.byteLength(output.text())).toBeGreaterThan(Math.min(limit, Buffer.byteLength(text)) - 4);
      }),
    );
  });
});
