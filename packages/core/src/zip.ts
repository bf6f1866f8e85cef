/**
 * Zip files, read as hostile (plugins are uploaded) and written so that equal contents give equal bytes. Stored and
 * deflated entries only; no encryption, no parts, no Zip64: nothing that a folder of scripts needs.
 */
import { isUtf8 } from "node:buffer";
import { promisify } from "node:util";
import { crc32, deflateRaw, inflateRaw, inflateRawSync, type ZlibOptions } from "node:zlib";
import { GatewayError } from "./errors/gateway-error.ts";

export interface ZipFile {
  readonly path: string;
  readonly body: Uint8Array;
}

export interface ZipLimits {
  readonly files: number;
  /** Of all files together, unpacked. */
  readonly bytes: number;
  /** Field of the request, for errors. */
  readonly param: string;
}

const deflate = promisify(deflateRaw);
const inflate = promisify<Buffer, ZlibOptions, Buffer>(inflateRaw);

const endSignature = 0x06054b50;
const centralSignature = 0x02014b50;
const localSignature = 0x04034b50;
const endBytes = 22;
const centralBytes = 46;
const localBytes = 30;
const stored = 0;
const deflated = 8;
const encrypted = 0x1;
const utf8Names = 0x800;
/** Unix file types in the upper half of the external attributes. */
const typeMask = 0o170000;
const regularFile = 0o100000;
const folder = 0o040000;
const unix = 3;

interface Entry {
  readonly path: string;
  readonly method: number;
  readonly crc: number;
  readonly packed: number;
  readonly unpacked: number;
  readonly offset: number;
}

/**
 * The files of an archive; folders go without saying.
 * @throws GatewayError `invalid_request` naming what is wrong: no zip, a path that leads out, a link, a bomb
 */
export function readZip(archive: Uint8Array, limits: ZipLimits): readonly ZipFile[] {
  return openZip(archive, limits).map(({ entry, data }) => {
    const plain = entry.method === stored ? Buffer.from(data) : inflated(data, entry, limits);
    return { path: entry.path, body: checked(plain, entry, limits) };
  });
}

/** The same, beside other work: what an archive may hold takes seconds. @throws GatewayError as `readZip` */
export async function unpackZip(archive: Uint8Array, limits: ZipLimits): Promise<readonly ZipFile[]> {
  const files: ZipFile[] = [];
  for await (const file of filesOfZip(archive, limits)) files.push(file);
  return files;
}

/** One after the other, for who does not keep them. @throws GatewayError as `readZip` */
export async function* filesOfZip(archive: Uint8Array, limits: ZipLimits): AsyncGenerator<ZipFile> {
  for (const { entry, data } of openZip(archive, limits)) {
    const plain = entry.method === stored ? Buffer.from(data) : await inflatedBeside(data, entry, limits);
    yield { path: entry.path, body: checked(plain, entry, limits) };
  }
}

interface PackedEntry {
  readonly entry: Entry;
  readonly data: Buffer;
}

/** All that can be refused before anything is unpacked. */
function openZip(archive: Uint8Array, limits: ZipLimits): readonly PackedEntry[] {
  const bytes = Buffer.from(archive.buffer, archive.byteOffset, archive.byteLength);
  const takePlace = placesFor(limits);
  let left = limits.bytes;
  return readDirectory(bytes, limits).map((entry) => {
    takePlace(entry.path);
    if (entry.unpacked > left) throw tooLarge(limits);
    left -= entry.unpacked;
    return { entry, data: dataOf(bytes, entry, limits) };
  });
}

function readDirectory(bytes: Buffer, limits: ZipLimits): readonly Entry[] {
  const end = findEnd(bytes, limits);
  const count = bytes.readUInt16LE(end + 10);
  const size = bytes.readUInt32LE(end + 12);
  let at = bytes.readUInt32LE(end + 16);
  if (count === 0xffff || at === 0xffffffff || bytes.readUInt16LE(end + 4) !== 0) {
    throw bad(limits, "is a Zip64 archive, or one of several parts; pack it as one plain zip");
  }
  if (at + size > end) throw bad(limits, "has a directory that does not fit into it");
  // Folders count, too: a million of them are no plugin.
  if (count > 2 * limits.files) throw bad(limits, `holds ${count} entries; ${limits.files} files are taken`);
  const entries: Entry[] = [];
  for (let index = 0; index < count; index += 1) {
    if (at + centralBytes > end || bytes.readUInt32LE(at) !== centralSignature) {
      throw bad(limits, "has a damaged directory");
    }
    const nameBytes = bytes.readUInt16LE(at + 28);
    const next = at + centralBytes + nameBytes + bytes.readUInt16LE(at + 30) + bytes.readUInt16LE(at + 32);
    if (next > end) throw bad(limits, "has a damaged directory");
    const entry = readEntry(bytes, at, limits);
    if (entry !== undefined) entries.push(entry);
    at = next;
  }
  if (entries.length > limits.files) throw bad(limits, `holds ${entries.length} files; ${limits.files} are taken`);
  return entries;
}

