/**
 * Access tokens in this process's memory, so that a call with a good one costs no trip. A copy counts
 * for the version of the tenant's configuration it was made under: disconnecting raises that version,
 * so no process goes on with what was withdrawn.
 */
import type { Clock } from "../ports/clock.ts";

/** Tokens kept; the least recently used goes first. */
const capacity = 5_000;

interface Copy {
  readonly value: string;
  readonly generation: number;
  /** Null: until it is refused. */
  readonly usableForMs: number | null;
}

interface Entry {
  readonly version: number;
  readonly token?: { readonly value: string; readonly generation: number; readonly until: number };
  readonly refusal?: { readonly error: Error; readonly until: number };
}

export class TokenMemory {
  readonly #clock: Clock;
  readonly #entries = new Map<string, Entry>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A token newer than `above` that may be used. */
  recall(
    key: string,
    version: number,
    above: number,
  ): { readonly value: string; readonly generation: number } | undefined {
    const entry = this.#entries.get(key);
    const token = entry?.version === version ? entry.token : undefined;
    if (entry === undefined || token === undefined) return undefined;
    if (token.until <= this.#clock.now() || token.generation <= above) return undefined;
    this.#put(key, entry);
    return { value: token.value, generation: token.generation };
  }

  /** What the server refused with a moment ago. */
  refusal(key: string, version: number): Error | undefined {
    const entry = this.#entries.get(key);
    const refusal = entry?.version === version ? entry.refusal : undefined;
    return refusal !== undefined && refusal.until > this.#clock.now() ? refusal.error : undefined;
  }

  /** Never in the place of a newer one: who read the older may only be slower. */
  remember(key: string, version: number, { value, generation, usableForMs }: Copy): void {
    if (this.recall(key, version, generation) !== undefined) return;
    const until = usableForMs === null ? Number.POSITIVE_INFINITY : this.#clock.now() + usableForMs;
    this.#put(key, { version, token: { value, generation, until } });
  }

  rememberRefusal(
    key: string,
    version: number,
    { error, forMs }: { readonly error: Error; readonly forMs: number },
  ): void {
    this.#put(key, { version, refusal: { error, until: this.#clock.now() + forMs } });
  }

  /** A copy that was refused, or is older. */
  forget(key: string, generation: number): void {
    const token = this.#entries.get(key)?.token;
    if (token !== undefined && token.generation <= generation) this.#entries.delete(key);
  }

  #put(key: string, entry: Entry): void {
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    const oldest = this.#entries.size > capacity ? this.#entries.keys().next().value : undefined;
    if (oldest !== undefined) this.#entries.delete(oldest);
  }
}
