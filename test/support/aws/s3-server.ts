/**
 * An S3 of one's own with the rules that our adapter builds on: signatures, conditional writes, ranges,
 * multipart uploads with their smallest part, and listings in the order of bytes. Objects are in memory.
 */
import { createHash, randomUUID } from "node:crypto";
import { startAwsServer, type AwsReply, type AwsRequest, type AwsServer } from "./aws-server.ts";
import type { Signer } from "./sigv4.ts";

export interface StoredObject {
  readonly body: Buffer;
  readonly etag: string;
  readonly modified: Date;
  readonly headers: Readonly<Record<string, string>>;
}

interface Upload {
  readonly key: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly parts: Map<number, { readonly body: Buffer; readonly etag: string }>;
}

export interface S3Server extends AwsServer {
  readonly bucket: string;
  readonly objects: Map<string, StoredObject>;
  /** Begun, and neither completed nor aborted. */
  readonly uploads: ReadonlyMap<string, unknown>;
}

const smallestPart = 5 * 1024 ** 2;
const longestKey = 1_024;

export interface S3ServerOptions {
  readonly signer?: Signer | undefined;
  /** What stores of other vendors do otherwise: answers by itself, or hands on what this store understands. */
  readonly vary?: (request: AwsRequest, store: Store) => AwsReply | AwsRequest;
}

export async function startS3Server(
  bucket = "toolyard-test",
  { signer, vary = (request) => request }: S3ServerOptions = {},
): Promise<S3Server> {
  const store: Store = { bucket, objects: new Map(), uploads: new Map() };
  const server = await startAwsServer(
    {
      name: "s3",
      refuse: ({ code, message }) => failure(403, code, message),
      handle: (request) => {
        const varied = vary(request, store);
        return "status" in varied ? varied : handle(varied, store);
      },
    },
    signer,
  );
  return Object.assign(server, store);
}

export interface Store {
  readonly bucket: string;
  readonly objects: Map<string, StoredObject>;
  readonly uploads: Map<string, Upload>;
}

function handle(request: AwsRequest, store: Store): AwsReply {
  const [, bucket = "", rawKey = ""] = /^\/([^/]*)\/?([^]*)$/.exec(request.path) ?? [];
  if (bucket !== store.bucket) return failure(404, "NoSuchBucket", "The bucket does not exist.");
  const key = decode(rawKey);
  if (key === undefined) return failure(400, "InvalidURI", "Couldn't parse the specified URI.");
  const { method, query } = request;
  if (key === "" && method === "POST" && query.has("delete")) return deleteMany(request, store);
  if (key === "") return method === "GET" ? list(query, store) : failure(405, "MethodNotAllowed", "Not allowed.");
  if (Buffer.byteLength(key) > longestKey) return failure(400, "KeyTooLongError", "Your key is too long.");
  if (request.headers["content-encoding"]?.includes("aws-chunked") === true) {
    return failure(501, "NotImplemented", "This store knows no trailing checksums.");
  }
  const uploadId = query.get("uploadId");
  if (method === "POST" && query.has("uploads")) return beginUpload(key, request, store);
  if (uploadId !== null) return handleUpload(uploadId, key, request, store);
  if (method === "PUT") {
    const object = { body: request.body, etag: tagOf(request.body), headers: kept(request) };
    return conditional(key, request, store) ?? put(key, object, store);
  }
  if (method === "DELETE") {
    store.objects.delete(key);
    return { status: 204 };
  }
  return get(key, request, store);
}

function put(key: string, object: Omit<StoredObject, "modified">, { objects }: Store): AwsReply {
  objects.set(key, { ...object, modified: wholeSeconds() });
  return { status: 200, headers: { etag: object.etag } };
}

function tagOf(body: Buffer): string {
  return `"${md5(body).toString("hex")}"`;
}

function conditional(key: string, { headers }: AwsRequest, { objects }: Store): AwsReply | undefined {
  const found = objects.get(key);
  const isRefused =
    (headers["if-none-match"] === "*" && found !== undefined) ||
    (headers["if-match"] !== undefined && headers["if-match"] !== found?.etag);
  return isRefused ? failure(412, "PreconditionFailed", "A precondition that you named did not hold.") : undefined;
}

