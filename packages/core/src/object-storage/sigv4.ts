/**
 * Signature version 4 as object stores take it: of a request in its headers, and of a link in its query.
 * Pure: clock and keys come in, text goes out. Paths are encoded once and never normalised, which is how S3
 * differs from the other services. Proved against the published vectors, and against the SDK's signer.
 */
import { createHash, createHmac, createSecretKey, type KeyObject } from "node:crypto";

export type Pair = readonly [name: string, value: string];

export interface AccessKeys {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** Of temporary keys. */
  readonly sessionToken?: string | undefined;
}

export interface SigningScope {
  readonly keys: AccessKeys;
  readonly region: string;
  /** Milliseconds since 1970. */
  readonly now: number;
}

export interface SignableRequest {
  readonly method: string;
  /** As in the `host` header: with the port where it is not the scheme's own. */
  readonly host: string;
  /** Encoded by `encodePath`. */
  readonly path: string;
  /** Not encoded. */
  readonly query: readonly Pair[];
  /** All of them are signed; names may have any case. */
  readonly headers: readonly Pair[];
}

const algorithm = "AWS4-HMAC-SHA256";
const unsignedPayload = "UNSIGNED-PAYLOAD";

/** Everything but letters, digits and `-._~` as `%XX` of its UTF-8. */
export function encodeStrictly(text: string): string {
  return encodeURIComponent(text.toWellFormed()).replaceAll(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/** The same with its slashes kept. */
export function encodePath(text: string): string {
  return text.split("/").map(encodeStrictly).join("/");
}

/** The query as it is signed and as it is to be sent: encoded, and in order. */
export function encodeQuery(query: readonly Pair[]): string {
  return query
    .map(([name, value]): Pair => [encodeStrictly(name), encodeStrictly(value)])
    .toSorted(([name, value], [otherName, otherValue]) => compare(name, otherName) || compare(value, otherValue))
    .map(([name, value]) => `${name}=${value}`)
    .join("&");
}

/** By code units; encoded text is ASCII. */
function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

export function sha256Hex(data: Uint8Array | string): string {
  return createHash("sha256").update(data).digest("hex");
}

/** The headers that go with a request, `authorization` among them. */
export function signRequest(request: SignableRequest, payloadHash: string, scope: SigningScope): readonly Pair[] {
  const { sessionToken } = scope.keys;
  const headers: readonly Pair[] = [
    ...request.headers,
    ["x-amz-date", timeOf(scope.now)],
    ["x-amz-content-sha256", payloadHash],
    ...(sessionToken === undefined ? [] : [["x-amz-security-token", sessionToken] as const]),
  ];
  const { signedHeaders, signature } = sign({ ...request, headers }, payloadHash, scope);
  const credential = `${scope.keys.accessKeyId}/${scopeText(scope)}`;
  return [
    ...headers,
    ["authorization", `${algorithm} Credential=${credential}, SignedHeaders=${signedHeaders}, Signature=${signature}`],
  ];
}

/** The query of a link that stands for the request, encoded; its headers must be sent as they are signed. */
export function presignQuery(request: SignableRequest, expiresInSeconds: number, scope: SigningScope): string {
  const { accessKeyId, sessionToken } = scope.keys;
  const query: readonly Pair[] = [
    ...request.query,
    ["X-Amz-Algorithm", algorithm],
    ["X-Amz-Credential", `${accessKeyId}/${scopeText(scope)}`],
    ["X-Amz-Date", timeOf(scope.now)],
    ["X-Amz-Expires", String(expiresInSeconds)],
    ["X-Amz-SignedHeaders", headerNames(withHost(request)).join(";")],
    ...(sessionToken === undefined ? [] : [["X-Amz-Security-Token", sessionToken] as const]),
  ];
  const { signature } = sign({ ...request, query }, unsignedPayload, scope);
  return `${encodeQuery(query)}&X-Amz-Signature=${signature}`;
}

interface Signed {
  readonly signedHeaders: string;
  readonly signature: string;
}

function sign(request: SignableRequest, payloadHash: string, scope: SigningScope): Signed {
  const headers = withHost(request);
  const names = headerNames(headers);
  const signedHeaders = names.join(";");
  const canonical = [
    request.method,
    request.path,
    encodeQuery(request.query),
    ...names.map((name) => `${name}:${valueOf(headers, name)}`),
    "",
    signedHeaders,
    payloadHash,
  ].join("\n");
  const text = [algorithm, timeOf(scope.now), scopeText(scope), sha256Hex(canonical)].join("\n");
  return { signedHeaders, signature: hmac(signingKey(scope), text).toString("hex") };
}

function withHost({ host, headers }: SignableRequest): readonly Pair[] {
  return [["host", host], ...headers];
}

function headerNames(headers: readonly Pair[]): readonly string[] {
  return [...new Set(headers.map(([name]) => name.toLowerCase()))].toSorted(compare);
}

function valueOf(headers: readonly Pair[], wanted: string): string {
  return headers
    .filter(([name]) => name.toLowerCase() === wanted)
    .map(([, value]) => value.trim().replaceAll(/ +/g, " "))
    .join(",");
}

/** `20130524T000000Z`. */
function timeOf(now: number): string {
  return new Date(now).toISOString().replaceAll(/[-:]|\.\d{3}/g, "");
}

function scopeText({ region, now }: SigningScope): string {
  return `${timeOf(now).slice(0, 8)}/${region}/s3/aws4_request`;
}

interface DerivedKey {
  readonly key: KeyObject;
  /** Milliseconds since 1970. */
  readonly until: number;
}

/** By a hash of what they are derived from; the least recently derived goes first. */
const derivedKeys = new Map<string, DerivedKey>();
const mostDerivedKeys = 500;
/** As long as keys of tenants are kept. */
const derivedKeyLifetimeMs = 900_000;

/** Derived anew it would cost more than the signature. It is good for a day, a region and a store, and nothing else. */
function signingKey({ keys, region, now }: SigningScope): KeyObject {
  const day = timeOf(now).slice(0, 8);
  const name = sha256Hex(JSON.stringify([day, region, keys.secretAccessKey]));
  const known = derivedKeys.get(name);
  const current = Date.now();
  if (known !== undefined && known.until > current) return known.key;
  const ofDay = hmac(`AWS4${keys.secretAccessKey}`, day);
  const key = createSecretKey(hmac(hmac(hmac(ofDay, region), "s3"), "aws4_request"));
  derivedKeys.delete(name);
  derivedKeys.set(name, { key, until: current + derivedKeyLifetimeMs });
  for (const [each, { until }] of derivedKeys) {
    if (until > current && derivedKeys.size <= mostDerivedKeys) break;
    derivedKeys.delete(each);
  }
  return key;
}

function hmac(key: Buffer | KeyObject | string, text: string): Buffer {
  return createHmac("sha256", key).update(text, "utf8").digest();
}
