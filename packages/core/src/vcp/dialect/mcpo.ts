/**
 * MCPO, the tool through which VCP prompts reach MCP servers (VCP-21): what asks for it finds the tenant's MCP tools,
 * or calls one. There is no second process: a call is the dispatcher's call of that tool. A tenant's own plugin of
 * the name comes before it.
 */
import type { CallContext } from "../../context.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, parseJsonExactly, type JsonObject, type JsonValue } from "../../json.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { ToolReply } from "../../tools/tool-call.ts";
import { listTools, type Adapters, type FoundTool } from "../../tools/catalog.ts";
import { lookingTool } from "../../tools/tool-search.ts";
import type { Tool } from "../../tools/tool.ts";
import { isScheme, parseToolUri } from "../../tools/uri.ts";
import { findByName } from "./find-tool.ts";

export const mcpoName = "MCPO";

export type McpoPlan =
  | { readonly kind: "call"; readonly name: string; readonly found: FoundTool | undefined; readonly args: JsonObject }
  | { readonly kind: "answer"; readonly found: FoundTool }
  | { readonly kind: "refused"; readonly why: string };

/** What a request for MCPO comes to. */
export function planMcpo(adapters: Adapters, context: CallContext, args: JsonObject): McpoPlan {
  const action = wordOf(args["action"]).toLowerCase();
  if (action !== "call_tool") return { kind: "answer", found: foundMcpo(adapters, context) };
  const name = wordOf(args["tool_name_param"]);
  if (name === "") return { kind: "refused", why: "'tool_name_param' names no tool." };
  const given = args["arguments"] ?? "{}";
  const parsed = typeof given === "string" ? parseJsonExactly(given.trim() === "" ? "{}" : given) : given;
  if (!isJsonObject(parsed)) return { kind: "refused", why: "'arguments' is not the text of a JSON object." };
  const tool = mcpTools(adapters, context).find((each) => wireNameOf(each) === name);
  return { kind: "call", name, found: findByName(adapters, context, tool?.uri ?? name), args: parsed };
}

/** The form that MCPO gives a result. */
export function asMcpoResult(name: string, { uri }: Tool, value: JsonValue): JsonObject {
  const { timestamp, ...rest } = isJsonObject(value) ? value : { value };
  const result = isJsonObject(value) ? rest : value;
  return {
    success: true,
    tool_name: name,
    endpoint: uri,
    result,
    ...(timestamp === undefined ? {} : { timestamp }),
  };
}

function mcpTools(adapters: Adapters, context: CallContext): readonly Tool[] {
  return listTools(adapters, context).filter(({ uri }) => isScheme(uri, "mcp"));
}

/** `{server}_{tool}`. */
function wireNameOf({ uri }: Tool): string {
  const { service, tool } = parseToolUri(uri);
  return `${service}_${tool}`;
}

function wordOf(value: JsonValue | undefined): string {
  return typeof value === "string" ? value.trim() : "";
}

const mcpoTool: Tool = {
  ...lookingTool,
  uri: `native://${mcpoName.toLowerCase()}`,
  name: mcpoName,
  service: `native://${mcpoName.toLowerCase()}`,
  description: "The tenant's MCP tools: lists them, describes one, calls one.",
  parameters: {
    type: "object",
    properties: {
      action: { type: "string" },
      tool_name_param: { type: "string" },
      server: { type: "string" },
    },
    required: ["action"],
  },
  hash: "1",
};

function foundMcpo(adapters: Adapters, context: CallContext): FoundTool {
  return {
    tool: mcpoTool,
    uri: parseToolUri(mcpoTool.uri),
    adapter: {
      resolve: () => undefined,
      list: () => [],
      invoke: async (call) => toReply(answerOf(mcpTools(adapters, context), context, call.arguments)),
    },
  };
}

function toReply(value: JsonObject): ToolReply {
  return { mediaType: "application/json", body: JSON.stringify(value) };
}

/** @throws GatewayError `tool_failed` */
function answerOf(tools: readonly Tool[], context: CallContext, args: JsonObject): JsonObject {
  const action = wordOf(args["action"]).toLowerCase();
  switch (action) {
    case "list_tools":
    case "discover_tools": {
      const server = wordOf(args["server"]);
      const listed = tools.map(describe).filter((tool) => server === "" || tool["server"] === server);
      return { success: true, tools: listed, total_count: listed.length };
    }
    case "get_tool_info": {
      const name = wordOf(args["tool_name_param"]);
      const tool = tools.find((each) => wireNameOf(each) === name);
      if (tool === undefined) throw failed(`There is no MCP tool '${name.slice(0, 200)}'; list them with list_tools.`);
      return { success: true, tool_info: describe(tool) };
    }
    case "health_check":
    case "list_configs":
      return { success: true, servers: serversOf(context) };
    case "manage_server":
      throw failed("MCP servers are tool services here: an administrator manages them at /v1/tool-services.");
    default:
      throw failed(
        `'action' is '${action.slice(0, 64)}'; use list_tools, call_tool, get_tool_info, discover_tools, health_check or list_configs.`,
      );
  }
}

function describe(tool: Tool): JsonObject {
  const { service, tool: id } = parseToolUri(tool.uri);
  const { description, parameters, uri } = tool;
  return {
    name: wireNameOf(tool),
    original_name: id,
    server: service,
    description,
    summary: tool.title ?? "",
    parameters,
    endpoint: uri,
  };
}

function serversOf({ config }: CallContext): JsonValue[] {
  return config.services
    .filter(({ scheme }) => scheme === "mcp")
    .map(({ serviceId, enabled, discovered }) => ({
      name: serviceId,
      status: enabled ? "enabled" : "disabled",
      tools: discovered?.tools.length ?? 0,
    }));
}

function failed(message: string): GatewayError {
  return withDelivery(new GatewayError("tool_failed", message, { toolName: mcpoName }), "answered");
}
