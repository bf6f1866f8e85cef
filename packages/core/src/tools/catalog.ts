/** All tools of a caller, over all schemes: what is listed is what can run. */
import { mayUseTool, type Caller } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { TenantConfig } from "../tenant-config.ts";
import type { ToolAdapter } from "./adapter.ts";
import type { Tool } from "./tool.ts";
import { formatToolUri, parseToolUri, type ToolScheme, type ToolUri } from "./uri.ts";

export type Adapters = { readonly [S in ToolScheme]?: ToolAdapter };

export interface FoundTool {
  readonly adapter: ToolAdapter;
  readonly tool: Tool;
  readonly uri: ToolUri;
}

type ByCaller = WeakMap<Caller, readonly Tool[]>;
const listed = new WeakMap<Adapters, WeakMap<TenantConfig, ByCaller>>();

/**
 * Tools that the caller may use, ordered by name: equal configurations give equal prompts. The same list for
 * the same configuration and caller, so that what is made of it can be kept beside it.
 */
export function listTools(adapters: Adapters, context: CallContext): readonly Tool[] {
  // Tools that a request brings along are that request's.
  if (context.runtimeConfig !== undefined) return collectTools(adapters, context);
  const lists = listsOf(adapters, context.config);
  let tools = lists.get(context.caller);
  if (tools === undefined) {
    tools = collectTools(adapters, context);
    lists.set(context.caller, tools);
  }
  return tools;
}

function listsOf(adapters: Adapters, config: TenantConfig): ByCaller {
  let ofConfigs = listed.get(adapters);
  if (ofConfigs === undefined) listed.set(adapters, (ofConfigs = new WeakMap()));
  let lists = ofConfigs.get(config);
  if (lists === undefined) ofConfigs.set(config, (lists = new WeakMap()));
  return lists;
}

function collectTools(adapters: Adapters, context: CallContext): readonly Tool[] {
  const tools = new Map<string, Tool>();
  for (const adapter of Object.values(adapters)) {
    for (const tool of adapter.list(context)) {
      if (!tools.has(tool.name) && mayUseTool(context.caller, tool)) tools.set(tool.name, tool);
    }
  }
  return [...tools.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** @throws GatewayError `tool_not_found`, `invalid_uri` */
export function findTool(adapters: Adapters, context: CallContext, target: string): FoundTool {
  if (target.includes("://")) {
    const uri = parseToolUri(target);
    const adapter = adapters[uri.scheme];
    const tool = adapter?.resolve(uri, context);
    if (adapter === undefined || tool === undefined) throw notFound(target);
    return { adapter, tool, uri };
  }
  for (const [scheme, adapter] of Object.entries(adapters)) {
    const uri = parseNameAs(scheme as ToolScheme, target);
    const tool = uri === undefined ? undefined : adapter.resolve(uri, context);
    if (uri !== undefined && tool !== undefined) return { adapter, tool, uri };
  }
  throw notFound(target);
}

/** Plugins and native tools are called by their bare names. */
function parseNameAs(scheme: ToolScheme, name: string): ToolUri | undefined {
  if (scheme !== "plugin" && scheme !== "native") return undefined;
  return /^[a-zA-Z0-9_-]{1,64}$/.test(name) ? parseToolUri(formatToolUri(scheme, name)) : undefined;
}

function notFound(target: string): GatewayError {
  return new GatewayError("tool_not_found", `Tool '${target.slice(0, 200)}' not found`, {
    toolName: target.slice(0, 200),
  });
}
