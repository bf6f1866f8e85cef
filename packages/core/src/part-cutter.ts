/** Bodies in parts of one size, whatever sizes they come in: cut, and sent. */

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

/**
 * Sends parts two at a time: one is on its way while the next is gathered, and no third waits in memory.
 * @param send numbers begin at 1
 * @throws what the source or a send threw, when nothing is on its way any more
 */
export async function sendParts<Sent>(
  parts: AsyncIterable<Part>,
  send: (bytes: Uint8Array, number: number) => Promise<Sent>,
): Promise<Sent[]> {
  const sent: Promise<Sent>[] = [];
  try {
    for await (const { bytes } of parts) {
      const sending = send(bytes, sent.length + 1);
      // It may fail while the next part is waited for, which takes as long as its source likes; looked at in its turn.
      sending.catch(() => undefined);
      sent.push(sending);
      await sent.at(-2);
    }
    return await Promise.all(sent);
  } catch (cause) {
    await Promise.allSettled(sent);
    throw cause;
  }
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
