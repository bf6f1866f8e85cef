/** Cuts a body into parts of one size, whatever sizes it comes in; what waits in memory is one part. */
export interface Part {
  readonly bytes: Uint8Array;
  readonly isLast: boolean;
}

/** At least one part, the last of which may be smaller, or empty where the body is. */
export async function* cutIntoParts(
  body: Uint8Array | AsyncIterable<Uint8Array>,
  partBytes: number,
): AsyncGenerator<Part, void> {
  if (body instanceof Uint8Array) {
    for (let at = 0; at === 0 || at < body.byteLength; at += partBytes) {
      yield { bytes: body.subarray(at, at + partBytes), isLast: at + partBytes >= body.byteLength };
    }
    return;
  }
  // Copied at once, since the source may use its buffer again.
  let part = new GrowingBuffer(partBytes, Math.min(firstBytes, partBytes));
  for await (const chunk of body) {
    for (let at = 0; at < chunk.byteLength;) {
      if (part.isFull) {
        yield { bytes: part.bytes, isLast: false };
        part = new GrowingBuffer(partBytes, partBytes);
      }
      at += part.add(chunk.subarray(at));
    }
  }
  yield { bytes: part.bytes, isLast: true };
}

const firstBytes = 64 * 1024;

/** Most bodies are small: a whole part is only taken from memory for those that are not. */
class GrowingBuffer {
  readonly #most: number;
  #buffer: Buffer;
  #length = 0;

  constructor(most: number, first: number) {
    this.#most = most;
    this.#buffer = Buffer.allocUnsafe(first);
  }

  get isFull(): boolean {
    return this.#length === this.#most;
  }

  get bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.#length);
  }

  /** Takes what there is room for, and says how much that was. */
  add(bytes: Uint8Array): number {
    const taken = bytes.subarray(0, this.#most - this.#length);
    const needed = this.#length + taken.byteLength;
    if (needed > this.#buffer.byteLength) {
      const larger = Buffer.allocUnsafe(Math.min(this.#most, Math.max(needed, this.#buffer.byteLength * 2)));
      larger.set(this.bytes);
      this.#buffer = larger;
    }
    this.#buffer.set(taken, this.#length);
    this.#length = needed;
    return taken.byteLength;
  }
}
