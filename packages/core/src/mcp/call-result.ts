/**
 * What `tools/call` gave, as a reply for the dispatcher (MCP-3). Text stays as it is; one picture is its
 * bytes; where kinds are mixed the model reads the texts and what else there is, and the whole is kept
 * behind the handle. A tool that says that it failed has failed, in its own words.
 */
import { isDeepStrictEqual } from "node:util";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "../json.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { Redactor } from "../secrets/redactor.ts";
import type { ToolReply } from "../tools/tool-call.ts";
import { checkValue } from "../tools/arguments.ts";
import { sayWrapped, toUnwrappedReply, wrappedIn } from "./wrapped-result.ts";

/** Of results that are kept as `tools/call` gave them; back ends cannot say it, for parameters of their types are dropped. */
export const partsMediaType = "application/json; profile=mcp-result";

export interface ResultOptions {
  /** Of the tool, for messages. */
  readonly toolName: string;
  readonly outputSchema: JsonObject | undefined;
  /** Of the call. What is cut is redacted before: half of a secret is known to nobody. */
  readonly redactor: Redactor;
}

/** @throws GatewayError `tool_failed`, answered: `isError`, or a structured result that does not fit its schema */
export function toToolReply(result: JsonObject, options: ResultOptions): ToolReply {
  const { toolName, outputSchema, redactor } = options;
  const parts = (Array.isArray(result["content"]) ? result["content"] : []).map((part) => readPart(part, redactor));
  const structured = result["structuredContent"];
  // The tool's own words first: a schema is for results that are some.
  if (result["isError"] === true) throw toToolError(options, parts, structured);
  if (structured === undefined) return toPartsReply(parts, result);
  if (outputSchema !== undefined) requireFit(toolName, outputSchema, structured);
  return toUnwrapped(parts, structured, outputSchema) ?? toStructuredReply(parts, structured, result);
}

type Part =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "bytes"; readonly mediaType: string; readonly bytes: Uint8Array; readonly text: string }
  /** Shown to the model by a line; clients that know it may want it as it is. */
  | { readonly kind: "resource"; readonly text: string }
  | { readonly kind: "other"; readonly text: string };

const mediaTypePattern = /^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}$/i;

function readPart(part: JsonValue, redactor: Redactor): Part {
  if (!isJsonObject(part)) return other(JSON.stringify(part));
  const kind = textOf(part["type"]);
  switch (kind) {
    case "text":
      return { kind: "text", text: textOf(part["text"]) };
    case "image":
    case "audio":
      return readBytes(kind, part["data"], part["mimeType"]);
    case "resource":
      return readResource(isJsonObject(part["resource"]) ? part["resource"] : {});
    case "resource_link":
      return { kind: "resource", text: `[resource link: ${describeResource(part)}]` };
    default:
      return other(redactor.redact(JSON.stringify(part)).slice(0, longestUnknown));
  }
}

/** Characters of a kind of content that is not known; the whole is kept. */
const longestUnknown = 2_048;

function readResource(resource: JsonObject): Part {
  const { text, blob, mimeType } = resource;
  const what = `resource ${describeResource(resource)}`;
  if (typeof blob === "string") return readBytes(what, blob, mimeType);
  return { kind: "resource", text: `[${what}]\n${textOf(text)}` };
}

function describeResource({ uri, name, title, description, mimeType }: JsonObject): string {
  const label = textOf(title ?? name);
  const type = typeof mimeType === "string" ? ` (${mimeType})` : "";
  const about = typeof description === "string" ? `: ${description}` : "";
  return `${label === "" ? "" : `${label} `}${textOf(uri)}${type}${about}`;
}

function readBytes(what: string, data: JsonValue | undefined, mimeType: JsonValue | undefined): Part {
  const mediaType = typeof mimeType === "string" && mediaTypePattern.test(mimeType) ? mimeType : unknownType;
  const base64 = typeof data === "string" ? data.replaceAll(/\s/g, "") : "";
  if (base64 === "" || !/^[A-Za-z0-9+/_-]*={0,2}$/.test(base64)) {
    return other(`[${what}: ${mediaType}, its data cannot be read]`);
  }
  const bytes = Buffer.from(base64, "base64");
  return { kind: "bytes", mediaType, bytes, text: `[${what}: ${mediaType}, ${bytes.byteLength} bytes]` };
}

const unknownType = "application/octet-stream";

function textOf(value: JsonValue | undefined): string {
  return typeof value === "string" ? value : "";
}

