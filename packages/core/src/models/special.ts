/**
 * Models that are no chat models, by the tenant's word (VCP specification 9; VCP-17): neither preprocessing nor
 * the tool loop touches their requests. What all requests have applies to them too: who asks, limits, budgets,
 * the record.
 */
import { checkBody, type ChatRequest } from "../chat/schema.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import type { TenantSettings } from "../tenants/settings.ts";

/** What is asked of a model besides chats, as its route says it. */
/** Bytes of an answer of no chat that is kept for who asks again. */
export const largestKept = 67_108_864;

export const exchangePaths = { embeddings: "/embeddings", images: "/images/generations" } as const;
export type ModelExchange = keyof typeof exchangePaths;

/**
 * A chat with a model that makes pictures?
 * @throws GatewayError `invalid_request` for a model that makes vectors: it has no answer
 */
export function isImageChat(settings: TenantSettings, { model = settings.default_model }: ChatRequest): boolean {
  if (model === undefined) return false;
  if (settings.whitelist_embedding_models.includes(model)) {
    throw new GatewayError(
      "invalid_request",
      `'${model}' is an embedding model (setting 'whitelist_embedding_models'), which answers no chat; ask it with POST /v1/embeddings.`,
      { param: "model" },
    );
  }
  return settings.whitelist_image_models.includes(model);
}

/** The request with what makes such a model answer with pictures. */
export function forImageModel(request: ChatRequest): ChatRequest {
  const own = request.passthrough["generationConfig"];
  const generationConfig: JsonObject = {
    ...(isJsonObject(own) ? own : {}),
    responseModalities: ["TEXT", "IMAGE"],
    responseMimeType: "text/plain",
  };
  const { parallel_tool_calls: _withoutTools, ...passed } = request.passthrough;
  return { ...request, manual: true, passthrough: { ...passed, generationConfig } };
}

/** The field that says what is asked for. */
const askedIn = { embeddings: "input", images: "prompt" } as const satisfies Record<ModelExchange, string>;

/**
 * A request for vectors or pictures, in the form of a chat: what is asked for is its one message, which only
 * estimates read.
 * @throws GatewayError `invalid_request`
 */
export function parseExchange(body: unknown, exchange: ModelExchange): ChatRequest {
  checkBody(body);
  const { model, stream, ...passthrough } = body;
  if (model !== undefined && model !== null && (typeof model !== "string" || model === "")) {
    throw new GatewayError("invalid_request", "Body field 'model' must be the name of a model.", { param: "model" });
  }
  const asked = body["input"] ?? body["prompt"];
  if (asked === undefined || asked === null) {
    const param = askedIn[exchange];
    throw new GatewayError("invalid_request", `Body field '${param}' is required.`, { param });
  }
  return {
    model: typeof model === "string" ? model : undefined,
    messages: [{ role: "user", content: typeof asked === "string" ? asked : JSON.stringify(asked) }],
    tools: [],
    clientToolNames: new Set(),
    toolChoice: undefined,
    stream: stream === true,
    includeUsage: false,
    choices: 1,
    sessionId: undefined,
    manual: true,
    failOnToolError: false,
    runtimeConfig: undefined,
    clientRequestId: undefined,
    toolProtocol: undefined,
    passthrough: stream === undefined ? passthrough : { ...passthrough, stream },
  };
}
