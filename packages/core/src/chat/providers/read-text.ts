/** The text of a body, up to about the limit; more is not read. */
export async function readText(body: AsyncIterable<Uint8Array>, limit: number): Promise<string> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const read of body) {
    parts.push(read);
    length += read.byteLength;
    if (length >= limit) break;
  }
  return new TextDecoder().decode(Buffer.concat(parts));
}
