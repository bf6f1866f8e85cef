/**
 * Blobs in S3 or a store that speaks like it. Conditional writes are `If-None-Match: *`; streams become
 * multipart uploads of one part in memory at a time and one on its way; encryption at rest is the
 * bucket's own setting. Every write leaves a mark of its own in the object's metadata, which is the etag
 * (S3's is the same for equal bytes) and tells a writer whose answer was lost that it was the one.
 */
import { randomUUID } from "node:crypto";
import { Readable } from "node:stream";
import { toAttachment } from "@toolyard/core/attachment";
import { cutIntoParts, sendParts, type Part } from "@toolyard/core/part-cutter";
import type {
  BlobEntry,
  BlobInfo,
  BlobStore,
  PresignedRequest,
  PresignOptions,
  PutOptions,
} from "@toolyard/core/ports/blob-store";
import { lazily } from "@toolyard/core/once";
import { pause, readAwsError, reasonOf, unavailable } from "./aws-error.ts";
import { clientSettings, type AwsClientOptions } from "./client-options.ts";

export interface S3BlobStoreOptions {
  readonly bucket: string;
  /** Before every key, with a slash in between. */
  readonly prefix?: string;
  /** The bucket in the path instead of the host's name; for stores of one's own. */
  readonly pathStyle?: boolean;
  readonly client?: AwsClientOptions;
  /** S3 takes parts of 5 MiB and more, and 10,000 of them. Default 8 MiB. */
  readonly partBytes?: number;
}

const defaultPartBytes = 8 * 1024 ** 2;
const defaultType = "application/octet-stream";
/** Metadata of ours; S3 puts `x-amz-meta-` before it. */
const writeMark = "toolyard-write";
/** The media type where a header cannot hold it. */
const exactType = "toolyard-media-type";
const conflictAttempts = 8;
const readAttempts = 4;
const mostListed = 1_000;

/** One write: what its requests have in common. */
interface Write {
  readonly Bucket: string;
  readonly Key: string;
  readonly ContentType: string;
  readonly Metadata: Readonly<Record<string, string>>;
}

// A body that nobody reads would hold its connection for good.
const unread = new FinalizationRegistry<Readable>((stream) => stream.destroy());

