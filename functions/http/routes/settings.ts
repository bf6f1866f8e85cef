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

/** As VCP spells them, beside our own names: a list, or names with commas between them. */
const modelNames = z
  .union([z.string(), z.array(z.string())])
  .nullable()
  .optional()
  .transform((names) => {
    if (names === undefined || names === null) return names;
    const list = typeof names === "string" ? names.split(",") : names;
    return list.map((name) => name.trim()).filter((name) => name !== "");
  });

const changeSchema = z.strictObject({
  ...settingsChangeSchema().shape,
  WhitelistImageModel: modelNames.meta({ description: "VCP's name of `whitelist_image_models`." }),
  WhitelistEmbeddingModel: modelNames.meta({ description: "VCP's name of `whitelist_embedding_models`." }),
});

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
  request: { body: changeSchema },
  responses: { 200: { description: "All settings as they are now", schema: settingsSchema } },
  isolation: ownOnly,
  async handler(c, { core, tenant, body }) {
    const { WhitelistImageModel: images, WhitelistEmbeddingModel: vectors, ...named } = body;
    const settings = {
      ...named,
      ...(images === undefined ? {} : { whitelist_image_models: images }),
      ...(vectors === undefined ? {} : { whitelist_embedding_models: vectors }),
    };
    const updated = found(await updateTenant(core, tenant, { settings }), "tenant", tenant);
    return c.json(viewSettings(tenantSettingsSchema.parse(updated.settings)));
  },
});
