/**
 * Threads of a run that wait. While others work, the process keeps all of them; once nobody works, the run is
 * parked, and waiting costs nothing: no lease, no invocation.
 */
import { Parked } from "../../tools/tool-call.ts";

/** So little time is waited out where the run is. */
const usualInlineMs = 1_000;

export interface Wait {
  /** Epoch milliseconds; absent: until something happens. */
  readonly wakeAt?: number | undefined;
  /** What it waits for happens elsewhere: the end of a call, a signal. */
  readonly hears?: boolean;
  /** It has nothing to wait for, and only lets another invocation go on. */
  readonly yields?: boolean;
}

interface Waiting extends Wait {
  resume(): void;
  leave(parked: unknown): void;
}

export interface WaitsOptions {
  readonly now: () => number;
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  /** Longest time that is waited out where the run is; absent: a second. */
  readonly inlineMs?: number | undefined;
  /** Time between two looks for what has happened elsewhere while others work. */
  readonly lookEveryMs: number;
  /** Others work. Says whether something has happened meanwhile: then those who hear of it look again. */
  readonly look: () => Promise<boolean>;
  /**
   * Nobody works. Writes what is to be written, and says whether something has happened meanwhile: then all look
   * again. Else the wakes that were heeded, for parking.
   */
  readonly beforePark: () => Promise<"look" | number>;
}

export class Waits {
  readonly #options: WaitsOptions;
  readonly #waiting = new Set<Waiting>();
  #active = 0;
  #sleeping: AbortController | undefined;
  #isChecking = false;
  /** Of the next look; absent: nobody has asked for one since the last. */
  #lookAt: number | undefined;
  #ended: { readonly why: unknown } | undefined;

  constructor(options: WaitsOptions) {
    this.#options = options;
  }

  /** A thread; the one that begins others does not work while they do. */
  async thread<T>(work: () => Promise<T>): Promise<T> {
    this.#active += 1;
    try {
      return await work();
    } finally {
      this.#idle();
    }
  }

  async others<T>(work: () => Promise<T>): Promise<T> {
    this.#idle();
    try {
      return await work();
    } finally {
      this.#active += 1;
    }
  }

  /** Until its time has come or something has happened, whichever is first. @throws Parked */
  until(wait: Wait): Promise<void> {
    if (this.#ended !== undefined) return Promise.reject(asError(this.#ended.why));
    return new Promise<void>((resolve, reject) => {
      const waiting: Waiting = {
        ...wait,
        resume: () => {
          this.#waiting.delete(waiting);
          this.#active += 1;
          resolve();
        },
        leave: (why) => {
          this.#waiting.delete(waiting);
          this.#active += 1;
          reject(asError(why));
        },
      };
      this.#waiting.add(waiting);
      this.#idle();
    });
  }

  /** Something has happened: all look again. */
  notify(): void {
    for (const waiting of this.#waiting) waiting.resume();
  }

  /** Nobody waits any more. */
  end(why: unknown): void {
    this.#ended ??= { why };
    this.#sleeping?.abort();
    for (const waiting of this.#waiting) waiting.leave(why);
  }

  #idle(): void {
    this.#active -= 1;
    this.#sleeping?.abort();
    if (this.#isChecking) return;
    this.#isChecking = true;
    // Whoever hands over to another has done so by then.
    setImmediate(() => {
      this.#isChecking = false;
      this.#check().catch((error: unknown) => this.end(error));
    });
  }

  async #check(): Promise<void> {
    if (this.#waiting.size === 0 || this.#ended !== undefined) return;
    const { now, sleep, inlineMs = usualInlineMs } = this.#options;
    const waits = [...this.#waiting];
    const isYielding = waits.some(({ yields }) => yields === true);
    const times = waits.flatMap(({ wakeAt }) => (wakeAt === undefined ? [] : [wakeAt]));
    const earliest = times.length === 0 ? undefined : Math.min(...times);
    const inMs = earliest === undefined ? Number.POSITIVE_INFINITY : earliest - now();
    if (this.#active > 0 || (inMs <= inlineMs && !isYielding)) {
      if (inMs <= 0) return this.#resumeDue();
      const lookInMs = waits.some(({ hears }) => hears === true) ? this.#lookInMs() : Number.POSITIVE_INFINITY;
      if (lookInMs <= 0) return this.#look();
      const sleepMs = Math.min(inMs, lookInMs);
      if (sleepMs === Number.POSITIVE_INFINITY) return;
      this.#sleeping = new AbortController();
      const { signal } = this.#sleeping;
      await sleep(Math.min(sleepMs, 2 ** 31 - 1), signal).catch(() => undefined);
      // Who has ended the sleep looks by itself.
      if (!signal.aborted) this.#resumeDue();
      return;
    }
    const answer = await this.#options.beforePark();
    if (this.#active > 0) return;
    if (answer === "look") this.notify();
    else {
      const wakeInMs = earliest === undefined ? undefined : Math.max(0, earliest - now());
      this.end(new Parked(isYielding ? 0 : wakeInMs, answer));
    }
  }

  #lookInMs(): number {
    const { now, lookEveryMs } = this.#options;
    this.#lookAt ??= now() + lookEveryMs;
    return this.#lookAt - now();
  }

  /** Counts as work: nobody parks over what it finds. */
  async #look(): Promise<void> {
    const { now, lookEveryMs, look } = this.#options;
    const startedAt = now();
    this.#active += 1;
    this.#lookAt = Number.POSITIVE_INFINITY;
    try {
      if (!(await look())) return;
      for (const waiting of this.#waiting) if (waiting.hears === true) waiting.resume();
    } finally {
      // What takes long, since the run is large, is done less often.
      this.#lookAt = now() + Math.max(lookEveryMs, 10 * (now() - startedAt));
      this.#idle();
    }
  }

  #resumeDue(): void {
    const now = this.#options.now();
    let isAny = false;
    for (const waiting of this.#waiting) {
      if (waiting.wakeAt === undefined || waiting.wakeAt > now || waiting.yields === true) continue;
      isAny = true;
      waiting.resume();
    }
    if (isAny || this.#waiting.size === 0) return;
    this.#active += 1;
    this.#idle();
  }
}

function asError(why: unknown): Error {
  return why instanceof Error ? why : new Error("the run has ended");
}
