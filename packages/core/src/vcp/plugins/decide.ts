/**
 * What a tenant decides about a VCP plugin, whose definition is its author's (CHAT-11): whether its calls wait for a
 * person, and who may use it. It stays when the folder is imported again.
 */
import { createHash } from "node:crypto";
import type { PluginRecord } from "../../blind/plugin.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { canonicalJson } from "../../json.ts";
import type { NewPlugin } from "../../ports/plugins.ts";

type PluginContent = Omit<NewPlugin, "enabled" | "hash">;

export interface PluginDecisions {
  readonly sensitive?: boolean | undefined;
  readonly roles?: PluginRecord["roles"] | undefined;
}

/** An approval is for this hash only, so decisions are part of it. */
export function hashOfPlugin(content: PluginContent): string {
  return createHash("sha256").update(canonicalJson(content), "utf8").digest("hex");
}

/** @throws GatewayError `conflict` where somebody else has changed the plugin meanwhile */
export async function decideOnPlugin(
  { repos }: Pick<CoreDeps, "repos">,
  tenant: string,
  record: PluginRecord,
  decisions: PluginDecisions,
): Promise<void> {
  const { pluginId, name, title, description, iconUrl, type, parameterSchema, executionConfig } = record;
  const content: PluginContent = {
    name,
    title,
    description,
    iconUrl,
    type,
    parameterSchema,
    executionConfig,
    requiredCredentials: record.requiredCredentials,
    sensitive: decisions.sensitive ?? record.sensitive,
    roles: decisions.roles ?? record.roles,
  };
  const plugin: NewPlugin = { ...content, enabled: record.enabled, hash: hashOfPlugin(content) };
  if (plugin.hash === record.hash) return;
  const update = [{ pluginId, expectedHash: record.hash, plugin }];
  const ids = await repos.plugins.upsertMany(tenant, { create: [], update, delete: [] });
  if (ids.has(name)) return;
  throw new GatewayError("conflict", `Plugin '${name}' was changed by somebody else just now; look at it again.`, {
    param: "id",
  });
}
