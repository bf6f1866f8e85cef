/**
 * What becomes of a back end's reply (BLIND-8). Text of any charset reaches the model as text, JSON
 * byte for byte, so that no big integer is rounded; bytes stay bytes; an error status is an error with
 * status and body; a body beyond the cap is refused while it is being read.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonValue } from "../json.ts";
import type { EgressResponse } from "../ports/egress.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { ToolReply } from "../tools/tool-call.ts";
import { decodeText, looksLikeText, parseContentType, type ContentType } from "./charset.ts";
import { readAtMost } from "../read-body.ts";

/** Characters of an error's body: enough to see what the back end did not like. */
const errorBodyLength = 8_192;
/** Read of an error's body: more than is shown, since half of a secret would not be found. */
const errorReadBytes = errorBodyLength + 65_536;

export interface ReplyOptions {
  /** The tenant's `result_max_bytes`. */
  readonly maxBytes: number;
  readonly toolName: string;
  /** Takes secrets out of what a back end echoes in an error. */
  readonly redact: (text: string) => string;
}

/**
 * @throws GatewayError `tool_failed` for a status other than 2xx, `tool_output_too_large`; both `answered`
 */
export async function decodeReply(response: EgressResponse, options: ReplyOptions): Promise<ToolReply> {
  if (response.status < 200 || response.status > 299) throw await toStatusError(response, options);
  const type = parseContentType(oneHeader(response, "content-type"));
  const length = Number(oneHeader(response, "content-length") ?? 0);
  if (length > options.maxBytes) {
    await leave(response.body);
    throw tooLarge(response, options);
  }
  const { bytes, isWhole } = await readAtMost(response.body, options.maxBytes);
  if (!isWhole) throw tooLarge(response, options);
  return toReply(bytes, type);
}

function toReply(bytes: Uint8Array, type: ContentType): ToolReply {
  // Nothing is no JSON, whatever the header says.
  if (bytes.byteLength === 0) return { mediaType: "text/plain", body: "" };
  if (type.essence === "") {
    return looksLikeText(bytes)
      ? { mediaType: "text/plain", body: decodeText(bytes, type) }
      : { mediaType: "application/octet-stream", body: bytes };
  }
  return { mediaType: type.essence, body: isTextType(type) ? decodeText(bytes, type) : bytes };
}

/** A charset says that there are characters, whatever the type is. */
function isTextType({ essence, charset }: ContentType): boolean {
  return (
    charset !== undefined ||
    essence.startsWith("text/") ||
    /^application\/(?:.*\+)?(?:json|xml|yaml)$/.test(essence) ||
    /^application\/(?:x-)?(?:javascript|ecmascript|ndjson|json-seq|jsonlines|yaml|graphql|www-form-urlencoded|sql|xhtml)$/.test(
      essence,
    ) ||
    essence === "image/svg+xml"
  );
}

async function toStatusError(response: EgressResponse, options: ReplyOptions): Promise<GatewayError> {
  const type = parseContentType(oneHeader(response, "content-type"));
  const { bytes, isWhole } = await readAtMost(response.body, errorReadBytes).catch(() => ({
    // The status is the answer; that its body broke off changes nothing.
    bytes: new Uint8Array(),
    isWhole: true,
  }));
  const isText = type.essence === "" ? looksLikeText(bytes) : isTextType(type);
  const whole = isText ? options.redact(decodeText(bytes, type)) : "";
  const isCut = !isWhole || whole.length > errorBodyLength;
  const text = isCut && whole !== "" ? `${whole.slice(0, errorBodyLength)}…` : whole;
  const retryAfterMs = parseRetryAfter(oneHeader(response, "retry-after"));
  const extra: Record<string, JsonValue> = { status: response.status, ...(text === "" ? {} : { body: text }) };
  const details = {
    toolName: options.toolName,
    extra,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  };
  const what = text === "" ? "" : `: ${shorten(text)}`;
  return withDelivery(
    new GatewayError("tool_failed", `'${options.toolName}' answered with status ${response.status}${what}`, details),
    "answered",
  );
}

function tooLarge(response: EgressResponse, { maxBytes, toolName }: ReplyOptions): GatewayError {
  return withDelivery(
    new GatewayError(
      "tool_output_too_large",
      `'${toolName}' answered with status ${response.status}, but its result is larger than ${maxBytes} bytes (setting 'result_max_bytes'); ask for less.`,
      { toolName, extra: { status: response.status } },
    ),
    "answered",
  );
}

/** What is still to come is not read. */
export async function leave(body: AsyncIterable<Uint8Array>): Promise<void> {
  await body[Symbol.asyncIterator]().return?.();
}

function oneHeader(response: EgressResponse, name: string): string | undefined {
  const value = response.headers[name];
  return typeof value === "string" || value === undefined ? value : value[0];
}

/** Seconds or a date. */
export function parseRetryAfter(value: string | undefined, now: number = Date.now()): number | undefined {
  if (value === undefined) return undefined;
  if (/^\d{1,8}$/.test(value.trim())) return Number(value) * 1_000;
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}

function shorten(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > 300 ? `${line.slice(0, 300)}…` : line;
}
