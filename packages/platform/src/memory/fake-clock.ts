/** A clock that stands still until it is told to go on; for tests of what waits. */
import { setImmediate as turn } from "node:timers/promises";
import type { Clock } from "@toolyard/core/ports/clock";

export interface FakeClock extends Clock {
  /** How many sleepers there are now. */
  readonly sleeping: number;
  /** Moves the time on, wakes sleepers in the order of their times and lets each run before the next. */
  advance(ms: number): Promise<void>;
}

interface Sleeper {
  readonly wakeAt: number;
  readonly wake: () => void;
}

export function createFakeClock(start = Date.UTC(2026, 0, 1)): FakeClock {
  let now = start;
  const sleepers = new Set<Sleeper>();

  function nextUpTo(end: number): Sleeper | undefined {
    let next: Sleeper | undefined;
    for (const sleeper of sleepers) {
      if (sleeper.wakeAt <= end && (next === undefined || sleeper.wakeAt < next.wakeAt)) next = sleeper;
    }
    return next;
  }

  return {
    now: () => now,
    get sleeping() {
      return sleepers.size;
    },
    async sleep(ms, signal) {
      signal?.throwIfAborted();
      if (ms <= 0) return;
      await new Promise<void>((done, fail) => {
        const end = (settle: () => void) => (): void => {
          sleepers.delete(sleeper);
          signal?.removeEventListener("abort", abort);
          settle();
        };
        const sleeper: Sleeper = { wakeAt: now + ms, wake: end(done) };
        const abort = end(() => fail(signal?.reason as Error));
        sleepers.add(sleeper);
        signal?.addEventListener("abort", abort);
      });
    },
    async advance(ms) {
      const end = now + ms;
      await turn();
      for (let next = nextUpTo(end); next !== undefined; next = nextUpTo(end)) {
        now = next.wakeAt;
        next.wake();
        await turn();
      }
      now = end;
    },
  };
}
