/**
 * What modules are given beside their configuration: where they send logs to, and as much of the original's plugin
 * manager as a module outside of the server can have.
 */
import { EventEmitter } from "node:events";
import { ModuleError } from "./faults.ts";
import { toJson } from "./plain.ts";
import type { ModuleSpec, Told } from "@toolyard/core/vcp/modules/wire";

/** Of one module and call. */
const mostTold = 100;
const longestTold = 65_536;

export interface Given {
  readonly vcpLogFunctions: {
    readonly pushVcpLog: (data: unknown) => void;
    readonly pushVcpInfo: (data: unknown) => void;
  };
  readonly pluginManager: EventEmitter;
}

export function createGiven(spec: ModuleSpec, tell: (told: Told) => void): Given {
  let count = 0;
  const push =
    (to: Told["to"]) =>
    (data: unknown): void => {
      count += 1;
      const json = count > mostTold ? undefined : toJson(data, longestTold);
      if (json !== undefined) tell({ plugin: spec.name, to, data: json });
    };
  return {
    vcpLogFunctions: { pushVcpLog: push("VCPLog"), pushVcpInfo: push("VCPInfo") },
    pluginManager: createPluginManager(spec),
  };
}

function createPluginManager({ name, config }: ModuleSpec): EventEmitter {
  const own = { name, config };
  return Object.assign(new EventEmitter(), {
    plugins: new Map([[name, own]]),
    messagePreprocessors: new Map(),
    serviceModules: new Map(),
    staticPlaceholderValues: new Map(),
    getPlugin: (wanted: unknown) => (wanted === name ? own : undefined),
    getServiceModule: () => undefined,
    getPlaceholderValue: (placeholder: unknown) => String(placeholder),
    processToolCall: () =>
      Promise.reject(
        new ModuleError(
          "threw",
          `'${name}' called another plugin by pluginManager.processToolCall, which modules cannot do here; call POST /v1/human/tool with a key of its own.`,
        ),
      ),
  });
}
