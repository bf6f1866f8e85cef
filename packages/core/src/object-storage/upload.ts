/**
 * Puts an object of any size. What is short goes in one request; what is not goes in parts, of which two
 * are in memory at most, and becomes the object with the last request. Both may be repeated: the same bytes
 * come to the same object, and where nothing may be overwritten a mark tells our own earlier attempt from
 * somebody else's object.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import { cutIntoParts, sendParts, type Part } from "../part-cutter.ts";
import { withDelivery } from "../errors/delivery.ts";
import { headObject, readXml, requireDocument, toInfo, type ObjectInfo, type ObjectRef } from "./objects.ts";
import { discard, type S3Client, type S3Request } from "./s3-client.ts";
import { saysConflict, saysItIsThere, toRefusal, type S3Refusal } from "./s3-errors.ts";
import type { Pair } from "./sigv4.ts";
import type { VendorProfile } from "./vendors.ts";
import { escapeXml, textOf } from "./xml.ts";

export interface UploadSource {
  readonly body: Uint8Array | AsyncIterable<Uint8Array>;
  readonly contentType: string;
}

export interface Upload extends ObjectRef {
  /** Asked for when it is known to be wanted: what is opened and not read stays open. */
  readonly open: () => Promise<UploadSource>;
  /** Only where nothing is there yet; the mark is this call's own and the same in all of its attempts. */
  readonly ifAbsent?: { readonly mark: string } | undefined;
}

export interface UploadedObject {
  readonly size: number;
  readonly contentType: string | undefined;
  readonly etag: string | undefined;
  readonly versionId: string | undefined;
}

export interface UploadOptions {
  readonly profile: Pick<VendorProfile, "ifAbsent" | "decidesIfAbsent">;
  /** Of one part, and the most that goes in one request; stores take no less than 5 MiB. */
  readonly partBytes: number;
}

/** 10,000 parts make 78 GiB of it. */
export const usualPartBytes = 8 * 1_024 ** 2;

/** Header under which stores keep the mark. */
const markHeader = "x-amz-meta-toolyard-call";
const markName = "toolyard-call";

/** Tries of a write that met another one at the same moment. */
const conflictTries = 3;

/** @throws GatewayError `conflict` where something is there and must not be overwritten; as `S3Client.send` */
export async function uploadObject(client: S3Client, upload: Upload, options: UploadOptions): Promise<UploadedObject> {
  const { ifAbsent } = upload;
  if (ifAbsent !== undefined && !options.profile.decidesIfAbsent) {
    const found = await headObject(client, upload);
    if (found !== undefined) return ownOrConflict(found, upload);
  }
  const { body, contentType } = await upload.open();
  const parts = cutIntoParts(body, options.partBytes);
  const { value: first } = await parts.next();
  if (first === undefined) throw new Error("A body has at least one part.");
  if (first.isLast) return putWhole(client, { upload, options, contentType, bytes: first.bytes });
  try {
    return await putInParts(client, { upload, options, contentType, parts: startingWith(first, parts) });
  } finally {
    // Where no part was asked for, nobody else closes the source.
    await parts.return(undefined);
  }
}

interface Opened {
  readonly upload: Upload;
  readonly options: UploadOptions;
  readonly contentType: string;
}

interface Whole extends Opened {
  readonly bytes: Uint8Array;
}

async function putWhole(client: S3Client, { upload, options, contentType, bytes }: Whole): Promise<UploadedObject> {
  const request: S3Request = {
    method: "PUT",
    key: upload.key,
    named: upload.named,
    headers: [...objectHeaders(upload, contentType), ...conditionOf(upload, options)],
    body: bytes,
  };
  const decided = await decide(client, upload, request);
  if (decided.kind === "own") return decided.object;
  await discard(decided.response);
  const { etag, versionId } = toInfo(decided.response);
  return { size: bytes.byteLength, contentType, etag, versionId };
}

interface InParts extends Opened {
  readonly parts: AsyncIterable<Part>;
}

