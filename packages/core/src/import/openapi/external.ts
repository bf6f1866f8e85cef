/**
 * Documents that a document refers to (`allow_external_refs`). Only https addresses are loaded, and only
 * through the guarded door: a document is foreign input, and what it names is as foreign.
 */
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonValue } from "../../json.ts";
import { ownMember } from "../../tools/json-schema/document.ts";
import { importLimits } from "../limits.ts";
import { eachContainer } from "../walk.ts";
import { absoluteAddress } from "./document.ts";

export interface LoadOptions {
  /** Address of the main document. */
  readonly url: string | undefined;
  /** `undefined` where it cannot be had: what refers to it stays unresolved. */
  readonly load: (url: string) => Promise<{ readonly document: JsonValue; readonly bytes: number } | undefined>;
}

/**
 * All of them by address, what they in turn refer to included.
 * @throws GatewayError `invalid_request` for more or larger documents than the limits
 */
export async function loadExternalDocuments(
  root: JsonValue,
  options: LoadOptions,
): Promise<ReadonlyMap<string, JsonValue>> {
  const loaded = new Map<string, JsonValue>();
  const seen = new Set<string>();
  const waiting = [...externalAddresses(root, options.url)];
  let bytes = 0;
  for (let address = waiting.shift(); address !== undefined; address = waiting.shift()) {
    if (seen.has(address) || address === options.url) continue;
    seen.add(address);
    if (seen.size > importLimits.externalDocuments) {
      throw tooMuch(`more than ${importLimits.externalDocuments} other documents`);
    }
    const found = await options.load(address);
    if (found === undefined) continue;
    bytes += found.bytes;
    if (bytes > importLimits.externalBytes)
      throw tooMuch(`documents of more than ${importLimits.externalBytes} bytes in all`);
    loaded.set(address, found.document);
    waiting.push(...externalAddresses(found.document, address));
  }
  return loaded;
}

function externalAddresses(root: JsonValue, base: string | undefined): ReadonlySet<string> {
  const found = new Set<string>();
  for (const container of eachContainer(root, (key) => key.startsWith("x-"))) {
    const reference = isJsonObject(container) ? ownMember(container, "$ref") : undefined;
    if (typeof reference !== "string" || reference.startsWith("#")) continue;
    const address = absoluteAddress(reference, base);
    if (address?.startsWith("https:") === true) found.add(address);
  }
  return found;
}

function tooMuch(what: string): GatewayError {
  return new GatewayError("invalid_request", `The document refers to ${what}; bundle it into one file first.`, {
    param: "openapi",
  });
}