function other(text: string): Part {
  return { kind: "other", text };
}

function toPartsReply(parts: readonly Part[], result: JsonObject): ToolReply {
  const [only] = parts;
  if (parts.length === 1 && only?.kind === "bytes") return { mediaType: only.mediaType, body: only.bytes };
  const text = joined(parts);
  if (parts.every(({ kind }) => kind === "text" || kind === "other")) return { mediaType: "text/plain", body: text };
  return {
    mediaType: partsMediaType,
    body: JSON.stringify(wholeOf(result)),
    forModel: text,
    pictures: countPictures(parts),
  };
}

function toUnwrapped(
  parts: readonly Part[],
  structured: JsonValue,
  schema: JsonObject | undefined,
): ToolReply | undefined {
  const texts = textsOf(parts);
  return texts.length === parts.length ? toUnwrappedReply(texts, structured, schema) : undefined;
}

function textsOf(parts: readonly Part[]): readonly string[] {
  return parts.flatMap((part) => (part.kind === "text" ? [part.text] : []));
}

function toStructuredReply(parts: readonly Part[], structured: JsonValue, result: JsonObject): ToolReply {
  const [only] = parts;
  const isJson = { mediaType: "application/json" };
  if (only === undefined) return { ...isJson, body: JSON.stringify(structured) };
  if (parts.length === 1 && only.kind === "text" && isDeepStrictEqual(parseJson(only.text), structured)) {
    // As the server wrote it: reading has rounded its long numbers.
    return { ...isJson, body: only.text };
  }
  const text = repeats(parts, structured, result["content"])
    ? joined(parts)
    : `${joined(parts)}\n${JSON.stringify(structured)}`;
  return {
    mediaType: partsMediaType,
    body: JSON.stringify(wholeOf(result)),
    forModel: text,
    pictures: countPictures(parts),
  };
}

function countPictures(parts: readonly Part[]): number {
  return parts.filter((part) => part.kind === "bytes" && part.mediaType.startsWith("image/")).length;
}

/** Whether what is structured is said by the parts, too, or is nothing else than one of them, or all. */
function repeats(parts: readonly Part[], structured: JsonValue, content: JsonValue | undefined): boolean {
  const texts = textsOf(parts);
  if (texts.some((text) => isDeepStrictEqual(parseJson(text), structured)) || sayWrapped(texts, structured))
    return true;
  const given = withoutNulls(wrappedIn(structured) ?? structured);
  const whole = withoutNulls(content ?? []);
  return isDeepStrictEqual(given, whole) || isDeepStrictEqual([given], whole);
}

/** Some write what a part does not have as null where it is structured. */
function withoutNulls(value: JsonValue): JsonValue {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (!isJsonObject(value)) return value;
  const entries = Object.entries(value).filter(([, member]) => member !== null);
  return Object.fromEntries(entries.map(([name, member]) => [name, withoutNulls(member)]));
}

function joined(parts: readonly Part[]): string {
  return parts.map(({ text }) => text).join("\n");
}

/** What the tool gave; what the protocol needs stays behind. */
function wholeOf({ content = [], structuredContent }: JsonObject): JsonObject {
  return { content, ...(structuredContent === undefined ? {} : { structuredContent }) };
}

/** Characters of a tool's words that an error repeats. */
const longestError = 8_192;

function toToolError(
  { toolName, redactor }: ResultOptions,
  parts: readonly Part[],
  structured: JsonValue | undefined,
): GatewayError {
  const text = redactor.redact(joined(parts)).slice(0, longestError);
  const words = text === "" ? "it gave no reason" : text;
  return failed(`'${toolName}' failed: ${words}`, {
    tool_error: true,
    ...(structured === undefined || JSON.stringify(structured).length > longestError
      ? {}
      : { structured_content: structured }),
  });
}

function requireFit(toolName: string, schema: JsonObject, structured: JsonValue): void {
  const errors = checkValue(schema, structured);
  if (errors.length === 0) return;
  const list = errors.map(({ pointer, message }) => `${pointer === "" ? "the result" : pointer}: ${message}`);
  throw failed(
    `'${toolName}' was carried out, but its structured result does not fit the schema that it has for results: ${list.join("; ")}`,
    { schema_mismatch: true },
  );
}

function failed(message: string, extra: JsonObject): GatewayError {
  return withDelivery(new GatewayError("tool_failed", message, { extra }), "answered");
}
