/** Webhooks: who is told of a tenant's calls, the log of what was told, and telling it again (Standard Webhooks). */
import type { CoreDeps } from "@toolyard/core/core-deps";
import { newId } from "@toolyard/core/ids";
import { toRfc3339 } from "@toolyard/core/time";
import { newWebhookSecret } from "@toolyard/core/webhooks/secret";
import { requireWebhookUrl } from "@toolyard/core/webhooks/url";
import {
  deliveryStates,
  webhookEventSchema,
  type Webhook,
  type WebhookDelivery,
} from "@toolyard/core/webhooks/webhook";
import * as z from "zod";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { requireReachable } from "./reachable-url.ts";
import { emptyBody, found, idOf, idParams, nameField, notFound, timeSchema, withoutUndefined } from "./shared.ts";

const tags = ["webhooks"];

const fields = {
  name: nameField,
  url: z
    .url({ protocol: /^https?$/ })
    .max(2_048)
    .meta({
      description: "https; http for private addresses only, where the operator has opened them.",
      example: "https://hooks.example.com/toolyard",
    }),
  events: z.array(webhookEventSchema).min(1).max(webhookEventSchema.options.length),
  enabled: z
    .boolean()
    .meta({ description: "While it is not, nothing new is written for it, and what is pending waits." }),
};

const newWebhookSchema = z.strictObject({
  ...fields,
  events: fields.events.default([...webhookEventSchema.options]),
  enabled: fields.enabled.default(true),
});

