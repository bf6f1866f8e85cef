/**
 * A request's share of the tenant's `concurrent_tool_calls`. A chat reserves a few slots when it is
 * admitted, so that a round of reads costs no round trip; while more calls wait than it holds slots,
 * it tries to take more in the background, and with none at all it asks before it runs (CHAT-12).
 */
import { GatewayError } from "../errors/gateway-error.ts";
import type { Clock } from "../ports/clock.ts";

/** How long a call waits for a slot when the request holds none. */
const patienceMs = 5_000;
const askAgainMs = 250;

export interface SlotSource {
  /** Takes up to `wanted` more; resolves with what it got. */
  take(wanted: number): Promise<number>;
  readonly limit: number;
}

export class SlotPool {
  #held: number;
  #used = 0;
  #asking = false;
  readonly #waiting: (() => void)[] = [];
  readonly #source: SlotSource;
  readonly #clock: Clock;

  constructor(held: number, source: SlotSource, clock: Clock) {
    this.#held = held;
    this.#source = source;
    this.#clock = clock;
  }

  /** Runs `work` in a slot. @throws GatewayError `concurrency_limited` where none came free in time */
  async run<T>(work: () => Promise<T>): Promise<T> {
    await this.#acquire();
    try {
      return await work();
    } finally {
      this.#used -= 1;
      this.#waiting.shift()?.();
    }
  }

  async #acquire(): Promise<void> {
    if (this.#used < this.#held) {
      this.#used += 1;
      return;
    }
    if (this.#held === 0) {
      await this.#ask();
    } else {
      void this.#askInBackground();
    }
    if (this.#used < this.#held) {
      this.#used += 1;
      return;
    }
    await new Promise<void>((wake) => {
      this.#waiting.push(wake);
    });
    this.#used += 1;
  }

  async #ask(): Promise<void> {
    const until = this.#clock.now() + patienceMs;
    while (this.#held === 0) {
      this.#held += await this.#source.take(1);
      if (this.#held > 0) return;
      if (this.#clock.now() >= until) {
        throw new GatewayError(
          "concurrency_limited",
          `All ${this.#source.limit} tool calls that this tenant may run at once are in use; setting 'concurrent_tool_calls'.`,
          { retryAfterMs: 1_000 },
        );
      }
      await this.#clock.sleep(askAgainMs);
    }
  }

  async #askInBackground(): Promise<void> {
    if (this.#asking) return;
    this.#asking = true;
    try {
      // Let the other calls of this turn queue up, so that one question serves all.
      await Promise.resolve();
      const got = await this.#source.take(Math.max(1, this.#waiting.length));
      this.#held += got;
      for (let free = got; free > 0; free -= 1) this.#waiting.shift()?.();
    } catch {
      // Going on with the slots held is always right.
    } finally {
      this.#asking = false;
    }
  }
}
