import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { Chunks, mostSaidBytes } from "./chunks.ts";

describe(`chunks of a message ${verifies("VCP-14")}`, () => {
  test("come at once at first, then no more often than is worth it, and hold all that was said", () => {
    let now = 0;
    const chunks = new Chunks(() => now);
    expect(chunks.add("One ")).toEqual({ chunk: "One ", accumulatedContent: "One " });
    expect(chunks.add("two ")).toBeUndefined();
    now = 50;
    expect(chunks.add("three")).toEqual({ chunk: "two three", accumulatedContent: "One two three" });
    expect(chunks.rest()).toBeUndefined();
  });

  test("of a long message are few: what is told in all stays within a small multiple of it", () => {
    let now = 0;
    let told = 0;
    const chunks = new Chunks(() => now);
    for (let token = 0; token < 20_000; token += 1) {
      // A fast model: a token each five milliseconds.
      now += 5;
      told += chunks.add("word ")?.accumulatedContent.length ?? 0;
    }
    expect(told / chunks.said.length).toBeLessThan(80);
  });

  test("end where a message is full, behind a whole character, and say so", () => {
    const chunks = new Chunks(() => 0);
    chunks.add("x".repeat(mostSaidBytes - 1));
    expect(chunks.isFull).toBe(false);
    chunks.add("éa");
    expect(chunks.isFull).toBe(true);
    chunks.add("more");
    expect(chunks.said).toBe("x".repeat(mostSaidBytes - 1));
  });

  test("of a message that fits to the last byte are all of it", () => {
    const chunks = new Chunks(() => 0);
    chunks.add("é".repeat(mostSaidBytes / 2));
    expect([chunks.isFull, chunks.said.length]).toEqual([false, mostSaidBytes / 2]);
  });
});