async function putInParts(client: S3Client, { upload, options, contentType, parts }: InParts): Promise<UploadedObject> {
  const { key, named } = upload;
  const begun = await client.send({
    method: "POST",
    key,
    named,
    query: [["uploads", ""]],
    headers: objectHeaders(upload, contentType),
  });
  const beginning = await readXml(begun);
  requireDocument(beginning, "InitiateMultipartUploadResult", "the beginning of an upload");
  const uploadId = textOf(beginning, "UploadId") ?? "";
  const query: readonly Pair[] = [["uploadId", uploadId]];
  let isDone = false;
  try {
    const sent = await uploadParts(client, upload, { uploadId, parts });
    const request: S3Request = {
      method: "POST",
      key,
      named,
      query,
      headers: [["content-type", "application/xml"], ...conditionOf(upload, options)],
      body: Buffer.from(toCompletion(sent), "utf8"),
    };
    const decided = await decide(client, upload, request);
    isDone = true;
    if (decided.kind === "own") return decided.object;
    const xml = await readXml(decided.response);
    const size = sent.reduce((sum, part) => sum + part.bytes, 0);
    // The status is sent before the work is done, so that an error can come after it.
    if (textOf(xml, "ETag") === undefined) {
      isDone = false;
      throw client.toError({ ...toRefusal(decided.response, xml), status: 500 }, request);
    }
    const etag = textOf(xml, "ETag")?.replaceAll('"', "");
    return { size, contentType, etag, versionId: toInfo(decided.response).versionId };
  } finally {
    // Where this fails too, the bucket's rule for uploads that were never completed clears up.
    if (!isDone) await abort(client, { method: "DELETE", key, named, query, afterwards: true });
  }
}

async function abort(client: S3Client, request: S3Request): Promise<void> {
  const { response } = await client.trySend(request).catch(() => ({ response: undefined }));
  if (response !== undefined) await discard(response);
}

interface SentPart {
  readonly number: number;
  readonly etag: string;
  readonly bytes: number;
}

function uploadParts(
  client: S3Client,
  { key, named }: ObjectRef,
  { uploadId, parts }: { readonly uploadId: string; readonly parts: AsyncIterable<Part> },
): Promise<readonly SentPart[]> {
  return sendParts(parts, async (bytes, number) => {
    const query: readonly Pair[] = [
      ["partNumber", String(number)],
      ["uploadId", uploadId],
    ];
    const response = await client.send({ method: "PUT", key, named, query, body: bytes });
    await discard(response);
    return { number, etag: toInfo(response).etag ?? "", bytes: bytes.byteLength };
  });
}

function toCompletion(parts: readonly SentPart[]): string {
  const list = parts.map(
    ({ number, etag }) => `<Part><PartNumber>${number}</PartNumber><ETag>${escapeXml(`"${etag}"`)}</ETag></Part>`,
  );
  return `<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">${list.join("")}</CompleteMultipartUpload>`;
}

type Decided =
  | { readonly kind: "written"; readonly response: Awaited<ReturnType<S3Client["send"]>> }
  | { readonly kind: "own"; readonly object: UploadedObject };

/** Sends the request that makes the object; without a condition that is all. */
async function decide(client: S3Client, upload: Upload, request: S3Request): Promise<Decided> {
  for (let attempt = 1; ; attempt += 1) {
    const { response, refusal } = await client.trySend(request);
    if (response !== undefined) return { kind: "written", response };
    if (upload.ifAbsent === undefined) throw client.toError(refusal, request);
    if (saysConflict(refusal) && attempt < conflictTries) continue;
    return { kind: "own", object: await afterRefusal(client, { upload, request, refusal }) };
  }
}

interface Refused {
  readonly upload: Upload;
  readonly request: S3Request;
  readonly refusal: S3Refusal;
}

/** Is what is there our own, written by an attempt whose answer was lost? */
async function afterRefusal(client: S3Client, { upload, request, refusal }: Refused): Promise<UploadedObject> {
  // An upload that was completed is gone: then, too, the object is ours.
  if (!saysItIsThere(refusal) && refusal.reason !== "NoSuchUpload") throw client.toError(refusal, request);
  const found = await headObject(client, upload);
  if (found === undefined) throw client.toError(refusal, request);
  return ownOrConflict(found, upload);
}

function ownOrConflict(found: ObjectInfo, { named, ifAbsent }: Upload): UploadedObject {
  if (ifAbsent !== undefined && found.metadata[markName] === ifAbsent.mark) {
    const { size = 0, contentType, etag, versionId } = found;
    return { size, contentType, etag, versionId };
  }
  throw withDelivery(
    new GatewayError(
      "conflict",
      `There is an object '${named.slice(0, 200)}' already, and 'ifAbsent' keeps it. Choose another key, or leave 'ifAbsent' out to overwrite it.`,
      { param: "ifAbsent" },
    ),
    "answered",
  );
}

function objectHeaders({ ifAbsent }: Upload, contentType: string): readonly Pair[] {
  return [["content-type", contentType], ...(ifAbsent === undefined ? [] : [[markHeader, ifAbsent.mark] as const])];
}

function conditionOf({ ifAbsent }: Upload, { profile }: UploadOptions): readonly Pair[] {
  return ifAbsent === undefined || profile.ifAbsent === undefined ? [] : [profile.ifAbsent];
}

async function* startingWith(first: Part, rest: AsyncIterable<Part>): AsyncGenerator<Part> {
  yield first;
  yield* rest;
}
