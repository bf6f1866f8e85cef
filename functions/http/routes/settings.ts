/** The tenant's own limits and policies, within the operator's caps (CHAT-12). */
import type { CallContext } from "@toolyard/core/context";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { settingWarnings } from "@toolyard/core/tenants/setting-warnings";
import { settingsInForce, tenantSettingsSchema } from "@toolyard/core/tenants/settings";
import { updateTenant } from "@toolyard/core/tenants/update";
import * as z from "zod";
import { defineRoute } from "../define-route.ts";
import { settingsBody } from "./settings-change.ts";
import { found } from "./shared.ts";

const tags = ["settings"];
const ownOnly = {
  kind: "nothing-owned",
  reason: "Names no object: it is the caller's own tenant that is read and changed.",
} as const;

const settingsSchema = z.strictObject({
  object: z.literal("settings"),
  ...tenantSettingsSchema.shape,
  warnings: z
    .array(z.string())
    .optional()
    .meta({ description: "Settings that name a model, a tool, a knowledge base or an issuer that there is not." }),
});

/** As VCP spells them, beside our own names: a list, or names with commas between them. */
const modelNames = z
  .union([z.string(), z.array(z.string()).max(200)])
  .nullable()
  .optional()
  .transform((names) => {
    if (names === undefined || names === null) return names;
    const list = typeof names === "string" ? names.split(",") : names;
    return list.map((name) => name.trim()).filter((name) => name !== "");
  });

const changeSchema = z.strictObject({
  ...settingsBody.shape,
  WhitelistImageModel: modelNames.meta({ description: "VCP's name of `whitelist_image_models`." }),
  WhitelistEmbeddingModel: modelNames.meta({ description: "VCP's name of `whitelist_embedding_models`." }),
});

async function viewSettings(core: CoreDeps, context: CallContext): Promise<z.output<typeof settingsSchema>> {
  const warnings = await settingWarnings(core, context);
  return {
    object: "settings",
    ...context.config.settings,
    ...(warnings.length > 0 ? { warnings: [...warnings] } : {}),
  };
}

export const getSettings = defineRoute({
  method: "get",
  path: "/v1/settings",
  summary: "The tenant's settings, defaults included",
  tags,
  scope: "manage",
  responses: { 200: { description: "All settings", schema: settingsSchema } },
  isolation: ownOnly,
  handler: async (c, { core, context }) => c.json(await viewSettings(core, context)),
});

export const updateSettings = defineRoute({
  method: "patch",
  path: "/v1/settings",
  summary: "Change settings",
  description:
    "Settings that are left out stay as they are; null takes one back to its default. A name of something that may still be made is taken, and told of in 'warnings' until it is there.",
  tags,
  scope: "manage",
  request: { body: changeSchema },
  responses: { 200: { description: "All settings as they are now", schema: settingsSchema } },
  isolation: ownOnly,
  async handler(c, { core, tenant, context, body }) {
    const { WhitelistImageModel: images, WhitelistEmbeddingModel: vectors, ...named } = body;
    const settings = {
      ...named,
      ...(images === undefined ? {} : { whitelist_image_models: images }),
      ...(vectors === undefined ? {} : { whitelist_embedding_models: vectors }),
    };
    const updated = found(await updateTenant(core, tenant, { settings }), "tenant", tenant);
    const config = { ...context.config, settings: settingsInForce(updated.settings, core.settingsCaps) };
    return c.json(await viewSettings(core, { ...context, config }));
  },
});
