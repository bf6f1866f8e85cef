/**
 * Bytes by key. Keys are made by `tenantKey` only, so that one tenant's prefix never meets another's.
 * Contract: test/contract/blob-store.ts.
 */
export interface BlobInfo {
  readonly key: string;
  readonly bytes: number;
  readonly mediaType: string;
  /** Changes with every write. */
  readonly etag: string;
  readonly modifiedAt: number;
}

export interface PutOptions {
  readonly mediaType?: string;
  /** Write only where nothing is there yet; the loser gets `false`. */
  readonly ifAbsent?: boolean;
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
  list(prefix: string, options?: { readonly after?: string; readonly limit?: number }): Promise<readonly BlobInfo[]>;
}

/** `{tenant}/{part}/…`; parts are encoded, so no part can leave its place. */
export function tenantKey(tenant: string, ...parts: readonly string[]): string {
  return [tenant, ...parts].map((part) => encodeURIComponent(part).replaceAll(".", "%2E")).join("/");
}

/** Whole body of a blob as bytes. */
export async function readAll(body: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const part of body) parts.push(part);
  return Buffer.concat(parts);
}
