/** Frames of RFC 6455, as a client writes and reads them: texts, pings and the end; no extensions. */
import { randomBytes } from "node:crypto";
import { isUtf8 } from "node:buffer";

const opcodes = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

export type Received =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "ping" | "close"; readonly payload: Buffer };

/** The other side breaks the protocol, or the bounds. */
export class FrameError extends Error {
  override readonly name = "FrameError";
}

export function textFrame(text: string): Buffer {
  return frame(opcodes.text, Buffer.from(text, "utf8"));
}

export function pongFrame(payload: Buffer): Buffer {
  return frame(opcodes.pong, payload);
}

export function closeFrame(): Buffer {
  // 1000: nothing is wrong.
  return frame(opcodes.close, Buffer.from([0x03, 0xe8]));
}

/** What a client sends is masked. */
function frame(opcode: number, payload: Buffer): Buffer {
  const { length } = payload;
  const extended = length < 126 ? 0 : length < 65_536 ? 2 : 8;
  const head = Buffer.alloc(2 + extended + 4);
  head[0] = 0x80 | opcode;
  head[1] = 0x80 | (extended === 0 ? length : extended === 2 ? 126 : 127);
  if (extended === 2) head.writeUInt16BE(length, 2);
  if (extended === 8) head.writeBigUInt64BE(BigInt(length), 2);
  const mask = randomBytes(4);
  mask.copy(head, 2 + extended);
  const masked = Buffer.allocUnsafe(length);
  for (let at = 0; at < length; at += 1) masked[at] = (payload[at] ?? 0) ^ (mask[at & 3] ?? 0);
  return Buffer.concat([head, masked]);
}

interface Head {
  readonly isLast: boolean;
  readonly opcode: number;
  /** Of the head. */
  readonly bytes: number;
  readonly length: number;
}

export class FrameReader {
  readonly #maxBytes: number;
  #chunks: Buffer[] = [];
  #size = 0;
  /** What has come of a text in several frames, with room for more: pieces by themselves would hold their reads. */
  #begun: Buffer | undefined;
  #begunBytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** What these bytes complete. @throws FrameError */
  feed(bytes: Uint8Array): readonly Received[] {
    this.#chunks.push(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
    this.#size += bytes.byteLength;
    const received: Received[] = [];
    for (let head = this.#head(); head !== undefined; head = this.#head()) {
      if (this.#size < head.bytes + head.length) break;
      const whole = this.#joined();
      const payload = whole.subarray(head.bytes, head.bytes + head.length);
      const rest = whole.subarray(head.bytes + head.length);
      this.#chunks = rest.length === 0 ? [] : [rest];
      this.#size = rest.length;
      const one = this.#take(head, payload);
      if (one !== undefined) received.push(one);
    }
    return received;
  }

  #joined(): Buffer {
    const [only] = this.#chunks;
    if (this.#chunks.length === 1 && only !== undefined) return only;
    const whole = Buffer.concat(this.#chunks, this.#size);
    this.#chunks = [whole];
    return whole;
  }

  #head(): Head | undefined {
    const [first] = this.#chunks;
    if (first === undefined || this.#size < 2) return undefined;
    const start = first.length >= 10 ? first : this.#joined();
    const [flags = 0, size = 0] = start;
    if ((flags & 0x70) !== 0) throw new FrameError("uses an extension that was not agreed on");
    if ((size & 0x80) !== 0) throw new FrameError("masks what it sends");
    const short = size & 0x7f;
    const bytes = short < 126 ? 2 : short === 126 ? 4 : 10;
    if (this.#size < bytes) return undefined;
    const length = short < 126 ? short : short === 126 ? start.readUInt16BE(2) : Number(start.readBigUInt64BE(2));
    const opcode = flags & 0x0f;
    const isLast = (flags & 0x80) !== 0;
    if (opcode >= opcodes.close && (length > 125 || !isLast))
      throw new FrameError("sends a control frame that is none");
    if (length + this.#begunBytes > this.#maxBytes)
      throw new FrameError(`sends a message of more than ${this.#maxBytes} bytes`);
    return { isLast, opcode, bytes, length };
  }

  #take({ opcode, isLast }: Head, payload: Buffer): Received | undefined {
    switch (opcode) {
      case opcodes.ping:
        return { kind: "ping", payload };
      case opcodes.close:
        return { kind: "close", payload };
      case opcodes.pong:
        return undefined;
      case opcodes.text:
        if (this.#begun !== undefined) throw new FrameError("begins a message within another");
        if (isLast) return toText(payload);
        this.#begun = Buffer.alloc(0);
        break;
      case opcodes.continuation:
        if (this.#begun === undefined) throw new FrameError("goes on with a message that has not begun");
        break;
      default:
        throw new FrameError("sends what is no text");
    }
    const begun = this.#append(this.#begun, payload);
    if (!isLast) return undefined;
    const whole = begun.subarray(0, this.#begunBytes);
    this.#begun = undefined;
    this.#begunBytes = 0;
    return toText(whole);
  }

  #append(begun: Buffer, piece: Buffer): Buffer {
    const needed = this.#begunBytes + piece.length;
    let room = begun;
    if (needed > room.length) {
      room = Buffer.allocUnsafeSlow(Math.max(needed, Math.min(2 * room.length, this.#maxBytes)));
      begun.copy(room, 0, 0, this.#begunBytes);
    }
    piece.copy(room, this.#begunBytes);
    this.#begun = room;
    this.#begunBytes = needed;
    return room;
  }
}

function toText(bytes: Buffer): Received {
  if (!isUtf8(bytes)) throw new FrameError("sends a text that is not UTF-8");
  return { kind: "text", text: bytes.toString("utf8") };
}
