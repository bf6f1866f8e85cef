/**
 * The chat request (chat specification, "请求格式"; CHAT-1, CHAT-20): what we own is checked, the rest
 * goes through untouched. Nulls and an empty `tools` mean absent.
 */
import * as z from "zod";
import { runtimeConfigField } from "../blind/runtime-config.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { schemaProblem } from "../errors/schema-problems.ts";
import { knowledgeField } from "../knowledge/asked.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { mostToolCalls } from "./providers/tool-call-assembly.ts";

/** Our own fields; they do not reach the model back end. */
const extensions = [
  "session_id",
  "tool_execution",
  "tool_protocol",
  "on_tool_error",
  "runtime_config",
  "requestId",
  "messageId",
  "vcpchatExtensions",
  "contextTokenLimit",
  "knowledge",
] as const;

/**
 * Of one request, whose messages may have as many calls each as a turn. Far more than a model reads or a back end
 * takes; each piece costs all tenants of a process some time, and a body has room for millions of them.
 */
const mostFields = 1_000;
const mostMessages = 10_000;
const mostParts = 1_000;
/** Parts and calls of all messages. */
const mostPieces = 50_000;
const mostTools = 1_024;

export const sessionIdSchema = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,128}$/, "may hold letters, digits, '_' and '-', 128 at most");

const messageSchema = z.looseObject({
  role: z.enum(["system", "developer", "user", "assistant", "tool", "function"]),
  content: z.union([z.string(), z.null(), z.array(z.looseObject({ type: z.string() })).max(mostParts)]).optional(),
  tool_call_id: z.string().min(1).nullish(),
  tool_calls: z
    .array(z.looseObject({ id: z.string().min(1), type: z.string().optional() }))
    .max(mostToolCalls)
    .nullish(),
});

const clientToolSchema = z.looseObject({
  type: z.string(),
  function: z.looseObject({ name: z.string().min(1).max(256) }).optional(),
});

const toolChoiceSchema = z.union([
  z.enum(["auto", "none", "required"]),
  z.looseObject({
    type: z.string(),
    function: z.looseObject({ name: z.string().min(1) }).optional(),
    allowed_tools: z
      .looseObject({ mode: z.enum(["auto", "required"]), tools: z.array(clientToolSchema).max(mostTools) })
      .optional()
      .describe(
        "With type `allowed_tools`: the only tools that the model may call, those of the gateway by their names, too.",
      ),
  }),
]);

/** Documented in OpenAPI; parsed by `parseChatRequest`. */
export const chatRequestSchema = z.looseObject({
  model: z
    .string()
    .min(1)
    .optional()
    .describe("Omitted: the setting 'default_model', else the first of the tenant's models; reported in the answer."),
  messages: z.array(messageSchema).min(1, "must hold at least one message").max(mostMessages),
  tools: z
    .array(clientToolSchema)
    .max(mostTools)
    .optional()
    .describe("Tools that the client runs itself, beside the gateway's own."),
  tool_choice: toolChoiceSchema.optional(),
  stream: z.boolean().optional(),
  stream_options: z.looseObject({ include_usage: z.boolean().optional() }).optional(),
  n: z.int().min(1).max(128).optional(),
  temperature: z.number().optional(),
  max_tokens: z.int().min(1).optional(),
  session_id: sessionIdSchema
    .optional()
    .describe("Workspace of the file tools; results that come late are given to the session's next request."),
  tool_execution: z
    .enum(["auto", "manual"])
    .optional()
    .describe("`manual`: every tool call is returned to the client."),
  tool_protocol: z
    .enum(["openai", "vcp"])
    .optional()
    .describe("How the model asks for tools: by function calls, or, in `vcp`, by blocks in its text."),
  on_tool_error: z
    .enum(["result", "fail"])
    .optional()
    .describe("`fail`: a failed tool ends the request instead of being told to the model."),
  runtime_config: runtimeConfigField,
  requestId: z.string().max(256).optional().describe("Names this request for `POST /v1/interrupt`."),
  messageId: z.string().max(256).optional().describe("Like `requestId`."),
  vcpchatExtensions: z.looseObject({}).optional().describe("For message preprocessors of VCP plugins."),
  knowledge: knowledgeField,
  contextTokenLimit: z
    .int()
    .min(1)
    .optional()
    .describe("In VCP's protocol: older messages are left out until the conversation has about so many tokens."),
});

export type ToolProtocol = "openai" | "vcp";

