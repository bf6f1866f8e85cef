/**
 * Tools as JSON definitions: stored, they can be called from the next request on, without code and
 * without a deployment (BLIND-1, BLIND-4, BLIND-10). NATIVE rows belong to the release; a tenant only
 * enables or disables them.
 */
import { pluginDefinitionSchema } from "@toolyard/core/blind/definition";
import type { PluginRecord } from "@toolyard/core/blind/plugin";
import { definitionOf, registerPlugin } from "@toolyard/core/blind/register";
import type { CallContext } from "@toolyard/core/context";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { describedBy } from "@toolyard/core/described-by";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import { haveNodesLook } from "@toolyard/core/nodes/look";
import { updateTenant } from "@toolyard/core/tenants/update";
import { tenantSettingsSchema, type TenantSettings } from "@toolyard/core/tenants/settings";
import type { TenantConfig } from "@toolyard/core/tenant-config";
import { toRfc3339 } from "@toolyard/core/time";
import { forgetPluginValues } from "@toolyard/core/vcp/plugins/configure";
import { decideOnPlugin, type PluginDecisions } from "@toolyard/core/vcp/plugins/decide";
import type { VcpManifest } from "@toolyard/core/vcp/plugins/manifest";
import { readVcpPlugin, vcpPluginsOf } from "@toolyard/core/vcp/plugins/plugin";
import { askForRefresh, pluginSource } from "@toolyard/core/vcp/static/source-message";
import * as z from "zod";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { found, idOf, idParams, notFound, timeSchema } from "./shared.ts";

const tags = ["plugins"];

const pluginSchema = z.strictObject({
  id: z.string().meta({ example: "plg_12" }),
  object: z.literal("plugin"),
  type: z.enum(["HTTP", "NATIVE", "MCP", "VCP"]),
  name: z.string(),
  title: z.string().nullable(),
  description: z.string(),
  displayName: z.string().nullable().meta({ description: "Of a VCP plugin, as its manifest says." }),
  version: z.string().nullable(),
  pluginType: z.string().nullable(),
  communication: z
    .strictObject({ protocol: z.enum(["stdio", "direct"]), timeout: z.int() })
    .nullable()
    .meta({ description: "How a VCP plugin is spoken to, and the milliseconds that a run may take." }),
  status: z.enum(["0", "1"]).meta({ description: "'0': enabled, '1': disabled." }),
  enabled: z.boolean(),
  reason: z.string().nullable().meta({ description: "Why it is not enabled, where more than the status says it." }),
  required_credentials: z.array(z.string()),
  sensitive: z.boolean().meta({ description: "Every call of it as a tool waits for approval." }),
  roles: z.array(z.string()).meta({ description: "Who may use it; none: everybody whose key may." }),
  definition: pluginDefinitionSchema
    .nullable()
    .meta({ description: "As it was registered, with defaults; null for tools that are part of the release." }),
  hash: z.string().meta({ description: "SHA-256 of the definition; an approval is for this hash only." }),
  created_at: timeSchema,
  updated_at: timeSchema,
});

function viewPlugin(config: TenantConfig): (record: PluginRecord) => z.output<typeof pluginSchema> {
  return (record) => {
    const vcp = record.type === "VCP" ? readVcpPlugin(record, config) : undefined;
    const enabled = vcp?.enabled ?? isEnabled(record, config);
    return {
      id: `plg_${record.pluginId}`,
      object: "plugin",
      type: record.type,
      name: record.name,
      title: record.title,
      description: record.description,
      ...viewManifest(vcp?.manifest),
      status: enabled ? "0" : "1",
      enabled,
      reason: vcp?.reason ?? null,
      required_credentials: [...record.requiredCredentials],
      sensitive: record.sensitive,
      roles: [...record.roles],
      definition: record.type === "HTTP" ? definitionOf(record) : null,
      hash: record.hash,
      created_at: toRfc3339(record.createdAt),
      updated_at: toRfc3339(record.updatedAt),
    };
  };
}

type PluginView = z.output<typeof pluginSchema>;

function viewManifest(
  manifest: VcpManifest | undefined,
): Pick<PluginView, "displayName" | "version" | "pluginType" | "communication"> {
  if (manifest === undefined) return { displayName: null, version: null, pluginType: null, communication: null };
  return {
    displayName: manifest.displayName,
    version: manifest.version ?? null,
    pluginType: manifest.pluginType,
    communication: { protocol: manifest.protocol, timeout: manifest.timeoutMs },
  };
}

/** The row of a NATIVE tool is everybody's; whether it is on is the tenant's. */
function isEnabled(record: PluginRecord, { settings }: TenantConfig): boolean {
  return record.type === "NATIVE" ? settings.native_tools.includes(record.name) : record.enabled;
}

/** Checked by `registerPlugin`, which names fields as the definition's author knows them. */
const definitionBody = z.unknown().meta(describedBy(() => pluginDefinitionSchema));

