/** Two processes that somebody kills, freezes and restarts, by numbers that a seed gives. */
import type { KillPoint } from "@toolyard/core/calls/kill-points";
import { pause, type Instance } from "./instance.ts";

/** The same numbers between 0 and 1 for the same seed. */
export function createRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    // One step of the generator "mulberry32".
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Where one of the two processes runs; whoever comes while it is being replaced waits for the next one. */
export class Seat {
  #instance: Promise<Instance>;
  readonly #startInstance: () => Promise<Instance>;
  #isBusy = false;
  #startMs = 0;

  constructor(startInstance: () => Promise<Instance>, first: Promise<Instance>) {
    this.#startInstance = startInstance;
    this.#instance = first;
  }

  get instance(): Promise<Instance> {
    return this.#instance;
  }

  /** Already on the way to something. */
  get isBusy(): boolean {
    return this.#isBusy;
  }

  /** How long the last start took. */
  get startMs(): number {
    return this.#startMs;
  }

  replace(): Promise<void> {
    return this.#do(async (instance) => {
      instance.kill();
      this.#instance = instance.ended.then(() => this.#startNext());
      await this.#instance;
    });
  }

  /** Lets it die by its own hand at a point that it passes, or kills it where it does not come there. */
  dieAt(point: KillPoint, withinMs: number): Promise<void> {
    return this.#do(async (instance) => {
      await Promise.race([instance.order({ kind: "stop", at: point, with: "SIGKILL" }), instance.ended]);
      await Promise.race([instance.ended, pause(withinMs)]);
      instance.kill();
      this.#instance = instance.ended.then(() => this.#startNext());
      await this.#instance;
    });
  }

  freezeFor(ms: number): Promise<void> {
    return this.#do(async (instance) => {
      await instance.freeze();
      await pause(ms);
      instance.thaw();
    });
  }

  /** A machine that is busy may need longer than one start is given. */
  async #startNext(triesLeft = 4): Promise<Instance> {
    const since = performance.now();
    try {
      const instance = await this.#startInstance();
      this.#startMs = performance.now() - since;
      return instance;
    } catch (error) {
      if (triesLeft > 0) return this.#startNext(triesLeft - 1);
      throw error;
    }
  }

  async #do(work: (instance: Instance) => Promise<void>): Promise<void> {
    this.#isBusy = true;
    try {
      await work(await this.#instance);
    } finally {
      this.#isBusy = false;
    }
  }
}
