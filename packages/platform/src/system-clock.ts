/** The real time. Sleeps longer than a timer can hold are slept in parts. */
import { setTimeout as timer } from "node:timers/promises";
import type { Clock } from "@toolyard/core/ports/clock";

/** A longer delay would make the timer fire at once. */
const longestTimerMs = 2 ** 31 - 1;

export function createSystemClock(): Clock {
  return {
    now: () => Date.now(),
    async sleep(ms, signal) {
      signal?.throwIfAborted();
      try {
        for (let rest = Math.max(0, ms); ; rest -= longestTimerMs) {
          await timer(Math.min(rest, longestTimerMs), undefined, signal === undefined ? {} : { signal });
          if (rest <= longestTimerMs) return;
        }
      } catch (cause) {
        // The timer rejects with an error of its own; whoever aborted gave the reason.
        signal?.throwIfAborted();
        throw cause;
      }
    },
  };
}
