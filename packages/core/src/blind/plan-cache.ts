/** Plans and records that are made once: by the record as it is in the tenant's snapshot, so a change makes a new one. */
import { GatewayError } from "../errors/gateway-error.ts";
import type { AuthConfig, Execution } from "./definition.ts";
import type { PluginRecord } from "./plugin.ts";
import { compilePlan, type Plan } from "./request.ts";

export interface CompiledPlugin {
  readonly plan: Plan;
  readonly execution: Execution;
  readonly authConfig: AuthConfig | undefined;
}

const compiled = new WeakMap<PluginRecord, CompiledPlugin>();

/** @throws GatewayError `invalid_definition` for a record that is no HTTP plugin or cannot be planned */
export function planOf(record: PluginRecord): CompiledPlugin {
  const known = compiled.get(record);
  if (known !== undefined) return known;
  const config = record.executionConfig;
  if (!("execution" in config)) {
    throw new GatewayError("invalid_definition", `Plugin '${record.name}' is of type ${record.type}, not HTTP.`, {
      param: "type",
    });
  }
  const made: CompiledPlugin = {
    plan: compilePlan(config.execution, record.parameterSchema),
    execution: config.execution,
    authConfig: config.auth_config,
  };
  compiled.set(record, made);
  return made;
}
