/** Agents of a tenant (AGENT-1 to AGENT-3): what they are; they run as `model: "agent/{name}"` and `agent://{name}`. */
import {
  agentDefinitionSchema,
  agentLimitsSchema,
  agentModelOf,
  agentNameSchema,
  type AgentRecord,
} from "@toolyard/core/agents/agent";
import { deleteAgent as remove } from "@toolyard/core/agents/delete-agent";
import { updateAgent as update } from "@toolyard/core/agents/update-agent";
import { newId } from "@toolyard/core/ids";
import { toRfc3339 } from "@toolyard/core/time";
import * as z from "zod";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { confirmed, found, idOf, idParams, timeSchema, withoutUndefined } from "./shared.ts";

const tags = ["agents"];
const { shape } = agentDefinitionSchema();

const fields = {
  name: agentNameSchema.meta({ description: 'In `model: "agent/{name}"` and `agent://{name}`.' }),
  description: shape.description.meta({ description: "What it is for; other agents and models read it." }),
  model: shape.model.meta({ description: "null: the tenant's default." }),
  instructions: shape.instructions.meta({
    description: "The system message. Placeholders of VCP are expanded where the tenant's message pipeline applies.",
  }),
  tools: shape.tools.meta({
    description: "Names or URIs of the tools that it may call, '*' for any characters; all others are refused.",
    example: ["lookup", "mcp://crm/*"],
  }),
  knowledge: shape.knowledge.meta({ description: "Knowledge bases that it searches." }),
  handoffs: shape.handoffs.meta({ description: "Agents that it may hand the conversation over to." }),
  agents: shape.agents.meta({ description: "Agents that it may call as tools." }),
  limits: shape.limits.meta({ description: "Below the tenant's settings; `tokens` and `cost_micros` of all it runs." }),
  tool_protocol: shape.tool_protocol.meta({ description: "How its model asks for tools." }),
  parameters: shape.parameters.meta({
    description: "For the model back end, where a request does not say otherwise: `temperature`, `max_tokens`, …",
  }),
  allow_client_tools: shape.allow_client_tools.meta({ description: "Requests may bring tools that the client runs." }),
  enabled: shape.enabled,
};

const newAgentSchema = z.strictObject({
  ...fields,
  description: fields.description.default(""),
  model: fields.model.default(null),
  instructions: fields.instructions.default(""),
  tools: fields.tools.default([]),
  knowledge: fields.knowledge.default([]),
  handoffs: fields.handoffs.default([]),
  agents: fields.agents.default([]),
  limits: agentLimitsSchema().prefault({}),
  tool_protocol: fields.tool_protocol.default("openai"),
  parameters: fields.parameters.default({}),
  allow_client_tools: fields.allow_client_tools.default(false),
  enabled: fields.enabled.default(true),
});

const agentSchema = z.strictObject({
  id: z.string().meta({ example: "agt_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("agent"),
  ...fields,
  model_name: z.string().meta({ description: "For `model` of a chat.", example: "agent/support" }),
  created_at: timeSchema,
  updated_at: timeSchema,
});

function viewAgent({ createdAt, updatedAt, ...agent }: AgentRecord): z.output<typeof agentSchema> {
  return {
    ...agent,
    object: "agent",
    model_name: agentModelOf(agent),
    created_at: toRfc3339(createdAt),
    updated_at: toRfc3339(updatedAt),
  };
}

async function arrangeAgent(owner: IsolationDriver): Promise<string> {
  const agent = await owner.send("post", "/v1/agents", { name: newId("request") });
  return String(agent["id"]);
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: await arrangeAgent(owner) },
});

export const createAgent = defineRoute({
  method: "post",
  path: "/v1/agents",
  summary: "Add an agent",
  description: "It can be asked from the next request on.",
  tags,
  scope: "manage",
  request: { body: newAgentSchema },
  responses: { 201: { description: "The agent", schema: agentSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes an agent of the caller's own tenant." },
  handler: async (c, { core, tenant, body }) =>
    c.json(viewAgent(await core.repos.agents.create(tenant, newId("agent"), body)), 201),
});

export const listAgents = defineRoute({
  method: "get",
  path: "/v1/agents",
  summary: "List agents",
  tags,
  scope: "manage",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of agents", schema: listSchema(agentSchema) } },
  isolation: { kind: "list", arrange: arrangeAgent },
  handler: async (c, { core, tenant, query }) =>
    c.json(toList(await core.repos.agents.list(tenant, toPageRequest(query)), viewAgent, idOf)),
});

export const getAgent = defineRoute({
  method: "get",
  path: "/v1/agents/{id}",
  summary: "One agent",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 200: { description: "The agent", schema: agentSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  handler: async (c, { core, tenant, params }) =>
    c.json(viewAgent(found(await core.repos.agents.get(tenant, params.id), "agent", params.id))),
});

export const updateAgent = defineRoute({
  method: "patch",
  path: "/v1/agents/{id}",
  summary: "Change an agent",
  description: "Fields that are left out stay as they are; lists and objects are replaced as a whole.",
  tags,
  scope: "manage",
  request: { params: idParams, body: z.strictObject(fields).partial() },
  responses: { 200: { description: "The agent as it is now", schema: agentSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ ...(await arrangeObject(owner)), body: { enabled: false } }),
  },
  async handler(c, { core, tenant, params, body }) {
    const updated = await update(core, { tenant }, { id: params.id, change: withoutUndefined(body) });
    return c.json(viewAgent(found(updated, "agent", params.id)));
  },
});

export const deleteAgent = defineRoute({
  method: "delete",
  path: "/v1/agents/{id}",
  summary: "Delete an agent",
  description:
    "Refused with `service_referenced`, naming the referrers, while something uses it; `force=true` deletes all the same.",
  tags,
  scope: "manage",
  request: {
    params: idParams,
    query: z.strictObject({ force: confirmed.meta({ description: "'true': although it is in use." }) }),
  },
  responses: { 204: { description: "The agent is gone" } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params, query }) {
    await remove(core, context, { id: params.id, force: query.force });
    return c.body(null, 204);
  },
});
