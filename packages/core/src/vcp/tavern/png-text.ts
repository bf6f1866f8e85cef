/**
 * Texts in a PNG file: character cards are pictures that carry their JSON in a `tEXt` chunk. Nothing of the
 * picture itself is decoded.
 */
import { crc32 } from "node:zlib";
import { GatewayError } from "../../errors/gateway-error.ts";

const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
/** A picture may be cut into many; none that anybody uses has so many. */
const mostChunks = 100_000;

export function isPng(bytes: Uint8Array): boolean {
  return signature.equals(bytes.subarray(0, signature.length));
}

/**
 * The texts of the `tEXt` chunks by keyword; the first of a keyword counts.
 * @throws GatewayError `invalid_definition` for a file that is cut off or damaged
 */
export function pngTexts(bytes: Uint8Array): ReadonlyMap<string, string> {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (!isPng(file)) throw damaged("it is no PNG file");
  const texts = new Map<string, string>();
  let at = signature.length;
  for (let count = 0; at < file.length; count += 1) {
    if (count > mostChunks) throw damaged("it has too many parts");
    if (at + 12 > file.length) throw damaged("it is cut off");
    const length = file.readUInt32BE(at);
    const end = at + 8 + length;
    if (end + 4 > file.length) throw damaged("it is cut off");
    const type = file.toString("latin1", at + 4, at + 8);
    if (type === "tEXt") {
      if (crc32(file.subarray(at + 4, end)) !== file.readUInt32BE(end)) throw damaged("a text in it is damaged");
      keepText(texts, file.subarray(at + 8, end));
    }
    if (type === "IEND") return texts;
    at = end + 4;
  }
  throw damaged("it is cut off");
}

function keepText(texts: Map<string, string>, chunk: Buffer): void {
  const separator = chunk.indexOf(0);
  if (separator < 1 || separator > 79) return;
  const keyword = chunk.toString("latin1", 0, separator).toLowerCase();
  if (!texts.has(keyword)) texts.set(keyword, chunk.toString("latin1", separator + 1));
}

function damaged(why: string): GatewayError {
  return new GatewayError("invalid_definition", `The picture cannot be read: ${why}.`, { param: "body" });
}