/** `plg_{n}` → n; whatever else is an id that does not exist. */
function toPluginId(id: string): number {
  const match = /^plg_([1-9]\d{0,14})$/.exec(id);
  if (match === null) throw notFound("plugin", id);
  return Number(match[1]);
}

async function findPlugin(core: CoreDeps, tenant: string, id: string): Promise<PluginRecord> {
  return found(await core.repos.plugins.get(tenant, toPluginId(id)), "plugin", id);
}

/** Models call tools by their bare names, so no name may mean two. */
function requireFreeName({ adapters }: CoreDeps, context: CallContext, name: string): void {
  const { plugin: _plugin, ...others } = adapters;
  for (const adapter of Object.values(others)) {
    const taken = adapter.find?.(name, context);
    if (taken === undefined) continue;
    const kind = taken.kind === "NATIVE" ? "a native tool" : `the tool '${taken.uri}'`;
    throw new GatewayError("conflict", `'${name}' is the name of ${kind}; take another name.`, { param: "name" });
  }
}

function requireOwn(record: PluginRecord): void {
  if (record.type === "NATIVE") {
    throw new GatewayError(
      "permission_denied",
      `'${record.name}' is part of the release; it can be disabled, not changed.`,
      {
        param: "id",
      },
    );
  }
}

/** A VCP plugin is its folder, which an import brings. */
function requireDefinition(record: PluginRecord): void {
  if (record.type !== "VCP") return;
  const message = `'${record.name}' is a VCP plugin; import its folder again with POST /v1/plugins/import.`;
  throw new GatewayError("invalid_request", message, { param: "id" });
}

/** A plugin of the owner, for the isolation suite. */
export async function arrangePlugin(owner: IsolationDriver): Promise<{ readonly id: string; readonly name: string }> {
  const name = `private_${newId("request")}`;
  const plugin = await owner.send("post", "/v1/plugins", definitionNamed(name));
  return { id: String(plugin["id"]), name };
}

function definitionNamed(name: string): z.input<typeof pluginDefinitionSchema> {
  return {
    schema_version: "v1",
    name,
    description: "Looks up a customer.",
    parameters: { type: "object", properties: { id: { type: "string" } } },
    execution: { method: "GET", base_url: "https://crm.example.com/customers", param_placement: "query" },
  };
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: (await arrangePlugin(owner)).id },
});

