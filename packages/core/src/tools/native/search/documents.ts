/**
 * What a search has found, whatever the form of its result: lists of things with a title, an address and a text; or a
 * text. Everything in it was written by others.
 */
import type { DocumentReader } from "../../../ports/document-reader.ts";
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "../../../json.ts";

export interface Finding {
  readonly title: string;
  readonly url: string | undefined;
  readonly text: string;
}

const titles = ["title", "name", "headline", "document_name", "subject"];
const urls = ["url", "link", "href", "uri", "source_url"];
const texts = [
  "text",
  "content",
  "snippet",
  "body",
  "summary",
  "description",
  "abstract",
  "passage",
  "markdown",
  "raw_content",
];
const deepest = 6;
const mostFindings = 20;

export function findingsOf(text: string, toolName: string): readonly Finding[] {
  const value = parseJson(text);
  const found = value === undefined ? [] : collect(value, 0);
  if (found.length > 0) return found.slice(0, mostFindings);
  return text.trim() === "" ? [] : [{ title: toolName, url: undefined, text }];
}

function collect(value: JsonValue, depth: number): readonly Finding[] {
  if (depth > deepest) return [];
  if (Array.isArray(value))
    return value.flatMap((part) => (isJsonObject(part) ? toFindings(part, depth) : collect(part, depth + 1)));
  if (!isJsonObject(value)) return [];
  return Object.values(value).flatMap((part) => collect(part, depth + 1));
}

function toFindings(item: JsonObject, depth: number): readonly Finding[] {
  const text = first(item, texts) ?? "";
  const url = first(item, urls);
  const title = first(item, titles);
  if (text === "" && (title === undefined || url === undefined)) {
    return Object.values(item).flatMap((part) => collect(part, depth + 1));
  }
  return [{ title: title ?? url ?? text.slice(0, 80), url: url !== undefined && isWeb(url) ? url : undefined, text }];
}

function first(item: JsonObject, names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = item[name];
    if (typeof value === "string" && value.trim() !== "") return value;
  }
  return undefined;
}

function isWeb(url: string): boolean {
  return /^https?:\/\//i.test(url) && URL.canParse(url);
}

const pageLimits = { timeoutMs: 20_000, maxCharacters: 1_000_000, maxPages: 1 };

/** A page as the text that a reader sees. @throws GatewayError where it cannot be read */
export async function pageText(
  documents: DocumentReader | undefined,
  { text, mediaType }: { readonly text: string; readonly mediaType: string },
  signal: AbortSignal,
): Promise<string> {
  const isHtml = /html/i.test(mediaType) || /^\s*<(?:!doctype html|html)\b/i.test(text);
  if (!isHtml || documents === undefined) return text;
  return documents.read("html", Buffer.from(text), { ...pageLimits, signal });
}
