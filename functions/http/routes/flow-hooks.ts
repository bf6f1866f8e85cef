/** Addresses that start runs of a flow, for whoever sends webhooks (docs/flows.md, "Triggers"). */
import type { NewHook } from "@toolyard/core/flows/hooks";
import type { FlowHook } from "@toolyard/core/ports/flows";
import { toRfc3339 } from "@toolyard/core/time";
import * as z from "zod";
import { headerOf } from "../app-env.ts";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { replayHeaders } from "../idempotency-key.ts";
import { arrangeFlow } from "./arrange-flow.ts";
import { found, idOf, idParams, nameField, timeSchema } from "./shared.ts";

const tags = ["flows"];

/** A sender's body becomes the input of a run. */
const longestBody = 1_048_576;

const fields = {
  id: z.string().meta({ example: "fhk_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("flow.hook"),
  flow_id: z.string(),
  name: nameField,
  enabled: z.boolean(),
  signed: z.boolean().meta({ description: "Takes only what is signed as Standard Webhooks say." }),
  hint: z.string().meta({ description: "First characters of the secret part of the address." }),
  last_used_at: timeSchema.nullable(),
  created_at: timeSchema,
  updated_at: timeSchema,
};
const hookSchema = z.strictObject(fields);
const newHookSchema = z
  .strictObject({
    ...fields,
    url: z.string().meta({ description: "Shown this once. Whoever has it can start runs, where `signed` is false." }),
    secret: z.string().optional().meta({ description: "Shown this once; for signing.", example: "whsec_MfKQ9r8GKYqr" }),
  })
  .meta({ id: "CreatedFlowHook" });

function viewHook(hook: FlowHook): z.output<typeof hookSchema> {
  return {
    id: hook.id,
    object: "flow.hook",
    flow_id: hook.flowId,
    name: hook.name,
    enabled: hook.enabled,
    signed: hook.signed,
    hint: hook.hint,
    last_used_at: hook.lastUsedAt === null ? null : toRfc3339(hook.lastUsedAt),
    created_at: toRfc3339(hook.createdAt),
    updated_at: toRfc3339(hook.updatedAt),
  };
}

function viewNew({ hook, url, secret }: NewHook): z.output<typeof newHookSchema> {
  return { ...viewHook(hook), url, ...(secret === undefined ? {} : { secret }) };
}

// oxlint-disable-next-line typescript/explicit-function-return-type
const hooks = () => import("@toolyard/core/flows/hooks");

const hookParams = z.strictObject({ id: z.string(), hook: z.string().meta({ description: "Id of the hook." }) });

async function arrangeHook(owner: IsolationDriver): Promise<IsolatedRequest> {
  const id = await arrangeFlow(owner);
  const hook = await owner.send("post", `/v1/flows/${id}/hooks`, { name: "of another tenant" });
  return { params: { id, hook: String(hook["id"]) } };
}

export const createFlowHook = defineRoute({
  method: "post",
  path: "/v1/flows/{id}/hooks",
  summary: "Make an address that starts runs of a flow",
  description:
    "The answer shows the address, and for signed ones the secret, once. Runs may use what the role of whoever made it may, so a key that is bound to tools makes none. The id of a flow that every tenant has is its name.",
  tags,
  scope: "manage",
  request: {
    params: idParams,
    body: z.strictObject({ name: nameField, signed: z.boolean().default(false) }),
  },
  responses: { 201: { description: "The hook and its address", schema: newHookSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ params: { id: await arrangeFlow(owner) }, body: { name: "mine" } }),
  },
  async handler(c, { core, context, params, body }) {
    const { createHook } = await hooks();
    return c.json(viewNew(await createHook(core, context, { flowId: params.id, ...body })), 201);
  },
});

export const listFlowHooks = defineRoute({
  method: "get",
  path: "/v1/flows/{id}/hooks",
  summary: "List addresses that start runs of a flow",
  tags,
  scope: "manage",
  list: true,
  request: { params: idParams, query: pageQuery },
  responses: { 200: { description: "A page of hooks", schema: listSchema(hookSchema) } },
  isolation: { kind: "object", arrange: async (owner) => ({ params: { id: await arrangeFlow(owner) } }) },
  async handler(c, { core, tenant, params, query }) {
    const { hookedFlow } = await hooks();
    const page = await core.repos.flows.listHooks(tenant, hookedFlow(params.id), toPageRequest(query));
    return c.json(toList(found(page, "flow", params.id), viewHook, idOf));
  },
});

export const updateFlowHook = defineRoute({
  method: "patch",
  path: "/v1/flows/{id}/hooks/{hook}",
  summary: "Switch an address on or off",
  tags,
  scope: "manage",
  request: { params: hookParams, body: z.strictObject({ enabled: z.boolean() }) },
  responses: { 200: { description: "The hook as it is now", schema: hookSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ ...(await arrangeHook(owner)), body: { enabled: false } }),
  },
  async handler(c, { core, tenant, params, body }) {
    const hook = await core.repos.flows.updateHook(tenant, params.id, params.hook, body);
    return c.json(viewHook(found(hook, "hook", params.hook, "hook")));
  },
});

