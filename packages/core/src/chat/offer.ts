/**
 * Which tools the model is told of, and who runs a call of each (CHAT-4, CHAT-5, BLIND-9). What is
 * offered is exactly what the caller may run.
 */
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { listTools, type Adapters } from "../tools/catalog.ts";
import type { Tool } from "../tools/tool.ts";
import type { ChatRequest } from "./schema.ts";

export interface Offer {
  /** By the name that the model uses. */
  readonly gatewayTools: ReadonlyMap<string, Tool>;
  /** For the model back end; undefined where there is nothing to offer. */
  readonly tools: readonly JsonObject[] | undefined;
  /** A turn may hold calls of both sides. */
  readonly mayMix: boolean;
}

export function makeOffer(adapters: Adapters, context: CallContext, request: ChatRequest): Offer {
  const gatewayTools = gatewayToolsFor(adapters, context, request);
  const clientTools = request.tools.filter((tool) => !gatewayTools.has(nameOf(tool) ?? ""));
  const tools = [...clientTools, ...[...gatewayTools.values()].map(describeTool)];
  checkToolChoice(request, new Set([...clientTools.flatMap((tool) => nameOf(tool) ?? []), ...gatewayTools.keys()]));
  return {
    gatewayTools,
    tools: tools.length === 0 ? undefined : tools,
    mayMix: clientTools.length > 0 && gatewayTools.size > 0,
  };
}

function gatewayToolsFor(adapters: Adapters, context: CallContext, request: ChatRequest): ReadonlyMap<string, Tool> {
  // Several answers to one question cannot each go on with results of their own.
  if (request.choices > 1 || request.toolChoice === "none") return new Map();
  const usable = listTools(adapters, context).filter((tool) => {
    if (request.clientToolNames.has(tool.name) && request.sessionId === undefined) return false;
    // Workspace tools need a workspace; a request that names no session does not ask for one.
    return (
      tool.kind !== "NATIVE" || request.sessionId !== undefined || context.caller.tools?.includes(tool.name) === true
    );
  });
  const offered = new Map(usable.map((tool) => [tool.name, tool]));
  const reader =
    usable.length === 0 || offered.has(resultReader) ? undefined : findResultReader(adapters, context, request);
  if (reader !== undefined) offered.set(reader.name, reader);
  return offered;
}

/** Whoever gets results may read on where one was cut. */
const resultReader = "read_result";

function findResultReader(adapters: Adapters, context: CallContext, request: ChatRequest): Tool | undefined {
  if (request.clientToolNames.has(resultReader)) return undefined;
  return listTools(adapters, context).find((tool) => tool.name === resultReader);
}

const descriptions = new WeakMap<Tool, JsonObject>();

/** The model sees name, description and parameters, and nothing else (BLIND-6). */
function describeTool(tool: Tool): JsonObject {
  const known = descriptions.get(tool);
  if (known !== undefined) return known;
  const description: JsonObject = {
    type: "function",
    function: { name: tool.name, description: tool.description, parameters: tool.parameters },
  };
  descriptions.set(tool, description);
  return description;
}

function nameOf(tool: JsonObject): string | undefined {
  const inner = tool["function"] ?? tool["custom"];
  return isJsonObject(inner) && typeof inner["name"] === "string" ? inner["name"] : undefined;
}

function checkToolChoice(request: ChatRequest, known: ReadonlySet<string>): void {
  const choice = request.toolChoice;
  if (choice === undefined) return;
  if (choice === "required" && known.size === 0) {
    throw new GatewayError(
      "invalid_request",
      "tool_choice: 'required' needs at least one tool, in 'tools' or enabled for this key",
      { param: "tool_choice" },
    );
  }
  const name = isJsonObject(choice) ? nameOf(choice) : undefined;
  if (name !== undefined && !known.has(name)) {
    throw new GatewayError("tool_not_found", `Tool '${name}' not found`, { param: "tool_choice", toolName: name });
  }
}