export interface ChatRequest {
  readonly model: string | undefined;
  readonly messages: readonly JsonObject[];
  /** As given, to be passed on. */
  readonly tools: readonly JsonObject[];
  readonly clientToolNames: ReadonlySet<string>;
  readonly toolChoice: JsonValue | undefined;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly choices: number;
  readonly sessionId: string | undefined;
  readonly manual: boolean;
  /** As the request says; undefined: it does not. */
  readonly toolProtocol: ToolProtocol | undefined;
  readonly failOnToolError: boolean;
  /** As given; `parseRuntimeConfig` reads it. */
  readonly runtimeConfig: unknown;
  /** For plugins that work on the messages. */
  readonly vcpExtensions?: JsonObject | undefined;
  /** As the request says. */
  readonly knowledge?: z.output<typeof knowledgeField>;
  /** Tokens that the conversation may have. */
  readonly contextTokens?: number | undefined;
  /** Name given by the client for interrupting. */
  readonly clientRequestId: string | undefined;
  /** Everything that goes upstream but model, messages, tools, tool_choice and stream. */
  readonly passthrough: JsonObject;
}

/** @throws GatewayError `invalid_request` or `invalid_conversation`, naming `param` */
export function parseChatRequest(body: unknown): ChatRequest {
  checkBody(body);
  const given = withoutNulls(body);
  refuseOlderForm(given);
  checkExtent(given);
  const parsed = chatRequestSchema.safeParse(given);
  if (!parsed.success) {
    const { path, says } = schemaProblem(parsed.error);
    throw invalid(`'${pathOf(path)}' ${says}.`, pathOf(path));
  }
  const request = parsed.data;
  const tools = (given["tools"] ?? []) as JsonObject[];
  const messages = (given["messages"] as JsonObject[]).map(withoutEmptyFields);
  const clientToolNames = checkToolNames(tools);
  checkToolChoice(given["tool_choice"]);
  checkConversation(messages);
  return {
    model: request.model,
    messages,
    tools,
    clientToolNames,
    toolChoice: given["tool_choice"],
    stream: request.stream ?? false,
    includeUsage: request.stream_options?.include_usage ?? false,
    choices: request.n ?? 1,
    sessionId: request.session_id,
    manual: request.tool_execution === "manual",
    toolProtocol: request.tool_protocol,
    failOnToolError: request.on_tool_error === "fail",
    runtimeConfig: request.runtime_config,
    vcpExtensions: isJsonObject(given["vcpchatExtensions"]) ? given["vcpchatExtensions"] : undefined,
    knowledge: request.knowledge,
    contextTokens: request.contextTokenLimit,
    clientRequestId: request.requestId ?? request.messageId,
    passthrough: passthroughOf(given),
  };
}

/** @throws GatewayError `invalid_request` for what is no object, or one with fields that nobody can mean */
export function checkBody(body: unknown): asserts body is JsonObject {
  if (!isJsonObject(body)) throw invalid("The body must be a JSON object.", null);
  if (Object.keys(body).length > mostFields) {
    throw invalid(`The body may have ${mostFields} fields at most; send fewer.`, null);
  }
}

function withoutNulls(body: JsonObject): JsonObject {
  const result: JsonObject = {};
  for (const [key, value] of Object.entries(body)) {
    if (value === null || (key === "tools" && Array.isArray(value) && value.length === 0)) continue;
    result[key] = value;
  }
  // Where the client lists none it says nothing, and what the gateway offers need not be put together anew.
  if (result["tools"] === undefined && result["tool_choice"] === "auto") delete result["tool_choice"];
  return result;
}

/**
 * OpenAI's form before `tools`: a call of such a function could not be told from one of a tool that nobody has. What
 * offers nothing, or chooses among nothing, is taken for absent.
 */
function refuseOlderForm(given: JsonObject): void {
  const { functions, function_call: choice } = given;
  if (functions !== undefined && !(Array.isArray(functions) && functions.length === 0)) {
    throw invalid(
      '\'functions\' is not taken; name them in \'tools\', as {"type": "function", "function": {…}}.',
      "functions",
    );
  }
  if (choice !== undefined && choice !== "auto" && choice !== "none") {
    throw invalid("'function_call' is not taken; use 'tools' and 'tool_choice'.", "function_call");
  }
}

/** A schema looks at what is in a list before it looks at how long the list is. */
function checkExtent({ messages, tools }: JsonObject): void {
  if (lengthOf(tools) > mostTools) throw tooMany("tools", mostTools, "tools");
  if (!Array.isArray(messages)) return;
  if (messages.length > mostMessages) throw tooMany("messages", mostMessages, "messages");
  let pieces = 0;
  for (const [at, message] of messages.entries()) {
    if (!isJsonObject(message)) continue;
    const parts = lengthOf(message["content"]);
    if (parts > mostParts) throw tooMany(`messages[${at}].content`, mostParts, "parts");
    const calls = lengthOf(message["tool_calls"]);
    if (calls > mostToolCalls) throw tooMany(`messages[${at}].tool_calls`, mostToolCalls, "calls");
    pieces += parts + calls;
  }
  if (pieces > mostPieces) throw tooMany("messages", mostPieces, "parts and calls");
}

function lengthOf(list: JsonValue | undefined): number {
  return Array.isArray(list) ? list.length : 0;
}

function tooMany(param: string, most: number, what: string): GatewayError {
  return invalid(`'${param}' may hold ${most} ${what} at most; send fewer.`, param);
}

