/** Nodes of the tenant: processes that dialled in and offer tools of their machines (docs/nodes.md). */
import type { NodeRecord } from "@toolyard/core/nodes/node";
import { toRfc3339 } from "@toolyard/core/time";
import { formatToolUri } from "@toolyard/core/tools/uri";
import * as z from "zod";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { found, idOf, notFound, timeSchema } from "./shared.ts";

const tags = ["nodes"];

const nodeSchema = z.strictObject({
  id: z.string().meta({ example: "node_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("node"),
  name: z.string().meta({ example: "lab-pc" }),
  serverId: z.string().nullable().meta({ description: "Of a VCP node: the id that it was told." }),
  version: z.string().meta({ description: "Of the node's program." }),
  connected: z.boolean().meta({ description: "One that is away stays here for ten minutes, with its tools." }),
  tools: z.array(
    z.strictObject({
      name: z.string(),
      uri: z.string().meta({ description: "The tool on this very node.", example: "node://lab-pc/measure" }),
      description: z.string(),
      effect: z.enum(["read", "write"]),
      timeout_ms: z.int(),
      concurrency: z.int().meta({ description: "Calls that it carries out at once." }),
    }),
  ),
  calls_under_way: z.int(),
  since: timeSchema.meta({ description: "Since when this process is the node." }),
  last_seen_at: timeSchema,
});

function viewNode(node: NodeRecord): z.output<typeof nodeSchema> {
  return {
    id: node.id,
    object: "node",
    name: node.name,
    serverId: node.serverId ?? null,
    version: node.version,
    connected: node.connected,
    tools: node.tools.map(({ name, description, effect, timeout_ms, concurrency }) => ({
      name,
      uri: formatToolUri("node", node.name, name),
      description,
      effect,
      timeout_ms,
      concurrency,
    })),
    calls_under_way: node.underWay,
    since: toRfc3339(node.since),
    last_seen_at: toRfc3339(node.seenAt),
  };
}

const nameParams = z.strictObject({ name: z.string() });

/** A node of the owner, for the isolation suite. */
async function arrangeNode(owner: IsolationDriver): Promise<string> {
  const name = `private-${Math.random().toString(36).slice(2)}`;
  await owner.registerNode(name);
  return name;
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { name: await arrangeNode(owner) },
});

export const listNodes = defineRoute({
  method: "get",
  path: "/v1/nodes",
  summary: "List nodes",
  tags,
  scope: "manage",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of nodes", schema: listSchema(nodeSchema) } },
  isolation: { kind: "list", arrange: arrangeNode },
  handler: async (c, { core, tenant, query }) =>
    c.json(toList(await core.repos.nodes.list(tenant, toPageRequest(query)), viewNode, idOf)),
});

export const getNode = defineRoute({
  method: "get",
  path: "/v1/nodes/{name}",
  summary: "One node",
  tags,
  scope: "manage",
  request: { params: nameParams },
  responses: { 200: { description: "The node", schema: nodeSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  handler: async (c, { core, tenant, params }) =>
    c.json(viewNode(found(await core.repos.nodes.get(tenant, params.name), "node", params.name, "name"))),
});

export const deleteNode = defineRoute({
  method: "delete",
  path: "/v1/nodes/{name}",
  summary: "Send a node away",
  description:
    "Its tools are gone with the next request, and its process is told to end. A process that is started again is there again: revoke its key to keep it out.",
  tags,
  scope: "manage",
  request: { params: nameParams },
  responses: { 204: { description: "The node is gone" } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, params }) {
    if (!(await core.repos.nodes.remove(tenant, params.name))) throw notFound("node", params.name, "name");
    await core.tellNow();
    return c.body(null, 204);
  },
});
