/** What is done with objects of a bucket, in the words of S3: get, head, put, delete, list. */
import { leave } from "../blind/reply.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { EgressResponse } from "../ports/egress.ts";
import { withDelivery } from "../errors/delivery.ts";
import { discard, type S3Client, type S3Request } from "./s3-client.ts";
import { saysItIsMissing, toRefusal } from "./s3-errors.ts";
import type { Pair } from "./sigv4.ts";
import { elementsOf, escapeXml, isDocument, textOf } from "./xml.ts";
import { readAtMost } from "../read-body.ts";

export interface ObjectRef {
  /** The whole key. */
  readonly key: string;
  /** As the caller named it. */
  readonly named: string;
}

/** What a store says of an object beside its bytes. */
export interface ObjectInfo {
  readonly size: number | undefined;
  readonly contentType: string | undefined;
  readonly etag: string | undefined;
  /** ISO 8601. */
  readonly lastModified: string | undefined;
  readonly versionId: string | undefined;
  /** What was stored with it, by lower-case names. */
  readonly metadata: Readonly<Record<string, string>>;
}

export interface OpenObject {
  readonly info: ObjectInfo;
  readonly response: EgressResponse;
}

export interface ByteRange {
  readonly offset: number;
  /** Absent: up to the end. */
  readonly length?: number | undefined;
  /** What the vendor is to be told besides. */
  readonly headers?: readonly Pair[] | undefined;
}

/** @throws GatewayError as `S3Client.send`; from the body, too, where a range lies beyond the end */
export async function getObject(client: S3Client, ref: ObjectRef, range?: ByteRange): Promise<OpenObject> {
  if (range === undefined) {
    const response = await client.send({ method: "GET", ...ref });
    return { info: toInfo(response), response };
  }
  const { offset, length, headers = [] } = range;
  const end = length === undefined ? "" : offset + length - 1;
  const request = { method: "GET", ...ref, headers: [["range", `bytes=${offset}-${end}`], ...headers] } as const;
  const response = await sendFor(client, request, offset);
  const info = toInfo(response);
  if (response.status === 206) return { info, response };
  // The whole object, from a store that knows no ranges, or takes one beyond the end for none.
  const { "content-length": _whole, ...others } = response.headers;
  const beyond = (): Error => client.toError({ ...toRefusal(response, ""), status: 416 }, request);
  return {
    info,
    response: { ...response, headers: others, body: closing(response.body, cutOut(response.body, range, beyond)) },
  };
}

/** Of an object without bytes stores refuse every range, the one from its beginning too. */
async function sendFor(client: S3Client, request: S3Request, offset: number): Promise<EgressResponse> {
  const { response, refusal } = await client.trySend(request);
  if (response !== undefined) return response;
  if (refusal.status !== 416 || offset > 0) throw client.toError(refusal, request);
  const { headers: _range, ...whole } = request;
  return client.send(whole);
}

/** What nobody begins to read is closed all the same. */
function closing(source: AsyncIterable<Uint8Array>, part: AsyncGenerator<Uint8Array>): AsyncIterable<Uint8Array> {
  return {
    [Symbol.asyncIterator]: () => ({
      next: () => part.next(),
      return: async () => {
        await part.return(undefined);
        await leave(source);
        return { done: true, value: undefined };
      },
    }),
  };
}

async function* cutOut(
  body: AsyncIterable<Uint8Array>,
  { offset, length = Number.POSITIVE_INFINITY }: ByteRange,
  beyond: () => Error,
): AsyncGenerator<Uint8Array> {
  let at = 0;
  for await (const piece of body) {
    const part = piece.subarray(Math.max(0, offset - at), Math.max(0, offset + length - at));
    at += piece.byteLength;
    if (part.byteLength > 0) yield part;
    if (at >= offset + length) return;
  }
  if (at <= offset && offset > 0) throw beyond();
}

/** Undefined where there is none. */
export async function headObject(client: S3Client, ref: ObjectRef): Promise<ObjectInfo | undefined> {
  const request = { method: "HEAD", ...ref } as const;
  const { response, refusal } = await client.trySend(request);
  if (response !== undefined) {
    await discard(response);
    return toInfo(response);
  }
  if (saysItIsMissing(refusal)) return undefined;
  throw client.toError(refusal, request);
}

