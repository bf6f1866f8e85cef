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
  #asking: Promise<void> | undefined;
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
      const next = this.#waiting.shift();
      // The slot goes to whoever waits longest, without being free in between.
      if (next === undefined) this.#used -= 1;
      else next();
    }
  }

  async #acquire(): Promise<void> {
    if (this.#held === 0) await this.#askPatiently();
    if (this.#used < this.#held) {
      this.#used += 1;
      return;
    }
    const handedOver = new Promise<void>((wake) => {
      this.#waiting.push(wake);
    });
    this.#askInBackground();
    await handedOver;
  }

  async #askPatiently(): Promise<void> {
    const until = this.#clock.now() + patienceMs;
    for (;;) {
      await this.#ask(() => 1);
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

  #askInBackground(): void {
    // Going on with the slots held is always right, so a failure changes nothing.
    this.#ask(() => this.#waiting.length).catch(() => undefined);
  }

  /** One question at a time, for all calls that wait by then. */
  #ask(wanted: () => number): Promise<void> {
    this.#asking ??= Promise.resolve()
      .then(() => this.#source.take(Math.max(1, wanted())))
      .then((got) => {
        this.#held += got;
        for (let free = got; free > 0 && this.#waiting.length > 0; free -= 1) {
          this.#used += 1;
          this.#waiting.shift()?.();
        }
      })
      .finally(() => {
        this.#asking = undefined;
      });
    return this.#asking;
  }
}
