/**
 * Gathers what a model says into chunks worth telling. Each comes with all that was said before it, so an answer
 * that were told token by token would be told a thousand times: the longer it is, the larger are its chunks.
 */

/** Milliseconds between two chunks, by the characters said so far. */
const pauses = [
  { upTo: 4_096, ms: 50 },
  { upTo: 32_768, ms: 250 },
  { upTo: Number.POSITIVE_INFINITY, ms: 1_000 },
] as const;

export interface Chunk {
  readonly chunk: string;
  readonly accumulatedContent: string;
}

export class Chunks {
  readonly #now: () => number;
  #said = "";
  #told = 0;
  #toldAt = Number.NEGATIVE_INFINITY;

  constructor(now: () => number) {
    this.#now = now;
  }

  get said(): string {
    return this.#said;
  }

  /** @returns a chunk where it is time for one */
  add(text: string): Chunk | undefined {
    this.#said += text;
    const pause = pauses.find(({ upTo }) => this.#said.length <= upTo)?.ms ?? 0;
    return this.#now() - this.#toldAt < pause ? undefined : this.rest();
  }

  /** What was not told yet. */
  rest(): Chunk | undefined {
    if (this.#told === this.#said.length) return undefined;
    const chunk = this.#said.slice(this.#told);
    this.#told = this.#said.length;
    this.#toldAt = this.#now();
    return { chunk, accumulatedContent: this.#said };
  }
}
