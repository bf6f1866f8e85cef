/** Text of a document: read here where it is text, else by the reader that is made for its format. */
import { GatewayError } from "../errors/gateway-error.ts";
import type { DocumentReader } from "../ports/document-reader.ts";
import { decodeDocument, kindOf, unreadable, type KnownDocument } from "./kind.ts";

const readWithinMs = 60_000;
const mostPages = 5_000;

export interface ExtractOptions {
  readonly name: string;
  /** As it was given. */
  readonly mediaType: string;
  readonly maxCharacters: number;
  readonly signal: AbortSignal;
  readonly reader: DocumentReader | undefined;
}

export interface Extracted {
  readonly text: string;
  readonly mediaType: string;
}

/** @throws GatewayError `document_unreadable`, `document_too_large`; `call_cancelled` */
export async function extractText(bytes: Uint8Array, options: ExtractOptions): Promise<Extracted> {
  const known = await kindOf(bytes, options);
  const read = await readText(bytes, known, options);
  const text = tidy(read);
  if (text.trim() === "") {
    throw unreadable(
      known.kind === "pdf" ? "it has no text; pages that are pictures have to go through OCR first" : "it has no text",
    );
  }
  if (text.length > options.maxCharacters) {
    throw new GatewayError(
      "document_too_large",
      `The document has ${text.length} characters of text; this tenant reads ${options.maxCharacters} of one ('knowledge_document_characters').`,
    );
  }
  return { text, mediaType: known.mediaType };
}

async function readText(bytes: Uint8Array, { kind }: KnownDocument, options: ExtractOptions): Promise<string> {
  if (kind !== "pdf" && kind !== "docx" && kind !== "html") return decodeDocument(bytes, options.mediaType);
  const { reader, maxCharacters, signal } = options;
  if (reader === undefined) throw unreadable(`this gateway has no reader for ${kind.toUpperCase()}`);
  const given = kind === "html" ? Buffer.from(decodeHtml(bytes, options.mediaType)) : bytes;
  return reader.read(kind, given, { timeoutMs: readWithinMs, signal, maxCharacters, maxPages: mostPages });
}

/** Pages say their charset themselves, where nobody else does. */
function decodeHtml(bytes: Uint8Array, mediaType: string): string {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.byteLength, 1_024)).toString("latin1");
  const own = /<meta[^>]{0,200}?charset\s*=\s*["']?([\w.:-]{1,40})/i.exec(head)?.[1];
  const hasCharset = /charset/i.test(mediaType) || own === undefined;
  return decodeDocument(bytes, hasCharset ? mediaType : `${mediaType}; charset=${own}`);
}

/** One kind of line end; halves of characters and what no text has are made visible. */
function tidy(text: string): string {
  return text.replaceAll(/\r\n?/g, "\n").replaceAll("\u0000", "\uFFFD").toWellFormed();
}
