/**
 * Server-sent events out of raw reads (WHATWG HTML 9.2.5 and 9.2.6). Works on bytes, so that neither
 * a character nor a line end suffers where one read ends and the next begins, and keeps the original
 * bytes of every event, so that they can be sent on without being written anew.
 */

const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
const SPACE = 0x20;
const byteOrderMark = Buffer.from([0xef, 0xbb, 0xbf]);
const empty = Buffer.alloc(0);

/** Bytes of one event; a back end may send a picture as one chunk. */
const defaultMaximumEventBytes = 16 * 1024 * 1024;

export interface SseEvent {
  readonly data: string;
  /** The value of the `event` field; empty where the event has no name. */
  readonly name: string;
  /** The last `id` seen so far, this event's included. */
  readonly lastEventId: string;
  /**
   * The event as received, with the blank line that ends it. Shares memory with the read where one
   * read held it all. Where a read ended in a lone CR, an LF that came later is not part of it.
   */
  readonly frame: Uint8Array;
  /** `frame` is `data: …` and a blank line, ended by LF as our own events are: many clients split at LF LF. */
  readonly isPlain: boolean;
}

/** An event grew beyond the limit; the stream cannot be followed further. */
export class SseEventTooLarge extends Error {
  override readonly name = "SseEventTooLarge";

  constructor(limit: number) {
    super(`A server-sent event has more than ${limit} bytes.`);
  }
}

/** A line in `buffer`; its end excludes the line's own CR and LF. */
interface Line {
  readonly buffer: Buffer;
  readonly from: number;
  readonly to: number;
}

export class SseScanner {
  readonly #maximumEventBytes: number;
  /** Bytes of a byte order mark met so far; beyond three once the start of the stream has passed. */
  #markBytes = 0;
  /** The last read ended in CR: an LF that follows belongs to it. */
  #skipLineFeed = false;
  /** What earlier reads left of the current event, up to `#carried`; all its lines begin at `#lineStart` or before. */
  #carry: Buffer = empty;
  #carried = 0;
  #lineStart = 0;
  #lines = 0;
  #data: string | undefined;
  #name = "";
  #id = "";
  #lastEventId = "";
  #retryMs: number | undefined;

  constructor(maximumEventBytes: number = defaultMaximumEventBytes) {
    this.#maximumEventBytes = maximumEventBytes;
  }

  /** The last event's id, for `Last-Event-ID` when the stream is taken up again. */
  get lastEventId(): string {
    return this.#lastEventId;
  }

  /** The wait before reconnecting that the server asked for. */
  get retryMs(): number | undefined {
    return this.#retryMs;
  }

  /** True where bytes of an unfinished event are left; at the end of a stream it means that it was cut. */
  get isMidEvent(): boolean {
    return this.#carried > 0;
  }

