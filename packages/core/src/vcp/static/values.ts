/**
 * Values that static plugins and nodes give to placeholders (VCP specification s. 3.3, 3.7; VCP-20), by name
 * without braces. Text, or JSON with `vcp_dynamic_fold`, as it was given: what is folded is folded where it is used.
 * A value that is old is given while a worker refreshes it; for one that there has never been, a moment is waited.
 */
import type { CallContext } from "../../context.ts";
import type { AdapterDeps } from "../../deps.ts";
import { readAll, type BlobStore } from "../../ports/blob-store.ts";
import type { StoredStaticValue } from "../../ports/vcp-static-values.ts";
import { askForRefresh, pluginSource } from "./source-message.ts";
import { nothingSaid } from "./refresh.ts";
import { isStale, staticPluginsOf, withoutBraces, type StaticPlugin } from "./static-plugin.ts";

export type StaticValueDeps = Pick<AdapterDeps, "repos" | "blobs" | "queue" | "clock" | "log">;
export type StaticValueContext = Pick<CallContext, "tenant" | "config">;

/** What a first value is waited for, in all. */
const firstValueMs = 2_000;
const firstLookMs = 50;
const longestLookMs = 400;

/** Never throws for a plugin that fails: its value says so. */
export async function staticValuesOf(
  deps: StaticValueDeps,
  context: StaticValueContext,
): Promise<ReadonlyMap<string, string>> {
  const plugins = staticPluginsOf(context.config);
  const stored = await current(deps, context, plugins);
  const values = new Map<string, string>();
  for (const plugin of plugins) {
    const text = await textOf(deps.blobs, plugin, valueFor(stored, plugin));
    for (const placeholder of plugin.placeholders) values.set(placeholder, text);
  }
  // A node may have given a value before there was a plugin of the tenant that gives it.
  const own = new Set(values.keys());
  for (const { source, key, value } of stored) {
    const name = withoutBraces(key);
    if (source.startsWith("node:") && value !== null && !own.has(name)) values.set(name, value);
  }
  return values;
}

function valueFor(stored: readonly StoredStaticValue[], { name }: StaticPlugin): StoredStaticValue | undefined {
  const source = pluginSource(name);
  return stored.find((value) => value.source === source && value.key === "");
}

async function current(
  deps: StaticValueDeps,
  { tenant, config }: StaticValueContext,
  plugins: readonly StaticPlugin[],
): Promise<readonly StoredStaticValue[]> {
  const { values, now } = await deps.repos.vcpStaticValues.list(tenant);
  const clock = { now, timeZone: config.settings.time_zone };
  const stale = plugins.filter((plugin) => isStale(plugin, valueFor(values, plugin), clock));
  if (stale.length === 0) return values;
  const idle = stale.filter((plugin) => valueFor(values, plugin)?.leased !== true);
  await Promise.all(
    idle.map(({ name, plugin }) =>
      askForRefresh(deps, { tenant, source: pluginSource(name), expectedMs: plugin.manifest.timeoutMs }),
    ),
  );
  const missing = stale.filter((plugin) => !hasSpoken(valueFor(values, plugin)));
  return missing.length === 0 ? values : waitFor(deps, tenant, missing);
}

/** It has a value, or has said why it has none. */
function hasSpoken(stored: StoredStaticValue | undefined): boolean {
  return stored !== undefined && stored.refreshedAt !== null;
}

async function waitFor(
  { repos, clock }: StaticValueDeps,
  tenant: string,
  missing: readonly StaticPlugin[],
): Promise<readonly StoredStaticValue[]> {
  for (let waited = 0, lookMs = firstLookMs; ; waited += lookMs, lookMs = Math.min(longestLookMs, lookMs * 2)) {
    await clock.sleep(lookMs);
    const { values } = await repos.vcpStaticValues.list(tenant);
    if (waited >= firstValueMs || missing.every((plugin) => hasSpoken(valueFor(values, plugin)))) return values;
  }
}

async function textOf(blobs: BlobStore, plugin: StaticPlugin, stored: StoredStaticValue | undefined): Promise<string> {
  if (stored === undefined) return loadingText(plugin);
  const { value, blobKey, error } = stored;
  if (value !== null) return value;
  const kept = blobKey === null ? undefined : await blobs.get(blobKey);
  if (kept !== undefined) return Buffer.from(await readAll(kept.body)).toString("utf8");
  return error === null ? loadingText(plugin) : errorText(plugin, error);
}

/** Until a plugin has run for the first time. */
function loadingText({ displayName }: StaticPlugin): string {
  return `[${displayName} a-zheng-zai-jia-zai-zhong... ]`;
}

/** Where it has never given a value: what fails must not look as if it were loading. */
function errorText({ name }: StaticPlugin, error: string): string {
  return error === nothingSaid ? `[${name} ${nothingSaid}]` : `[Error updating ${name}: ${error}]`;
}
