/**
 * `plugin://name`: HTTP plugins of the tenant, and those that a trusted caller sends with the request,
 * which take precedence (BLIND-7). Tools are made once for each row of the snapshot.
 */
import { effectOf, repeatOf } from "../../blind/effect.ts";
import { executeBlind, userClientOf, type BlindDeps } from "../../blind/execute.ts";
import { explainBlind } from "../../blind/explain.ts";
import { planOf } from "../../blind/plan-cache.ts";
import type { PluginRecord } from "../../blind/plugin.ts";
import { recordFromDefinition } from "../../blind/register.ts";
import type { RuntimeConfig } from "../../blind/runtime-config.ts";
import type { CallContext } from "../../context.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import type { ToolAdapter } from "../adapter.ts";
import { withDelivery } from "../../errors/delivery.ts";
import type { Tool } from "../tool.ts";
import { dispatcherOptions, formatToolUri, uriOptions } from "../uri.ts";

type ByName = ReadonlyMap<string, PluginRecord>;

const stored = new WeakMap<TenantConfig, ByName>();
const inline = new WeakMap<RuntimeConfig, ByName>();
const tools = new WeakMap<PluginRecord, Tool>();

export function createPluginAdapter(deps: BlindDeps): ToolAdapter {
  return {
    options: { ...dispatcherOptions, method: uriOptions.method },
    resolve(uri, context) {
      const record = findRecord(uri.service, context);
      return record === undefined ? undefined : toolOf(record);
    },
    find(name, context) {
      const record = findRecord(name, context);
      return record === undefined ? undefined : toolOf(record);
    },
    whyMissing({ service }, { config }) {
      const other = config.plugins.find(({ name, type }) => name === service && type !== "HTTP");
      return other === undefined
        ? `there is no plugin '${service}', in this case of letters; GET /v1/plugins lists those that there are.`
        : `'${service}' is of the type ${other.type}; call it by its name.`;
    },
    list(context) {
      const own = inlinePlugins(context);
      const others = [...storedPlugins(context.config).values()].filter(({ name }) => !own.has(name));
      return [...[...own.values()].map(toolOf), ...others.flatMap(usableTool)];
    },
    async invoke(call, context) {
      const record = findRecord(call.uri.service, context);
      if (record === undefined) {
        throw withDelivery(
          new GatewayError("tool_not_found", `Tool '${call.uri.service}' not found`, { toolName: call.uri.service }),
          "not_sent",
        );
      }
      return executeBlind(deps, record, call, context);
    },
    async explain(call, context) {
      const record = findRecord(call.uri.service, context);
      return record === undefined ? null : explainBlind(record, call.arguments, context);
    },
    async userClient(tool, context) {
      const record = findRecord(tool.name, context);
      return record === undefined ? undefined : userClientOf(deps.credentials, record, context);
    },
  };
}

/** The row behind a plugin's name for this call. */
function findRecord(name: string, context: CallContext): PluginRecord | undefined {
  return inlinePlugins(context).get(name) ?? storedPlugins(context.config).get(name);
}

const none: ByName = new Map();

function inlinePlugins({ runtimeConfig }: CallContext): ByName {
  if (runtimeConfig === undefined) return none;
  let plugins = inline.get(runtimeConfig);
  if (plugins === undefined) {
    plugins = new Map(runtimeConfig.plugins.map((definition) => [definition.name, recordFromDefinition(definition)]));
    inline.set(runtimeConfig, plugins);
  }
  return plugins;
}

function storedPlugins(config: TenantConfig): ByName {
  let plugins = stored.get(config);
  if (plugins === undefined) {
    plugins = new Map(config.plugins.filter(({ type }) => type === "HTTP").map((record) => [record.name, record]));
    stored.set(config, plugins);
  }
  return plugins;
}

function toolOf(record: PluginRecord): Tool {
  let tool = tools.get(record);
  if (tool === undefined) {
    tool = toTool(record);
    tools.set(record, tool);
  }
  return tool;
}

/** A row that another release wrote and this one cannot read fails its own calls, not everybody's list. */
function usableTool(record: PluginRecord): readonly Tool[] {
  try {
    return [toolOf(record)];
  } catch (error) {
    if (error instanceof GatewayError) return [];
    throw error;
  }
}

function toTool(record: PluginRecord): Tool {
  const { plan, execution, authConfig } = planOf(record);
  const { timeout_ms: timeoutMs, max_attempts: maxAttempts } = execution;
  return {
    uri: formatToolUri("plugin", record.name),
    name: record.name,
    ...(record.title === null ? {} : { title: record.title }),
    description: record.description,
    parameters: record.parameterSchema,
    carriesLongNumbers: true,
    kind: "HTTP",
    enabled: record.enabled,
    roles: record.roles,
    effect: effectOf(execution),
    repeat: repeatOf(execution),
    sensitive: record.sensitive,
    service: plan.template.origin,
    requiredCredentials: record.requiredCredentials,
    ...(authConfig?.grant === "authorization_code" ? { actsForUser: true } : {}),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    ...(maxAttempts === undefined ? {} : { maxAttempts }),
    outputTrust: "outside",
    hash: record.hash,
  };
}
