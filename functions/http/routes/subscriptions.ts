/** Subscriptions: messages of `mq://service/topic` become calls of a tool (MQ-3; docs/services/mq.md). */
import type { FailedMessage, MessageSubscription, SubscriptionHolder } from "@toolyard/core/subscriptions/subscription";
import {
  subscriptionNameSchema,
  subscriptionOptionsSchema,
  targetSchema,
} from "@toolyard/core/subscriptions/subscription";
import type { Promised, SubscriptionStatus } from "@toolyard/core/subscriptions/status";
import type { TenantConfig } from "@toolyard/core/tenant-config";
import { toRfc3339 } from "@toolyard/core/time";
import { formatToolUri, toolUriForm } from "@toolyard/core/tools/uri";
import * as z from "zod";
import type { AppContext } from "../app-env.ts";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { readIfMatch } from "../if-match.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { emptyBody, idOf, idParams, timeSchema, withoutUndefined } from "./shared.ts";

const tags = ["subscriptions"];

const errorField = z.strictObject({ code: z.string(), message: z.string() }).nullable();

const fields = {
  id: z.string().meta({ example: "sub_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("subscription"),
  name: z.string(),
  description: z.string().nullable(),
  uri: z.string().meta({ description: "What is subscribed to.", example: "mq://order-service/order_created" }),
  target: targetSchema,
  options: subscriptionOptionsSchema,
  enabled: z.boolean(),
  delivery: z
    .enum(["at_least_once", "at_most_once"])
    .nullable()
    .meta({ description: "What the broker lets it promise; null: its service is gone." }),
  note: z.string().nullable(),
  totals: z
    .strictObject({
      accepted: z.int().meta({ description: "Messages that became calls." }),
      duplicates: z.int().meta({ description: "Messages that were calls already." }),
      refused: z.int().meta({ description: "Attempts of which no call could be made." }),
      dead: z.int().meta({ description: "Messages that were given up." }),
      dropped: z.int().meta({ description: "Redis: messages that came faster than calls were made." }),
    })
    .meta({ description: "Since it was created, as nodes have counted." }),
  last_message_at: timeSchema.nullable(),
  version: z.int().meta({ description: "Rises with every change; also the `etag`." }),
  created_at: timeSchema,
  updated_at: timeSchema,
};
const subscriptionSchema = z.strictObject(fields);

const holderSchema = z.strictObject({
  node: z.string(),
  connected: z.boolean(),
  state: z.enum(["starting", "consuming", "failing"]),
  error: errorField,
  last_error_at: timeSchema.nullable(),
  waiting: z.int().nullable().meta({ description: "Messages at the broker; null: it does not say." }),
  in_hand: z.int().meta({ description: "Messages that the node has taken and not settled." }),
  since: timeSchema,
  last_seen_at: timeSchema,
});

const withStatusSchema = z
  .strictObject({
    ...fields,
    state: z.enum(["disabled", "blocked", "unheld", "starting", "failing", "consuming"]),
    reason: errorField.meta({ description: "Why it does not consume." }),
    holders: z.array(holderSchema).meta({ description: "Nodes that consume it, or did within the last day." }),
  })
  .meta({ id: "SubscriptionStatus" });

function viewSubscription(
  subscription: MessageSubscription,
  promised: Promised | null,
): z.output<typeof subscriptionSchema> {
  const { id, name, description, serviceId, topic, target, options, enabled, totals, version } = subscription;
  return {
    id,
    object: "subscription",
    name,
    description,
    uri: formatToolUri("mq", serviceId, topic),
    target,
    options,
    enabled,
    delivery: promised?.delivery ?? null,
    note: promised?.note ?? null,
    totals: { ...totals },
    last_message_at: timeOf(subscription.lastMessageAt),
    version,
    created_at: toRfc3339(subscription.createdAt),
    updated_at: toRfc3339(subscription.updatedAt),
  };
}

function viewHolder(holder: SubscriptionHolder): z.output<typeof holderSchema> {
  const { node, connected, state, error, waiting, inHand } = holder;
  return {
    node,
    connected,
    state,
    error: error === null ? null : { ...error },
    last_error_at: timeOf(holder.lastErrorAt),
    waiting,
    in_hand: inHand,
    since: toRfc3339(holder.since),
    last_seen_at: toRfc3339(holder.seenAt),
  };
}

function viewStatus({ state, reason, holders }: SubscriptionStatus): object {
  return { state, reason, holders: holders.map(viewHolder) };
}

function timeOf(at: number | null): string | null {
  return at === null ? null : toRfc3339(at);
}

/** What decides about subscriptions is read where there is one: most processes answer for none. */
// oxlint-disable-next-line typescript/explicit-function-return-type
const readStatus = () => import("@toolyard/core/subscriptions/status");

async function answer(
  c: AppContext,
  config: TenantConfig,
  { subscription, status = 200 }: { readonly subscription: MessageSubscription; readonly status?: 200 | 201 },
): Promise<Response> {
  const { promiseOf } = await readStatus();
  const view = viewSubscription(subscription, promiseOf(config, subscription));
  return c.json(view, status, { etag: `"${subscription.version}"` });
}

/** A subscription of the owner, for the isolation suite. */
async function arrangeSubscription(owner: IsolationDriver): Promise<string> {
  const unique = Math.random().toString(36).slice(2);
  await owner.send("post", "/v1/tool-services", {
    scheme: "mq",
    service_id: `private-${unique}`,
    config: {
      broker: "redis",
      servers: ["mq.example.com"],
      topics: { orders: {}, copies: {} },
    },
  });
  const subscription = await owner.send("post", "/v1/subscriptions", {
    name: `private-${unique}`,
    uri: `mq://private-${unique}/orders`,
    target: { uri: `mq://private-${unique}/copies`, arguments: { message: { $message: "/body" } } },
  });
  return String(subscription["id"]);
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: await arrangeSubscription(owner) },
});

