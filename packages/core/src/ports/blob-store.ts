/**
 * Bytes by key. Keys are made by `tenantKey` only, so that one tenant's prefix never meets another's.
 * Contract: test/contract/blob-store.ts.
 */
export interface BlobEntry {
  readonly key: string;
  readonly bytes: number;
  readonly modifiedAt: number;
}

export interface BlobInfo extends BlobEntry {
  readonly mediaType: string;
  /** Changes with every write. */
  readonly etag: string;
}

export interface PutOptions {
  readonly mediaType?: string;
  /** Write only where nothing is there yet; the loser gets `false`. */
  readonly ifAbsent?: boolean;
}

/** What object stores take in one request. */
export const largestUploadBytes = 5_368_709_120;

/** What somebody who has none of our keys may do with one blob, until the time is over. */
export type PresignOptions =
  | {
      readonly method: "GET";
      readonly expiresInMs: number;
      /** Name under which browsers save it. */
      readonly fileName?: string;
    }
  | {
      /** One upload of exactly so many bytes of exactly this type, only where nothing is there yet. */
      readonly method: "PUT";
      readonly expiresInMs: number;
      readonly bytes: number;
      readonly mediaType: string;
    };

/** A request that works without a key. Its URL is a secret while it lasts: never logged, never stored. */
export interface PresignedRequest {
  readonly method: "GET" | "PUT";
  readonly url: string;
  /** To be sent exactly so; 'Content-Length' is left to the client, which knows it by itself. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface BlobStore {
  /** Streams are written without being held in memory; a failed stream leaves nothing behind. */
  put(key: string, body: Uint8Array | AsyncIterable<Uint8Array>, options?: PutOptions): Promise<boolean>;
  /** `undefined` where there is none. `range` is inclusive of `start`, exclusive of `end`. */
  get(
    key: string,
    range?: { readonly start: number; readonly end?: number },
  ): Promise<{ readonly info: BlobInfo; readonly body: AsyncIterable<Uint8Array> } | undefined>;
  head(key: string): Promise<BlobInfo | undefined>;
  delete(key: string): Promise<void>;
  /** Keys in order; `after` continues a listing. */
  list(prefix: string, options?: { readonly after?: string; readonly limit?: number }): Promise<readonly BlobEntry[]>;
  /**
   * A URL for one request at this blob. A GET answers ranges and comes as an attachment in the blob's media
   * type; that nothing is there shows when it is followed. A PUT is refused when it differs from what was
   * signed. Whoever begins in time may end later. At most an hour.
   */
  presign(key: string, options: PresignOptions): Promise<PresignedRequest>;
}

export type Presign = BlobStore["presign"];

/** `{tenant}/{part}/…`; parts are encoded, so no part can leave its place. */
export function tenantKey(tenant: string, ...parts: readonly string[]): string {
  return [tenant, ...parts].map((part) => encodeURIComponent(part).replaceAll(".", "%2E")).join("/");
}

/** Under it is what belongs to one call that keeps a record of its own. */
export function runBlobPrefix(tenant: string, callId: string): string {
  return `${tenantKey(tenant, "flow-runs", callId)}/`;
}

/** Names that are a file's in every store: nothing in them has to be encoded, and none leads elsewhere. */
const fileName = /^[A-Za-z0-9_-][A-Za-z0-9_.-]*$/;

/**
 * `{tenant}/{folder}/{name}` with the name as it is, where the specification says how it is spelled.
 * @throws RangeError for a name that is none of a file
 */
export function namedKey(tenant: string, folder: string, name: string): string {
  if (!fileName.test(name)) throw new RangeError("A blob was to have a name that is no file's.");
  return `${tenantKey(tenant, folder)}/${name}`;
}

/** The tenant in whose prefix a key lies; undefined for a text that `tenantKey` never made. */
export function tenantOfKey(key: string): string | undefined {
  const [, tenant] = /^([\w%-]+)\//.exec(key) ?? [];
  try {
    return tenant === undefined ? undefined : decodeURIComponent(tenant);
  } catch {
    return undefined;
  }
}

/** Whole body of a blob as bytes. */
export async function readAll(body: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const part of body) parts.push(part);
  return Buffer.concat(parts);
}
