/**
 * Values that VCP plugins are configured with: for one plugin, and for the whole tenant (VCP-2). Values are sealed
 * like credentials and never shown.
 */
import type { CallContext } from "@toolyard/core/context";
import { newId } from "@toolyard/core/ids";
import type { TenantConfig } from "@toolyard/core/tenant-config";
import { setGlobalValues, setPluginValues, showGlobalKeys, showKeys } from "@toolyard/core/vcp/plugins/configure";
import { vcpPluginsOf, type VcpPlugin } from "@toolyard/core/vcp/plugins/plugin";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { haveNodesLook } from "@toolyard/core/nodes/look";
import * as z from "zod";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { idParams, notFound } from "./shared.ts";

const tags = ["plugins"];

const valuesBody = z.strictObject({
  values: z
    .record(z.string().min(1).max(128), z.union([z.string(), z.number(), z.boolean(), z.null()]))
    .meta({ description: "By key. Null takes a value away; keys that are not named stay as they are." }),
});

const keySchema = z.strictObject({
  key: z.string(),
  type: z.enum(["integer", "boolean", "text"]),
  required: z.boolean().meta({ description: "Without a value the plugin stays switched off." }),
  default: z.string().nullable(),
  description: z.string().nullable(),
  source: z
    .enum(["default", "global", "config.env", ".env", "tenant"])
    .nullable()
    .meta({ description: "Where its value comes from: the last of these wins. Null: it has none." }),
});

const configSchema = z.strictObject({
  object: z.literal("plugin_config"),
  plugin_id: z.string(),
  name: z.string(),
  enabled: z.boolean(),
  reason: z.string().nullable().meta({ description: "Why it is not enabled." }),
  keys: z.array(keySchema),
});

function viewConfig(plugin: VcpPlugin, config: TenantConfig): z.output<typeof configSchema> {
  return {
    object: "plugin_config",
    plugin_id: `plg_${plugin.pluginId}`,
    name: plugin.name,
    enabled: plugin.enabled,
    reason: plugin.reason ?? null,
    keys: showKeys(plugin, config).map((key) => ({ ...key })),
  };
}

function findPlugin(id: string, config: TenantConfig): VcpPlugin {
  const found = [...vcpPluginsOf(config).values()].find(({ pluginId }) => `plg_${pluginId}` === id);
  if (found === undefined) throw notFound("VCP plugin", id);
  return found;
}

/** As it is after a change of this very request. */
async function reloaded(core: CoreDeps, { tenant, config }: CallContext): Promise<TenantConfig> {
  return core.configs.get(tenant, config.version + 1);
}

/** A VCP plugin of the owner, for the isolation suite. */
async function arrangeVcpPlugin(owner: IsolationDriver): Promise<{ readonly id: string; readonly name: string }> {
  const name = `Private_${newId("request")}`;
  const manifest = {
    name,
    pluginType: "synchronous",
    entryPoint: { command: "cat" },
    configSchema: { API_KEY: "string" },
  };
  const imported = await owner.send("post", "/v1/plugins/import", { vcp: { manifest } });
  const [operation] = z.array(z.looseObject({ plugin_id: z.string() })).parse(imported["operations"]);
  return { id: operation?.plugin_id ?? "", name };
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: (await arrangeVcpPlugin(owner)).id },
});

export const getPluginConfig = defineRoute({
  method: "get",
  path: "/v1/plugins/{id}/config",
  summary: "What a VCP plugin is configured with, without the values",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 200: { description: "Its keys, and where each value comes from", schema: configSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  handler: (c, { config, params }) => c.json(viewConfig(findPlugin(params.id, config), config)),
});

export const putPluginConfig = defineRoute({
  method: "put",
  path: "/v1/plugins/{id}/config",
  summary: "Set values of a VCP plugin",
  description:
    "They beat the schema's defaults, the tenant-wide values and the plugin's own files, and hold from the next request on. Keys are those of the manifest's configSchema.",
  tags,
  scope: "manage",
  request: { params: idParams, body: valuesBody },
  responses: { 200: { description: "Its keys, and where each value comes from now", schema: configSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ ...(await arrangeObject(owner)), body: { values: { API_KEY: "a stranger's" } } }),
  },
  async handler(c, { core, config, context, params, body }) {
    await setPluginValues(core, context, findPlugin(params.id, config), body.values);
    await haveNodesLook(core, context.tenant);
    const now = await reloaded(core, context);
    return c.json(viewConfig(findPlugin(params.id, now), now));
  },
});

const globalSchema = z.strictObject({
  object: z.literal("vcp_config"),
  keys: z.array(
    z.strictObject({
      key: z.string(),
      is_set: z.boolean(),
      plugins: z.array(z.string()).meta({ description: "Plugins whose configSchema has the key." }),
    }),
  ),
});

function viewGlobal(config: TenantConfig): z.output<typeof globalSchema> {
  return {
    object: "vcp_config",
    keys: showGlobalKeys(config).map(({ key, isSet, plugins }) => ({ key, is_set: isSet, plugins: [...plugins] })),
  };
}

export const getVcpConfig = defineRoute({
  method: "get",
  path: "/v1/vcp/config",
  summary: "Tenant-wide values for VCP plugins, without the values",
  tags,
  scope: "manage",
  request: {},
  responses: { 200: { description: "Keys that are set, and those that plugins take", schema: globalSchema } },
  isolation: { kind: "nothing-owned", reason: "Shows the caller's own tenant, without naming it." },
  handler: (c, { config }) => c.json(viewGlobal(config)),
});

export const putVcpConfig = defineRoute({
  method: "put",
  path: "/v1/vcp/config",
  summary: "Set tenant-wide values for VCP plugins",
  description:
    "A plugin takes such a value for a key of its configSchema that neither its files nor the tenant set for it.",
  tags,
  scope: "manage",
  request: { body: valuesBody },
  responses: { 200: { description: "Keys that are set now", schema: globalSchema } },
  isolation: { kind: "nothing-owned", reason: "Changes the caller's own tenant, without naming it." },
  async handler(c, { core, context, body }) {
    await setGlobalValues(core, context, body.values);
    return c.json(viewGlobal(await reloaded(core, context)));
  },
});