/** That nothing was there is as good. */
export async function deleteObject(client: S3Client, ref: ObjectRef): Promise<void> {
  const request = { method: "DELETE", ...ref } as const;
  const { response, refusal } = await client.trySend(request);
  if (response !== undefined) await discard(response);
  else if (!saysItIsMissing(refusal)) throw client.toError(refusal, request);
}

export interface DeleteFailure {
  /** As the caller named it. */
  readonly key: string;
  readonly reason: string;
  readonly message: string;
}

/** Many at once; those that were not deleted are told, the others are gone. */
export async function deleteObjects(client: S3Client, refs: readonly ObjectRef[]): Promise<readonly DeleteFailure[]> {
  const keys = refs.map(({ key }) => `<Object><Key>${escapeXml(key)}</Key></Object>`).join("");
  const body = `<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Quiet>true</Quiet>${keys}</Delete>`;
  const response = await client.send({
    method: "POST",
    query: [["delete", ""]],
    headers: [["content-type", "application/xml"]],
    body: Buffer.from(body, "utf8"),
  });
  const named = new Map(refs.map((ref) => [ref.key, ref.named]));
  const xml = await readXml(response);
  // Some say nothing at all where everything went well.
  if (xml.trim() !== "") requireDocument(xml, "DeleteResult", "what became of the keys");
  return elementsOf(xml, "Error").map((error) => ({
    key: named.get(textOf(error, "Key") ?? "") ?? "",
    reason: textOf(error, "Code") ?? "",
    message: textOf(error, "Message") ?? "",
  }));
}

export interface ListRequest {
  /** The whole prefix. */
  readonly prefix: string;
  readonly maxKeys: number;
  /** Keys that have it after the prefix are listed as one. */
  readonly delimiter?: string | undefined;
  /** Where an earlier page ended. */
  readonly from?: ListPosition | undefined;
}

/** Stores go on with a token of theirs, or after a key. */
export type ListPosition = { readonly token: string } | { readonly after: string };

export interface ListedObject {
  readonly key: string;
  readonly size: number;
  readonly lastModified: string | undefined;
  readonly etag: string | undefined;
}

export interface ListPage {
  readonly objects: readonly ListedObject[];
  readonly prefixes: readonly string[];
  /** Undefined: that is all. */
  readonly next: ListPosition | undefined;
}

/** @throws GatewayError `tool_failed` where a store goes round in circles, too */
export async function listObjects(client: S3Client, request: ListRequest, version: 1 | 2): Promise<ListPage> {
  const { prefix, maxKeys, delimiter, from } = request;
  const query: readonly Pair[] = [
    ...(version === 2 ? [["list-type", "2"] as const] : []),
    ["prefix", prefix],
    ["max-keys", String(maxKeys)],
    // Keys may hold what XML cannot.
    ["encoding-type", "url"],
    ...(delimiter === undefined ? [] : [["delimiter", delimiter] as const]),
    ...(from === undefined ? [] : [positionPair(from, version)]),
  ];
  const xml = await readXml(await client.send({ method: "GET", query }));
  requireDocument(xml, "ListBucketResult", "a list of objects");
  const page = toPage(xml, maxKeys);
  const { next } = page;
  if (from === undefined || next === undefined || !("after" in from) || !("after" in next)) return page;
  // Not by order: some stores give markers that are no keys.
  if (next.after !== from.after) return page;
  throw withDelivery(
    new GatewayError("tool_failed", "The object store lists the same keys again and does not come to an end."),
    "answered",
  );
}

function positionPair(from: ListPosition, version: 1 | 2): Pair {
  if ("token" in from) return ["continuation-token", from.token];
  return [version === 2 ? "start-after" : "marker", from.after];
}

