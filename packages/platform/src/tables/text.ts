/**
 * Bytes of a text file as text, whatever their encoding: marked ones by their mark; else UTF-8 if the first bytes
 * beyond ASCII are UTF-8, and GBK (GB 18030) if they are not. ASCII alone is both, so nothing has to be guessed early.
 */
import type { TextEncoding } from "@toolyard/core/ports/data-tables";
import { TableFault } from "./fault.ts";

const labels: Readonly<Record<TextEncoding, string>> = {
  "utf-8": "utf-8",
  gbk: "gb18030",
  "utf-16le": "utf-16le",
  "utf-16be": "utf-16be",
  latin1: "latin1",
};

/** Longest character of the encodings. */
const tail = 4;

export class TextReader {
  readonly #file: string;
  /** Undefined while all was ASCII. */
  #decoder: InstanceType<typeof TextDecoder> | undefined;
  #isFirst = true;
  #held: Uint8Array = new Uint8Array();
  encoding: TextEncoding | undefined;

  constructor(file: string, encoding: TextEncoding | undefined) {
    this.#file = file;
    if (encoding !== undefined) this.#choose(encoding);
  }

  read(bytes: Uint8Array): string {
    let part = bytes;
    if (this.#isFirst) {
      // A mark has up to three bytes.
      part = Buffer.concat([this.#held, bytes]);
      if (part.byteLength < 3) {
        this.#held = part;
        return "";
      }
      this.#begin(part);
    }
    if (this.#decoder === undefined) {
      if (isAscii(part)) return Buffer.from(part.buffer, part.byteOffset, part.byteLength).toString("latin1");
      this.#choose(isUtf8Start(part) ? "utf-8" : "gbk");
    }
    return this.#decode(part, true);
  }

  end(): string {
    const rest = this.#isFirst ? this.#held : new Uint8Array();
    this.#isFirst = false;
    if (this.#decoder === undefined && !isAscii(rest)) this.#choose(isUtf8Start(rest) ? "utf-8" : "gbk");
    return this.#decoder === undefined ? Buffer.from(rest).toString("latin1") : this.#decode(rest, false);
  }

  #begin(part: Uint8Array): void {
    this.#isFirst = false;
    if (this.#decoder !== undefined) return;
    const [first = 0, second = 0, third = 0] = part;
    if (first === 0xef && second === 0xbb && third === 0xbf) this.#choose("utf-8");
    else if (first === 0xff && second === 0xfe) this.#choose("utf-16le");
    else if (first === 0xfe && second === 0xff) this.#choose("utf-16be");
  }

  #choose(encoding: TextEncoding): void {
    this.encoding = encoding;
    this.#decoder = new TextDecoder(labels[encoding], { fatal: true });
  }

  #decode(bytes: Uint8Array, stream: boolean): string {
    try {
      return this.#decoder?.decode(bytes, { stream }) ?? "";
    } catch {
      throw new TableFault(
        `'${this.#file}' holds bytes that are not ${this.encoding ?? "text"}; name its encoding with 'encoding'.`,
        "encoding",
      );
    }
  }
}

function isAscii(bytes: Uint8Array): boolean {
  for (const byte of bytes) if (byte > 0x7f) return false;
  return true;
}

/** The last character may be cut off. */
function isUtf8Start(bytes: Uint8Array): boolean {
  for (let cut = 0; cut < Math.min(tail, bytes.byteLength + 1); cut += 1) {
    try {
      new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(0, bytes.byteLength - cut));
      return true;
    } catch {
      // Perhaps one byte earlier.
    }
  }
  return false;
}
