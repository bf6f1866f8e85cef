/**
 * An answer as it is kept for whoever sends the same request again (design "Idempotency"): in its call's row where it is
 * short and text, else in the blob store.
 */
import { isUtf8 } from "node:buffer";
import { tenantKey, type BlobStore } from "../ports/blob-store.ts";
import type { Call, StoredOutcome } from "./call.ts";

/** Bytes of an answer kept in its row. */
const inlineBytes = 65_536;

export interface KeptAnswer {
  readonly contentType: string;
  readonly body: AsyncIterable<Uint8Array>;
}

export async function storeAnswer(
  { blobs }: { readonly blobs: Pick<BlobStore, "put"> },
  { tenant, callId }: { readonly tenant: string; readonly callId: string },
  { contentType, body }: { readonly contentType: string; readonly body: Buffer },
): Promise<StoredOutcome> {
  const about = { mediaType: contentType, bytes: body.byteLength };
  if (body.byteLength <= inlineBytes && isUtf8(body)) return { ...about, text: body.toString("utf8") };
  const blobKey = tenantKey(tenant, "chats", callId);
  await blobs.put(blobKey, body, { mediaType: contentType });
  return { ...about, text: "", blobKey };
}

/** Undefined where none was kept. */
export async function readAnswer(
  { blobs }: { readonly blobs: Pick<BlobStore, "get"> },
  { outcome }: Pick<Call, "outcome">,
): Promise<KeptAnswer | undefined> {
  if (outcome === null) return undefined;
  const { mediaType: contentType, blobKey, text } = outcome;
  if (blobKey === undefined) return { contentType, body: whole(Buffer.from(text, "utf8")) };
  const blob = await blobs.get(blobKey);
  return blob === undefined ? undefined : { contentType, body: blob.body };
}

async function* whole(bytes: Uint8Array): AsyncGenerator<Uint8Array, void, void> {
  yield bytes;
}
