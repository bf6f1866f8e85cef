import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { cutIntoParts, type Part } from "./part-cutter.ts";

async function* source(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  // One buffer for all of them, as some sources have it.
  const buffer = new Uint8Array(Math.max(0, ...chunks.map((chunk) => chunk.byteLength)));
  for (const chunk of chunks) {
    buffer.set(chunk);
    yield buffer.subarray(0, chunk.byteLength);
  }
}

describe("cutting a body into parts", () => {
  test("keeps every byte, and makes all parts but the last of one size, however the body comes", async () => {
    const sizes = fc.array(fc.integer({ min: 0, max: 300_000 }), { maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(sizes, fc.integer({ min: 1_000, max: 200_000 }), async (lengths, size) => {
        const chunks = lengths.map((length) => randomBytes(length));
        const whole = Buffer.concat(chunks);
        for (const body of [source(chunks), new Uint8Array(whole)]) {
          const parts: Part[] = [];
          for await (const part of cutIntoParts(body, size)) parts.push(part);
          expect(Buffer.compare(Buffer.concat(parts.map(({ bytes }) => bytes)), whole)).toBe(0);
          expect(parts).toHaveLength(Math.max(1, Math.ceil(whole.byteLength / size)));
          expect(parts.slice(0, -1).every(({ bytes, isLast }) => bytes.byteLength === size && !isLast)).toBe(true);
          expect(parts.at(-1)?.isLast).toBe(true);
        }
      }),
      { numRuns: 50 },
    );
  });
});
