/** The models that a back end lists. */
import { isJsonObject, parseJson } from "../../json.ts";
import type { Egress } from "../../ports/egress.ts";
import { endpoint, proofOf } from "./openai-endpoint.ts";
import { readFailure, toProviderError } from "./openai-error.ts";
import type { ModelListRequest } from "./provider.ts";
import { readText } from "./read-text.ts";

const maximumListBytes = 8 * 1024 * 1024;

/** A list of models is asked for while somebody waits for a page. */
const listTimeoutMs = 5_000;

export async function listModels(
  egress: Egress,
  { provider, apiKey, signal, span }: ModelListRequest,
): Promise<readonly string[]> {
  const headers: [string, string][] = [["accept", "application/json"]];
  if (apiKey !== undefined) headers.push(...proofOf(apiKey, provider));
  const timeoutMs = Math.min(provider.timeoutMs, listTimeoutMs);
  const url = endpoint(provider, "/models");
  const request = { method: "GET", url, headers, signal, timeoutMs, span };
  const { status, headers: received, body } = await egress.request(request);
  const text = await readText(body, maximumListBytes);
  if (status < 200 || status >= 300) {
    const failure = readFailure(status, received, text);
    throw toProviderError(failure, { provider, apiKey, model: "*", beforeFirstByte: true });
  }
  const parsed = parseJson(text);
  // Together's list is not wrapped in anything.
  const data = isJsonObject(parsed) ? parsed["data"] : parsed;
  if (!Array.isArray(data)) return [];
  return data.flatMap((entry) => (isJsonObject(entry) && typeof entry["id"] === "string" ? [entry["id"]] : []));
}
