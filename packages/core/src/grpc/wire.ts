/**
 * The wire format of Protocol Buffers, as far as descriptors and server reflection need it: fields of a
 * message, one after the other. Messages of tools are read by grpc/codec.ts, which knows their types.
 */

export interface WireField {
  readonly number: number;
  /** Of varints; exact up to 2^53. */
  readonly value: number;
  /** Of strings, bytes and messages; empty for varints and numbers of fixed size. */
  readonly bytes: Uint8Array;
}

/**
 * @param wanted number of the fields that are given; absent: all
 * @throws RangeError where the bytes are no message
 */
export function* readFields(bytes: Uint8Array, wanted?: number): Generator<WireField> {
  const reader = new Reader(bytes);
  while (!reader.isAtEnd) {
    const tag = reader.varint();
    const number = Math.floor(tag / 8);
    if (number === 0) throw new RangeError("a field has the number 0");
    const isWanted = wanted === undefined || number === wanted;
    switch (tag % 8) {
      case 0: {
        const value = reader.varint();
        if (isWanted) yield { number, value, bytes: empty };
        break;
      }
      case 1:
        reader.skip(8);
        break;
      case 2: {
        const length = reader.varint();
        if (isWanted) yield { number, value: 0, bytes: reader.take(length) };
        else reader.skip(length);
        break;
      }
      case 5:
        reader.skip(4);
        break;
      default:
        throw new RangeError("a field has a wire type that there is not");
    }
  }
}

/**
 * The strings, bytes or messages that fields of one number hold, in all of these messages.
 * @throws RangeError where the bytes are no message; where there are more than `most`, before they are held
 */
export function bytesOf(messages: Iterable<Uint8Array>, wanted: number, most: number): readonly Uint8Array[] {
  const found: Uint8Array[] = [];
  for (const message of messages) {
    for (const { bytes } of readFields(message, wanted)) {
      if (found.length === most) throw new RangeError(`there are more than ${most} of one kind`);
      found.push(bytes);
    }
  }
  return found;
}

const empty = new Uint8Array();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** @throws TypeError where the bytes are no UTF-8 */
export function toText(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}

class Reader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#bytes.length;
  }

  varint(): number {
    let value = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = this.#bytes[this.#at];
      if (byte === undefined) throw new RangeError("the bytes end within a number");
      this.#at += 1;
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    throw new RangeError("a number is too long");
  }

  take(length: number): Uint8Array {
    const start = this.#at;
    this.skip(length);
    return this.#bytes.subarray(start, this.#at);
  }

  skip(length: number): void {
    const end = this.#at + length;
    if (end > this.#bytes.length) throw new RangeError("the bytes end within a field");
    this.#at = end;
  }
}

/** A field that holds text. */
export function textField(number: number, text: string): Uint8Array {
  const bytes = Buffer.from(text, "utf8");
  return Buffer.concat([varint(number * 8 + 2), varint(bytes.length), bytes]);
}

function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  let left = value;
  while (left >= 0x80) {
    bytes.push((left % 0x80) + 0x80);
    left = Math.floor(left / 0x80);
  }
  return Uint8Array.from([...bytes, left]);
}
