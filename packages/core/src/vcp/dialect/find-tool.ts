/**
 * Which tool a request means. VCP plugins come first, by their exact names; then every other tool of the tenant by
 * its name, by the name that models have for it, or by its address (VCP-21).
 */
import type { CallContext } from "../../context.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { JsonObject } from "../../json.ts";
import { findTool, type Adapters, type FoundTool } from "../../tools/catalog.ts";
import { isVcpPlugin, type Tool } from "../../tools/tool.ts";
import { parseToolUri } from "../../tools/uri.ts";
import { readWithNames, type ToolRequest } from "./tool-request.ts";

/** Undefined where there is none of the name. */
export function findByName(adapters: Adapters, context: CallContext, name: string): FoundTool | undefined {
  const vcp = adapters.vcp;
  const plugin = vcp?.find?.(name, context);
  if (vcp !== undefined && plugin !== undefined) return { adapter: vcp, tool: plugin, uri: parseToolUri(plugin.uri) };
  try {
    return findTool(adapters, context, name);
  } catch (error) {
    if (error instanceof GatewayError && isMissing.has(error.code)) return undefined;
    throw error;
  }
}

const isMissing: ReadonlySet<string> = new Set(["tool_not_found", "invalid_uri"]);

/** Words of VCP that a plugin reads and no other tool knows. */
const pluginWords = ["maid", "valet", "timely_contact", "tool_password"];

/** Arguments as this tool takes them: VCP's own words are left out where it does not name them. */
export function argumentsFor(tool: Tool, args: JsonObject): JsonObject {
  if (isVcpPlugin(tool)) return args;
  const known = propertiesOf(tool);
  return Object.fromEntries(
    Object.entries(args).filter(([key]) => !pluginWords.includes(key) || Object.hasOwn(known, key)),
  );
}

/** The request with the arguments by the names that the tool has for them, as models are told of them. */
export function requestFor(tool: Tool, request: ToolRequest): ToolRequest {
  const names = Object.keys(propertiesOf(tool)).filter((name) => !/^\w+$/.test(name));
  // Of two that end alike the longer one is meant where it stands.
  return readWithNames(
    request,
    names.sort((a, b) => b.length - a.length),
  );
}

function propertiesOf({ parameters: { properties } }: Tool): object {
  return typeof properties === "object" && properties !== null ? properties : {};
}