const descriptionField = z.string().max(4_096).meta({ description: "For people." });
const uriField = z
  .string()
  .min(1)
  .max(2_048)
  .meta({ pattern: toolUriForm, description: "`mq://{service}/{topic}`", example: "mq://order-service/order_created" });

export const createSubscription = defineRoute({
  method: "post",
  path: "/v1/subscriptions",
  summary: "Subscribe to a topic",
  description:
    "Each message becomes a call of the target, once, however often the broker delivers it. Nodes with `subscriptions: true` consume; while there is none, messages wait at the broker, where it stores them. Calls may use what the role of whoever made it may, so a key that is bound to tools makes none.",
  tags,
  scope: "manage",
  request: {
    body: z.strictObject({
      name: subscriptionNameSchema.meta({ description: "Unique within the tenant." }),
      description: descriptionField.nullable().default(null),
      uri: uriField,
      target: targetSchema,
      options: subscriptionOptionsSchema.prefault({}),
      enabled: z.boolean().default(true),
    }),
  },
  responses: { 201: { description: "The subscription", schema: subscriptionSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes a subscription of the caller's own tenant." },
  async handler(c, { core, context, body }) {
    const { createSubscription: create } = await import("@toolyard/core/subscriptions/register");
    return answer(c, context.config, { subscription: await create(core, context, body), status: 201 });
  },
});

export const listSubscriptions = defineRoute({
  method: "get",
  path: "/v1/subscriptions",
  summary: "List subscriptions",
  tags,
  scope: "manage",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of subscriptions", schema: listSchema(subscriptionSchema) } },
  isolation: { kind: "list", arrange: arrangeSubscription },
  async handler(c, { core, tenant, config, query }) {
    const page = await core.repos.subscriptions.list(tenant, toPageRequest(query));
    const { promiseOf } = await readStatus();
    return c.json(toList(page, (each) => viewSubscription(each, promiseOf(config, each)), idOf));
  },
});

export const getSubscription = defineRoute({
  method: "get",
  path: "/v1/subscriptions/{id}",
  summary: "One subscription, with who consumes it and how that goes",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 200: { description: "The subscription", schema: withStatusSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, config, params }) {
    const { requireSubscription } = await import("@toolyard/core/subscriptions/register");
    const { promiseOf, statusOf } = await readStatus();
    const subscription = await requireSubscription(core, tenant, params.id);
    const view = viewSubscription(subscription, promiseOf(config, subscription));
    const status = viewStatus(await statusOf(core, config, subscription));
    return c.json({ ...view, ...status }, 200, { etag: `"${subscription.version}"` });
  },
});

const changes = z.strictObject({
  description: descriptionField.nullable().optional(),
  uri: uriField.optional(),
  target: targetSchema.optional().meta({ description: "The whole target." }),
  options: subscriptionOptionsSchema.optional().meta({ description: "All options; what is left out has its default." }),
  enabled: z.boolean().optional(),
  version: z
    .int()
    .min(1)
    .optional()
    .meta({ description: "Refuse unless it is the subscription's; `if-match` does the same." }),
});

export const updateSubscription = defineRoute({
  method: "patch",
  path: "/v1/subscriptions/{id}",
  summary: "Change a subscription",
  description:
    "Fields that are left out stay as they are. Nodes go on with the new configuration at once; messages that they have in hand become calls by it, or go back to the broker.",
  tags,
  scope: "manage",
  request: {
    params: idParams,
    body: changes,
    headers: { "if-match": "The `etag` that the change is based on; 412 where the subscription has another by now." },
  },
  responses: { 200: { description: "The subscription as it is now", schema: subscriptionSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ ...(await arrangeObject(owner)), body: { description: "changed" } }),
  },
  async handler(c, { core, context, params, body }) {
    const { updateSubscription: update } = await import("@toolyard/core/subscriptions/register");
    const { version, ...patch } = body;
    const expectedVersion = readIfMatch(c, version, "subscription");
    const subscription = await update(core, context, {
      id: params.id,
      patch: withoutUndefined(patch),
      ...(expectedVersion === undefined ? {} : { expectedVersion }),
    });
    return answer(c, context.config, { subscription });
  },
});

