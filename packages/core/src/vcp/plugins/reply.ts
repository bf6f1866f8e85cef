/**
 * A plugin's outcome as the dispatcher takes it (VCP-4). The body is the result object as upstream shows it to
 * models; where there is more than text, the model reads the texts and the whole is kept.
 */
import { GatewayError, type ErrorDetails } from "../../errors/gateway-error.ts";
import type { ErrorCode } from "../../errors/catalog.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { ToolReply } from "../../tools/tool-call.ts";
import type { FailedOutcome, RejectedOutcome } from "../../tools/outcome.ts";
import { prettyJson } from "../pretty-json.ts";
import type { VcpFailure, VcpOutcome, VcpSuccess } from "./outcome.ts";

/** Of results with parts: `{content: [...], …}`, kept whole. */
export const partsMediaType = "application/json; profile=vcp-result";

/** @throws GatewayError `tool_failed`, `tool_timeout`, `tool_output_too_large`, `tool_unreachable`, `call_cancelled` */
export function toToolReply(name: string, outcome: VcpOutcome): ToolReply {
  if (outcome.kind === "error") throw toGatewayError(name, outcome);
  const parts = partsOf(outcome);
  const body = prettyJson(wholeOf(outcome, parts));
  if (parts === undefined) return { mediaType: "application/json", body };
  const pictures = parts.filter((part) => pictureOfPart(part) !== undefined).length;
  const forModel = parts.map(describePart).join("\n");
  return { mediaType: partsMediaType, body, forModel, pictures };
}

/** Parts as chat messages have them; undefined where the value itself is what there is to say. */
function partsOf({ value, messageForAI, base64 }: VcpSuccess): readonly JsonObject[] | undefined {
  const content = contentOf(value);
  if (messageForAI === undefined && base64 === undefined) return content;
  const words = messageForAI ?? (content === undefined ? prettyJson(value) : undefined);
  return [
    ...(words === undefined ? [] : [{ type: "text", text: words }]),
    ...(content ?? []),
    ...(base64 === undefined ? [] : [filePart(base64)]),
  ];
}

/** `content`, or `data.content`, where it is a list of parts. */
export function contentOf(value: JsonValue): readonly JsonObject[] | undefined {
  if (!isJsonObject(value)) return undefined;
  const { content, data } = value;
  const list = Array.isArray(content) ? content : isJsonObject(data) ? data["content"] : undefined;
  return Array.isArray(list) ? list.filter(isJsonObject) : undefined;
}

function wholeOf({ value, messageForAI, base64 }: VcpSuccess, parts: readonly JsonObject[] | undefined): JsonValue {
  if (messageForAI === undefined && base64 === undefined) return value;
  const whole = isJsonObject(value) ? value : { result: value };
  return { ...whole, ...(messageForAI === undefined ? {} : { messageForAI }), content: [...(parts ?? [])] };
}

/** First bytes, as base64 begins with them. */
const imageTypes = [
  ["iVBORw0KGgo", "image/png"],
  ["/9j/", "image/jpeg"],
  ["R0lGOD", "image/gif"],
  ["UklGR", "image/webp"],
] as const;

/** What the specification calls `base64`: a data URI says what it is, bare text is looked at. */
function filePart(base64: string): JsonObject {
  const known = imageTypes.find(([start]) => base64.startsWith(start))?.[1];
  const url = base64.startsWith("data:") ? base64 : `data:${known ?? "application/octet-stream"};base64,${base64}`;
  if (url.startsWith("data:image/")) return { type: "image_url", image_url: { url } };
  return { type: "file", file: { filename: "result", file_data: url } };
}

/** In words, for whoever does not get the part itself. */
export function describePart(part: JsonObject): string {
  const { type, text } = part;
  if (type === "text" && typeof text === "string") return text;
  const data = dataOfPart(part);
  // A list that is called `content` may be of anything.
  if (data === undefined) return JSON.stringify(part);
  const [, mediaType] = /^data:([\w.+-]+\/[\w.+-]+)/.exec(data) ?? [];
  const bytes = `, ${Buffer.byteLength(data.slice(data.indexOf(",") + 1), "base64")} bytes`;
  const kind = typeof type === "string" ? type.replace(/_url$/, "") : "part";
  if (!data.startsWith("data:")) return `[${kind}: ${data}]`;
  return `[${kind}${mediaType === undefined ? "" : `: ${mediaType}`}${bytes}]`;
}