/**
 * Frameworks send back `tool_calls: []` or null with an answer that had none, and what writes every field writes a
 * `tool_call_id` of null beside the other roles. Back ends refuse them.
 */
function withoutEmptyFields(message: JsonObject): JsonObject {
  const calls = message["tool_calls"];
  const empty = ["tool_calls", "function_call", "tool_call_id"].filter((field) => message[field] === null);
  if (Array.isArray(calls) && calls.length === 0) empty.push("tool_calls");
  if (empty.length === 0) return message;
  return Object.fromEntries(Object.entries(message).filter(([field]) => !empty.includes(field)));
}

const owned = new Set<string>([
  "model",
  "messages",
  "tools",
  "tool_choice",
  "stream",
  "functions",
  "function_call",
  ...extensions,
]);

function passthroughOf(given: JsonObject): JsonObject {
  const passed: JsonObject = {};
  for (const [key, value] of Object.entries(given)) if (!owned.has(key)) passed[key] = value;
  return passed;
}

function checkToolNames(tools: readonly JsonObject[]): ReadonlySet<string> {
  const names = new Set<string>();
  tools.forEach((tool, at) => {
    const name = isJsonObject(tool["function"])
      ? tool["function"]["name"]
      : isJsonObject(tool["custom"])
        ? tool["custom"]["name"]
        : undefined;
    if (typeof name !== "string") {
      if (tool["type"] === "function")
        throw invalid(`tools[${at}].function.name: is required`, `tools[${at}].function.name`);
      return;
    }
    if (names.has(name))
      throw invalid(`tools[${at}].function.name: '${name}' is listed twice`, `tools[${at}].function.name`);
    names.add(name);
  });
  return names;
}

/** What a choice of such a type has to say, in the field that is called as the type. */
const saidByChoice: ReadonlyMap<JsonValue | undefined, string> = new Map([
  ["function", '{"name": …}'],
  ["custom", '{"name": …}'],
  ["allowed_tools", '{"mode": …, "tools": […]}'],
]);

/** One that does not say which tools it means would be taken for none, and allow all. */
function checkToolChoice(choice: JsonValue | undefined): void {
  if (!isJsonObject(choice)) return;
  const { type } = choice;
  const said = saidByChoice.get(type);
  if (typeof type !== "string" || said === undefined || isJsonObject(choice[type])) return;
  throw invalid(`'tool_choice.${type}' is required: {"type": "${type}", "${type}": ${said}}.`, `tool_choice.${type}`);
}

/** Every call is answered by one tool message before the conversation goes on. */
function checkConversation(messages: readonly JsonObject[]): void {
  let open = new Map<string, number>();
  messages.forEach((message, at) => {
    if (message["role"] === "tool") {
      const id = message["tool_call_id"];
      if (typeof id !== "string")
        throw conversation(
          `messages[${at}].tool_call_id: is required for a tool message`,
          `messages[${at}].tool_call_id`,
        );
      if (!open.delete(id)) {
        throw conversation(
          `messages[${at}].tool_call_id: '${id}' is not a call of the assistant message before it, or was answered already`,
          `messages[${at}].tool_call_id`,
        );
      }
      return;
    }
    refuseUnanswered(open);
    const ids = callIds(message);
    if (ids.length > 0) open = new Map(ids.map((id, call) => [id, at * 1_000 + call]));
  });
  refuseUnanswered(open);
}

function refuseUnanswered(open: ReadonlyMap<string, number>): void {
  for (const [id, place] of open) {
    const at = Math.floor(place / 1_000);
    throw conversation(
      `messages[${at}].tool_calls: call '${id}' is not answered; add a message with role 'tool' and this tool_call_id after it`,
      `messages[${at}].tool_calls`,
      [...open.keys()],
    );
  }
}

/** Ids of the calls in an assistant message. */
export function callIds(message: JsonObject): string[] {
  const calls = message["tool_calls"];
  if (!Array.isArray(calls) || message["role"] !== "assistant") return [];
  return calls.flatMap((call) => (isJsonObject(call) && typeof call["id"] === "string" ? [call["id"]] : []));
}

function pathOf(path: readonly PropertyKey[]): string {
  return (
    path
      .map((part, at) => (typeof part === "number" ? `[${part}]` : `${at === 0 ? "" : "."}${String(part)}`))
      .join("") || "body"
  );
}

function invalid(message: string, param: string | null): GatewayError {
  return new GatewayError("invalid_request", message, param === null ? {} : { param });
}

function conversation(message: string, param: string, unanswered?: readonly string[]): GatewayError {
  // `tool_turn_incomplete` where ids are known to be missing: the client can mend that by itself.
  return new GatewayError(unanswered === undefined ? "invalid_conversation" : "tool_turn_incomplete", message, {
    param,
    ...(unanswered === undefined ? {} : { extra: { missing_tool_call_ids: [...unanswered] } }),
  });
}
