/**
 * Follows the replies of a Redis server (RESP2) as their bytes come in, ahead of the client, which keeps each in memory
 * until it is whole and makes room for a list as soon as it hears how long it will be. Nothing else than lines, blobs
 * and lists comes in this version of the protocol.
 */
import { TooMuchSaid } from "./sockets.ts";

/** The client takes the first of the two for the end of a line, whatever follows it. */
const [carriageReturn, lineFeed] = [0x0d, 0x0a];
/** Of an element of a list: its type, and the end of its line. */
const shortestElement = 3;
const lineTypes: ReadonlySet<string> = new Set(["+", "-", ":"]);
const types: ReadonlySet<string> = new Set([...lineTypes, "$", "*"]);

export class IncomingReplies {
  readonly #largest: number;
  /** What the reply that comes in has of bytes, those announced included. */
  #size = 0;
  /** Replies that it takes until it is whole: itself, and what is in lists. */
  #open = 0;
  #line = "";
  #isEnding = false;
  /** Bytes of a blob that are still to come, its line's end included. */
  #blob = 0;

  /** @param largest bytes of one reply */
  constructor(largest: number) {
    this.#largest = largest;
  }

  /** @throws TooMuchSaid; Error about what is no reply */
  read(bytes: Buffer): void {
    let at = 0;
    while (at < bytes.length) {
      const skipped = Math.min(this.#blob, bytes.length - at);
      this.#blob -= skipped;
      at += skipped;
      if (this.#blob > 0) return;
      if (skipped > 0) this.#endIfWhole();
      at = this.#readLine(bytes, at);
    }
  }

  #readLine(bytes: Buffer, from: number): number {
    if (from === bytes.length) return from;
    if (this.#isEnding) return this.#endLine(bytes, from);
    const end = bytes.indexOf(carriageReturn, from);
    const to = end === -1 ? bytes.length : end;
    // Only its beginning counts.
    if (this.#line.length < 32) this.#line += bytes.toString("latin1", from, Math.min(to, from + 32));
    // The client has words of its own for it, before the line is whole.
    if (this.#line !== "" && !types.has(this.#line[0] ?? "")) throw new Error("no reply of Redis");
    this.#isEnding = end !== -1;
    this.#grow(to - from + 1);
    return this.#isEnding ? to + 1 : to;
  }

  #endLine(bytes: Buffer, at: number): number {
    if (bytes[at] !== lineFeed) throw new Error("no reply of Redis");
    const line = this.#line;
    this.#line = "";
    this.#isEnding = false;
    this.#grow(1);
    this.#take(line);
    return at + 1;
  }

  #take(line: string): void {
    if (this.#open === 0) this.#open = 1;
    this.#open -= 1;
    const [type = ""] = line;
    if (!lineTypes.has(type)) this.#announce(type, /^.(-1|\d{1,15})$/.exec(line)?.[1]);
    this.#endIfWhole();
  }

  #endIfWhole(): void {
    if (this.#open === 0 && this.#blob === 0) this.#size = 0;
  }

  /** @param length of a blob or a list; -1: there is none */
  #announce(type: string, length: string | undefined): void {
    if (length === undefined) throw new Error("no reply of Redis");
    const count = Math.max(0, Number(length));
    if (type === "*") {
      this.#open += count;
      this.#grow(count * shortestElement);
    } else if (length !== "-1") {
      this.#blob = count + 2;
      this.#grow(this.#blob);
    }
  }

  #grow(more: number): void {
    this.#size += more;
    if (this.#size > this.#largest)
      throw new TooMuchSaid(`it sends a reply of more than ${this.#largest} bytes, the most that is taken from Redis`);
  }
}
