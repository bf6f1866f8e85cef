import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { ChatCollector } from "./collect.ts";
import { GrowingText } from "./growing-text.ts";

const mostHeld = 3_000_000;
const count = 20_000;
const textOf = (at: number): string => `piece ${String(at).padStart(10, "0")} of it. `;
/** As a reader of chunks has it: cut out of a text of half a kilobyte. */
const pieceOf = (at: number): string => JSON.stringify({ head: "x".repeat(500), content: textOf(at) }).slice(522, -2);
const whole = Array.from({ length: count }, (_none, at) => textOf(at)).join("");

/** Bytes of the heap that are held after `work` and were not before. */
function heldBy(work: () => void): number {
  setFlagsFromString("--expose-gc");
  const collectGarbage = runInNewContext("gc") as () => void;
  collectGarbage();
  const before = process.memoryUsage().heapUsed;
  work();
  collectGarbage();
  return process.memoryUsage().heapUsed - before;
}

describe(`a text that comes in pieces ${verifies("CHAT-2")}`, () => {
  test("is what they make together, and holds nothing of what they were cut out of", () => {
    const growing = new GrowingText();
    const held = heldBy(() => {
      for (let at = 0; at < count; at += 1) growing.append(pieceOf(at));
    });
    expect(held).toBeLessThan(mostHeld);
    expect(growing.text).toBe(whole);
  });

  test("is collected as small", () => {
    const collector = new ChatCollector();
    const held = heldBy(() => {
      for (let at = 0; at < count; at += 1) collector.add({ type: "text-delta", text: pieceOf(at), choice: 0 });
    });
    expect(held).toBeLessThan(mostHeld);
    expect(collector.body()["choices"]).toMatchObject([{ message: { content: whole } }]);
  });
});