/** What a part holds or names: a data URI, or an address. */
export function dataOfPart(part: JsonObject): string | undefined {
  const { type, image_url: image, ...rest } = part;
  const place = image ?? (typeof type === "string" ? rest[type] : undefined);
  if (typeof place === "string") return place;
  const named = isJsonObject(place)
    ? [place["url"], place["file_data"], place["data"]].find((value) => typeof value === "string")
    : undefined;
  return named ?? embeddedIn(part);
}

/** Bytes as MCP has them in its parts, and Anthropic, which plugins hand on as they got them; as a data URI. */
function embeddedIn(part: JsonObject): string | undefined {
  for (const holder of [part, part["source"], part["resource"]]) {
    if (!isJsonObject(holder)) continue;
    const { data, blob, mimeType, media_type: mediaType = mimeType } = holder;
    const isNamed = typeof mediaType === "string";
    const base64 = isNamed ? (blob ?? data) : blob;
    if (typeof base64 === "string") return `data:${isNamed ? mediaType : "application/octet-stream"};base64,${base64}`;
  }
  return undefined;
}

/** Base64 of what may be a picture, whoever's form of a part it has. */
export function pictureOfPart(part: JsonObject): string | undefined {
  const { type, data, source, resource, image_url: image } = part;
  if (type === "image") return textOf(data) ?? textOf(isJsonObject(source) ? source["data"] : undefined);
  if (type === "resource" && isJsonObject(resource)) return textOf(resource["blob"]);
  if (type !== "image_url") return undefined;
  const url = textOf(isJsonObject(image) ? image["url"] : image) ?? "";
  return /^data:image\/[\w.+-]+;base64,/.test(url) ? url.slice(url.indexOf(",") + 1) : undefined;
}

function textOf(value: JsonValue | undefined): string | undefined {
  return typeof value === "string" ? value : undefined;
}

const codes = {
  said: "tool_failed",
  crashed: "tool_failed",
  timeout: "tool_timeout",
  output: "tool_output_too_large",
  not_started: "tool_unreachable",
  aborted: "call_cancelled",
} as const satisfies Record<VcpFailure["reason"], ErrorCode>;

/** Characters of an error that are carried on. */
const longestError = 16_384;

function toGatewayError(name: string, { error, reason, advice }: VcpFailure): GatewayError {
  const kept = boundedError(error);
  const details: ErrorDetails = { toolName: name, extra: { vcp_error: kept } };
  const hint = advice === undefined ? "" : ` (${advice})`;
  const failure = new GatewayError(codes[reason], `'${name}' failed: ${wordsOf(kept)}${hint}`, details);
  // A process that was ended is over, and so is what it could do: it has answered by its end.
  return withDelivery(failure, reason === "not_started" ? "not_sent" : reason === "aborted" ? "uncertain" : "answered");
}

function boundedError(error: JsonObject): JsonObject {
  if (JSON.stringify(error).length <= longestError) return error;
  const { result: _result, ...rest } = error;
  if (JSON.stringify(rest).length <= longestError) return rest;
  return { ...rest, plugin_error: wordsOf(error).slice(0, longestError) };
}

function wordsOf({ plugin_error: said, plugin_execution_error: crashed, messageForAI }: JsonObject): string {
  const words = messageForAI ?? said ?? crashed ?? "";
  return typeof words === "string" ? words : JSON.stringify(words);
}

/** The error object of upstream in an outcome of ours; undefined for errors that no plugin caused. */
export function vcpErrorOf({ details }: FailedOutcome | RejectedOutcome): JsonObject | undefined {
  const error = details?.["vcp_error"];
  return isJsonObject(error) ? error : undefined;
}
