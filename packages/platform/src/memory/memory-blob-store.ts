/** Blobs in memory, for tests and for what need not outlive the process. */
import { randomUUID } from "node:crypto";
import { readAll, type BlobInfo, type BlobStore, type Presign } from "@toolyard/core/ports/blob-store";

/** @param presign makes links to whoever serves these blobs by HTTP; absent: there is nobody */
export function createMemoryBlobStore(presign: Presign = nobodyServes): BlobStore {
  const blobs = new Map<string, { readonly info: BlobInfo; readonly bytes: Uint8Array }>();

  return {
    async put(key, body, options = {}) {
      if (options.ifAbsent === true && blobs.has(key)) return false;
      // Copied, so that a caller who goes on using its buffer does not change the blob.
      const bytes = body instanceof Uint8Array ? Uint8Array.from(body) : await readAll(body);
      if (options.ifAbsent === true && blobs.has(key)) return false;
      const info = {
        key,
        bytes: bytes.byteLength,
        mediaType: options.mediaType ?? "application/octet-stream",
        etag: randomUUID(),
        modifiedAt: Date.now(),
      };
      blobs.set(key, { info, bytes });
      return true;
    },
    async get(key, range) {
      const blob = blobs.get(key);
      if (blob === undefined) return undefined;
      return { info: blob.info, body: once(blob.bytes.slice(range?.start ?? 0, range?.end)) };
    },
    async head(key) {
      return blobs.get(key)?.info;
    },
    async delete(key) {
      blobs.delete(key);
    },
    async list(prefix, { after = "", limit = 1000 } = {}) {
      return [...blobs.keys()]
        .filter((key) => key.startsWith(prefix) && key > after)
        .sort()
        .slice(0, limit)
        .flatMap((key) => blobs.get(key)?.info ?? []);
    },
    presign,
  };
}

function nobodyServes(): Promise<never> {
  return Promise.reject(new Error("nobody serves these blobs by HTTP"));
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  if (bytes.byteLength > 0) yield bytes;
}
