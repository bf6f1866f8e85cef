/**
 * A call of a VCP tool, by what kind of plugin it is. Each kind is one line in `invokers`, read when the first
 * plugin of it is called.
 */
import type { AdapterDeps } from "../../deps.ts";
import type { InvocationContext, ToolCall, ToolReply } from "../../tools/tool-call.ts";
import type { VcpPlugin } from "./plugin.ts";
import type { pluginTypes, PluginType } from "./plugin-types.ts";

export interface PluginCall {
  readonly plugin: VcpPlugin;
  /** Arguments as the plugin is given them. */
  readonly call: ToolCall;
}

export type PluginInvoker = (deps: AdapterDeps, called: PluginCall, context: InvocationContext) => Promise<ToolReply>;

type Callable = { [T in PluginType]: (typeof pluginTypes)[T]["isTool"] extends true ? T : never }[PluginType];

const invokers = {
  asynchronous: async () => (await import("../async/invoke.ts")).invokeAsynchronous,
  synchronous: async () => (await import("./synchronous.ts")).invokeSynchronous,
  hybridservice: async () => (await import("../modules/hybrid.ts")).invokeHybrid,
} as const satisfies { readonly [T in Callable]?: () => Promise<PluginInvoker> };

export function invokerOf(type: PluginType): (() => Promise<PluginInvoker>) | undefined {
  const known: { readonly [T in PluginType]?: () => Promise<PluginInvoker> } = invokers;
  return known[type];
}
