/**
 * When a server's tools are looked at again because it says that they are others now. Each look writes them all and
 * makes every instance read the tenant's configuration anew, so a server that says it without an end must not decide
 * how often that is: the first time it is at once, and less often the longer it goes on.
 */
import type { Clock } from "../ports/clock.ts";

/** Between two looks, at first and at most; it doubles with each that is asked for before twice the pause is over. */
const shortestPauseMs = 5_000;
const longestPauseMs = 300_000;

export class NewsPace {
  readonly #clock: Pick<Clock, "now">;
  #pauseMs = shortestPauseMs;
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Pick<Clock, "now">) {
    this.#clock = clock;
  }

  /** Milliseconds until the next look. */
  get waitMs(): number {
    return Math.max(0, this.#lookedAt + this.#pauseMs - this.#clock.now());
  }

  /** A look begins. */
  look(): void {
    const now = this.#clock.now();
    const isCalm = now - this.#lookedAt >= 2 * this.#pauseMs;
    this.#pauseMs = isCalm ? Math.max(shortestPauseMs, this.#pauseMs / 2) : Math.min(longestPauseMs, this.#pauseMs * 2);
    this.#lookedAt = now;
  }
}