export function createS3BlobStore(options: S3BlobStoreOptions): BlobStore {
  const { bucket: Bucket, partBytes = defaultPartBytes } = options;
  const prefix = options.prefix === undefined || options.prefix === "" ? "" : `${options.prefix}/`;
  const load = lazily(async () => {
    const sdk = await import("./sdk/s3.ts");
    const client = new sdk.S3Client({
      ...clientSettings(options.client ?? {}),
      forcePathStyle: options.pathStyle ?? false,
      followRegionRedirects: true,
      // Other stores know no trailing checksums. What is sent whole is signed with its hash anyway.
      requestChecksumCalculation: "WHEN_REQUIRED",
      responseChecksumValidation: "WHEN_REQUIRED",
    });
    return { ...sdk, client };
  });
  const place = (key: string): { readonly Bucket: string; readonly Key: string } => ({ Bucket, Key: prefix + key });

  async function headOf(key: string): Promise<BlobInfo | undefined> {
    const { client, HeadObjectCommand } = await load();
    try {
      return toInfo(key, await client.send(new HeadObjectCommand(place(key))));
    } catch (cause) {
      if (readAwsError(cause).status === 404) return undefined;
      throw cause;
    }
  }

  /**
   * Whether the object that stands in a conditional write's way is that write itself: sent twice because
   * the first answer was lost, the second is refused.
   */
  async function isOwn(key: string, write: Write, cause: unknown): Promise<boolean> {
    return readAwsError(cause).attempts > 1 && (await headOf(key))?.etag === write.Metadata[writeMark];
  }

  async function putWhole(key: string, write: Write, bytes: Uint8Array, condition: Condition): Promise<boolean> {
    const { client, PutObjectCommand } = await load();
    for (let attempt = 1; ; attempt += 1) {
      try {
        await client.send(new PutObjectCommand({ ...write, ...condition, Body: bytes }));
        return true;
      } catch (cause) {
        const { status } = readAwsError(cause);
        if (status === 412) return isOwn(key, write, cause);
        if (status !== 409 || attempt === conflictAttempts) throw cause;
        // Somebody else wrote or deleted it at the same moment; nothing is decided yet.
        await pause(attempt);
      }
    }
  }

  async function uploadParts(write: Write, UploadId: string, parts: AsyncIterable<Part>): Promise<UploadedPart[]> {
    const { client, UploadPartCommand } = await load();
    const { Bucket: bucket, Key } = write;
    return sendParts(parts, async (bytes, PartNumber) => {
      const part = { Bucket: bucket, Key, UploadId, PartNumber, Body: bytes };
      const { ETag } = await asBlobs(() => client.send(new UploadPartCommand(part)));
      return { PartNumber, ETag };
    });
  }

  async function completeUpload(
    key: string,
    write: Write,
    upload: { readonly UploadId: string; readonly Parts: UploadedPart[]; readonly condition: Condition },
  ): Promise<boolean> {
    const { client, CompleteMultipartUploadCommand } = await load();
    const { UploadId, Parts, condition } = upload;
    const { Bucket: bucket, Key } = write;
    const request = { Bucket: bucket, Key, UploadId, MultipartUpload: { Parts }, ...condition };
    for (let attempt = 1; ; attempt += 1) {
      try {
        await client.send(new CompleteMultipartUploadCommand(request));
        return true;
      } catch (cause) {
        const { name, status } = readAwsError(cause);
        if (await isOwn(key, write, cause)) return true;
        if (status === 412) return false;
        // After a conflict the upload itself may be gone with it; then the winner is there.
        if (name === "NoSuchUpload" && condition.IfNoneMatch !== undefined && (await headOf(key)) !== undefined) {
          return false;
        }
        if (status !== 409 || attempt === conflictAttempts) throw cause;
        await pause(attempt);
      }
    }
  }

  async function putInParts(
    key: string,
    write: Write,
    parts: AsyncIterable<Part>,
    condition: Condition,
  ): Promise<boolean> {
    const { client, CreateMultipartUploadCommand, AbortMultipartUploadCommand } = await load();
    // Not the decision, which comes at the end; only saves carrying the bytes there.
    if (condition.IfNoneMatch !== undefined && (await asBlobs(() => headOf(key))) !== undefined) return false;
    const { UploadId = "" } = await asBlobs(() => client.send(new CreateMultipartUploadCommand(write)));
    let isDone = false;
    try {
      const Parts = await uploadParts(write, UploadId, parts);
      isDone = await asBlobs(() => completeUpload(key, write, { UploadId, Parts, condition }));
      return isDone;
    } finally {
      if (!isDone) {
        const { Bucket: bucket, Key } = write;
        // Where this fails too, the bucket's rule for incomplete uploads clears up.
        await client.send(new AbortMultipartUploadCommand({ Bucket: bucket, Key, UploadId })).catch(() => undefined);
      }
    }
  }

  /** From `from` on, of the very object that `ETag` names. */
  async function open(key: string, from: number, end: number, ETag?: string): Promise<OpenObject | undefined> {
    const { client, GetObjectCommand } = await load();
    const Range = end === Infinity ? `bytes=${from}-` : `bytes=${from}-${end - 1}`;
    const range = from === 0 && end === Infinity ? {} : { Range };
    const condition = ETag === undefined ? {} : { IfMatch: ETag };
    try {
      const answer = await client.send(new GetObjectCommand({ ...place(key), ...range, ...condition }));
      if (!(answer.Body instanceof Readable)) throw new Error("S3 answered without a body.");
      const [, total] = /\/(\d+)$/.exec(answer.ContentRange ?? "") ?? [];
      const bytes = total === undefined ? answer.ContentLength : Number(total);
      return { info: toInfo(key, { ...answer, ContentLength: bytes }), stream: answer.Body, ETag: answer.ETag };
    } catch (cause) {
      if (readAwsError(cause).name === "NoSuchKey" && ETag === undefined) return undefined;
      throw cause;
    }
  }

  /** Goes on where a connection broke off, as long as the object is still the one that was opened. */
  async function* read(key: string, opened: OpenObject, start: number, end: number): AsyncGenerator<Uint8Array> {
    let { stream } = opened;
    unread.unregister(stream);
    let position = start;
    for (let attempt = 1; ; attempt += 1) {
      try {
        for await (const part of stream as AsyncIterable<Uint8Array>) {
          yield part;
          position += part.byteLength;
        }
        if (position >= end) return;
      } catch (cause) {
        if (attempt === readAttempts) throw blobsUnavailable(cause);
      }
      if (attempt === readAttempts) throw blobsUnavailable(new Error("The object ended before its length."));
      await pause(attempt);
      stream = (await asBlobs(() => open(key, position, end, opened.ETag)))?.stream ?? stream;
    }
  }

  async function link(key: string, options: PresignOptions): Promise<PresignedRequest> {
    const { client, GetObjectCommand, PutObjectCommand, getSignedUrl } = await load();
    const { method } = options;
    const expiresIn = Math.ceil(options.expiresInMs / 1_000);
    if (options.method === "GET") {
      const { fileName } = options;
      const ResponseContentDisposition = fileName === undefined ? "attachment" : toAttachment(fileName);
      const command = new GetObjectCommand({ ...place(key), ResponseContentDisposition });
      return { method, url: await getSignedUrl(client, command, { expiresIn }), headers: {} };
    }
    const { ContentType } = toHeaders(options.mediaType);
    const request = { ...place(key), ContentType, ContentLength: options.bytes, IfNoneMatch: "*" };
    const headers = { "content-type": ContentType, "if-none-match": "*" };
    const signableHeaders = new Set(["host", "content-length", ...Object.keys(headers)]);
    const url = await getSignedUrl(client, new PutObjectCommand(request), { expiresIn, signableHeaders });
    return { method, url, headers };
  }

  return {
    presign: (key, options) => asBlobs(() => link(key, options)),
    async put(key, body, { mediaType = defaultType, ifAbsent = false }: PutOptions = {}) {
      const write = { ...place(key), ...toHeaders(mediaType) };
      const condition = ifAbsent ? { IfNoneMatch: "*" } : {};
      const parts = cutIntoParts(body, partBytes);
      const { value: first } = await parts.next();
      if (first === undefined) throw new Error("A body has at least one part.");
      if (first.isLast) return asBlobs(() => putWhole(key, write, first.bytes, condition));
      return putInParts(key, write, startingWith(first, parts), condition);
    },
    async get(key, range) {
      const start = range?.start ?? 0;
      const end = range?.end ?? Infinity;
      const nothing = async (): ReturnType<BlobStore["get"]> => {
        const info = await headOf(key);
        return info && { info, body: none() };
      };
      return asBlobs(async () => {
        if (end <= start) return nothing();
        try {
          const opened = await open(key, start, end);
          if (opened === undefined) return undefined;
          const body = read(key, opened, start, Math.min(end, opened.info.bytes));
          unread.register(body, opened.stream, opened.stream);
          return { info: opened.info, body };
        } catch (cause) {
          if (readAwsError(cause).status === 416) return nothing();
          throw cause;
        }
      });
    },
    head: (key) => asBlobs(() => headOf(key)),
    delete: (key) =>
      asBlobs(async () => {
        const { client, DeleteObjectCommand } = await load();
        await client.send(new DeleteObjectCommand(place(key)));
      }),
    list: (below, { after, limit = mostListed } = {}) =>
      asBlobs(async () => {
        const { client, ListObjectsV2Command } = await load();
        const found: BlobEntry[] = [];
        const request = {
          Bucket,
          Prefix: prefix + below,
          // Keys may hold what XML cannot.
          EncodingType: "url",
          ...(after === undefined || after === "" ? {} : { StartAfter: prefix + after }),
        } as const;
        let token: string | undefined;
        do {
          const next = token === undefined ? {} : { ContinuationToken: token };
          const MaxKeys = Math.min(mostListed, limit - found.length);
          const page: ListedPage = await client.send(new ListObjectsV2Command({ ...request, ...next, MaxKeys }));
          for (const object of page.Contents ?? []) found.push(toEntry(prefix, object));
          token = page.NextContinuationToken;
        } while (token !== undefined && found.length < limit);
        return found;
      }),
  };
}

