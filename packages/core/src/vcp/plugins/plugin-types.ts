/** The one table of VCP's plugin types (VCP specification s. 3.1): what each speaks, where it runs, who may call it. */

export interface PluginTypeSpec {
  readonly protocol: "stdio" | "direct";
  /** Milliseconds where the manifest says nothing. */
  readonly timeoutMs: number;
  /**
   * `process`: a process for each run. `module`: a module that is loaded for each run, in the plugin box.
   * `resident`: a module that stays loaded, on a node.
   */
  readonly runs: "process" | "module" | "resident";
  /** May models and callers call it as a tool? */
  readonly isTool: boolean;
  /** Does it take part in the chain before the model? */
  readonly isPreprocessor: boolean;
}

export const pluginTypes = {
  static: { protocol: "stdio", timeoutMs: 60_000, runs: "process", isTool: false, isPreprocessor: false },
  messagePreprocessor: { protocol: "direct", timeoutMs: 60_000, runs: "module", isTool: false, isPreprocessor: true },
  synchronous: { protocol: "stdio", timeoutMs: 60_000, runs: "process", isTool: true, isPreprocessor: false },
  asynchronous: { protocol: "stdio", timeoutMs: 1_800_000, runs: "process", isTool: true, isPreprocessor: false },
  service: { protocol: "direct", timeoutMs: 60_000, runs: "resident", isTool: false, isPreprocessor: false },
  hybridservice: { protocol: "direct", timeoutMs: 60_000, runs: "resident", isTool: true, isPreprocessor: true },
} as const satisfies Record<string, PluginTypeSpec>;

export type PluginType = keyof typeof pluginTypes;
export type PluginProtocol = PluginTypeSpec["protocol"];

export function isPluginType(text: string): text is PluginType {
  return Object.hasOwn(pluginTypes, text);
}

/** Names of protocols in manifests; some plugins in the wild call theirs `process_stdio`. */
export const protocolNames = {
  stdio: "stdio",
  process_stdio: "stdio",
  direct: "direct",
} as const satisfies Record<string, PluginProtocol>;

export function isProtocolName(text: string): text is keyof typeof protocolNames {
  return Object.hasOwn(protocolNames, text);
}

/** The longest that a run of any plugin may take where it is waited for; what a manifest says beyond it is cut. */
export const longestRunMs = 840_000;
