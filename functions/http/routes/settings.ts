/** The tenant's own limits and policies, within the operator's caps (CHAT-12). */
import { settingsChangeSchema } from "@toolyard/core/tenants/settings";
import { updateTenant } from "@toolyard/core/tenants/update";
import { tenantSettingsSchema, type TenantConfig } from "@toolyard/core/tenant-config";
import * as z from "zod";
import { defineRoute } from "../define-route.ts";
import { found } from "./shared.ts";

const tags = ["settings"];
const ownOnly = {
  kind: "nothing-owned",
  reason: "Names no object: it is the caller's own tenant that is read and changed.",
} as const;

const settingsSchema = z.strictObject({ object: z.literal("settings"), ...tenantSettingsSchema.shape });

function viewSettings(settings: TenantConfig["settings"]): z.output<typeof settingsSchema> {
  return { object: "settings", ...settings };
}

export const getSettings = defineRoute({
  method: "get",
  path: "/v1/settings",
  summary: "The tenant's settings, defaults included",
  tags,
  scope: "manage",
  responses: { 200: { description: "All settings", schema: settingsSchema } },
  isolation: ownOnly,
  handler: (c, { config }) => c.json(viewSettings(config.settings)),
});

export const updateSettings = defineRoute({
  method: "patch",
  path: "/v1/settings",
  summary: "Change settings",
  description: "Settings that are left out stay as they are; null takes one back to its default.",
  tags,
  scope: "manage",
  request: { body: settingsChangeSchema },
  responses: { 200: { description: "All settings as they are now", schema: settingsSchema } },
  isolation: ownOnly,
  async handler(c, { core, tenant, body }) {
    const updated = found(await updateTenant(core, tenant, { settings: body }), "tenant", tenant);
    return c.json(viewSettings(tenantSettingsSchema.parse(updated.settings)));
  },
});
