/**
 * Text of a reply in whatever charset it came (BLIND-8). A byte order mark beats the header, the
 * header beats what the document says of itself, and an unknown name falls back to UTF-8.
 */
import { TextDecoder } from "node:util";

/** Where documents name their charset themselves. */
const prescanBytes = 1_024;

export interface ContentType {
  /** Lower case, without parameters; empty where there is none. */
  readonly essence: string;
  readonly charset: string | undefined;
}

/** RFC 9110 section 8.3: case does not matter, the charset may be quoted. */
export function parseContentType(header: string | undefined): ContentType {
  const [type = "", ...parameters] = (header ?? "").split(";");
  for (const parameter of parameters) {
    const match = /^\s*charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s]*))\s*$/i.exec(parameter);
    const charset = match?.[1] ?? match?.[2] ?? match?.[3];
    if (charset !== undefined && charset !== "") return { essence: type.trim().toLowerCase(), charset };
  }
  return { essence: type.trim().toLowerCase(), charset: undefined };
}

export function decodeText(bytes: Uint8Array, type: ContentType): string {
  const label = markedCharset(bytes) ?? type.charset ?? documentCharset(bytes, type.essence) ?? "utf-8";
  // The decoder drops the byte order mark.
  return decoderFor(label).decode(bytes);
}

function decoderFor(label: string): TextDecoder {
  try {
    return new TextDecoder(label);
  } catch {
    return new TextDecoder("utf-8");
  }
}

function markedCharset(bytes: Uint8Array): string | undefined {
  const [first, second, third] = bytes;
  if (first === 0xef && second === 0xbb && third === 0xbf) return "utf-8";
  if (first === 0xff && second === 0xfe) return "utf-16le";
  if (first === 0xfe && second === 0xff) return "utf-16be";
  return undefined;
}

/** `<meta charset=gbk>` or `<?xml encoding="gbk"?>`, which older pages rely on. */
function documentCharset(bytes: Uint8Array, essence: string): string | undefined {
  if (!/\b(?:html|xml)\b/.test(essence)) return undefined;
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.byteLength, prescanBytes)).toString("latin1");
  return (
    /<meta[^>]{0,200}?charset\s*=\s*["']?([\w.:-]{1,40})/i.exec(head)?.[1] ??
    /^<\?xml[^>]{0,200}?encoding=["']([\w.:-]{1,40})/i.exec(head)?.[1]
  );
}

/** Is this the text of a reply that does not say what it is? */
export function looksLikeText(bytes: Uint8Array): boolean {
  if (markedCharset(bytes) !== undefined) return true;
  if (bytes.includes(0)) return false;
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}
