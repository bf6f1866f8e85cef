/** The key under which a request counts once, however often it is sent. */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { headerOf, type AppContext } from "./app-env.ts";

export const idempotencyKeyPattern = /^[\x21-\x7e]{1,255}$/;

/** @throws GatewayError `invalid_request` for a key that is empty, too long or not plain text */
export function readIdempotencyKey(c: AppContext): string | undefined {
  const key = headerOf(c, "idempotency-key")?.trim();
  if (key === undefined) return undefined;
  if (!idempotencyKeyPattern.test(key)) {
    throw new GatewayError("invalid_request", "'Idempotency-Key' must be 1 to 255 visible ASCII characters.", {
      param: "Idempotency-Key",
    });
  }
  return key;
}

/** Headers of an answer that an earlier request with the same key was given; undefined: it is the first. */
export function replayHeaders(replayed: boolean): { readonly "idempotent-replayed": "true" } | undefined {
  return replayed ? { "idempotent-replayed": "true" } : undefined;
}
