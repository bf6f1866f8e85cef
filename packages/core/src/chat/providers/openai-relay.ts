/** Requests whose answers pass as they are: vectors, pictures, and whatever else is no chat. */
import { GatewayError, toGatewayError } from "../../errors/gateway-error.ts";
import type { Egress, EgressResponse } from "../../ports/egress.ts";
import { redactPieces } from "../../secrets/redact-pieces.ts";
import { Redactor } from "../../secrets/redactor.ts";
import { endpoint, isRealKey, proofOf, sensitiveHeaders } from "./openai-endpoint.ts";
import { maximumErrorBytes, readFailure, toProviderError } from "./openai-error.ts";
import type { RelayRequest } from "./provider.ts";
import { readText } from "./read-text.ts";

export async function relay(egress: Egress, request: RelayRequest): Promise<EgressResponse> {
  const { provider, apiKey, model, signal, span } = request;
  const headers: [string, string][] = [
    ["content-type", "application/json"],
    ["accept", request.accept],
  ];
  if (apiKey !== undefined) headers.push(...proofOf(apiKey, provider));
  const url = endpoint(provider, request.path);
  const { timeoutMs } = provider;
  let response: EgressResponse;
  try {
    const { bytes: body } = request;
    response = await egress.request({ method: "POST", url, headers, body, signal, timeoutMs, sensitiveHeaders, span });
  } catch (thrown) {
    throw toUnanswered(thrown, request);
  }
  if (response.status >= 200 && response.status < 300) return withoutKey(response, apiKey);
  const text = await readText(response.body, maximumErrorBytes).catch(() => "");
  const failure = readFailure(response.status, response.headers, text);
  throw toProviderError(failure, { provider, apiKey, model, beforeFirstByte: true });
}

/** The request did not get an answer's head. */
function toUnanswered(thrown: unknown, { provider, signal }: RelayRequest): GatewayError {
  if (signal.aborted) {
    if (signal.reason instanceof GatewayError) return signal.reason;
    return new GatewayError("request_cancelled", "The request was cancelled.", { cause: thrown });
  }
  const error = toGatewayError(thrown);
  const code = error.code === "egress_denied" ? "provider_failed" : "provider_unavailable";
  if (code === "provider_unavailable" && error.code !== "tool_unreachable" && error.code !== "tool_timeout")
    return error;
  const extra = {
    provider: provider.name,
    before_first_byte: true,
    ...(error.code === "tool_timeout" ? { timed_out: true } : {}),
  };
  return new GatewayError(code, `Provider '${provider.name}' cannot be asked: ${error.message}`, {
    extra,
    cause: thrown,
  });
}

/** As `#withoutKey` of chats, for bytes that pass. */
function withoutKey(response: EgressResponse, apiKey: string | undefined): EgressResponse {
  if (apiKey === undefined) return response;
  const redactor = new Redactor();
  redactor.add(`Bearer ${apiKey}`);
  if (isRealKey(apiKey)) redactor.add(apiKey);
  const isEvents = String(response.headers["content-type"]).startsWith("text/event-stream");
  return { ...response, body: redactPieces(response.body, { redactor, isEvents }) };
}
