/** Tenants, for the operator: create, list, change, suspend, erase (design "Public contract", operator routes). */
import { toRfc3339 } from "@toolyard/core/time";
import type { Tenant } from "@toolyard/core/ports/tenants";
import { createTenant as makeTenant } from "@toolyard/core/tenants/create";
import { eraseTenant as eraseWholeTenant } from "@toolyard/core/tenants/erase";
import { changeSettings } from "@toolyard/core/tenants/settings";
import { rewrapTenantKey, updateTenant as changeTenant } from "@toolyard/core/tenants/update";
import * as z from "zod";
import { defineRoute } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { settingsBody } from "./settings-change.ts";
import { emptyBody, found, idOf, idParams, nameField, notFound, timeSchema, withoutUndefined } from "./shared.ts";

const tags = ["tenants"];
const operatorOnly = {
  kind: "nothing-owned",
  reason: "Only the operator's key is admitted, never a tenant's.",
} as const;

const tenantSchema = z.strictObject({
  id: z.string().meta({ example: "ten_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("tenant"),
  name: z.string(),
  status: z.enum(["active", "suspended"]),
  settings: z.record(z.string(), z.unknown()).meta({
    description:
      "What the tenant has set, as it was asked for; what holds, with defaults and within the operator's caps: GET /v1/settings.",
  }),
  config_version: z.int().meta({ description: "Rises with every change that a request may see." }),
  created_at: timeSchema,
});

function viewTenant(tenant: Tenant): z.output<typeof tenantSchema> {
  return {
    id: tenant.id,
    object: "tenant",
    name: tenant.name,
    status: tenant.status,
    settings: { ...tenant.settings },
    config_version: tenant.configVersion,
    created_at: toRfc3339(tenant.createdAt),
  };
}

export const createTenant = defineRoute({
  method: "post",
  path: "/v1/tenants",
  summary: "Create a tenant",
  description: "The tenant gets its own data key. Make a key for it with POST /v1/api-keys and 'x-toolyard-tenant'.",
  tags,
  scope: "operator",
  request: { body: z.strictObject({ name: nameField, settings: settingsBody.optional() }) },
  responses: { 201: { description: "The tenant", schema: tenantSchema } },
  isolation: operatorOnly,
  async handler(c, { core, body }) {
    const settings = changeSettings({}, body.settings ?? {}, core.settingsCaps);
    return c.json(viewTenant(await makeTenant(core, { name: body.name, settings })), 201);
  },
});

export const listTenants = defineRoute({
  method: "get",
  path: "/v1/tenants",
  summary: "List tenants",
  tags,
  scope: "operator",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of tenants", schema: listSchema(tenantSchema) } },
  isolation: operatorOnly,
  handler: async (c, { core, query }) =>
    c.json(toList(await core.repos.tenants.list(toPageRequest(query)), viewTenant, idOf)),
});

export const getTenant = defineRoute({
  method: "get",
  path: "/v1/tenants/{id}",
  summary: "One tenant",
  tags,
  scope: "operator",
  request: { params: idParams },
  responses: { 200: { description: "The tenant", schema: tenantSchema } },
  isolation: operatorOnly,
  handler: async (c, { core, params }) =>
    c.json(viewTenant(found(await core.repos.tenants.get(params.id), "tenant", params.id))),
});

export const updateTenant = defineRoute({
  method: "patch",
  path: "/v1/tenants/{id}",
  summary: "Rename, suspend or resume a tenant, or change its settings",
  description:
    "Fields that are left out stay as they are. A suspended tenant's requests are refused, its calls that run are asked to stop, and those that are queued wait until it is active again; its data stays. A setting of null goes back to its default.",
  tags,
  scope: "operator",
  request: {
    params: idParams,
    body: z.strictObject({
      name: nameField.optional(),
      status: z.enum(["active", "suspended"]).optional(),
      settings: settingsBody.optional(),
    }),
  },
  responses: { 200: { description: "The tenant as it is now", schema: tenantSchema } },
  isolation: operatorOnly,
  async handler(c, { core, params, body }) {
    const updated = await changeTenant(core, params.id, withoutUndefined(body));
    return c.json(viewTenant(found(updated, "tenant", params.id)));
  },
});

export const rotateTenantKey = defineRoute({
  method: "post",
  path: "/v1/tenants/{id}/rotate-key",
  summary: "Put a tenant's data key under the current master key",
  description:
    "After a new TOOLYARD_MASTER_KEY, with the old one in TOOLYARD_PREVIOUS_MASTER_KEYS: once done for every tenant, the old one can go. Credentials stay as they are.",
  tags,
  scope: "operator",
  request: { params: idParams, body: emptyBody },
  responses: { 200: { description: "The tenant", schema: tenantSchema } },
  isolation: operatorOnly,
  handler: async (c, { core, params }) =>
    c.json(viewTenant(found(await rewrapTenantKey(core, params.id), "tenant", params.id))),
});

export const eraseTenant = defineRoute({
  method: "delete",
  path: "/v1/tenants/{id}",
  summary: "Erase a tenant",
  description:
    "Removes every row and every stored file of the tenant and its data key. There is no way back. If it is interrupted, ask again: the tenant is suspended first, calls that run are given ten seconds to stop, and its own row goes last. The default tenant of a server is there again, empty, when it starts the next time.",
  tags,
  scope: "operator",
  request: { params: idParams },
  responses: { 204: { description: "Nothing of the tenant is left" } },
  isolation: operatorOnly,
  async handler(c, { core, params }) {
    if (!(await eraseWholeTenant(core, params.id))) throw notFound("tenant", params.id);
    return c.body(null, 204);
  },
});