export const rotateFlowHook = defineRoute({
  method: "post",
  path: "/v1/flows/{id}/hooks/{hook}/rotate",
  summary: "Give a hook another address",
  description:
    "The address before ends at once; so does the secret, where requests are signed. One that is signed stays so; `signed` makes one of those that are not. A key that is bound to tools rotates none.",
  tags,
  scope: "manage",
  request: {
    params: hookParams,
    body: z.strictObject({ signed: z.boolean().default(false) }).default({ signed: false }),
  },
  responses: { 200: { description: "The hook and its new address", schema: newHookSchema } },
  isolation: { kind: "object", arrange: arrangeHook },
  async handler(c, { core, context, params, body }) {
    const { rotateHook } = await hooks();
    return c.json(viewNew(await rotateHook(core, context, { flowId: params.id, id: params.hook, ...body })));
  },
});

export const deleteFlowHook = defineRoute({
  method: "delete",
  path: "/v1/flows/{id}/hooks/{hook}",
  summary: "Delete an address that starts runs",
  tags,
  scope: "manage",
  request: { params: hookParams },
  responses: { 204: { description: "The hook is gone" } },
  isolation: { kind: "object", arrange: arrangeHook },
  async handler(c, { core, tenant, params }) {
    const isGone = await core.repos.flows.deleteHook(tenant, params.id, params.hook);
    found(isGone ? params.hook : undefined, "hook", params.hook, "hook");
    return c.body(null, 204);
  },
});

export const takeFlowHook = defineRoute({
  method: "post",
  path: "/v1/flows/{id}/hooks/{hook}",
  summary: "Start a run by its hook",
  description:
    "The address that `POST /v1/flows/{id}/hooks` has shown. A JSON object is the input, and any other JSON its `body`. Repeated with the same `webhook-id` (or `idempotency-key`) within 24 hours it is the same run.",
  tags,
  scope: null,
  admission: "none",
  request: {
    params: z.strictObject({ id: z.string(), hook: z.string().meta({ description: "The token of the address." }) }),
    stream: { mediaTypes: ["application/json"], description: "The input of the run." },
    maxBytes: longestBody,
    headers: {
      "webhook-id": "The same with each attempt at one delivery.",
      "webhook-timestamp": "Seconds since 1970, of signed requests.",
      "webhook-signature": "`v1,` and the signature, of signed requests.",
    },
  },
  responses: {
    202: {
      description: "The run goes on by itself",
      schema: z
        .strictObject({ object: z.literal("run"), run_id: z.string(), url: z.string() })
        .meta({ id: "StartedRun" }),
    },
  },
  isolation: { kind: "nothing-owned", reason: "The token is the key to the one flow that it belongs to." },
  async handler(c, { core, params, stream }) {
    const { takeDelivery } = await hooks();
    const parts: Uint8Array[] = [];
    for await (const part of stream) parts.push(part);
    const exchange = c.get("exchange");
    const { tenant, callerId, runId, replayed } = await takeDelivery(core, {
      flowId: params.id,
      token: params.hook,
      body: Buffer.concat(parts),
      header: (name) => headerOf(c, name),
      requestId: exchange.requestId,
      traceId: exchange.traceId,
    });
    exchange.tenant = tenant;
    exchange.callerId = callerId;
    const url = `${core.publicUrl}/v1/runs/${runId}`;
    return c.json({ object: "run", run_id: runId, url }, 202, replayHeaders(replayed));
  },
});
