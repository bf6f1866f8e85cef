/**
 * The order of preprocessors as upstream's panel reads and writes it (VCP-6, VCP-24). It is the setting
 * `preprocessor_order`, which `PATCH /v1/settings` changes as well.
 */
import { updateTenant } from "@toolyard/core/tenants/update";
import { preprocessorsOf } from "@toolyard/core/vcp/pipeline/preprocessor-order";
import type { TenantConfig } from "@toolyard/core/tenant-config";
import * as z from "zod";
import { defineRoute } from "../define-route.ts";
import { found } from "./shared.ts";

const tags = ["vcp"];
const ownOnly = {
  kind: "nothing-owned",
  reason: "Names no object: it is the order of the caller's own tenant that is read and changed.",
} as const;

const preprocessorSchema = z.strictObject({ name: z.string(), displayName: z.string(), description: z.string() });

function viewOrder(config: TenantConfig): z.output<typeof preprocessorSchema>[] {
  return preprocessorsOf(config).map(({ name, displayName, manifest }) => ({
    name,
    displayName,
    description: manifest.description,
  }));
}

export const getPreprocessorOrder = defineRoute({
  method: "get",
  path: "/admin_api/preprocessors/order",
  summary: "The order of the tenant's preprocessors",
  tags,
  scope: "manage",
  responses: {
    200: {
      description: "Those that run, in their order",
      schema: z.strictObject({ status: z.literal("success"), order: z.array(preprocessorSchema) }),
    },
  },
  isolation: ownOnly,
  handler: (c, { config }) => c.json({ status: "success", order: viewOrder(config) }),
});

export const setPreprocessorOrder = defineRoute({
  method: "post",
  path: "/admin_api/preprocessors/order",
  summary: "Change the order of the tenant's preprocessors",
  description:
    "Preprocessors that are not named follow in order of their names. An order that names an unknown one, or one twice, changes nothing.",
  tags,
  scope: "manage",
  request: { body: z.strictObject({ order: z.array(z.string().min(1).max(100)).max(500) }) },
  responses: {
    200: {
      description: "Those that run, in their new order",
      schema: z.strictObject({
        status: z.literal("success"),
        message: z.string(),
        newOrder: z.array(preprocessorSchema),
      }),
    },
  },
  isolation: ownOnly,
  async handler(c, { core, tenant, body }) {
    const updated = found(
      await updateTenant(core, tenant, { settings: { preprocessor_order: body.order } }),
      "tenant",
      tenant,
    );
    const config = await core.configs.get(tenant, updated.configVersion);
    return c.json({ status: "success", message: "Order saved successfully.", newOrder: viewOrder(config) });
  },
});