interface Condition {
  readonly IfNoneMatch?: string;
}

interface UploadedPart {
  readonly PartNumber: number;
  readonly ETag: string | undefined;
}

interface OpenObject {
  readonly info: BlobInfo;
  readonly stream: Readable;
  readonly ETag: string | undefined;
}

/** What S3 says of an object; other parties may have written it. */
interface ObjectHead {
  readonly ContentLength?: number | undefined;
  readonly ContentType?: string | undefined;
  readonly ETag?: string | undefined;
  readonly LastModified?: Date | undefined;
  readonly Metadata?: Readonly<Record<string, string>> | undefined;
}

function toInfo(key: string, { ContentLength, ContentType, ETag, LastModified, Metadata }: ObjectHead): BlobInfo {
  const type = Metadata?.[exactType];
  return {
    key,
    bytes: ContentLength ?? 0,
    mediaType: type === undefined ? (ContentType ?? defaultType) : decodeURIComponent(type),
    etag: Metadata?.[writeMark] ?? ETag?.replaceAll('"', "") ?? "",
    modifiedAt: LastModified?.getTime() ?? 0,
  };
}

interface ListedObject {
  readonly Key?: string | undefined;
  readonly Size?: number | undefined;
  readonly LastModified?: Date | undefined;
}

interface ListedPage {
  readonly Contents?: readonly ListedObject[] | undefined;
  readonly NextContinuationToken?: string | undefined;
}

