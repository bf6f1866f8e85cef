/** What is needed of a static plugin to fill its placeholders (VCP specification s. 3.3; VCP-20). */
import { nextFiring } from "../../cron.ts";
import type { StoredStaticValue } from "../../ports/vcp-static-values.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { fingerprintOf } from "../modules/fingerprint.ts";
import { vcpPluginsOf, type VcpPlugin } from "../plugins/plugin.ts";

export interface StaticPlugin {
  readonly name: string;
  readonly displayName: string;
  /** Names of placeholders, without braces. */
  readonly placeholders: readonly string[];
  /** Changes with everything that its value may depend on: definition, files, configuration. */
  readonly version: string;
  readonly plugin: VcpPlugin;
}

const known = new WeakMap<TenantConfig, readonly StaticPlugin[]>();

/** Those that are enabled, in order of their names. The same list for the same snapshot. */
export function staticPluginsOf(config: TenantConfig): readonly StaticPlugin[] {
  let plugins = known.get(config);
  if (plugins === undefined) {
    plugins = [...vcpPluginsOf(config).values()]
      .filter(({ enabled, manifest }) => enabled && manifest.pluginType === "static")
      .map((plugin) => toStaticPlugin(config, plugin));
    known.set(config, plugins);
  }
  return plugins;
}

function toStaticPlugin(config: TenantConfig, plugin: VcpPlugin): StaticPlugin {
  const { name, displayName, manifest } = plugin;
  return {
    name,
    displayName,
    placeholders: manifest.placeholders.map(({ placeholder }) => withoutBraces(placeholder)),
    version: fingerprintOf(config, plugin),
    plugin,
  };
}

/** `{{VCPWeatherInfo}}` and `VCPWeatherInfo` are one placeholder. */
export function withoutBraces(placeholder: string): string {
  const [, name = placeholder] = /^\{\{(.*)\}\}$/s.exec(placeholder.trim()) ?? [];
  return name.trim();
}

/** A plugin that has failed and has no schedule is tried again after so long. */
const againMs = 60_000;

/** Has it to be run, now that its value is wanted? */
export function isStale(
  { version, plugin }: StaticPlugin,
  stored: Pick<StoredStaticValue, "version" | "refreshedAt" | "error"> | undefined,
  { now, timeZone }: { readonly now: number; readonly timeZone: string },
): boolean {
  if (stored === undefined || stored.refreshedAt === null || stored.version !== version) return true;
  const { refreshIntervalCron: cron } = plugin.manifest;
  if (stored.error !== null && now - stored.refreshedAt >= againMs) return true;
  if (cron === undefined) return false;
  const next = nextFiring(cron, stored.refreshedAt, { timeZone });
  return next !== undefined && next <= now;
}

/** Our own word in a manifest: it is run on schedule although nobody asks. */
export function isEager({ manifest }: VcpPlugin): boolean {
  return manifest.source["eager"] === true;
}
