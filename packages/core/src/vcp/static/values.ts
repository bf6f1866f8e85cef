/**
 * Values that static plugins and nodes give to placeholders (VCP specification s. 3.3, 3.7; VCP-20), by name
 * without braces. Text, or JSON with `vcp_dynamic_fold`, as it was given: what is folded is folded where it is used.
 */
import type { CallContext } from "../../context.ts";
import type { AdapterDeps } from "../../deps.ts";
import { readAll, type BlobStore } from "../../ports/blob-store.ts";
import type { StoredStaticValue } from "../../ports/vcp-static-values.ts";
import { pluginSource, withoutBraces, type StaticPlugin } from "./static-plugin.ts";

export type StaticValueDeps = Pick<AdapterDeps, "repos" | "blobs">;

/** A value of a node replaces a plugin's of the same name while the node is there. */
export async function staticValuesOf(
  deps: StaticValueDeps,
  context: Pick<CallContext, "tenant" | "config">,
  plugins: readonly StaticPlugin[] = [],
): Promise<ReadonlyMap<string, string>> {
  const { values: stored } = await deps.repos.vcpStaticValues.list(context.tenant);
  const ofPlugins = new Map(stored.filter(({ key }) => key === "").map((value) => [value.source, value]));
  const values = new Map<string, string>();
  for (const plugin of plugins) {
    const text = await textOf(deps.blobs, plugin, ofPlugins.get(pluginSource(plugin.name)));
    for (const placeholder of plugin.placeholders) values.set(placeholder, text);
  }
  for (const { source, key, value } of stored) {
    if (source.startsWith("node:") && value !== null) values.set(withoutBraces(key), value);
  }
  return values;
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
  return `[Error updating ${name}: ${error}]`;
}
