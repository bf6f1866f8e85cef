/**
 * Replies that a back end compressed, as plain bytes. Output is produced only as fast as it is read,
 * in pieces of at most 64 KB, so a consumer that caps bytes is safe from a bomb.
 */
import type { Transform } from "node:stream";
import { pipeline } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate, createInflateRaw, createZstdDecompress } from "node:zlib";
import { GatewayError } from "../errors/gateway-error.ts";
import { withDelivery } from "../errors/delivery.ts";

/** What we ask back ends for. */
export const acceptedEncodings = "gzip, deflate, br";

const decoders: Readonly<Record<string, (first: Uint8Array) => Transform>> = {
  gzip: () => createGunzip(),
  "x-gzip": () => createGunzip(),
  // Some servers call the bare deflate format "deflate"; the zlib header tells them apart.
  deflate: (first) => (((first[0] ?? 0) & 0x0f) === 8 ? createInflate() : createInflateRaw()),
  br: () => createBrotliDecompress(),
  // Not asked for, but some send it all the same.
  zstd: () => createZstdDecompress(),
};

/** Codings nested deeper than this are no back end's habit. */
const deepest = 2;

/** Names of the codings to undo, innermost last; `undefined` where the body is to be read as it is. */
export function encodingsOf(header: string | readonly string[] | undefined): readonly string[] | undefined {
  if (header === undefined) return undefined;
  const names = (typeof header === "string" ? header : header.join(","))
    .toLowerCase()
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "" && name !== "identity");
  const known = names.length > 0 && names.length <= deepest && names.every((name) => Object.hasOwn(decoders, name));
  return known ? names.reverse() : undefined;
}

/** Leaving the result early, even before its first piece, leaves `source` early. */
export function decodeBody(source: AsyncIterable<Uint8Array>, encodings: readonly string[]): AsyncIterable<Uint8Array> {
  return encodings.reduce(decodeOne, source);
}

function decodeOne(source: AsyncIterable<Uint8Array>, encoding: string): AsyncIterable<Uint8Array> {
  return {
    [Symbol.asyncIterator]() {
      const compressed = source[Symbol.asyncIterator]();
      const plain = decode(compressed, encoding);
      return {
        next: () => plain.next(),
        // A generator that waits for its source, or has not begun, would not pass the leave on.
        async return() {
          await compressed.return?.();
          return plain.return();
        },
      };
    },
  };
}

async function* decode(source: AsyncIterator<Uint8Array>, encoding: string): AsyncGenerator<Uint8Array, void, void> {
  const first = await source.next();
  if (first.done === true) return;
  const decoder = decoders[encoding]?.(first.value);
  if (decoder === undefined) return;
  let cause: unknown;
  pipeline(replay(first.value, source), decoder, (error) => {
    cause = error;
  });
  try {
    for await (const piece of decoder) yield piece as Uint8Array;
  } catch (error) {
    // The source's own failure says more than the decoder that was cut off by it.
    for (const failure of [error, cause]) if (failure instanceof GatewayError) throw failure;
    throw withDelivery(
      new GatewayError("tool_failed", `The reply says 'content-encoding: ${encoding}' but does not decode as such.`, {
        cause: error,
      }),
      "uncertain",
    );
  } finally {
    decoder.destroy();
  }
}

async function* replay(first: Uint8Array, rest: AsyncIterator<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  yield first;
  for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value;
}
