/**
 * How SMS vendors want requests signed (SMS-3): ACS3-HMAC-SHA256, TC3-HMAC-SHA256, SDK-HMAC-SHA256 and WSSE.
 * Pure: time and nonces are given, so that the vendors' published examples are the tests.
 */
import { createHash, createHmac } from "node:crypto";

type Headers = readonly (readonly [name: string, value: string])[];

export function sha256Hex(text: string): string {
  return createHash("sha256").update(text, "utf8").digest("hex");
}

function hmac(key: string | Buffer, text: string): Buffer {
  return createHmac("sha256", key).update(text, "utf8").digest();
}

/** RFC 3986: nothing but letters, digits and `-._~` stays. */
export function encodeStrictly(text: string): string {
  return encodeURIComponent(text.toWellFormed()).replaceAll(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

function byCodePoint([left]: readonly [string, string], [right]: readonly [string, string]): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

/** Sorted and encoded. */
export function canonicalQuery(parameters: Readonly<Record<string, string>>): string {
  return Object.entries(parameters)
    .sort(byCodePoint)
    .map(([name, value]) => `${encodeStrictly(name)}=${encodeStrictly(value)}`)
    .join("&");
}

/** Lower-case names, sorted, one a line. */
function canonicalHeaders(headers: Headers): { readonly lines: string; readonly names: string } {
  const sorted = headers.map(([name, value]): [string, string] => [name.toLowerCase(), value.trim()]).sort(byCodePoint);
  return {
    lines: sorted.map(([name, value]) => `${name}:${value}\n`).join(""),
    names: sorted.map(([name]) => name).join(";"),
  };
}

export interface KeyPair {
  readonly id: string;
  readonly secret: string;
}

export interface AcsRequest {
  readonly host: string;
  readonly action: string;
  readonly version: string;
  /** Whole seconds, in ISO form. */
  readonly date: string;
  readonly nonce: string;
  readonly query: Readonly<Record<string, string>>;
  /** With temporary keys. */
  readonly securityToken?: string | undefined;
}

/** Aliyun's V3 signature of a POST without body. */
export function signAcs3({ id, secret }: KeyPair, request: AcsRequest): Headers {
  const { host, action, version, date, nonce, query, securityToken } = request;
  const payload = sha256Hex("");
  const headers: Headers = [
    ["host", host],
    ["x-acs-action", action],
    ["x-acs-content-sha256", payload],
    ["x-acs-date", date],
    ["x-acs-signature-nonce", nonce],
    ["x-acs-version", version],
    ...(securityToken === undefined ? [] : [["x-acs-security-token", securityToken] as const]),
  ];
  const { lines, names } = canonicalHeaders(headers);
  const canonical = ["POST", "/", canonicalQuery(query), lines, names, payload].join("\n");
  const signature = hmac(secret, `ACS3-HMAC-SHA256\n${sha256Hex(canonical)}`).toString("hex");
  return [
    ...headers,
    ["authorization", `ACS3-HMAC-SHA256 Credential=${id},SignedHeaders=${names},Signature=${signature}`],
  ];
}

export interface TcRequest {
  readonly host: string;
  readonly service: string;
  readonly action: string;
  readonly contentType: string;
  /** Seconds since 1970. */
  readonly timestamp: number;
  readonly body: string;
}

/** Tencent Cloud's V3 signature of a POST; the value of `authorization`. */
export function signTc3({ id, secret }: KeyPair, request: TcRequest): string {
  const { host, service, action, contentType, timestamp, body } = request;
  const { lines, names } = canonicalHeaders([
    ["content-type", contentType.toLowerCase()],
    ["host", host.toLowerCase()],
    ["x-tc-action", action.toLowerCase()],
  ]);
  const canonical = ["POST", "/", "", lines, names, sha256Hex(body)].join("\n");
  const day = new Date(timestamp * 1_000).toISOString().slice(0, 10);
  const scope = `${day}/${service}/tc3_request`;
  const key = hmac(hmac(hmac(`TC3${secret}`, day), service), "tc3_request");
  const signature = hmac(key, `TC3-HMAC-SHA256\n${timestamp}\n${scope}\n${sha256Hex(canonical)}`).toString("hex");
  return `TC3-HMAC-SHA256 Credential=${id}/${scope}, SignedHeaders=${names}, Signature=${signature}`;
}

export interface SdkRequest {
  readonly method: string;
  readonly host: string;
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly contentType: string;
  /** `yyyyMMddTHHmmssZ`. */
  readonly date: string;
  readonly body: string;
}

/** Hash of what Huawei Cloud's signature covers. */
export function sdkCanonicalHash(request: SdkRequest): { readonly hash: string; readonly names: string } {
  const { method, host, path, query = {}, contentType, date, body } = request;
  const { lines, names } = canonicalHeaders([
    ["content-type", contentType],
    ["host", host],
    ["x-sdk-date", date],
  ]);
  const uri = `${path.split("/").map(encodeStrictly).join("/").replace(/\/$/, "")}/`;
  const canonical = [method, uri, canonicalQuery(query), lines, names, sha256Hex(body)].join("\n");
  return { hash: sha256Hex(canonical), names };
}

/** Huawei Cloud's AK/SK signature; the value of `authorization`. */
export function signSdk({ id, secret }: KeyPair, request: SdkRequest): string {
  const { hash, names } = sdkCanonicalHash(request);
  const signature = hmac(secret, `SDK-HMAC-SHA256\n${request.date}\n${hash}`).toString("hex");
  return `SDK-HMAC-SHA256 Access=${id}, SignedHeaders=${names}, Signature=${signature}`;
}

/** Huawei Cloud's other way to prove who calls; the value of `x-wsse`. */
export function signWsse(
  { id, secret }: KeyPair,
  { nonce, created }: { readonly nonce: string; readonly created: string },
): string {
  const digest = createHash("sha256").update(`${nonce}${created}${secret}`, "utf8").digest("base64");
  return `UsernameToken Username="${id}",PasswordDigest="${digest}",Nonce="${nonce}",Created="${created}"`;
}

/** User name and password, or account and token. */
export function basic({ id, secret }: KeyPair): string {
  return `Basic ${Buffer.from(`${id}:${secret}`, "utf8").toString("base64")}`;
}
