/**
 * A relayed answer as it is kept for whoever sends the same request again with its Idempotency-Key (design
 * "Idempotency"; VCP-17): the bytes that the first one got, and what they are called.
 */
import type { Call, StoredOutcome } from "../calls/call.ts";
import type { CoreDeps } from "../deps.ts";
import { tenantKey } from "../ports/blob-store.ts";

/** Bytes of an answer that is kept. */
export const largestKept = 67_108_864;
/** Bytes of a text kept in its row; longer ones go to the blob store. */
const inlineBytes = 65_536;

export interface KeptAnswer {
  readonly contentType: string;
  readonly body: AsyncIterable<Uint8Array>;
}

export async function storeKeptAnswer(
  { blobs }: Pick<CoreDeps, "blobs">,
  { tenant, callId }: { readonly tenant: string; readonly callId: string },
  { contentType, parts }: { readonly contentType: string; readonly parts: readonly Uint8Array[] },
): Promise<StoredOutcome> {
  const body = Buffer.concat(parts);
  const about = { mediaType: contentType, bytes: body.byteLength };
  const text = body.byteLength <= inlineBytes ? body.toString("utf8") : "";
  if (body.byteLength <= inlineBytes && Buffer.from(text, "utf8").equals(body)) return { ...about, text };
  const blobKey = tenantKey(tenant, "chats", callId);
  await blobs.put(blobKey, body, { mediaType: contentType });
  return { ...about, text: "", blobKey };
}

/** Undefined where none was kept. */
export async function readKeptAnswer(
  { blobs }: Pick<CoreDeps, "blobs">,
  { outcome }: Pick<Call, "outcome">,
): Promise<KeptAnswer | undefined> {
  if (outcome === null) return undefined;
  const { mediaType: contentType, blobKey, text } = outcome;
  if (blobKey === undefined) return { contentType, body: once(Buffer.from(text, "utf8")) };
  const blob = await blobs.get(blobKey);
  return blob === undefined ? undefined : { contentType, body: blob.body };
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array, void, void> {
  yield bytes;
}
