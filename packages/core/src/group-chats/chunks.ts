/**
 * Gathers what a model says into chunks worth telling. Each comes with all that was said before it, so an answer
 * that were told token by token would be told a thousand times: the longer it is, the larger are its chunks.
 */

/**
 * What one message holds, in UTF-8: several times what models say in one go. It is told many times over, listed with
 * a hundred others, and given to every agent that answers behind it.
 */
export const mostSaidBytes = 262_144;

/** Milliseconds between two chunks, by the characters said so far. */
const pauses = [
  { upTo: 4_096, ms: 50 },
  { upTo: 32_768, ms: 250 },
  { upTo: Number.POSITIVE_INFINITY, ms: 1_000 },
] as const;

const encoder = new TextEncoder();

export interface Chunk {
  readonly chunk: string;
  readonly accumulatedContent: string;
}

export class Chunks {
  readonly #now: () => number;
  #said = "";
  #bytes = 0;
  #isFull = false;
  #told = 0;
  #toldAt = Number.NEGATIVE_INFINITY;

  constructor(now: () => number) {
    this.#now = now;
  }

  get said(): string {
    return this.#said;
  }

  /** More was said than a message holds; what did not fit is gone. */
  get isFull(): boolean {
    return this.#isFull;
  }

  /** @returns a chunk where it is time for one */
  add(text: string): Chunk | undefined {
    this.#said += this.#fitting(text);
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

  #fitting(text: string): string {
    if (this.#isFull) return "";
    const room = mostSaidBytes - this.#bytes;
    const bytes = Buffer.byteLength(text);
    this.#bytes += bytes;
    if (bytes <= room) return text;
    this.#isFull = true;
    // Writes whole characters only, and says how much of the text they were.
    return text.slice(0, encoder.encodeInto(text, new Uint8Array(room)).read);
  }
}