function toPage(xml: string, maxKeys: number): ListPage {
  const decode = textOf(xml, "EncodingType") === "url" ? decodeKey : (text: string) => text;
  const objects = elementsOf(xml, "Contents").map((entry): ListedObject => ({
    key: decode(textOf(entry, "Key") ?? ""),
    size: Number(textOf(entry, "Size") ?? 0),
    lastModified: textOf(entry, "LastModified"),
    etag: withoutQuotes(textOf(entry, "ETag")),
  }));
  const prefixes = elementsOf(xml, "CommonPrefixes").map((entry) => decode(textOf(entry, "Prefix") ?? ""));
  if (objects.length > maxKeys || prefixes.length > maxKeys) {
    const message = `The object store lists more than the ${maxKeys} keys that it was asked for.`;
    throw withDelivery(new GatewayError("tool_failed", message), "answered");
  }
  if (textOf(xml, "IsTruncated") !== "true") return { objects, prefixes, next: undefined };
  const last = lastOf([...objects.map(({ key }) => key), ...prefixes]);
  const token = textOf(xml, "NextContinuationToken");
  if (token !== undefined && token !== "") {
    // A token is the store's own and goes back as it came; but S3Proxy's is the last key, which it writes encoded
    // and reads as it is, so that keys would come again.
    const isEncodedKey = token !== last && decode(token) === last;
    return { objects, prefixes, next: { token: isEncodedKey ? last : token } };
  }
  // As version 1 answers, whatever was asked for; without a delimiter not even a marker.
  const marker = textOf(xml, "NextMarker");
  const after = marker === undefined || marker === "" ? last : decode(marker);
  return { objects, prefixes, next: after === undefined ? undefined : { after } };
}

/** In the order of stores, which is that of bytes. */
function lastOf(keys: readonly string[]): string | undefined {
  const [first, ...others] = keys.map((key) => Buffer.from(key, "utf8"));
  return others
    .reduce((last, key) => (last === undefined || key.compare(last) > 0 ? key : last), first)
    ?.toString("utf8");
}

/** Some stores write a space as `+`, and a plus sign as `%2B` in any case. */
function decodeKey(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll("+", "%20"));
  } catch {
    return text;
  }
}

/** A thousand keys of full length, encoded, with what belongs to them. */
const longestAnswer = 8 * 1_024 ** 2;

/** @throws GatewayError `tool_failed` for an answer that cannot be one */
export async function readXml({ body }: EgressResponse): Promise<string> {
  const { bytes, isWhole } = await readAtMost(body, longestAnswer);
  if (isWhole) return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
  const message = `The object store's answer is longer than ${longestAnswer} bytes; ask for fewer keys.`;
  throw withDelivery(new GatewayError("tool_failed", message), "answered");
}

/**
 * Whoever answers 200 to everything, and a store that was asked without its bucket, has answered another question.
 * @throws GatewayError `tool_failed`
 */
export function requireDocument(xml: string, name: string, what: string): void {
  if (isDocument(xml, name)) return;
  const message = `The object store answered with what is not ${what}; check 'config.endpoint', 'config.bucket' and 'config.addressing'.`;
  throw withDelivery(new GatewayError("tool_failed", message), "answered");
}

export function toInfo({ headers }: EgressResponse): ObjectInfo {
  const header = (name: string): string | undefined => {
    const value = headers[name];
    return typeof value === "string" || value === undefined ? value : value[0];
  };
  const modified = Date.parse(header("last-modified") ?? "");
  const [, total] = /\/(\d+)$/.exec(header("content-range") ?? "") ?? [];
  const size = total ?? header("content-length");
  return {
    size: size === undefined ? undefined : Number(size),
    contentType: header("content-type"),
    etag: withoutQuotes(header("etag")),
    lastModified: Number.isNaN(modified) ? undefined : new Date(modified).toISOString(),
    versionId: header("x-amz-version-id"),
    metadata: Object.fromEntries(
      Object.entries(headers).flatMap(([name, value]) => {
        const [, own] = /^x-amz-meta-(.+)$/.exec(name) ?? [];
        return own === undefined || typeof value !== "string" ? [] : [[own, value]];
      }),
    ),
  };
}

function withoutQuotes(etag: string | undefined): string | undefined {
  return etag?.replaceAll('"', "");
}
