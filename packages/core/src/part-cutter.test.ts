import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { cutIntoParts, sendParts, type Part } from "./part-cutter.ts";

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
    );
  });
});

describe("sending parts", () => {
  const partsOf = (count: number, pauseMs = 0): AsyncGenerator<Part> =>
    (async function* () {
      for (let at = 1; at <= count; at += 1) {
        yield { bytes: Buffer.from([at]), isLast: at === count };
        await sleep(pauseMs);
      }
    })();

  test("has two on their way at most, and tells what came of them in order", async () => {
    let atOnce = 0;
    let most = 0;
    const sent = await sendParts(partsOf(6), async ([byte], number) => {
      atOnce += 1;
      most = Math.max(most, atOnce);
      await sleep(number % 2 === 0 ? 1 : 5);
      atOnce -= 1;
      return [byte, number];
    });
    expect(sent).toEqual([1, 2, 3, 4, 5, 6].map((number) => [number, number]));
    expect(most).toBe(2);
  });

  test("ends with the first failure, however long its source takes, when nothing is on its way any more", async () => {
    const ended: number[] = [];
    const sending = sendParts(partsOf(5, 20), async (_bytes, number) => {
      if (number === 2) throw new Error("part 2 failed");
      await sleep(60);
      ended.push(number);
    });
    await expect(sending).rejects.toThrow("part 2 failed");
    expect(ended).toEqual([1, 3]);
  });
});
