/**
 * Recomputes signatures of AWS's version 4, in the header or in the query, as the services do: a request
 * that was changed on its way, signed with another secret or too long ago is refused.
 */
import { createHash, createHmac } from "node:crypto";

export interface SignedRequest {
  readonly method: string;
  /** Raw path and query, as on the request line. */
  readonly target: string;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: Buffer;
}

export interface Signer {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

/** The code and message of the refusal; undefined: the signature holds. */
export type Refusal = { readonly code: string; readonly message: string } | undefined;

const algorithm = "AWS4-HMAC-SHA256";
const longestSkewMs = 15 * 60_000;

export function checkSignature(request: SignedRequest, service: string, signer: Signer): Refusal {
  const [path = "/", query = ""] = request.target.split("?", 2);
  const parameters = query === "" ? [] : query.split("&").map((pair) => pair.split("=", 2) as [string, string?]);
  const inQuery = new Map(new URLSearchParams(query));
  const isPresigned = inQuery.has("X-Amz-Signature");
  const claim = isPresigned ? readQuery(inQuery) : readHeader(request.headers);
  if (claim === undefined) return { code: "AccessDenied", message: "The request is not signed." };

  const [accessKeyId, date = "", region = "", service_ = ""] = claim.credential.split("/");
  if (accessKeyId !== signer.accessKeyId) return { code: "InvalidAccessKeyId", message: "Unknown access key." };
  if (service_ !== service) return { code: "SignatureDoesNotMatch", message: `Signed for ${service_}.` };
  const at = readTime(claim.time);
  if (isPresigned && Date.now() > at + claim.expiresMs) return { code: "AccessDenied", message: "Request has expired" };
  if (!isPresigned && Math.abs(Date.now() - at) > longestSkewMs) {
    return { code: "RequestTimeTooSkewed", message: "The clocks differ too much." };
  }

  const bodyHash = sha256(request.body);
  const declared = request.headers["x-amz-content-sha256"];
  if (!isPresigned && declared !== undefined && /^[0-9a-f]{64}$/.test(declared) && declared !== bodyHash) {
    return { code: "XAmzContentSHA256Mismatch", message: "The body is not the one that was signed." };
  }
  const canonical = [
    request.method,
    // S3 takes paths as they are; the others encode what is encoded already.
    service === "s3" ? path : encode(path).replaceAll("%2F", "/"),
    parameters
      .filter(([name]) => name !== "X-Amz-Signature")
      .map(([name, value = ""]) => `${name}=${value}`)
      .toSorted()
      .join("&"),
    ...claim.signedHeaders.map((name) => `${name}:${(request.headers[name] ?? "").trim().replaceAll(/ +/g, " ")}`),
    "",
    claim.signedHeaders.join(";"),
    isPresigned ? "UNSIGNED-PAYLOAD" : (declared ?? bodyHash),
  ].join("\n");
  const scope = `${date}/${region}/${service}/aws4_request`;
  const text = [algorithm, claim.time, scope, sha256(canonical)].join("\n");
  const key = [date, region, service, "aws4_request"].reduce<Buffer | string>(
    (secret, part) => hmac(secret, part),
    `AWS4${signer.secretAccessKey}`,
  );
  if (claim.signature === hmac(key, text).toString("hex")) return undefined;
  return { code: "SignatureDoesNotMatch", message: "The signature is not the one of this request and this secret." };
}

interface Claim {
  readonly credential: string;
  readonly signedHeaders: readonly string[];
  readonly signature: string;
  readonly time: string;
  readonly expiresMs: number;
}

function readHeader(headers: SignedRequest["headers"]): Claim | undefined {
  const found = new RegExp(`^${algorithm} Credential=([^,]+), SignedHeaders=([^,]+), Signature=([0-9a-f]+)$`).exec(
    headers["authorization"] ?? "",
  );
  if (found === null) return undefined;
  const [, credential = "", names = "", signature = ""] = found;
  return { credential, signedHeaders: names.split(";"), signature, time: headers["x-amz-date"] ?? "", expiresMs: 0 };
}

function readQuery(query: ReadonlyMap<string, string>): Claim | undefined {
  if (query.get("X-Amz-Algorithm") !== algorithm) return undefined;
  return {
    credential: query.get("X-Amz-Credential") ?? "",
    signedHeaders: (query.get("X-Amz-SignedHeaders") ?? "").split(";"),
    signature: query.get("X-Amz-Signature") ?? "",
    time: query.get("X-Amz-Date") ?? "",
    expiresMs: Number(query.get("X-Amz-Expires")) * 1_000,
  };
}

/** `20261128T030405Z`. */
function readTime(text: string): number {
  return Date.parse(text.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, "$1-$2-$3T$4:$5:$6Z"));
}

function encode(path: string): string {
  return encodeURIComponent(path).replaceAll(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

function sha256(data: Buffer | string): string {
  return createHash("sha256").update(data).digest("hex");
}

function hmac(key: Buffer | string, text: string): Buffer {
  return createHmac("sha256", key).update(text).digest();
}
