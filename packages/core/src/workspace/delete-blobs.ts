/** Many blobs, several beside each other: a store is some 20 ms away. */
import type { BlobStore } from "../ports/blob-store.ts";

const atOnce = 32;

/** @throws what the store meets; those before are gone by then */
export async function deleteBlobs(blobs: Pick<BlobStore, "delete">, keys: readonly string[]): Promise<void> {
  for (let from = 0; from < keys.length; from += atOnce) {
    await Promise.all(keys.slice(from, from + atOnce).map((key) => blobs.delete(key)));
  }
}
