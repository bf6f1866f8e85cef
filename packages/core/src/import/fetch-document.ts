/** Fetches a document through the guarded door: addresses are checked there, at every redirect again. */
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonValue } from "../json.ts";
import type { Egress } from "../ports/egress.ts";
import { importLimits } from "./limits.ts";
import { readDocumentText } from "./read-text.ts";
import { readWithin } from "../read-body.ts";

export interface FetchedDocument {
  readonly document: JsonValue;
  /** Where it came from after redirects. */
  readonly url: string;
  readonly bytes: number;
}

export interface FetchOptions {
  readonly egress: Egress;
  /** Field that names the address, for errors. */
  readonly param: string;
  readonly signal?: AbortSignal | undefined;
}

const maxRedirects = 3;

/**
 * @throws GatewayError `egress_denied`, `tool_unreachable`, `tool_timeout`, `invalid_request` for what is
 * no document or too large
 */
export async function fetchDocument(url: string, { egress, param, signal }: FetchOptions): Promise<FetchedDocument> {
  const response = await egress.request({
    method: "GET",
    url,
    headers: [
      ["accept", "application/json, application/yaml;q=0.9, text/*;q=0.5, */*;q=0.1"],
      ["user-agent", "toolyard"],
    ],
    timeoutMs: importLimits.fetchMs,
    maxRedirects,
    ...(signal === undefined ? {} : { signal }),
  });
  const bytes = await readWithin(response.body, importLimits.documentBytes, () => tooLarge(param));
  const { host } = new URL(response.url);
  if (response.status >= 500) {
    throw new GatewayError(
      "tool_unreachable",
      `'${host}' answered ${response.status} for the address in '${param}'; try again later.`,
      { param },
    );
  }
  if (response.status !== 200) {
    throw new GatewayError(
      "invalid_request",
      `'${host}' answered ${response.status} for the address in '${param}'; it needs to be readable without credentials.`,
      { param },
    );
  }
  return { document: await readDocumentText(decode(bytes, param), param), url: response.url, bytes: bytes.length };
}

function tooLarge(param: string): GatewayError {
  const message = `The document at '${param}' is larger than ${importLimits.documentBytes} bytes.`;
  return new GatewayError("payload_too_large", message, { param });
}

function decode(bytes: Buffer, param: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new GatewayError("invalid_request", `The document at '${param}' is not UTF-8 text.`, { param, cause });
  }
}
