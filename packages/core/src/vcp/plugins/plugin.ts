/**
 * A tenant's VCP plugins as its snapshot has them: rows of `sys_ai_plugin` of type VCP, each the manifest as it
 * was written and the address of its files. No I/O: whatever a call needs first is known here.
 */
import type { PluginRecord } from "../../blind/plugin.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { missingKeys } from "./configuration-names.ts";
import { parseManifest, type VcpManifest } from "./manifest.ts";
import { pluginTypes, type PluginTypeSpec } from "./plugin-types.ts";
import type { PluginFiles, VcpExecutionConfig } from "./stored-plugin.ts";

export interface VcpPlugin {
  readonly pluginId: number;
  readonly name: string;
  readonly displayName: string;
  readonly manifest: VcpManifest;
  readonly type: PluginTypeSpec;
  readonly files: PluginFiles | null;
  readonly envKeys: VcpExecutionConfig["vcp"]["env_keys"];
  /** Switched on, and nothing that it needs is missing. */
  readonly enabled: boolean;
  /** Why it is not enabled, for whoever manages the tenant. */
  readonly reason?: string;
  /** Has every key that its manifest requires. */
  readonly configured: boolean;
  readonly record: PluginRecord;
}

type ByName = ReadonlyMap<string, VcpPlugin>;

const ofConfigs = new WeakMap<TenantConfig, ByName>();

/** By name, in order of their names; disabled ones, too. The same map for the same snapshot. */
export function vcpPluginsOf(config: TenantConfig): ByName {
  let plugins = ofConfigs.get(config);
  if (plugins === undefined) {
    plugins = readPlugins(config);
    ofConfigs.set(config, plugins);
  }
  return plugins;
}

/** A row that was read just now, which may be newer than the snapshot. */
export function readVcpPlugin(record: PluginRecord, { credentials }: TenantConfig): VcpPlugin | undefined {
  return readPlugin(record, namesOf(credentials))[0];
}

function namesOf(credentials: TenantConfig["credentials"]): ReadonlySet<string> {
  return new Set(credentials.flatMap(({ level, name }) => (level === "tenant" ? [name] : [])));
}

function readPlugins(config: TenantConfig): ByName {
  const rows = config.plugins.filter(({ type }) => type === "VCP");
  if (rows.length === 0) return new Map();
  const stored = namesOf(config.credentials);
  const plugins = rows.flatMap((record) => readPlugin(record, stored));
  return new Map(plugins.sort((a, b) => (a.name < b.name ? -1 : 1)).map((plugin) => [plugin.name, plugin]));
}

/** A row that another release wrote and this one cannot read is left out; it must not take the others down. */
function readPlugin(record: PluginRecord, stored: ReadonlySet<string>): readonly VcpPlugin[] {
  if (!("vcp" in record.executionConfig)) return [];
  const { manifest: source, files, env_keys: envKeys } = record.executionConfig.vcp;
  let manifest: VcpManifest;
  try {
    manifest = parseManifest(source);
  } catch (error) {
    if (error instanceof GatewayError) return [];
    throw error;
  }
  const missing = missingKeys(manifest, envKeys, stored);
  const reason = whyDisabled(record, missing);
  return [
    {
      pluginId: record.pluginId,
      name: manifest.name,
      displayName: manifest.displayName,
      manifest,
      type: pluginTypes[manifest.pluginType],
      files,
      envKeys,
      enabled: reason === undefined,
      ...(reason === undefined ? {} : { reason }),
      configured: missing.length === 0,
      record,
    },
  ];
}

function whyDisabled({ enabled, pluginId }: PluginRecord, missing: readonly string[]): string | undefined {
  if (!enabled) return "it is switched off";
  if (missing.length === 0) return undefined;
  const keys = missing.map((key) => `'${key}'`).join(", ");
  return `it needs a value for ${keys}; set it with PUT /v1/plugins/plg_${pluginId}/config`;
}
