/**
 * What a document is, by what it holds and what it is called; what it holds counts, since names and types are
 * somebody's word. Text is read in the charset that it is in.
 */
import { TextDecoder } from "node:util";
import { GatewayError } from "../errors/gateway-error.ts";
import { filesOfZip } from "../zip.ts";

export type DocumentKind = "pdf" | "docx" | "html" | "markdown" | "csv" | "json" | "text";

interface KindSpec {
  readonly mediaType: string;
  readonly mediaTypes: readonly string[];
  readonly extensions: readonly string[];
}

const docxType = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";

const kinds: Readonly<Record<DocumentKind, KindSpec>> = {
  pdf: { mediaType: "application/pdf", mediaTypes: ["application/pdf", "application/x-pdf"], extensions: ["pdf"] },
  docx: { mediaType: docxType, mediaTypes: [docxType], extensions: ["docx"] },
  html: {
    mediaType: "text/html",
    mediaTypes: ["text/html", "application/xhtml+xml"],
    extensions: ["html", "htm", "xhtml"],
  },
  markdown: {
    mediaType: "text/markdown",
    mediaTypes: ["text/markdown", "text/x-markdown"],
    extensions: ["md", "markdown"],
  },
  csv: {
    mediaType: "text/csv",
    mediaTypes: ["text/csv", "text/tab-separated-values"],
    extensions: ["csv", "tsv"],
  },
  json: {
    mediaType: "application/json",
    mediaTypes: ["application/json", "application/x-ndjson"],
    extensions: ["json", "jsonl", "ndjson"],
  },
  text: { mediaType: "text/plain", mediaTypes: [], extensions: [] },
};

export interface KnownDocument {
  readonly kind: DocumentKind;
  readonly mediaType: string;
}

/** Beginnings of files that are no text and of no kind that is read. */
const others: readonly (readonly [start: readonly number[], what: string])[] = [
  [[0xd0, 0xcf, 0x11, 0xe0], "a file of an older Office (save it as .docx)"],
  [[0x89, 0x50, 0x4e, 0x47], "a PNG picture"],
  [[0xff, 0xd8, 0xff], "a JPEG picture"],
  [[0x47, 0x49, 0x46, 0x38], "a GIF picture"],
  [[0x1f, 0x8b], "a gzip file"],
  [[0x52, 0x61, 0x72, 0x21], "a RAR archive"],
  [[0x37, 0x7a, 0xbc, 0xaf], "a 7-Zip archive"],
  [[0x7b, 0x5c, 0x72, 0x74, 0x66], "an RTF file (save it as .docx)"],
];
const pdfWithin = 1_024;
const docxFiles = 5_000;
const docxBytes = 134_217_728;

/** @throws GatewayError `document_unreadable` for what is no document of a kind that is read, or not of the one it says */
export async function kindOf(
  bytes: Uint8Array,
  { name, mediaType }: { readonly name: string; readonly mediaType: string },
): Promise<KnownDocument> {
  const said = saidKind(name, mediaType);
  const held = await heldKind(bytes);
  if (held !== undefined) return { kind: held, mediaType: kinds[held].mediaType };
  if (said === "pdf" || said === "docx") {
    throw unreadable(`it is said to be ${said.toUpperCase()} and is none; it may be cut off or damaged`);
  }
  const kind = said === undefined && looksLikeHtml(bytes) ? "html" : (said ?? "text");
  const given = essenceOf(mediaType);
  const isPlain = kind === "text" && given.startsWith("text/");
  return { kind, mediaType: isPlain ? given : kinds[kind].mediaType };
}

/** Kinds in whose text headings are as in Markdown. */
export function hasHeadings(mediaType: string): boolean {
  const kind = saidKind("", mediaType);
  return kind === "markdown" || kind === "html" || kind === "docx";
}

async function heldKind(bytes: Uint8Array): Promise<"pdf" | "docx" | undefined> {
  const start = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(pdfWithin, bytes.byteLength));
  if (start.includes("%PDF-")) return "pdf";
  if (start.length >= 4 && start.readUInt32LE(0) === 0x04034b50) {
    await refuseOtherZip(bytes);
    return "docx";
  }
  for (const [first, what] of others) {
    if (first.every((byte, at) => start[at] === byte)) throw unreadable(`it is ${what}`);
  }
  return undefined;
}

/** All of it is unpacked once, within limits: what is said of its sizes may be a lie. */
async function refuseOtherZip(bytes: Uint8Array): Promise<void> {
  let isDocx = false;
  try {
    const limits = { files: docxFiles, bytes: docxBytes, param: "document" };
    for await (const { path } of filesOfZip(bytes, limits)) isDocx ||= path === "word/document.xml";
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    throw new GatewayError("document_unreadable", `The document cannot be read as DOCX: ${error.message}`, {
      cause: error,
    });
  }
  if (!isDocx) throw unreadable("it is a zip archive that is no DOCX (it has no word/document.xml)");
}

function saidKind(name: string, mediaType: string): DocumentKind | undefined {
  const essence = essenceOf(mediaType);
  const extension = /\.([a-z0-9]{1,10})$/i.exec(name)?.[1]?.toLowerCase() ?? "";
  const entries = Object.entries(kinds) as readonly (readonly [DocumentKind, KindSpec])[];
  // `text/plain` and `application/octet-stream` are what is said where nothing is known.
  const byType = entries.find(([, { mediaTypes }]) => mediaTypes.includes(essence));
  const byName = entries.find(([, { extensions }]) => extensions.includes(extension));
  return (byType ?? byName)?.[0];
}

function essenceOf(mediaType: string): string {
  return mediaType.split(";", 1)[0]?.trim().toLowerCase() ?? "";
}

function looksLikeHtml(bytes: Uint8Array): boolean {
  const start = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(pdfWithin, bytes.byteLength)).toString("latin1");
  return /^\s*(?:<!doctype html|<html[\s>])/i.test(start);
}

const strictUtf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Text in UTF-8, in UTF-16 with its mark, or in GB 18030, which much of what is written in Chinese is in.
 * @throws GatewayError `document_unreadable` for what is no text
 */
export function decodeDocument(bytes: Uint8Array, mediaType: string): string {
  const charset = /charset\s*=\s*"?([\w.:-]{1,40})/i.exec(mediaType)?.[1];
  const marked = markedCharset(bytes);
  if (marked === undefined && bytes.includes(0)) throw unreadable("it holds bytes that no text has");
  for (const label of [marked, charset, "utf-8", "gb18030"]) {
    const text = label === undefined ? undefined : decodeAs(bytes, label);
    if (text !== undefined) return text;
  }
  throw unreadable("it is no text in UTF-8, UTF-16 or GB 18030");
}

function decodeAs(bytes: Uint8Array, label: string): string | undefined {
  try {
    return label === "utf-8" ? strictUtf8.decode(bytes) : new TextDecoder(label, { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

function markedCharset(bytes: Uint8Array): string | undefined {
  const [first, second] = bytes;
  if (first === 0xff && second === 0xfe) return "utf-16le";
  return first === 0xfe && second === 0xff ? "utf-16be" : undefined;
}

export function unreadable(why: string): GatewayError {
  return new GatewayError("document_unreadable", `The document cannot be read: ${why}.`);
}
