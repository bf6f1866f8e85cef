/**
 * Blobs as files, one file a blob: a line of JSON (media type, etag), then the bytes. A file is
 * written aside, flushed, and then put in its place by one `rename` (or `link`, which fails where a
 * file is), so that a crash leaves no half blob and of many conditional writers exactly one wins,
 * in one process or several.
 */
import { randomUUID } from "node:crypto";
import { link, open, readdir, rename, rm, rmdir, stat, type FileHandle } from "node:fs/promises";
import { dirname, join } from "node:path";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { BlobInfo, BlobStore, Presign, PutOptions } from "@toolyard/core/ports/blob-store";
import * as z from "zod";
import { blobPath, keyOfPath, prefixDirectory } from "./blob-path.ts";
import { makeDirectory } from "./make-directory.ts";

/** Larger buffers are faster, but pile up between garbage collections: 64 KB took twice the memory. */
const chunkBytes = 32 * 1024;
/** What a crashed process left in `incoming` is removed after this time. */
const abandonedAfterMs = 24 * 60 * 60_000;

const headerSchema = z.object({ mediaType: z.string(), etag: z.string() });

interface OpenBlob {
  readonly info: BlobInfo;
  readonly handle: FileHandle;
  /** Where the bytes start in the file. */
  readonly offset: number;
}

// A body that nobody reads would keep its file open for good.
const unread = new FinalizationRegistry<FileHandle>((handle) => void handle.close().catch(() => undefined));

/**
 * @param directory made where it does not exist; several processes may share it
 * @param presign makes links to whoever serves these files by HTTP
 */
export function createFileBlobStore(directory: string, presign: Presign): BlobStore {
  const blobs = join(directory, "blobs");
  const incoming = join(directory, "incoming");
  let prepared: Promise<void> | undefined;

  const pathOf = (key: string): string => join(blobs, blobPath(key));
  const prepare = (): Promise<void> => (prepared ??= prepareIncoming(incoming));

  /** A flushed file in `incoming`. Errors of the body itself are the caller's and pass as they are. */
  async function writeAside(body: Uint8Array | AsyncIterable<Uint8Array>, mediaType: string): Promise<string> {
    const path = join(incoming, randomUUID());
    const handle = await onDisk(() => open(path, "wx", 0o600));
    try {
      const write = (bytes: Uint8Array): Promise<unknown> => onDisk(() => handle.writeFile(bytes));
      await write(Buffer.from(`${JSON.stringify({ mediaType, etag: randomUUID() })}\n`, "utf8"));
      if (body instanceof Uint8Array) await write(body);
      else for await (const part of body) await write(part);
      await onDisk(() => handle.sync());
      return path;
    } catch (cause) {
      await rm(path, { force: true });
      throw cause;
    } finally {
      await handle.close();
    }
  }

  async function put(
    key: string,
    body: Uint8Array | AsyncIterable<Uint8Array>,
    { mediaType = "application/octet-stream", ifAbsent = false }: PutOptions = {},
  ): Promise<boolean> {
    const target = pathOf(key);
    if (ifAbsent && (await onDisk(() => exists(target)))) return false;
    await onDisk(prepare);
    const written = await writeAside(body, mediaType);
    try {
      return await onDisk(() => moveIntoPlace(written, target, ifAbsent));
    } finally {
      await rm(written, { force: true });
    }
  }

  async function head(key: string): Promise<BlobInfo | undefined> {
    const blob = await onDisk(() => openBlob(pathOf(key), key));
    await blob?.handle.close();
    return blob?.info;
  }

  return {
    put,
    head,
    presign,
    async get(key, range) {
      const blob = await onDisk(() => openBlob(pathOf(key), key));
      if (blob === undefined) return undefined;
      const start = range?.start ?? 0;
      const end = Math.min(range?.end ?? blob.info.bytes, blob.info.bytes);
      const body = readRange(blob.handle, blob.offset + start, blob.offset + end);
      unread.register(body, blob.handle, blob.handle);
      return { info: blob.info, body };
    },
    async delete(key) {
      await onDisk(async () => {
        const path = pathOf(key);
        await rm(path, { force: true });
        await removeEmptyDirectories(dirname(path), blobs);
      });
    },
    async list(prefix, { after = "", limit = 1000 } = {}) {
      const keys = await onDisk(() => keysBelow(blobs, prefixDirectory(prefix)));
      const wanted = keys.filter((key) => key.startsWith(prefix) && key > after).sort();
      const found: BlobInfo[] = [];
      for (const key of wanted) {
        if (found.length >= limit) break;
        // Deleted since the directory was read: not there.
        const info = await head(key);
        if (info !== undefined) found.push(info);
      }
      return found;
    },
  };
}

