/** All tools of a caller, over all schemes: what is listed is what can run. */
import { hasScope, mayUseTool, type Caller } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { TenantConfig } from "../tenant-config.ts";
import type { ToolAdapter } from "./adapter.ts";
import { aliasOf, looksLikeAlias } from "./alias.ts";
import type { Tool } from "./tool.ts";
import { isToolScheme, parseToolUri, type ToolScheme, type ToolUri } from "./uri.ts";

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

/** Before a URI is looked up that may be of a scheme which no configuration has asked for yet. */
export async function loadScheme(adapters: Adapters, target: string): Promise<void> {
  const scheme = target.slice(0, Math.max(0, target.indexOf("://")));
  if (isToolScheme(scheme)) await adapters[scheme]?.load?.();
}

/** @throws GatewayError `tool_not_found`, `invalid_uri` */
export function findTool(adapters: Adapters, context: CallContext, target: string): FoundTool {
  return target.includes("://") ? findByUri(adapters, context, target) : findByName(adapters, context, target);
}

function findByUri(adapters: Adapters, context: CallContext, target: string): FoundTool {
  const uri = parseToolUri(target, (scheme) => adapters[scheme]?.options);
  const adapter = adapters[uri.scheme];
  const tool = adapter?.resolve(uri, context);
  if (adapter !== undefined && tool !== undefined) return { adapter, tool, uri };
  // Others learn nothing of what there is and is not theirs to use. Options are none of the tool's name.
  const [name = target] = target.split("?", 1);
  throw notFound(name, hasScope(context.caller, "manage") ? adapter?.whyMissing?.(uri, context) : undefined);
}

function findByName(adapters: Adapters, context: CallContext, name: string): FoundTool {
  for (const adapter of Object.values(adapters)) {
    const tool = adapter.find?.(name, context);
    if (tool !== undefined) return { adapter, tool, uri: parseToolUri(tool.uri) };
  }
  // Who runs a model's call has the name that models know the tool by.
  const aliased = looksLikeAlias(name)
    ? listTools(adapters, context).find((tool) => tool.name !== name && aliasOf(tool.name) === name)
    : undefined;
  if (aliased !== undefined) return findByUri(adapters, context, aliased.uri);
  if (!hasScope(context.caller, "manage")) throw notFound(name);
  const reasons = Object.values(adapters).map((adapter) => adapter.whyUnknown?.(name, context));
  throw notFound(
    name,
    reasons.find((reason) => reason !== undefined),
  );
}

function notFound(target: string, reason?: string): GatewayError {
  const name = target.slice(0, 200);
  const why = reason === undefined ? "" : `: ${reason}`;
  return new GatewayError("tool_not_found", `Tool '${name}' not found${why}`, { toolName: name });
}
