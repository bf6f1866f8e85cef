/** Stored bytes as text and lines, streamed: memory does not grow with the file. */
import { isAscii } from "node:buffer";
import { TextDecoder } from "node:util";
import type { GatewayError } from "../../errors/gateway-error.ts";

export const encodings = ["utf-8", "gbk", "ascii"] as const;
export type Encoding = (typeof encodings)[number];

/** A line, or a piece of one that is longer than the reader takes at once. */
export interface LinePiece {
  /** From 1. */
  readonly line: number;
  /** Line breaks included, so that the pieces together are the text. */
  readonly text: string;
}

interface StreamDecoder {
  decode(part?: Uint8Array, options?: { readonly stream?: boolean }): string;
}

/** @param toError what to throw where the bytes are not text of this encoding */
export async function* decodeStrictly(
  body: AsyncIterable<Uint8Array>,
  encoding: Encoding,
  toError: (cause: unknown) => GatewayError,
): AsyncGenerator<string, void, void> {
  const decoder: StreamDecoder = encoding === "ascii" ? asciiDecoder : new TextDecoder(encoding, { fatal: true });
  try {
    for await (const part of body) yield decoder.decode(part, { stream: true });
    yield decoder.decode();
  } catch (error) {
    // What the decoders throw, by the Encoding Standard.
    if (error instanceof TypeError) throw toError(error);
    throw error;
  }
}

const asciiDecoder: StreamDecoder = {
  decode(part) {
    if (part === undefined) return "";
    if (!isAscii(part)) throw new TypeError("a byte above 127");
    return Buffer.from(part.buffer, part.byteOffset, part.byteLength).toString("latin1");
  },
};

/** Not within a character: each half alone is none, and has other bytes than its part of the whole. */
function pieceEnd(text: string, at: number, longest: number): number {
  const end = at + longest;
  const isWithin = end < text.length && longest > 1 && /[\uD800-\uDBFF]/.test(text.charAt(end - 1));
  return isWithin ? end - 1 : end;
}

/** @param longest characters of a piece */
export async function* linePieces(
  chunks: AsyncIterable<string>,
  longest: number,
): AsyncGenerator<LinePiece, void, void> {
  let rest = "";
  let line = 1;
  for await (const chunk of chunks) {
    const text = rest + chunk;
    let at = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", at)) {
      for (let to = pieceEnd(text, at, longest); to < end + 1; to = pieceEnd(text, at, longest)) {
        yield { line, text: text.slice(at, to) };
        at = to;
      }
      yield { line, text: text.slice(at, end + 1) };
      line += 1;
      at = end + 1;
    }
    for (let to = pieceEnd(text, at, longest); to < text.length; to = pieceEnd(text, at, longest)) {
      yield { line, text: text.slice(at, to) };
      at = to;
    }
    rest = text.slice(at);
  }
  if (rest !== "") yield { line, text: rest };
}