function findEnd(bytes: Buffer, limits: ZipLimits): number {
  const lowest = Math.max(0, bytes.length - endBytes - 0xffff);
  for (let at = bytes.length - endBytes; at >= lowest; at -= 1) {
    if (bytes.readUInt32LE(at) === endSignature) return at;
  }
  throw bad(limits, "is no zip archive, or one that is cut off");
}

/** Undefined for a folder. */
function readEntry(bytes: Buffer, at: number, limits: ZipLimits): Entry | undefined {
  const flags = bytes.readUInt16LE(at + 8);
  const name = nameIn(bytes.subarray(at + centralBytes, at + centralBytes + bytes.readUInt16LE(at + 28)), flags);
  const path = safePath(name, limits);
  const madeBy = bytes.readUInt16LE(at + 4) >> 8;
  const type = madeBy === unix ? (bytes.readUInt32LE(at + 38) >>> 16) & typeMask : 0;
  if (type === folder || name.endsWith("/") || name.endsWith("\\")) return undefined;
  if (type !== 0 && type !== regularFile) {
    throw bad(limits, `holds '${shorten(name)}', which is a link or no regular file; put the file itself there`);
  }
  if ((flags & encrypted) !== 0) throw bad(limits, "is encrypted");
  const method = bytes.readUInt16LE(at + 10);
  if (method !== stored && method !== deflated) {
    throw bad(limits, `holds '${shorten(name)}' packed by method ${method}; 'deflate' and 'store' are read`);
  }
  return {
    path,
    method,
    crc: bytes.readUInt32LE(at + 16),
    packed: bytes.readUInt32LE(at + 20),
    unpacked: bytes.readUInt32LE(at + 24),
    offset: bytes.readUInt32LE(at + 42),
  };
}

/** Windows packs names in the machine's own encoding and does not say so; where VCP is at home that is Chinese. */
function nameIn(bytes: Buffer, flags: number): string {
  if ((flags & utf8Names) !== 0 || isUtf8(bytes)) return bytes.toString("utf8");
  return new TextDecoder("gb18030").decode(bytes);
}