export const createPlugin = defineRoute({
  method: "post",
  path: "/v1/plugins",
  summary: "Register a tool",
  description:
    "Takes the tool's JSON definition as it is. What could go wrong at every call is refused here, naming the field. Its credentials are stored with PUT /v1/credentials/{name}. A tenant has 5,000 plugins at most.",
  tags,
  scope: "manage",
  request: { body: definitionBody },
  responses: { 201: { description: "The plugin, ready to be called", schema: pluginSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes a plugin of the caller's own tenant." },
  async handler(c, { core, tenant, config, context, body }) {
    const plugin = registerPlugin(body, { egress: core.egress, row: { replaces: undefined } });
    requireFreeName(core, context, plugin.name);
    return c.json(viewPlugin(config)(await core.repos.plugins.create(tenant, plugin)), 201);
  },
});

export const listPlugins = defineRoute({
  method: "get",
  path: "/v1/plugins",
  summary: "List plugins, native ones too",
  tags,
  scope: "manage",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of plugins", schema: listSchema(pluginSchema) } },
  isolation: { kind: "list", arrange: async (owner) => (await arrangePlugin(owner)).name },
  handler: async (c, { core, tenant, config, query }) =>
    c.json(toList(await core.repos.plugins.list(tenant, toPageRequest(query)), viewPlugin(config), idOf)),
});

export const getPlugin = defineRoute({
  method: "get",
  path: "/v1/plugins/{id}",
  summary: "One plugin with its definition",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 200: { description: "The plugin", schema: pluginSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  handler: async (c, { core, tenant, config, params }) =>
    c.json(viewPlugin(config)(await findPlugin(core, tenant, params.id))),
});

export const replacePlugin = defineRoute({
  method: "put",
  path: "/v1/plugins/{id}",
  summary: "Replace a plugin's definition",
  description: "The whole definition, as for creating one. Whether the plugin is enabled stays as it is.",
  tags,
  scope: "manage",
  request: { params: idParams, body: definitionBody },
  responses: { 200: { description: "The plugin as it is now", schema: pluginSchema } },
  isolation: {
    kind: "object",
    async arrange(owner) {
      const { id, name } = await arrangePlugin(owner);
      return { params: { id }, body: { ...definitionNamed(name), description: "Written by a stranger." } };
    },
  },
  async handler(c, { core, tenant, config, context, params, body }) {
    const record = await findPlugin(core, tenant, params.id);
    requireOwn(record);
    requireDefinition(record);
    const plugin = registerPlugin(body, { egress: core.egress, enabled: record.enabled, row: { replaces: record } });
    requireFreeName(core, context, plugin.name);
    const updated = await core.repos.plugins.update(tenant, record.pluginId, plugin);
    return c.json(viewPlugin(config)(found(updated, "plugin", params.id)));
  },
});

const partOfDefinition = "is not changed here; send the whole definition with PUT /v1/plugins/{id}";

const changeBody = z
  .strictObject(
    {
      status: z.enum(["0", "1"]).optional().meta({ description: "'0' enables, '1' disables." }),
      enabled: z.boolean().optional().meta({ description: "The same as a boolean." }),
      sensitive: z.boolean().optional().meta({ description: "Of a VCP plugin: calls of its tool wait for approval." }),
      roles: pluginDefinitionSchema.shape.roles.meta({
        description: "Of a VCP plugin: who may use its tool and its routes; [] for all.",
      }),
    },
    {
      error: (issue) =>
        issue.code === "unrecognized_keys" && issue.keys.some((key) => Object.hasOwn(pluginDefinitionSchema.shape, key))
          ? partOfDefinition
          : undefined,
    },
  )
  .refine((body) => Object.values(body).some((value) => value !== undefined), {
    error: "needs 'status' or 'enabled', or of a VCP plugin 'sensitive' or 'roles'",
    path: ["enabled"],
  })
  .refine(({ status, enabled }) => status === undefined || enabled === undefined || (status === "0") === enabled, {
    error: "contradicts 'status'",
    path: ["enabled"],
  });

/** What the author of a VCP plugin has not to say, its tenant says here; that of others is part of their definition. */
function decisionsIn(
  { type }: PluginRecord,
  { sensitive, roles }: z.output<typeof changeBody>,
): PluginDecisions | undefined {
  const given = sensitive === undefined ? "roles" : "sensitive";
  if (sensitive === undefined && roles === undefined) return undefined;
  if (type === "VCP") return { sensitive, roles };
  throw new GatewayError("invalid_request", `Body field '${given}' ${partOfDefinition}.`, { param: given });
}

export const updatePlugin = defineRoute({
  method: "patch",
  path: "/v1/plugins/{id}",
  summary: "Enable or disable a plugin; of a VCP plugin also who may use it, and whether calls wait for approval",
  description: "Works from the next request on; calls under way are not disturbed.",
  tags,
  scope: "manage",
  request: { params: idParams, body: changeBody },
  responses: { 200: { description: "The plugin as it is now", schema: pluginSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ ...(await arrangeObject(owner)), body: { enabled: false } }),
  },
  async handler(c, { core, tenant, config, params, body }) {
    const enabled = body.enabled ?? (body.status === undefined ? undefined : body.status === "0");
    const record = await findPlugin(core, tenant, params.id);
    const decisions = decisionsIn(record, body);
    if (record.type === "NATIVE") {
      const switched = ({ native_tools: on }: TenantSettings): Pick<TenantSettings, "native_tools"> => {
        const others = on.filter((name) => name !== record.name);
        return { native_tools: enabled === true ? [...others, record.name] : others };
      };
      const { settings } = found(await updateTenant(core, tenant, { settings: switched }), "tenant", tenant);
      return c.json(viewPlugin({ ...config, settings: tenantSettingsSchema.parse(settings) })(record));
    }
    if (decisions !== undefined) await decideOnPlugin(core, tenant, record, decisions);
    const updated =
      enabled === undefined
        ? await core.repos.plugins.get(tenant, record.pluginId)
        : await core.repos.plugins.setEnabled(tenant, record.pluginId, enabled);
    if (record.type === "VCP") await haveNodesLook(core, tenant);
    const now = record.type === "VCP" ? await core.configs.get(tenant, config.version + 1) : config;
    return c.json(viewPlugin(now)(found(updated, "plugin", params.id)));
  },
});

export const deletePlugin = defineRoute({
  method: "delete",
  path: "/v1/plugins/{id}",
  summary: "Delete a plugin",
  description: "Calls under way are not disturbed; calls that wait for approval fail when they are approved.",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 204: { description: "The plugin is gone" } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, config, context, params }) {
    const id = toPluginId(params.id);
    // One that cannot be read is in no configuration, and can be deleted all the same.
    const record = config.plugins.find(({ pluginId }) => pluginId === id);
    const vcp = record === undefined ? undefined : vcpPluginsOf(config).get(record.name);
    if (vcp?.pluginId === id) await forgetPluginValues(core, context, vcp);
    if (!(await core.repos.plugins.delete(tenant, id))) {
      requireOwn(await findPlugin(core, tenant, params.id));
      throw notFound("plugin", params.id);
    }
    if (record?.type === "VCP") await haveNodesLook(core, tenant);
    // A worker finds it gone, and what it has given to placeholders goes, too.
    if (vcp?.pluginId === id && vcp.manifest.pluginType === "static") {
      await askForRefresh(core, { tenant, source: pluginSource(vcp.name), expectedMs: 0 });
    }
    return c.body(null, 204);
  },
});
