/**
 * Which tools are offered at an address, and how they are called there: all of the caller's at `/mcp`, a subset
 * that the tenant has named or those of one tool service at `/mcp/{name}`, the latter under the names that the
 * service itself gives them.
 */
import type { Caller } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { findTool, listTools, type Adapters } from "../tools/catalog.ts";
import { compileTool } from "../tools/compiled.ts";
import type { Tool } from "../tools/tool.ts";
import { formatToolUri, parseToolUri } from "../tools/uri.ts";

export interface Toolset {
  /** Undefined: all. */
  readonly patterns: readonly string[] | undefined;
  readonly instructions: string | undefined;
  /** Address of the tool service that all are of, so that its own names tell them apart. */
  readonly service: string | undefined;
}

const everything: Toolset = { patterns: undefined, instructions: undefined, service: undefined };

/** @throws GatewayError `not_found` */
export function findToolset(config: TenantConfig, name: string | undefined): Toolset {
  const toolset = lookUpToolset(config, name);
  if (toolset !== undefined) return toolset;
  throw new GatewayError(
    "not_found",
    `There is no toolset '${name?.slice(0, 64)}'; name one in the setting 'mcp_toolsets', or a tool service.`,
    { param: "toolset" },
  );
}

/** The same where the configuration may be an old one, by which nobody is refused: without a toolset nothing is offered. */
export function findToolsetSoFar(config: TenantConfig, name: string | undefined): Toolset {
  return lookUpToolset(config, name) ?? { patterns: [], instructions: undefined, service: undefined };
}

function lookUpToolset({ settings, services }: TenantConfig, name: string | undefined): Toolset | undefined {
  if (name === undefined) return everything;
  const { mcp_toolsets: toolsets } = settings;
  const named = Object.hasOwn(toolsets, name) ? toolsets[name] : undefined;
  if (named !== undefined) return { patterns: named.tools, instructions: named.instructions, service: undefined };
  const found = services.filter(({ serviceId }) => serviceId === name);
  if (found.length === 0) return undefined;
  const addresses = found.map(({ scheme, serviceId }) => formatToolUri(scheme, serviceId));
  return {
    patterns: addresses.flatMap((uri) => [`${uri}/*`, uri]),
    instructions: undefined,
    service: addresses.length === 1 ? addresses[0] : undefined,
  };
}

const narrowed = new WeakMap<Caller, Map<string, Caller>>();

/** The same object for the same caller and patterns, since lists of tools are kept beside it. */
export function within(caller: Caller, { patterns, service }: Toolset): Caller {
  if (patterns === undefined) return caller;
  const known = narrowed.get(caller) ?? new Map<string, Caller>();
  narrowed.set(caller, known);
  const key = JSON.stringify([service !== undefined, patterns]);
  const made = known.get(key) ?? { ...caller, within: patterns };
  known.set(key, made);
  return made;
}

const exposed = new WeakMap<readonly Tool[], ReadonlyMap<string, Tool>>();

/** Tools by the names that clients call them by, in the order of these. */
export function exposedTools(adapters: Adapters, context: CallContext, toolset: Toolset): ReadonlyMap<string, Tool> {
  const tools = listTools(adapters, context);
  let byName = exposed.get(tools);
  if (byName === undefined) exposed.set(tools, (byName = nameTools(tools, toolset)));
  return byName;
}

function nameTools(tools: readonly Tool[], toolset: Toolset): ReadonlyMap<string, Tool> {
  const named = tools.flatMap((tool): [string, Tool][] => {
    // The files of a session, which clients of this protocol have none of.
    if (tool.serviceOf !== undefined) return [];
    return [[nameOf(tool, toolset), tool]];
  });
  return new Map(named.sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** A tool that had this name before it was switched off or kept back: who still calls it is told that. */
export function findSwitchedOff(
  adapters: Adapters,
  context: CallContext,
  { service }: Toolset,
  name: string,
): Tool | undefined {
  if (!plainName.test(name)) return undefined;
  const addresses = service === undefined ? [name] : [`${service}/${name}`, name];
  return addresses.map((address) => lookUp(adapters, context, address)).find((tool) => tool?.enabled === false);
}

function lookUp(adapters: Adapters, context: CallContext, address: string): Tool | undefined {
  try {
    return findTool(adapters, context, address).tool;
  } catch (error) {
    if (error instanceof GatewayError) return undefined;
    throw error;
  }
}

const plainName = /^[A-Za-z0-9_.-]{1,128}$/;

const modelName = /^[A-Za-z0-9_-]{1,64}$/;

function nameOf(tool: Tool, { service }: Toolset): string {
  if (service === undefined) return modelName.test(tool.name) ? tool.name : compileTool(tool).alias;
  const own = parseToolUri(tool.uri).tool;
  return plainName.test(own) ? own : compileTool(tool).alias;
}