function get(key: string, request: AwsRequest, store: Store): AwsReply {
  const found = store.objects.get(key);
  if (found === undefined) return failure(404, "NoSuchKey", "The specified key does not exist.");
  const refused = conditional(key, request, store);
  if (refused !== undefined) return refused;
  const { body, etag, modified, headers } = found;
  const disposition = request.query.get("response-content-disposition");
  const answered = disposition === null ? headers : { ...headers, "content-disposition": disposition };
  const common = { ...answered, etag, "last-modified": modified.toUTCString(), "accept-ranges": "bytes" };
  const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(request.headers["range"] ?? "") ?? [];
  if (from === undefined) return { status: 200, headers: { ...common, "content-length": body.length }, body };
  const start = Number(from);
  const end = Math.min(to === "" ? Infinity : Number(to) + 1, body.length);
  if (start >= body.length) return failure(416, "InvalidRange", "The requested range is not satisfiable.");
  return {
    status: 206,
    headers: {
      ...common,
      "content-length": end - start,
      "content-range": `bytes ${start}-${end - 1}/${body.length}`,
    },
    body: body.subarray(start, end),
  };
}

function beginUpload(key: string, request: AwsRequest, { bucket, uploads }: Store): AwsReply {
  const id = randomUUID();
  uploads.set(id, { key, headers: kept(request), parts: new Map() });
  return xml(
    200,
    `<InitiateMultipartUploadResult><Bucket>${bucket}</Bucket><Key>${escape(key)}</Key><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`,
  );
}

function handleUpload(id: string, key: string, request: AwsRequest, store: Store): AwsReply {
  const upload = store.uploads.get(id);
  if (upload?.key !== key) return failure(404, "NoSuchUpload", "The specified upload does not exist.");
  if (request.method === "DELETE") {
    store.uploads.delete(id);
    return { status: 204 };
  }
  if (request.method === "PUT") {
    const etag = tagOf(request.body);
    upload.parts.set(Number(request.query.get("partNumber")), { body: request.body, etag });
    return { status: 200, headers: { etag } };
  }
  const refused = conditional(key, request, store);
  if (refused !== undefined) return refused;
  const named = [...request.body.toString("utf8").matchAll(/<Part>[^]*?<\/Part>/g)].map(([part]) => ({
    number: Number(/<PartNumber>(\d+)</.exec(part)?.[1]),
    etag: /<ETag>([^<]*)</.exec(part)?.[1]?.replaceAll("&quot;", '"'),
  }));
  const parts = named.map(({ number }) => upload.parts.get(number));
  if (named.length === 0 || named.some(({ etag }, at) => parts[at]?.etag !== etag)) {
    return failure(400, "InvalidPart", "One or more of the specified parts could not be found.");
  }
  const bodies = parts.flatMap((part) => part?.body ?? []);
  if (bodies.slice(0, -1).some((body) => body.length < smallestPart)) {
    return failure(400, "EntityTooSmall", "A part other than the last is smaller than 5 MiB.");
  }
  store.uploads.delete(id);
  const etag = `"${md5(Buffer.concat(bodies.map(md5))).toString("hex")}-${bodies.length}"`;
  put(key, { body: Buffer.concat(bodies), etag, headers: upload.headers }, store);
  return xml(
    200,
    `<CompleteMultipartUploadResult><Bucket>${store.bucket}</Bucket><Key>${escape(key)}</Key><ETag>${escape(etag)}</ETag></CompleteMultipartUploadResult>`,
  );
}