async function* readRange(handle: FileHandle, start: number, end: number): AsyncGenerator<Uint8Array> {
  unread.unregister(handle);
  try {
    for (let position = start; position < end;) {
      const buffer = Buffer.allocUnsafe(Math.min(chunkBytes, end - position));
      const { bytesRead } = await onDisk(() => handle.read(buffer, 0, buffer.byteLength, position));
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
      position += bytesRead;
    }
  } finally {
    await handle.close();
  }
}

async function openBlob(path: string, key: string): Promise<OpenBlob | undefined> {
  const handle = await open(path, "r").catch(undefinedWhereMissing);
  if (handle === undefined) return undefined;
  try {
    const line = await firstLine(handle);
    const { mediaType, etag } = headerSchema.parse(JSON.parse(line.toString("utf8")));
    const offset = line.byteLength + 1;
    const { size, mtimeMs } = await handle.stat();
    const info = { key, bytes: size - offset, mediaType, etag, modifiedAt: Math.floor(mtimeMs) };
    return { info, handle, offset };
  } catch (cause) {
    await handle.close();
    throw cause;
  }
}

async function firstLine(handle: FileHandle): Promise<Buffer> {
  for (let length = 1024; ; length *= 4) {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(length), 0, length, 0);
    const end = buffer.indexOf("\n");
    if (end !== -1) return buffer.subarray(0, end);
    if (bytesRead < length) throw new Error("The file has no header line; something other than the store wrote it.");
  }
}

/** `false` where a file is there already and none was wanted. */
async function moveIntoPlace(written: string, target: string, ifAbsent: boolean): Promise<boolean> {
  for (let attempt = 1; ; attempt += 1) {
    await makeDirectory(dirname(target));
    try {
      await (ifAbsent ? link(written, target) : rename(written, target));
      return true;
    } catch (cause) {
      if (ifAbsent && codeOf(cause) === "EEXIST") return false;
      // A `delete` next door took the directory away as empty before the file came.
      if (codeOf(cause) !== "ENOENT" || attempt === 20) throw cause;
    }
  }
}

async function prepareIncoming(incoming: string): Promise<void> {
  await makeDirectory(incoming);
  for (const name of await readdir(incoming)) {
    const path = join(incoming, name);
    const written = await stat(path).catch(undefinedWhereMissing);
    if (written !== undefined && Date.now() - written.mtimeMs > abandonedAfterMs) await rm(path, { force: true });
  }
}

async function keysBelow(blobs: string, from: string): Promise<readonly string[]> {
  const start = from === "." ? [] : from.split("/");
  const entries = await readdir(join(blobs, from), { recursive: true, withFileTypes: true }).catch(
    undefinedWhereMissing,
  );
  return (entries ?? []).flatMap((entry) => {
    if (!entry.isFile()) return [];
    const below = entry.parentPath
      .slice(join(blobs, from).length)
      .split("/")
      .filter((name) => name !== "");
    return keyOfPath([...start, ...below, entry.name]) ?? [];
  });
}

async function removeEmptyDirectories(from: string, top: string): Promise<void> {
  for (let directory = from; directory !== top; directory = dirname(directory)) {
    try {
      await rmdir(directory);
    } catch {
      // Not empty, or somebody else was faster.
      return;
    }
  }
}

async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(undefinedWhereMissing)) !== undefined;
}

function undefinedWhereMissing(cause: unknown): undefined {
  if (codeOf(cause) === "ENOENT") return undefined;
  throw cause;
}

function codeOf(cause: unknown): unknown {
  return cause instanceof Error && "code" in cause ? cause.code : undefined;
}

/** @throws GatewayError `blobs_unavailable` where the file system refuses */
async function onDisk<T>(operation: () => Promise<T>): Promise<T> {
  try {
    return await operation();
  } catch (cause) {
    const why = codeOf(cause);
    throw new GatewayError(
      "blobs_unavailable",
      `The blob store on disk failed${typeof why === "string" ? ` (${why})` : ""}; see the log, and check space and permissions of the data directory.`,
      { cause },
    );
  }
}
