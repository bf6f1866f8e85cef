/**
 * What producers pack batches of Kafka with, to be unpacked up to a size: gzip, Zstandard, Snappy (as Java writes it,
 * in pieces, and as others do, in one) and LZ4's frames. The client knows gzip alone, and no bound. Formats:
 * google/snappy `format_description.txt`, lz4 `lz4_Frame_format.md` and `lz4_Block_format.md`.
 */
import { promisify } from "node:util";
import { unzip, zstdDecompress } from "node:zlib";

const unpackGzip = promisify(unzip);
const unpackZstd = promisify(zstdDecompress);

/** @throws Error for what is no gzip, or has more than so many bytes */
export function ungzip(packed: Buffer, mostBytes: number): Promise<Buffer> {
  return unpackGzip(packed, { maxOutputLength: mostBytes });
}

/** @throws Error likewise */
export function unzstd(packed: Buffer, mostBytes: number): Promise<Buffer> {
  return unpackZstd(packed, { maxOutputLength: mostBytes });
}

/** What is unpacked so far; what comes may repeat any of it. */
class Unpacked {
  #bytes = Buffer.alloc(65_536);
  #length = 0;
  readonly #most: number;

  constructor(most: number) {
    this.#most = most;
  }

  add(bytes: Buffer): void {
    this.#makeRoom(bytes.length);
    this.#length += bytes.copy(this.#bytes, this.#length);
  }

  /** So many bytes from so far back, which may go on into themselves. */
  repeat(back: number, length: number): void {
    if (back === 0 || back > this.#length) throw new RangeError("it repeats what is not there");
    this.#makeRoom(length);
    const from = this.#length - back;
    for (const end = this.#length + length; this.#length < end;) {
      const size = Math.min(this.#length - from, end - this.#length);
      this.#bytes.copyWithin(this.#length, from, from + size);
      this.#length += size;
    }
  }

  bytes(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }

  #makeRoom(more: number): void {
    const needed = this.#length + more;
    if (needed > this.#most) throw new RangeError(`unpacked it is larger than ${this.#most} bytes`);
    if (needed <= this.#bytes.length) return;
    const larger = Buffer.alloc(Math.min(this.#most, Math.max(needed, this.#bytes.length * 2)));
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }
}

/** `\x82SNAPPY\0`, and two numbers for its version. */
const javaMark = Buffer.from("82534e4150505900", "hex");
const javaHeadBytes = 16;

/** @throws RangeError for what is no Snappy, or has more than so many bytes */
export function unsnappy(packed: Buffer, mostBytes: number): Buffer {
  const unpacked = new Unpacked(mostBytes);
  if (!packed.subarray(0, javaMark.length).equals(javaMark)) {
    unpackSnappy(packed, unpacked);
    return unpacked.bytes();
  }
  for (let at = javaHeadBytes; at < packed.length;) {
    const length = packed.readUInt32BE(at);
    unpackSnappy(piece(packed, at + 4, length), unpacked);
    at += 4 + length;
  }
  return unpacked.bytes();
}

function unpackSnappy(packed: Buffer, unpacked: Unpacked): void {
  let at = 0;
  // The length of it all, seven bits a byte, which shows by itself.
  while (packed.readUInt8(at++) >= 0x80);
  while (at < packed.length) {
    const tag = packed.readUInt8(at++);
    const kind = tag & 3;
    const size = tag >> 2;
    if (kind === 0) {
      const extra = Math.max(0, size - 59);
      const length = (extra === 0 ? size : packed.readUIntLE(at, extra)) + 1;
      unpacked.add(piece(packed, at + extra, length));
      at += extra + length;
    } else if (kind === 1) {
      unpacked.repeat(((tag >> 5) << 8) | packed.readUInt8(at), (size & 7) + 4);
      at += 1;
    } else {
      const width = kind === 2 ? 2 : 4;
      unpacked.repeat(packed.readUIntLE(at, width), size + 1);
      at += width;
    }
  }
}

const lz4Mark = 0x184d_2204;
const notPacked = 0x8000_0000;

/** @throws RangeError for what are no frames of LZ4, or has more than so many bytes */
export function unlz4(packed: Buffer, mostBytes: number): Buffer {
  const unpacked = new Unpacked(mostBytes);
  for (let at = 0; at < packed.length;) at = unpackFrame(packed, at, unpacked);
  return unpacked.bytes();
}

/** @returns where it ends */
function unpackFrame(packed: Buffer, from: number, unpacked: Unpacked): number {
  if (packed.readUInt32LE(from) !== lz4Mark) throw new RangeError("it is no frame of LZ4");
  const flags = packed.readUInt8(from + 4);
  const has = (bit: number, bytes: number): number => ((flags >> bit) & 1) * bytes;
  // Mark, flags, sizes of blocks, size of all, dictionary, checksum.
  let at = from + 4 + 2 + has(3, 8) + has(0, 4) + 1;
  for (;;) {
    const head = packed.readUInt32LE(at);
    at += 4;
    if (head === 0) return at + has(2, 4);
    const length = head % notPacked;
    const block = piece(packed, at, length);
    if (head >= notPacked) unpacked.add(block);
    else unpackBlock(block, unpacked);
    at += length + has(4, 4);
  }
}

function unpackBlock(block: Buffer, unpacked: Unpacked): void {
  let at = 0;
  const lengthFrom = (nibble: number): number => {
    let length = nibble;
    for (let more = nibble === 15 ? 255 : 0; more === 255;) {
      more = block.readUInt8(at++);
      length += more;
    }
    return length;
  };
  while (at < block.length) {
    const token = block.readUInt8(at++);
    const literals = lengthFrom(token >> 4);
    unpacked.add(piece(block, at, literals));
    at += literals;
    // The last sequence has nothing to repeat.
    if (at === block.length) return;
    const back = block.readUInt16LE(at);
    at += 2;
    unpacked.repeat(back, lengthFrom(token & 15) + 4);
  }
}

/** @throws RangeError where it is cut off */
function piece(bytes: Buffer, from: number, length: number): Buffer {
  if (from + length > bytes.length) throw new RangeError("it is cut off");
  return bytes.subarray(from, from + length);
}