const webhookFields = {
  id: z.string().meta({ example: "whk_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("webhook"),
  ...fields,
  disabled_reason: z.string().nullable().meta({ description: "Set where it was disabled for you." }),
  previous_secret_until: timeSchema.nullable().meta({ description: "Until then two secrets sign." }),
  created_at: timeSchema,
  updated_at: timeSchema,
};
const webhookSchema = z.strictObject(webhookFields);
const webhookWithSecretSchema = z
  .strictObject({
    ...webhookFields,
    secret: z.string().meta({ description: "Shown this once.", example: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" }),
  })
  .meta({ id: "CreatedWebhook" });

const deliverySchema = z.strictObject({
  id: z.string().meta({ description: "The header `webhook-id`, the same with each attempt." }),
  object: z.literal("webhook.delivery"),
  webhook_id: z.string(),
  type: z.string(),
  call_id: z.string().nullable(),
  state: z.enum(deliveryStates),
  attempts: z.int(),
  next_attempt_at: timeSchema.nullable(),
  last_attempt_at: timeSchema.nullable(),
  last_status: z.int().nullable().meta({ description: "HTTP status of the newest answer; null: there was none." }),
  last_error: z.string().nullable(),
  created_at: timeSchema,
});

function viewWebhook(webhook: Webhook): z.output<typeof webhookSchema> {
  return {
    id: webhook.id,
    object: "webhook",
    name: webhook.name,
    url: webhook.url,
    events: [...webhook.events],
    enabled: webhook.enabled,
    disabled_reason: webhook.disabledReason,
    previous_secret_until: timeOrNull(webhook.previousUntil),
    created_at: toRfc3339(webhook.createdAt),
    updated_at: toRfc3339(webhook.updatedAt),
  };
}

function viewDelivery(delivery: WebhookDelivery): z.output<typeof deliverySchema> {
  return {
    id: delivery.id,
    object: "webhook.delivery",
    webhook_id: delivery.webhookId,
    type: delivery.type,
    call_id: delivery.callId,
    state: delivery.state,
    attempts: delivery.attempt,
    next_attempt_at: timeOrNull(delivery.nextAt),
    last_attempt_at: timeOrNull(delivery.attemptedAt),
    last_status: delivery.lastStatus,
    last_error: delivery.lastError,
    created_at: toRfc3339(delivery.createdAt),
  };
}

const timeOrNull = (ms: number | null): string | null => (ms === null ? null : toRfc3339(ms));

/** @throws GatewayError `egress_denied` or `invalid_request`, with `param` */
function requireUrl({ egress }: CoreDeps, url: string): void {
  requireWebhookUrl(url);
  requireReachable(egress, url, "url");
}

/** Disabled, so that nothing is sent. */
async function arrangeWebhook(owner: IsolationDriver): Promise<string> {
  const url = `https://hooks.example.com/${newId("request")}`;
  const webhook = await owner.send("post", "/v1/webhooks", { name: "of another tenant", url, enabled: false });
  return String(webhook["id"]);
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: await arrangeWebhook(owner) },
});

export const createWebhook = defineRoute({
  method: "post",
  path: "/v1/webhooks",
  summary: "Be told of calls",
  description: "Signed as Standard Webhooks say. The answer shows the secret, once.",
  tags,
  scope: "manage",
  request: { body: newWebhookSchema },
  responses: { 201: { description: "The webhook and its secret", schema: webhookWithSecretSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes a webhook of the caller's own tenant." },
  async handler(c, { core, tenant, config, body }) {
    requireUrl(core, body.url);
    const id = newId("webhook");
    const { secret, sealed } = await newWebhookSecret(core.sealer, {
      tenant,
      wrappedKey: config.wrappedKey,
      webhookId: id,
    });
    const events = [...new Set(body.events)];
    const webhook = await core.repos.webhooks.create(tenant, { ...body, id, events, sealed });
    return c.json({ ...viewWebhook(webhook), secret }, 201);
  },
});

export const listWebhooks = defineRoute({
  method: "get",
  path: "/v1/webhooks",
  summary: "List webhooks",
  tags,
  scope: "manage",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of webhooks", schema: listSchema(webhookSchema) } },
  isolation: { kind: "list", arrange: arrangeWebhook },
  handler: async (c, { core, tenant, query }) =>
    c.json(toList(await core.repos.webhooks.list(tenant, toPageRequest(query)), viewWebhook, idOf)),
});

export const getWebhook = defineRoute({
  method: "get",
  path: "/v1/webhooks/{id}",
  summary: "One webhook",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 200: { description: "The webhook", schema: webhookSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  handler: async (c, { core, tenant, params }) =>
    c.json(viewWebhook(found(await core.repos.webhooks.get(tenant, params.id), "webhook", params.id))),
});

export const updateWebhook = defineRoute({
  method: "patch",
  path: "/v1/webhooks/{id}",
  summary: "Change a webhook",
  description: "Fields that are left out stay as they are; `events` is replaced as a whole.",
  tags,
  scope: "manage",
  request: { params: idParams, body: z.strictObject(fields).partial() },
  responses: { 200: { description: "The webhook as it is now", schema: webhookSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ params: { id: await arrangeWebhook(owner) }, body: { name: "changed" } }),
  },
  async handler(c, { core, tenant, params, body }) {
    if (body.url !== undefined) requireUrl(core, body.url);
    const webhook = await core.repos.webhooks.update(tenant, params.id, withoutUndefined(body));
    return c.json(viewWebhook(found(webhook, "webhook", params.id)));
  },
});

export const deleteWebhook = defineRoute({
  method: "delete",
  path: "/v1/webhooks/{id}",
  summary: "Remove a webhook and the log of its deliveries",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 204: { description: "Nothing more is sent to it" } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, params }) {
    if (!(await core.repos.webhooks.delete(tenant, params.id))) throw notFound("webhook", params.id);
    return c.body(null, 204);
  },
});

const rotation = z
  .strictObject({
    overlap_s: z
      .int()
      .min(0)
      .max(604_800)
      .default(86_400)
      .meta({ description: "Seconds for which the secret until now signs as well." }),
  })
  .prefault({});

export const rotateWebhookSecret = defineRoute({
  method: "post",
  path: "/v1/webhooks/{id}/rotate-secret",
  summary: "Replace the secret of a webhook",
  description: "The answer shows the new one, once. For `overlap_s` both sign, so that receivers can change over.",
  tags,
  scope: "manage",
  request: { params: idParams, body: rotation },
  responses: { 200: { description: "The webhook and its new secret", schema: webhookWithSecretSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, config, params, body }) {
    const owner = { tenant, wrappedKey: config.wrappedKey, webhookId: params.id };
    const { secret, sealed } = await newWebhookSecret(core.sealer, owner);
    const overlapMs = body.overlap_s * 1_000;
    const webhook = await core.repos.webhooks.rotate(tenant, params.id, { sealed, overlapMs });
    return c.json({ ...viewWebhook(found(webhook, "webhook", params.id)), secret });
  },
});

export const testWebhook = defineRoute({
  method: "post",
  path: "/v1/webhooks/{id}/test",
  summary: "Send a webhook an event of type `webhook.test`",
  tags,
  scope: "manage",
  request: { params: idParams, body: emptyBody },
  responses: { 202: { description: "The delivery, sent within seconds", schema: deliverySchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  handler: async (c, { core, tenant, params }) =>
    c.json(viewDelivery(found(await core.repos.webhooks.addTest(tenant, params.id), "webhook", params.id)), 202),
});

export const listWebhookDeliveries = defineRoute({
  method: "get",
  path: "/v1/webhooks/{id}/deliveries",
  summary: "What a webhook was told, and how it answered",
  tags,
  scope: "manage",
  list: true,
  request: { params: idParams, query: pageQuery.extend({ state: z.enum(deliveryStates).optional() }) },
  responses: { 200: { description: "A page of deliveries", schema: listSchema(deliverySchema) } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, params, query }) {
    const page = await core.repos.webhooks.deliveries(tenant, params.id, toPageRequest(query), query.state);
    return c.json(toList(found(page, "webhook", params.id), viewDelivery, idOf));
  },
});

export const resendWebhookDelivery = defineRoute({
  method: "post",
  path: "/v1/webhooks/{id}/deliveries/{delivery}/resend",
  summary: "Send a delivery again",
  description: "With the same `webhook-id` and body, whether it arrived before or not.",
  tags,
  scope: "manage",
  request: { params: idParams.extend({ delivery: z.string() }), body: emptyBody },
  responses: { 202: { description: "The delivery, sent within seconds", schema: deliverySchema } },
  isolation: {
    kind: "object",
    async arrange(owner) {
      const id = await arrangeWebhook(owner);
      const delivery = await owner.send("post", `/v1/webhooks/${id}/test`);
      return { params: { id, delivery: String(delivery["id"]) } };
    },
  },
  async handler(c, { core, tenant, params }) {
    const delivery = await core.repos.webhooks.resend(tenant, params.id, params.delivery);
    return c.json(viewDelivery(found(delivery, "delivery", params.delivery, "delivery")), 202);
  },
});
