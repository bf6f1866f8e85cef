/**
 * Results that are no objects (MCP-3). Until 2025-11-25 structured content has to be one, so servers in Python and C#
 * wrap a text, a number or a list: `{"result": 3}`, beside the text `3`. A model reads the result; clients that were
 * given the schema get it wrapped again.
 */
import { isDeepStrictEqual } from "node:util";
import { isJsonObject, parseJson, parseKeepingDigits, type JsonObject, type JsonValue } from "../json.ts";
import type { ToolReply } from "../tools/tool-call.ts";
import { checkValue } from "../tools/arguments.ts";

const wrapper = "result";

/** What is wrapped; undefined: the result is an object of its own. */
export function wrappedIn(structured: JsonValue): JsonValue | undefined {
  return isJsonObject(structured) && Object.keys(structured).length === 1 ? structured[wrapper] : undefined;
}

/**
 * What is wrapped, in the server's own words where its texts say just that. Undefined where they do not, or where it could
 * not be wrapped again.
 */
export function toUnwrappedReply(
  texts: readonly string[],
  structured: JsonValue,
  schema: JsonObject | undefined,
): ToolReply | undefined {
  const value = wrappedIn(structured);
  if (value === undefined || schema === undefined) return undefined;
  const reply = replyOf(texts, value);
  if (reply === undefined) return undefined;
  const again = describedValue(reply.body, { mediaType: reply.mediaType, schema });
  return isDeepStrictEqual(plain(again), structured) ? reply : undefined;
}

function replyOf(texts: readonly string[], value: JsonValue): { mediaType: string; body: string } | undefined {
  const [only] = texts;
  if (texts.length === 1 && only !== undefined && says(only, value)) {
    return { mediaType: typeof value === "string" ? "text/plain" : "application/json", body: only };
  }
  if (saysEach(texts, value)) return { mediaType: "application/json", body: `[${texts.map(toItem(value)).join(",")}]` };
  return texts.length === 0 && value === null ? { mediaType: "application/json", body: "null" } : undefined;
}

/** Whether a text is what is wrapped, or each of them an item of it. */
export function sayWrapped(texts: readonly string[], structured: JsonValue): boolean {
  const value = wrappedIn(structured);
  return value !== undefined && (saysEach(texts, value) || texts.some((text) => says(text, value)));
}

function says(text: string, value: JsonValue | undefined): boolean {
  return text === value || (typeof value !== "string" && isDeepStrictEqual(parseJson(text), value));
}

function saysEach(texts: readonly string[], value: JsonValue): value is JsonValue[] {
  return Array.isArray(value) && value.length === texts.length && texts.every((text, at) => says(text, value[at]));
}

/** As the server wrote it, unless it is a text that has to be quoted. */
function toItem(items: readonly JsonValue[]): (text: string, at: number) => string {
  return (text, at) => (typeof items[at] === "string" ? JSON.stringify(text) : text);
}

/** The structured content that a result stands for; undefined where it is no JSON and no wrapped text. */
export function describedValue(
  text: string,
  { mediaType, schema }: { readonly mediaType: string; readonly schema: JsonObject | undefined },
): JsonValue | undefined {
  const value = parseKeepingDigits(text);
  if (schema === undefined || !wraps(schema) || fits(schema, value)) return value;
  const wrapped = { [wrapper]: mediaType === "text/plain" || value === undefined ? text : value };
  return fits(schema, wrapped) ? wrapped : value;
}

function wraps({ properties }: JsonObject): boolean {
  return isJsonObject(properties) && Object.keys(properties).join() === wrapper;
}

function fits(schema: JsonObject, value: JsonValue | undefined): boolean {
  const read = plain(value);
  return read !== undefined && checkValue(schema, read).length === 0;
}

/** Numbers that keep their digits are checked and compared as what they are to readers. */
function plain(value: JsonValue | undefined): JsonValue | undefined {
  return value === undefined ? undefined : parseJson(JSON.stringify(value));
}