function toEntry(prefix: string, { Key = "", Size = 0, LastModified }: ListedObject): BlobEntry {
  const key = decodeURIComponent(Key.replaceAll("+", "%20")).slice(prefix.length);
  return { key, bytes: Size, modifiedAt: LastModified?.getTime() ?? 0 };
}

function toHeaders(mediaType: string): Pick<Write, "ContentType" | "Metadata"> {
  const mark = { [writeMark]: randomUUID() };
  if (/^[\x20-\x7e]+$/.test(mediaType)) return { ContentType: mediaType, Metadata: mark };
  const [plain = ""] = mediaType.split(";", 1);
  return {
    ContentType: /^[\w.+-]+\/[\w.+-]+$/.test(plain) ? plain : defaultType,
    Metadata: { ...mark, [exactType]: encodeURIComponent(mediaType) },
  };
}

async function* startingWith(first: Part, rest: AsyncIterable<Part>): AsyncGenerator<Part> {
  yield first;
  yield* rest;
}

async function* none(): AsyncGenerator<Uint8Array> {
  // Nothing.
}

function blobsUnavailable(cause: unknown): Error {
  const message = `The object store failed (${reasonOf(cause)}); see the log, and check BLOBS_URL and what the process may do with that bucket.`;
  return unavailable("blobs_unavailable", message, cause);
}

/** @throws GatewayError `blobs_unavailable` where S3 refuses or cannot be reached */
async function asBlobs<T>(operation: () => Promise<T>): Promise<T> {
  try {
    return await operation();
  } catch (cause) {
    throw blobsUnavailable(cause);
  }
}
