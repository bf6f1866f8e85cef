/**
 * What a call came to, as the result of `tools/call` (MCP-3): the texts that a model reads, pictures and sounds
 * as what they are, JSON as a value too, and failures with their catalogued code, so that a model can do better.
 */
import type { CallError } from "../calls/call.ts";
import type { OpenResult } from "../calls/result-store.ts";
import { isJsonObject, parseJson, parseKeepingDigits, type JsonObject, type JsonValue } from "../json.ts";
import { partsMediaType } from "../mcp/call-result.ts";
import { rpcCodes } from "../mcp/revisions.ts";
import { describedValue } from "../mcp/wrapped-result.ts";
import { readAll } from "../ports/blob-store.ts";
import { textForModel, type CompletedOutcome, type ToolOutcome } from "../tools/outcome.ts";
import { RpcFault } from "./fault.ts";
import { asDescribed, asRefusal } from "./output-schema.ts";
import type { Peer } from "./peer.ts";

export interface ReplyOptions {
  readonly callId: string;
  readonly peer: Pick<Peer, "era" | "revision">;
  readonly publicUrl: string;
  /** That the client was given for the tool's results. */
  readonly outputSchema?: JsonObject | undefined;
  /** Characters of text that a model is given. */
  readonly mostText: number;
  /** The whole result, where the outcome is only its head; undefined: it is no longer there. */
  readonly open: () => Promise<OpenResult | undefined>;
}

/** Bytes of pictures and sounds that stand in an answer; what is larger is linked. */
const mostInline = 4_194_304;

/**
 * An error of the protocol rather than one of a tool: ours, or what another MCP server has answered with. That
 * arguments are wrong is for the model to read, whoever says it.
 */
export function protocolFault({ code, message, details }: CallError): RpcFault | undefined {
  if (code === "internal_error") return new RpcFault(rpcCodes.internalError, message);
  const given = details?.["rpc_code"];
  if (typeof given !== "number" || given === rpcCodes.invalidParams) return undefined;
  // What these codes say holds between that server and us.
  const isReserved = given <= -32_000 && given >= -32_099;
  return new RpcFault(isReserved ? rpcCodes.internalError : Math.trunc(given), message);
}

/** @throws RpcFault where a tool failed by an error of the protocol */
export async function toCallReply(outcome: ToolOutcome, options: ReplyOptions): Promise<JsonObject> {
  const { outputSchema } = options;
  if (outcome.kind === "completed") return asDescribed(await toCompletedReply(outcome, options), outputSchema);
  const fault = outcome.kind === "failed" ? protocolFault(outcome) : undefined;
  if (fault !== undefined) throw fault;
  const text = textForModel(outcome);
  const told = parseJson(text);
  const failed = outcome.kind !== "pending";
  const reply = {
    content: [{ type: "text", text }],
    ...(isJsonObject(told) ? { structuredContent: withCall(told, options.callId) } : {}),
    ...(failed ? { isError: true } : {}),
  };
  return asRefusal(reply, outputSchema);
}

/** What is refused before it is a call has none. */
function withCall(told: JsonObject, callId: string): JsonObject {
  const { error } = told;
  return isJsonObject(error) && callId !== "" ? { error: { ...error, call_id: callId } } : told;
}

async function toCompletedReply(outcome: CompletedOutcome, options: ReplyOptions): Promise<JsonObject> {
  const { text, mediaType, handle } = outcome;
  const isDescribed = options.outputSchema !== undefined;
  const head: JsonObject = { type: "text", text };
  // A tool whose results are described may give its JSON as a text.
  if (handle === undefined) {
    return { content: [head], ...(isJson(mediaType) || isDescribed ? readStructured(text, options, mediaType) : {}) };
  }
  const link = linkTo(handle, options);
  const kind = /^(image|audio)\//.exec(mediaType)?.[1];
  const isWanted = mediaType === partsMediaType || kind !== undefined || isDescribed;
  if (!isWanted || handle.bytes > mostInline) return { content: [head, ...link] };
  const opened = await options.open();
  if (opened === undefined) return { content: [head] };
  const bytes = Buffer.from(await readAll(opened.body));
  if (kind !== undefined) {
    return { content: [{ type: kind, data: bytes.toString("base64"), mimeType: mediaType }, ...link] };
  }
  // What a model reads of it is cut; a program has been promised the whole where it is described.
  const read = mediaType === partsMediaType ? readParts : readStructured;
  return { content: [head, ...link], ...read(bytes.toString("utf8"), options, mediaType) };
}

function isJson(mediaType: string): boolean {
  return /^application\/(?:[\w.+-]+\+)?json\b/.test(mediaType);
}

/** A value for clients that read values. */
function readStructured(text: string, { peer, outputSchema }: ReplyOptions, mediaType: string): JsonObject {
  const value = describedValue(text, { mediaType, schema: outputSchema });
  return mayBeTold(value, peer) ? { structuredContent: value } : {};
}

/** Until 2025-11-25 only objects may be structured content. */
function mayBeTold(value: JsonValue | undefined, { era }: ReplyOptions["peer"]): value is JsonValue {
  return value !== undefined && (era === "stateless" || isJsonObject(value));
}

/** Where the whole is, for whoever has the key; kinds of content that a revision does not know break its clients. */
function linkTo(
  { bytes, mediaType }: NonNullable<CompletedOutcome["handle"]>,
  { callId, publicUrl, peer }: ReplyOptions,
): JsonObject[] {
  if (peer.revision < "2025-06-18") return [];
  const [essence = mediaType] = mediaType.split(";", 1);
  const uri = `${publicUrl}/v1/calls/${callId}/result`;
  return [
    {
      type: "resource_link",
      uri,
      name: callId,
      description: "The whole result; needs the same key.",
      mimeType: essence,
      size: bytes,
    },
  ];
}

/** What another MCP server has answered, part by part. */
function readParts(text: string, { mostText, peer, outputSchema }: ReplyOptions): JsonObject {
  const whole = parseKeepingDigits(text);
  if (!isJsonObject(whole) || !Array.isArray(whole["content"])) return {};
  const { content, structuredContent } = whole;
  const parts = content.map((part) => toPart(part, peer));
  const length = parts.reduce((sum, part) => sum + (typeof part["text"] === "string" ? part["text"].length : 0), 0);
  const structured = mayBeTold(structuredContent, peer) ? { structuredContent } : {};
  // Longer than what models are given at once: the head and the handle stand for it.
  if (length > mostText) return outputSchema === undefined ? {} : structured;
  return { content: parts, ...structured };
}

function toPart(part: JsonValue, { revision }: ReplyOptions["peer"]): JsonObject {
  return isJsonObject(part) && isKnownPart(part, revision) ? part : { type: "text", text: JSON.stringify(part) };
}

function isKnownPart({ type, text, data, mimeType, resource, uri, name }: JsonObject, revision: string): boolean {
  const isMedia = typeof data === "string" && typeof mimeType === "string";
  if (type === "text") return typeof text === "string";
  if (type === "image") return isMedia;
  if (type === "audio") return isMedia && revision >= "2025-03-26";
  if (type === "resource") return isJsonObject(resource) && typeof resource["uri"] === "string";
  const isLink = typeof uri === "string" && typeof name === "string";
  return type === "resource_link" && isLink && revision >= "2025-06-18";
}
