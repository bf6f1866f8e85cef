import { createFakeClock } from "@toolyard/platform/memory/fake-clock";
import { createSystemClock } from "@toolyard/platform/system-clock";
import { describe, expect, test } from "vitest";
import { describeClock } from "./clock.ts";

describeClock("system", () => ({
  clock: createSystemClock(),
  pass: (ms) => new Promise((done) => setTimeout(done, ms)),
}));
describeClock("fake", () => {
  const clock = createFakeClock();
  return { clock, pass: (ms) => clock.advance(ms) };
});

describe("the fake clock", () => {
  test("stands still by itself", async () => {
    const clock = createFakeClock(1000);
    await new Promise((done) => setTimeout(done, 5));
    expect(clock.now()).toBe(1000);
  });

  test("wakes sleepers in the order of their times, each at its own time", async () => {
    const clock = createFakeClock(0);
    const log: string[] = [];
    const sleeper = async (name: string, ms: number): Promise<void> => {
      await clock.sleep(ms);
      log.push(`${name} at ${clock.now()}`);
    };
    const sleepers = [sleeper("late", 30), sleeper("early", 10), sleeper("never", 500)];
    expect(clock.sleeping).toBe(3);
    await clock.advance(40);
    expect(log).toEqual(["early at 10", "late at 30"]);
    expect(clock.now()).toBe(40);
    await clock.advance(460);
    await Promise.all(sleepers);
    expect(clock.sleeping).toBe(0);
  });

  test("reaches sleeps that begin while it goes on", async () => {
    const clock = createFakeClock(0);
    const ticks: number[] = [];
    const ticking = (async () => {
      for (let count = 0; count < 3; count += 1) {
        await clock.sleep(10);
        ticks.push(clock.now());
      }
    })();
    await clock.advance(100);
    await ticking;
    expect(ticks).toEqual([10, 20, 30]);
  });
});
