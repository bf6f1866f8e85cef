import { setTimeout as later } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { SlotPool } from "./slots.ts";

const clock = { now: () => Date.now(), sleep: (ms: number) => later(Math.min(ms, 5)) };

async function peakOf(pool: SlotPool, calls: number): Promise<number> {
  let running = 0;
  let peak = 0;
  await Promise.all(
    Array.from({ length: calls }, () =>
      pool.run(async () => {
        running += 1;
        peak = Math.max(peak, running);
        await later(5);
        running -= 1;
      }),
    ),
  );
  return peak;
}

describe(`tool slots of one request ${verifies("CHAT-12")}`, () => {
  test("more calls than slots run in waves, without asking first", async () => {
    let asked = 0;
    const pool = new SlotPool(2, { limit: 16, take: async () => ((asked += 1), 0) }, clock);
    expect(await peakOf(pool, 7)).toBe(2);
    expect(asked).toBeGreaterThan(0);
  });

  test("slots that come free elsewhere widen a running round", async () => {
    const pool = new SlotPool(1, { limit: 16, take: async (wanted) => wanted }, clock);
    expect(await peakOf(pool, 6)).toBeGreaterThan(2);
  });

  test("a request without a slot asks, waits, and is refused by the setting's name", async () => {
    let now = 0;
    const impatient = { now: () => (now += 1_000), sleep: () => Promise.resolve() };
    const pool = new SlotPool(0, { limit: 16, take: async () => 0 }, impatient);
    await expect(pool.run(() => Promise.resolve())).rejects.toMatchObject({
      code: "concurrency_limited",
      message: expect.stringContaining("concurrent_tool_calls"),
    });
  });

  test("several calls without a slot share the first one that comes free", async () => {
    let free = 0;
    const pool = new SlotPool(0, { limit: 16, take: async () => ((free += 1) === 3 ? 1 : 0) }, clock);
    expect(await peakOf(pool, 4)).toBe(1);
  });

  test("a call that fails gives its slot back", async () => {
    const pool = new SlotPool(1, { limit: 1, take: async () => 0 }, clock);
    await expect(pool.run(() => Promise.reject(new Error("down")))).rejects.toThrow("down");
    expect(await pool.run(() => Promise.resolve("up"))).toBe("up");
  });
});