export const deleteSubscription = defineRoute({
  method: "delete",
  path: "/v1/subscriptions/{id}",
  summary: "Delete a subscription",
  description: "Nodes stop consuming at once. Queues and groups stay at the broker, and calls that were made stay.",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 204: { description: "The subscription is gone" } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, params }) {
    const { deleteSubscription: remove } = await import("@toolyard/core/subscriptions/register");
    await remove(core, tenant, params.id);
    return c.body(null, 204);
  },
});

function switchRoute(verb: "enable" | "disable", summary: string): ReturnType<typeof defineRoute> {
  return defineRoute({
    method: "post",
    path: `/v1/subscriptions/{id}/${verb}`,
    summary,
    tags,
    scope: "manage",
    request: { params: idParams, body: emptyBody },
    responses: { 200: { description: "The subscription as it is now", schema: subscriptionSchema } },
    isolation: { kind: "object", arrange: arrangeObject },
    async handler(c, { core, context, params }) {
      const { updateSubscription: update } = await import("@toolyard/core/subscriptions/register");
      const subscription = await update(core, context, { id: params.id, patch: { enabled: verb === "enable" } });
      return answer(c, context.config, { subscription });
    },
  });
}

export const enableSubscription = switchRoute("enable", "Let nodes consume a subscription");
export const disableSubscription = switchRoute("disable", "Have nodes stop consuming a subscription");

const failedSchema = z.strictObject({
  id: z.string(),
  object: z.literal("failed_message"),
  message_id: z.string().nullable().meta({ description: "The producer's or the broker's; null: it has none." }),
  state: z.enum(["retrying", "dead"]),
  attempts: z.int(),
  error: z.strictObject({ code: z.string(), message: z.string() }),
  first_at: timeSchema,
  last_at: timeSchema,
});

function viewFailed(failed: FailedMessage): z.output<typeof failedSchema> {
  const { id, messageId, isDead, attempts, code, message, firstAt, lastAt } = failed;
  return {
    id,
    object: "failed_message",
    message_id: messageId,
    state: isDead ? "dead" : "retrying",
    attempts,
    error: { code, message },
    first_at: toRfc3339(firstAt),
    last_at: toRfc3339(lastAt),
  };
}

export const listFailedMessages = defineRoute({
  method: "get",
  path: "/v1/subscriptions/{id}/failed-messages",
  summary: "Messages of which no call could be made",
  description:
    "Those that are tried again, and those that were given up within the last 30 days. What they held is at the broker, in the queue or topic for such messages where there is one.",
  tags,
  scope: "manage",
  list: true,
  request: { params: idParams, query: pageQuery },
  responses: { 200: { description: "A page of messages", schema: listSchema(failedSchema) } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, params, query }) {
    const { requireSubscription } = await import("@toolyard/core/subscriptions/register");
    await requireSubscription(core, tenant, params.id);
    const page = await core.repos.subscriptions.failed(tenant, params.id, toPageRequest(query));
    return c.json(toList(page, viewFailed, idOf));
  },
});
