/** What every clock promises. */
import type { Clock } from "@toolyard/core/ports/clock";
import { describe, expect, test } from "vitest";

/** @param make a clock, and how its time passes */
export function describeClock(
  name: string,
  make: () => { readonly clock: Clock; readonly pass: (ms: number) => Promise<void> },
): void {
  describe(`clock: ${name}`, () => {
    test("sleeps until the time has come, by its own time", async () => {
      const { clock, pass } = make();
      const start = clock.now();
      let woken = false;
      const sleeping = clock.sleep(30).then(() => (woken = true));
      expect(woken).toBe(false);
      await pass(40);
      await sleeping;
      expect(woken).toBe(true);
      expect(clock.now() - start).toBeGreaterThanOrEqual(29);
    });

    test.for([0, -5])("does not wait for %d ms", async (ms) => {
      await expect(make().clock.sleep(ms)).resolves.toBeUndefined();
    });

    test("wakes a sleeper with the reason of whoever aborts", async () => {
      const { clock } = make();
      const controller = new AbortController();
      const sleeping = clock.sleep(60_000, controller.signal);
      controller.abort(new Error("shutting down"));
      await expect(sleeping).rejects.toThrow("shutting down");
    });

    test("does not fall asleep once aborted", async () => {
      const { clock } = make();
      await expect(clock.sleep(60_000, AbortSignal.abort(new Error("too late")))).rejects.toThrow("too late");
    });

    test("does not wake at once from a sleep longer than a timer can hold", async () => {
      const { clock, pass } = make();
      const controller = new AbortController();
      let woken = false;
      const sleeping = clock.sleep(40 * 24 * 60 * 60_000, controller.signal).then(
        () => (woken = true),
        () => undefined,
      );
      await pass(20);
      expect(woken).toBe(false);
      controller.abort(new Error("enough"));
      await sleeping;
    });
  });
}
