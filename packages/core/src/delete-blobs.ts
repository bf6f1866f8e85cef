/** Many blobs, several beside each other: a store is some 20 ms away. */
import type { BlobStore } from "./ports/blob-store.ts";

const atOnce = 32;
/** Keys read at a time. */
const pageSize = 100;

/** @throws what the store meets; those before are gone by then */
export async function deleteBlobs(blobs: Pick<BlobStore, "delete">, keys: readonly string[]): Promise<void> {
  for (let from = 0; from < keys.length; from += atOnce) {
    await Promise.all(keys.slice(from, from + atOnce).map((key) => blobs.delete(key)));
  }
}

/** All below a prefix. @throws as `deleteBlobs` */
export async function deleteBelow(blobs: Pick<BlobStore, "list" | "delete">, prefix: string): Promise<void> {
  for (;;) {
    const found = await blobs.list(prefix, { limit: pageSize });
    if (found.length === 0) return;
    await deleteBlobs(
      blobs,
      found.map(({ key }) => key),
    );
  }
}