/** At most 1,000 keys, of which those that are locked stay. */
function deleteMany({ headers, body }: AwsRequest, { objects }: Store): AwsReply {
  const isWhole =
    headers["content-md5"] === md5(body).toString("base64") || headers["x-amz-checksum-crc32"] !== undefined;
  if (!isWhole) return failure(400, "InvalidRequest", "Missing required header for this request: Content-MD5.");
  const keys = [...body.toString("utf8").matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key = ""]) => unescape(key));
  const locked = keys.filter((key) => key.endsWith(".locked"));
  for (const key of keys) if (!locked.includes(key)) objects.delete(key);
  const errors = locked.map(
    (key) => `<Error><Key>${escape(key)}</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`,
  );
  return xml(200, `<DeleteResult>${errors.join("")}</DeleteResult>`);
}

/** Both versions, which differ in how they go on: after a key, or with a token. */
function list(query: URLSearchParams, { objects }: Store): AwsReply {
  const isSecond = query.get("list-type") === "2";
  const prefix = query.get("prefix") ?? "";
  const delimiter = query.get("delimiter") ?? "";
  const token = query.get("continuation-token");
  const given = isSecond ? query.get("start-after") : query.get("marker");
  const after = token === null ? (given ?? "") : Buffer.from(token, "base64url").toString("utf8");
  const most = Math.min(Number(query.get("max-keys") ?? 1_000), 1_000);
  const isEncoded = query.get("encoding-type") === "url";
  const name = isEncoded ? urlEncode : escape;
  const groupOf = (key: string): string => {
    const at = delimiter === "" ? -1 : key.indexOf(delimiter, prefix.length);
    return at < 0 ? key : key.slice(0, at + delimiter.length);
  };
  const keys = [...objects.keys()].filter((key) => key.startsWith(prefix)).map(groupOf);
  const entries = [...new Set(keys)].filter((key) => byBytes(key, after) > 0).sort(byBytes);
  const page = entries.slice(0, most);
  const isCut = entries.length > page.length;
  const last = page.at(-1) ?? "";
  const next = isSecond
    ? `<NextContinuationToken>${Buffer.from(last, "utf8").toString("base64url")}</NextContinuationToken>`
    : delimiter === ""
      ? ""
      : `<NextMarker>${name(last)}</NextMarker>`;
  const contents = page.map((key) => {
    const found = objects.get(key);
    if (found === undefined) return `<CommonPrefixes><Prefix>${name(key)}</Prefix></CommonPrefixes>`;
    return `<Contents><Key>${name(key)}</Key><LastModified>${found.modified.toISOString()}</LastModified><ETag>${escape(found.etag)}</ETag><Size>${found.body.length}</Size></Contents>`;
  });
  return xml(
    200,
    `<ListBucketResult><Prefix>${name(prefix)}</Prefix>${isEncoded ? "<EncodingType>url</EncodingType>" : ""}<KeyCount>${page.length}</KeyCount><IsTruncated>${isCut}</IsTruncated>${isCut ? next : ""}${contents.join("")}</ListBucketResult>`,
  );
}

/** What S3 keeps of a request's headers. */
function kept({ headers }: AwsRequest): Readonly<Record<string, string>> {
  const entries = Object.entries(headers).flatMap(([name, value]) =>
    (name === "content-type" || name.startsWith("x-amz-meta-")) && value !== undefined ? [[name, value] as const] : [],
  );
  return Object.fromEntries(entries);
}

export function failure(status: number, code: string, message: string): AwsReply {
  return xml(status, `<Error><Code>${code}</Code><Message>${message}</Message></Error>`);
}

function xml(status: number, body: string): AwsReply {
  return {
    status,
    headers: { "content-type": "application/xml" },
    body: `<?xml version="1.0" encoding="UTF-8"?>\n${body}`,
  };
}

function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a, "utf8"), Buffer.from(b, "utf8"));
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

function unescape(text: string): string {
  return text
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&quot;", '"')
    .replaceAll("&#39;", "'")
    .replaceAll("&amp;", "&");
}

function urlEncode(text: string): string {
  return encodeURIComponent(text).replaceAll("%20", "+").replaceAll("%2F", "/");
}

function md5(body: Buffer): Buffer {
  return createHash("md5").update(body).digest();
}

function wholeSeconds(): Date {
  return new Date(Math.floor(Date.now() / 1_000) * 1_000);
}