/** @throws GatewayError `invalid_request` for a path that is absolute, leads out, or means something to a system */
export function safePath(name: string, limits: Pick<ZipLimits, "param">): string {
  // Some packers on Windows write backslashes.
  const steps = name.replaceAll("\\", "/").split("/");
  const path = steps.filter((step) => step !== "" && step !== ".").join("/");
  const isAbsolute = /^(?:[/\\]|[A-Za-z]:)/.test(name);
  // oxlint-disable-next-line no-control-regex
  const isStrange = /[\u0000-\u001f\u007f:*?"<>|]/.test(name) || name.includes("\uFFFD");
  if (isAbsolute || isStrange || steps.includes("..") || path.length > 512) {
    throw bad(limits, `holds the path '${shorten(name)}'; paths are relative, without '..' and control characters`);
  }
  return path;
}

/**
 * For the paths of one folder after the other: refuses one that is taken, in whatever case, and one that is a file here
 * and a folder there. Whatever is stored with one of them could not be laid out again.
 * @throws GatewayError `invalid_request` naming the path
 */
export function placesFor(limits: Pick<ZipLimits, "param">): (path: string) => void {
  const files = new Set<string>();
  const folders = new Set<string>();
  return (path) => {
    const key = path.toLowerCase();
    if (key === "") throw bad(limits, "holds a file without a name");
    if (files.has(key)) throw bad(limits, `holds '${shorten(path)}' twice`);
    let isBelowFile = false;
    for (let slash = key.indexOf("/"); slash >= 0; slash = key.indexOf("/", slash + 1)) {
      isBelowFile ||= files.has(key.slice(0, slash));
      folders.add(key.slice(0, slash));
    }
    if (isBelowFile || folders.has(key))
      throw bad(limits, `holds '${shorten(path)}', of which a part is a file and a folder at once`);
    files.add(key);
  };
}

function dataOf(bytes: Buffer, entry: Entry, limits: ZipLimits): Buffer {
  const { offset, packed } = entry;
  if (offset + localBytes > bytes.length || bytes.readUInt32LE(offset) !== localSignature) {
    throw bad(limits, `is damaged at '${shorten(entry.path)}'`);
  }
  const start = offset + localBytes + bytes.readUInt16LE(offset + 26) + bytes.readUInt16LE(offset + 28);
  if (start + packed > bytes.length) throw bad(limits, `is damaged at '${shorten(entry.path)}'`);
  return bytes.subarray(start, start + packed);
}

function checked(plain: Buffer, entry: Entry, limits: ZipLimits): Buffer {
  if (plain.byteLength !== entry.unpacked || crc32(plain) !== entry.crc) {
    throw bad(limits, `is damaged at '${shorten(entry.path)}': its contents are not what the directory says`);
  }
  return plain;
}

/** What it says of its size is what it may have, whatever is in it. */
const within = ({ unpacked }: Entry): ZlibOptions => ({ maxOutputLength: Math.max(1, unpacked) });

function inflated(data: Buffer, entry: Entry, limits: ZipLimits): Buffer {
  try {
    return inflateRawSync(data, within(entry));
  } catch (cause) {
    throw notInflated(cause, entry, limits);
  }
}

async function inflatedBeside(data: Buffer, entry: Entry, limits: ZipLimits): Promise<Buffer> {
  try {
    return await inflate(data, within(entry));
  } catch (cause) {
    throw notInflated(cause, entry, limits);
  }
}

function notInflated(cause: unknown, { path }: Entry, limits: ZipLimits): GatewayError {
  const isBomb =
    cause instanceof RangeError || (cause instanceof Error && "code" in cause && cause.code === "ERR_BUFFER_TOO_LARGE");
  return isBomb ? tooLarge(limits) : bad(limits, `is damaged at '${shorten(path)}'`);
}

function tooLarge(limits: ZipLimits): GatewayError {
  return bad(limits, `unpacks to more than ${limits.bytes} bytes`);
}

function bad({ param }: Pick<ZipLimits, "param">, reason: string): GatewayError {
  return new GatewayError("invalid_request", `'${param}' ${reason}.`, { param });
}

function shorten(text: string): string {
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}

const smallest = { level: 9 };

interface PackedFile extends ZipFile {
  readonly packed: Buffer;
}

/** Equal files, in whatever order, give equal bytes. Made beside other work: what a plugin may have takes seconds. */
export async function packZip(files: readonly ZipFile[]): Promise<Uint8Array> {
  const packed: PackedFile[] = [];
  for (const file of files) packed.push({ ...file, packed: await deflate(file.body, smallest) });
  return assemble(packed);
}

function assemble(files: readonly PackedFile[]): Uint8Array {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const { path, body, packed } of files.toSorted((a, b) => (a.path < b.path ? -1 : 1))) {
    const name = Buffer.from(path, "utf8");
    const method = packed.byteLength < body.byteLength ? deflated : stored;
    const data = method === deflated ? packed : Buffer.from(body);
    const common = commonFields({ method, crc: crc32(body), packed: data.byteLength, unpacked: body.byteLength, name });
    const local = Buffer.concat([uint32(localSignature), common, uint16(0), name, data]);
    parts.push(local);
    directory.push(
      Buffer.concat([
        uint32(centralSignature),
        uint16((unix << 8) | 20),
        common,
        // Extra fields, comment, part, internal attributes.
        Buffer.alloc(8),
        uint32(((regularFile | 0o644) << 16) >>> 0),
        uint32(offset),
        name,
      ]),
    );
    offset += local.byteLength;
  }
  const central = Buffer.concat(directory);
  const count = uint16(directory.length);
  const end = [
    uint32(endSignature),
    Buffer.alloc(4),
    count,
    count,
    uint32(central.byteLength),
    uint32(offset),
    uint16(0),
  ];
  return Buffer.concat([...parts, central, ...end]);
}

/** From the version needed to the length of the name, which both kinds of header have alike. The time is 1980. */
function commonFields(entry: {
  readonly method: number;
  readonly crc: number;
  readonly packed: number;
  readonly unpacked: number;
  readonly name: Buffer;
}): Buffer {
  return Buffer.concat([
    uint16(20),
    uint16(utf8Names),
    uint16(entry.method),
    uint16(0),
    uint16(0x21),
    uint32(entry.crc),
    uint32(entry.packed),
    uint32(entry.unpacked),
    uint16(entry.name.byteLength),
  ]);
}

function uint16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16LE(value);
  return bytes;
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}
