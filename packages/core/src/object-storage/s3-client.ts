/**
 * Sends signed requests to one bucket, through the guarded door like everything that leaves. Whatever the
 * vendor: a body goes in one piece with its length, SHA-256 and Content-MD5, never in signed chunks and
 * without checksum headers, since that is what all stores take.
 */
import { createHash } from "node:crypto";
import type { Egress, EgressRequest, EgressResponse } from "../ports/egress.ts";
import { pathOf, type BucketAddress } from "./bucket-address.ts";
import { readRefusal, toS3Error, type S3Refusal } from "./s3-errors.ts";
import { encodeQuery, presignQuery, sha256Hex, signRequest, type AccessKeys, type Pair } from "./sigv4.ts";
import { readAtMost } from "../read-body.ts";

export interface S3Request {
  readonly method: "GET" | "HEAD" | "PUT" | "POST" | "DELETE";
  /** The whole key; absent: the bucket itself. */
  readonly key?: string;
  /** The key as the caller named it, for errors. */
  readonly named?: string;
  readonly query?: readonly Pair[];
  readonly headers?: readonly Pair[];
  readonly body?: Uint8Array;
  /** Goes on although the call was given up, for clearing away. */
  readonly afterwards?: boolean;
}

export interface S3ClientOptions {
  readonly egress: Egress;
  readonly address: BucketAddress;
  readonly region: string;
  readonly keys: AccessKeys;
  /** What requests are sent with. */
  readonly sending: Pick<EgressRequest, "timeoutMs" | "signal" | "onSent" | "span" | "tls">;
  /** The tool that sends, for errors. */
  readonly toolName: string;
  readonly redact: (text: string) => string;
  readonly now: () => number;
}

/** Milliseconds for clearing away what a call that failed has left. */
const afterwardsMs = 5_000;

/** For one call: what it learns about the store's clock is of no use to later ones. */
export class S3Client {
  readonly #options: S3ClientOptions;
  /** Milliseconds that the store's clock is ahead. */
  #skewMs = 0;

  constructor(options: S3ClientOptions) {
    this.#options = options;
  }

  /** @throws GatewayError as `Egress.request`, or as `toS3Error` for every other answer than 2xx */
  async send(request: S3Request): Promise<EgressResponse> {
    const answer = await this.trySend(request);
    if (answer.response !== undefined) return answer.response;
    throw this.toError(answer.refusal, request);
  }

  /** For those who know what to do about some refusal. @throws GatewayError as `Egress.request` */
  async trySend(request: S3Request): Promise<Answer> {
    const first = await this.#sendOnce(request);
    const { refusal } = first;
    if (refusal?.reason !== "RequestTimeTooSkewed" || refusal.date === undefined || this.#skewMs !== 0) return first;
    // Nothing was done, and the store says what time it is.
    this.#skewMs = refusal.date - this.#options.now();
    return this.#sendOnce(request);
  }

  toError(refusal: S3Refusal, { method, named }: S3Request): Error {
    const { toolName, redact } = this.#options;
    // Of what is to be written nothing is missing but its place.
    const key = method === "PUT" || method === "POST" ? undefined : named;
    return toS3Error(refusal, { toolName, key, redact });
  }

  /** A link that does the request without a key until it expires; its headers have to be sent with it. */
  presign(request: S3Request, expiresInSeconds: number, address = this.#options.address): string {
    const { keys, region, now } = this.#options;
    const { method, key = "", query = [], headers = [] } = request;
    const { origin, host } = address;
    const path = pathOf(address, key);
    const scope = { keys, region, now: now() };
    return `${origin}${path}?${presignQuery({ method, host, path, query, headers }, expiresInSeconds, scope)}`;
  }

  async #sendOnce(request: S3Request): Promise<Answer> {
    const { egress, address, keys, region, sending, toolName, now } = this.#options;
    const { method, key = "", query = [], body, afterwards = false } = request;
    const path = pathOf(address, key);
    const unsigned: readonly Pair[] = [
      ...(request.headers ?? []),
      ...(body === undefined ? [] : [["content-md5", md5Base64(body)] as const]),
    ];
    const headers = signRequest({ method, host: address.host, path, query, headers: unsigned }, sha256Hex(body ?? ""), {
      keys,
      region,
      now: now() + this.#skewMs,
    });
    const { signal: _signal, ...withoutSignal } = sending;
    const response = await egress.request({
      ...(afterwards ? { ...withoutSignal, timeoutMs: afterwardsMs } : sending),
      method,
      url: `${address.origin}${path}${query.length === 0 ? "" : `?${encodeQuery(query)}`}`,
      // Stores that compress on the way would change what the length and the tag say.
      headers: [...headers, ["accept-encoding", "identity"], ["user-agent", "toolyard"]],
      ...(body === undefined ? {} : { body }),
      peer: toolName,
    });
    const isDone = response.status >= 200 && response.status < 300;
    return isDone ? { response } : { refusal: await readRefusal(response) };
  }
}

export type Answer =
  | { readonly response: EgressResponse; readonly refusal?: undefined }
  | { readonly response?: undefined; readonly refusal: S3Refusal };

function md5Base64(body: Uint8Array): string {
  return createHash("md5").update(body).digest("base64");
}

/** Reads an answer that says nothing more, so that its connection can be used again. */
export async function discard({ body }: EgressResponse): Promise<void> {
  await readAtMost(body, 16_384);
}
