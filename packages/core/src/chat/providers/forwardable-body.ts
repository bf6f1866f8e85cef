/**
 * A request's own bytes for the back end, where they say just what is to be sent (design "original bytes
 * forwarded where nothing changes"): a long conversation is then neither written anew nor copied.
 */
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";

/** The request of a client as it came. */
export class OriginalRequest {
  /** Parsed from `bytes`. */
  readonly body: JsonObject;
  #bytes: Uint8Array | undefined;

  constructor(bytes: Uint8Array, body: JsonObject) {
    this.#bytes = bytes;
    this.body = body;
  }

  /** Undefined once they were let go of: what is sent then is written. */
  get bytes(): Uint8Array | undefined {
    return this.#bytes;
  }

  /** A back end has begun to answer, which may take minutes, and the conversation may be long. */
  letGo(): void {
    this.#bytes = undefined;
  }
}

const openingBrace = 0x7b;
const asksForUsage = Buffer.from(`,"stream_options":{"include_usage":true}}`);

/**
 * @param sent what is to be sent; made of the very values of `original.body` where it was not changed
 * @returns undefined where `sent` has to be written
 */
export function forwardableBody(original: OriginalRequest, sent: JsonObject): Uint8Array | undefined {
  const { body, bytes: given } = original;
  if (given === undefined) return undefined;
  const bytes = Buffer.from(given.buffer, given.byteOffset, given.byteLength);
  if (bytes[0] !== openingBrace || !keepsAll(body, sent)) return undefined;
  const added = Object.keys(sent).filter((key) => !Object.hasOwn(body, key));
  if (added.length > 1 || !saysOneModel(bytes)) return undefined;
  if (added.length === 0) return bytes;
  if (added[0] !== "stream_options" || !isUsageOnly(sent["stream_options"])) return undefined;
  return Buffer.concat([bytes.subarray(0, bytes.lastIndexOf("}")), asksForUsage]);
}

/** All that came is to be sent as it came; a `false` for the stream may stay. */
function keepsAll(body: JsonObject, sent: JsonObject): boolean {
  for (const key in body) {
    const value = body[key];
    if (!isSame(value, sent[key]) && !(key === "stream" && value === false && sent[key] === undefined)) return false;
  }
  return true;
}

/** The same value, or a list of the same values. */
function isSame(value: JsonValue | undefined, other: JsonValue | undefined): boolean {
  if (value === other) return true;
  if (!Array.isArray(value) || !Array.isArray(other) || value.length !== other.length) return false;
  return value.every((part, at) => part === other[at]);
}

function isUsageOnly(options: JsonValue | undefined): boolean {
  return isJsonObject(options) && options["include_usage"] === true && Object.keys(options).length === 1;
}

/**
 * JSON may say a key twice, and whoever reads it chooses. The model decides on the price, so it must be
 * said once; what is spelled with escapes could say it unseen.
 */
function saysOneModel(bytes: Buffer): boolean {
  const first = bytes.indexOf('"model"');
  return first >= 0 && bytes.indexOf('"model"', first + 1) < 0 && bytes.indexOf("\\u") < 0;
}
