/** Bodies of unknown length, of which no more than so much is read. */

/** Reads no further than it has to; the connection is closed where there is more. */
export async function readAtMost(
  body: AsyncIterable<Uint8Array>,
  maxBytes: number,
): Promise<{ readonly bytes: Uint8Array; readonly isWhole: boolean }> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of body) {
    pieces.push(piece);
    size += piece.byteLength;
    if (size > maxBytes) return { bytes: Buffer.concat(pieces, maxBytes), isWhole: false };
  }
  const [only] = pieces;
  return { bytes: pieces.length === 1 && only !== undefined ? only : Buffer.concat(pieces, size), isWhole: true };
}

/**
 * The whole of a body.
 * @param tooLarge what is thrown where it has more bytes than `most`; the connection is closed
 */
export async function readWithin(
  body: AsyncIterable<Uint8Array>,
  most: number,
  tooLarge: () => Error,
): Promise<Buffer> {
  const { bytes, isWhole } = await readAtMost(body, most);
  if (!isWhole) throw tooLarge();
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
