/**
 * Protocol Buffers' wire format, for messages given as plain objects and a table of their fields. Only
 * writing, and only what OTLP has. Written from the end to the beginning: a part's length stands before
 * it, and is known once the part is there.
 */
export interface Field {
  readonly name: string;
  readonly number: number;
  readonly type: "string" | "bytes" | "uint" | "bool" | "double" | "fixed32" | "fixed64" | MessageType;
}

/** Its fields in the order of their numbers. */
export type MessageType = readonly Field[];

const wire = { varint: 0, eightBytes: 1, length: 2, fourBytes: 5 } as const;
const firstBytes = 65_536;

/**
 * @param message ids as hex digits, 64-bit numbers as decimal digits: the form that OTLP has in JSON; what is
 * undefined is left out
 */
export function encodeMessage(type: MessageType, message: Readonly<Record<string, unknown>>): Buffer {
  const writer = new BackwardWriter();
  writer.message(type, message);
  return writer.bytes();
}

class BackwardWriter {
  #buffer = Buffer.allocUnsafe(firstBytes);
  /** Everything from here on is written. */
  #at = firstBytes;

  bytes(): Buffer {
    return this.#buffer.subarray(this.#at);
  }

  message(type: MessageType, message: Readonly<Record<string, unknown>>): void {
    for (let index = type.length - 1; index >= 0; index -= 1) {
      const field = type[index];
      const value = field === undefined ? undefined : message[field.name];
      if (field === undefined || value === undefined) continue;
      if (!Array.isArray(value)) this.#field(field, value);
      else for (let at = value.length - 1; at >= 0; at -= 1) this.#field(field, value[at]);
    }
  }

  #field({ number, type }: Field, value: unknown): void {
    if (typeof type === "object") {
      const end = this.#length();
      this.message(type, isRecord(value) ? value : {});
      this.#varint(this.#length() - end);
      this.#varint((number << 3) | wire.length);
      return;
    }
    switch (type) {
      case "string":
      case "bytes":
        this.#text(String(value), type === "string" ? "utf8" : "hex");
        this.#varint((number << 3) | wire.length);
        return;
      case "uint":
        this.#varint(Number(value));
        this.#varint((number << 3) | wire.varint);
        return;
      case "bool":
        this.#varint(value === true ? 1 : 0);
        this.#varint((number << 3) | wire.varint);
        return;
      case "double":
        this.#reserve(8);
        this.#buffer.writeDoubleLE(Number(value), this.#at);
        this.#varint((number << 3) | wire.eightBytes);
        return;
      case "fixed64":
        this.#reserve(8);
        this.#buffer.writeBigUInt64LE(BigInt(String(value)), this.#at);
        this.#varint((number << 3) | wire.eightBytes);
        return;
      case "fixed32":
        this.#reserve(4);
        this.#buffer.writeUInt32LE(Number(value), this.#at);
        this.#varint((number << 3) | wire.fourBytes);
        return;
      default:
        return type satisfies never;
    }
  }

  #text(text: string, encoding: "utf8" | "hex"): void {
    const length = Buffer.byteLength(text, encoding);
    this.#reserve(length);
    this.#buffer.write(text, this.#at, encoding);
    this.#varint(length);
  }

  /** Seven bits a byte, the lowest first; a negative number counts as its 64 bits. */
  #varint(value: number): void {
    if (value >= 0 && value < 128) {
      this.#reserve(1);
      this.#buffer[this.#at] = value;
      return;
    }
    const bytes: number[] = [];
    if (value >= 0) {
      let rest = value;
      for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
      bytes.push(rest);
    } else {
      let rest = BigInt.asUintN(64, BigInt(value));
      for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
      bytes.push(Number(rest));
    }
    this.#reserve(bytes.length);
    this.#buffer.set(bytes, this.#at);
  }

  #length(): number {
    return this.#buffer.length - this.#at;
  }

  #reserve(bytes: number): void {
    if (bytes > this.#at) {
      const larger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.#length() + bytes));
      const at = larger.length - this.#length();
      this.#buffer.copy(larger, at, this.#at);
      this.#buffer = larger;
      this.#at = at;
    }
    this.#at -= bytes;
  }
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}