  /**
   * The events that this read completes.
   * @throws SseEventTooLarge
   */
  feed(read: Uint8Array): SseEvent[] {
    const bytes = Buffer.isBuffer(read) ? read : Buffer.from(read.buffer, read.byteOffset, read.byteLength);
    const events: SseEvent[] = [];
    let at = this.#markBytes > byteOrderMark.length ? 0 : this.#skipByteOrderMark(bytes);
    // First byte in this read of the current event; equals `at` while earlier reads hold its beginning.
    let start = at;
    let lineFeed = -1;
    let carriageReturn = -1;
    while (at < bytes.length) {
      if (this.#skipLineFeed) {
        this.#skipLineFeed = false;
        if (bytes[at] === LF) {
          if (this.#carried > 0) this.#carryOver(bytes, at, at + 1);
          this.#lineStart = this.#carried;
          at += 1;
          start = at;
          continue;
        }
      }
      if (lineFeed < at) lineFeed = position(bytes, LF, at);
      if (carriageReturn < at) carriageReturn = position(bytes, CR, at);
      // Nearly every event of nearly every back end: one `data: ` line and LF LF.
      if (
        start === at &&
        this.#carried === 0 &&
        lineFeed < carriageReturn &&
        bytes[lineFeed + 1] === LF &&
        startsWithData(bytes, at)
      ) {
        const next = lineFeed + 2;
        if (next - at > this.#maximumEventBytes) throw new SseEventTooLarge(this.#maximumEventBytes);
        events.push({
          data: bytes.toString("utf8", at + 6, lineFeed),
          name: "",
          lastEventId: this.#lastEventId,
          // Mostly the read is this event and nothing else.
          frame: at === 0 && next === bytes.length ? bytes : bytes.subarray(at, next),
          isPlain: true,
        });
        at = next;
        start = next;
        continue;
      }
      const end = Math.min(lineFeed, carriageReturn);
      if (end === bytes.length) break;
      let next = end + 1;
      if (end === carriageReturn) {
        if (next === bytes.length) this.#skipLineFeed = true;
        else if (bytes[next] === LF) next += 1;
      }
      const line =
        this.#carried > 0 ? this.#carryLine(bytes, { start, end, next }) : { buffer: bytes, from: at, to: end };
      const isBlank = line.from === line.to;
      if (!isBlank) this.#field(line);
      at = next;
      if (isBlank) {
        const event = this.#dispatch(bytes, start, next);
        if (event !== undefined) events.push(event);
      }
      if (isBlank || this.#carried > 0) start = at;
    }
    if (start < bytes.length) {
      if (this.#carried === 0) this.#lineStart = at - start;
      this.#carryOver(bytes, start, bytes.length);
    }
    return events;
  }

  /** Where the stream's content begins in this read; a mark may come in pieces. */
  #skipByteOrderMark(bytes: Buffer): number {
    let at = 0;
    while (at < bytes.length && this.#markBytes < byteOrderMark.length) {
      if (bytes[at] !== byteOrderMark[this.#markBytes]) {
        // It was none: what looked like its beginning is the beginning of a line.
        if (this.#markBytes > at) this.#carryOver(byteOrderMark, 0, this.#markBytes - at);
        this.#markBytes = byteOrderMark.length + 1;
        this.#lineStart = 0;
        return 0;
      }
      at += 1;
      this.#markBytes += 1;
    }
    if (this.#markBytes === byteOrderMark.length) this.#markBytes += 1;
    return at;
  }

  /** A line whose event, and maybe itself, began in an earlier read. */
  #carryLine(bytes: Buffer, at: { readonly start: number; readonly end: number; readonly next: number }): Line {
    this.#carryOver(bytes, at.start, at.next);
    const line = { buffer: this.#carry, from: this.#lineStart, to: this.#carried - (at.next - at.end) };
    this.#lineStart = this.#carried;
    return line;
  }

  #field({ buffer, from, to }: Line): void {
    this.#lines += 1;
    const line = buffer.subarray(from, to);
    const colon = position(line, COLON, 0);
    const valueStart = line[colon + 1] === SPACE ? colon + 2 : colon + 1;
    const value = line.toString("utf8", Math.min(valueStart, line.length));
    // A line that begins with a colon has the empty name and is a comment.
    switch (line.toString("latin1", 0, colon)) {
      case "data":
        this.#data = this.#data === undefined ? value : `${this.#data}\n${value}`;
        break;
      case "event":
        this.#name = value;
        break;
      case "id":
        if (!value.includes("\0")) this.#id = value;
        break;
      case "retry":
        if (/^[0-9]{1,15}$/.test(value)) this.#retryMs = Number(value);
        break;
      default:
        break;
    }
  }

  #dispatch(bytes: Buffer, start: number, next: number): SseEvent | undefined {
    const frame = this.#carried > 0 ? this.#carry.subarray(0, this.#carried) : bytes.subarray(start, next);
    if (frame.length > this.#maximumEventBytes) throw new SseEventTooLarge(this.#maximumEventBytes);
    this.#lastEventId = this.#id;
    const event: SseEvent | undefined =
      this.#data === undefined
        ? undefined
        : {
            data: this.#data,
            name: this.#name,
            lastEventId: this.#lastEventId,
            frame,
            isPlain: this.#lines === 1 && startsWithData(frame, 0) && endsInLineFeeds(frame),
          };
    // The frame lives in the carry: later events get a new one.
    this.#carry = empty;
    this.#carried = 0;
    this.#lineStart = 0;
    this.#lines = 0;
    this.#data = undefined;
    this.#name = "";
    return event;
  }

  #carryOver(bytes: Buffer, from: number, to: number): void {
    const needed = this.#carried + to - from;
    if (needed > this.#maximumEventBytes) throw new SseEventTooLarge(this.#maximumEventBytes);
    if (needed > this.#carry.length) {
      const grown = Buffer.allocUnsafe(Math.max(needed, this.#carry.length * 2, 512));
      this.#carry.copy(grown, 0, 0, this.#carried);
      this.#carry = grown;
    }
    bytes.copy(this.#carry, this.#carried, from, to);
    this.#carried = needed;
  }
}

/** Where the byte is, or the length. */
function position(bytes: Buffer, byte: number, from: number): number {
  const found = bytes.indexOf(byte, from);
  return found === -1 ? bytes.length : found;
}

function startsWithData(bytes: Uint8Array, at: number): boolean {
  return (
    bytes[at] === 0x64 &&
    bytes[at + 1] === 0x61 &&
    bytes[at + 2] === 0x74 &&
    bytes[at + 3] === 0x61 &&
    bytes[at + 4] === COLON &&
    bytes[at + 5] === SPACE
  );
}

function endsInLineFeeds(frame: Uint8Array): boolean {
  const [third, second, last] = frame.subarray(-3);
  return last === LF && second === LF && third !== CR;
}
