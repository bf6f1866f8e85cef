/** Descriptor sets of gRPC services, uploaded as they are (tool management specification, "微服务调用"; SVC-1). */
import type { StoredDescriptorSet } from "@toolyard/core/grpc/descriptor-sets";
import type { Descriptors } from "@toolyard/core/grpc/descriptors";
import { readAll } from "@toolyard/core/ports/blob-store";
import { toRfc3339 } from "@toolyard/core/time";
import * as z from "zod";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { found, idOf, idParams, notFound, timeSchema } from "./shared.ts";

const tags = ["tool services"];

/** What reads descriptors is loaded with the first request that needs it. */
const load = () => import("@toolyard/core/grpc/descriptor-sets");

/** Bytes of one set; a request to a function has no more than 10 MB. */
const largestBody = 8_388_608;

const itemSchema = z.strictObject({
  id: z.string().meta({
    description: "Comes from the content: the same bytes have the same id.",
    example: `fds_${"0".repeat(40)}`,
  }),
  object: z.literal("descriptor_set"),
  bytes: z.int(),
  created_at: timeSchema,
});

const setSchema = itemSchema
  .extend({
    services: z.array(
      z.strictObject({ name: z.string().meta({ example: "loyalty.v1.Customers" }), methods: z.array(z.string()) }),
    ),
    used_by: z.array(z.string()).meta({ description: "Services whose configuration refers to it." }),
  })
  .meta({ id: "DescriptorSetContents" });

function viewItem({ id, bytes, createdAt }: StoredDescriptorSet): z.output<typeof itemSchema> {
  return { id, object: "descriptor_set", bytes, created_at: toRfc3339(createdAt) };
}

function viewSet(
  stored: StoredDescriptorSet,
  { methods }: Descriptors,
  usedBy: readonly string[],
): z.output<typeof setSchema> {
  const byService = Map.groupBy(methods.values(), ({ service }) => service);
  return {
    ...viewItem(stored),
    services: [...byService].map(([name, own]) => ({ name, methods: own.map((method) => method.name) })),
    used_by: [...usedBy],
  };
}

/** `message M {}  service S { rpc Get(M) returns (M); }`, as a compiler writes it. */
const smallSet = Buffer.from("CioKB3MucHJvdG8iAwoBTTISCgFTEg0KA0dldBICLk0aAi5NYgZwcm90bzM=", "base64");

async function arrangeSet(owner: IsolationDriver): Promise<string> {
  return String((await owner.upload("/v1/descriptor-sets", smallSet))["id"]);
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: await arrangeSet(owner) },
});

export const createDescriptorSet = defineRoute({
  method: "post",
  path: "/v1/descriptor-sets",
  summary: "Upload a descriptor set for gRPC services",
  description:
    "The body is a FileDescriptorSet as compilers write it (`protoc --include_imports --include_source_info --descriptor_set_out`, `buf build -o`). Services refer to it by its id, as `config.grpc.descriptor_set`. A set never changes; a new version has another id.",
  tags,
  scope: "manage",
  request: {
    stream: {
      mediaTypes: ["application/octet-stream", "application/x-protobuf"],
      description: "The FileDescriptorSet's bytes.",
    },
    maxBytes: largestBody,
  },
  responses: {
    200: { description: "The set, which was there already", schema: setSchema },
    201: { description: "The new set", schema: setSchema },
  },
  isolation: { kind: "nothing-owned", reason: "Makes a set of the caller's own tenant." },
  async handler(c, { core, tenant, config, stream }) {
    const { storeDescriptorSet, usersOf } = await load();
    const { stored, descriptors, isNew } = await storeDescriptorSet(core, tenant, await readAll(stream));
    return c.json(viewSet(stored, descriptors, usersOf(config, stored.id)), isNew ? 201 : 200);
  },
});

export const listDescriptorSets = defineRoute({
  method: "get",
  path: "/v1/descriptor-sets",
  summary: "List descriptor sets",
  tags,
  scope: "manage",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of sets", schema: listSchema(itemSchema) } },
  isolation: { kind: "list", arrange: arrangeSet },
  async handler(c, { core, tenant, query }) {
    const { listDescriptorSets: list } = await load();
    return c.json(toList(await list(core, tenant, toPageRequest(query)), viewItem, idOf));
  },
});

export const getDescriptorSet = defineRoute({
  method: "get",
  path: "/v1/descriptor-sets/{id}",
  summary: "One descriptor set, with its services",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 200: { description: "The set", schema: setSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, config, params }) {
    const { findDescriptorSet, usersOf } = await load();
    const set = found(await findDescriptorSet(core, tenant, params.id), "descriptor set", params.id);
    return c.json(viewSet(set.stored, set.descriptors, usersOf(config, params.id)));
  },
});

export const deleteDescriptorSet = defineRoute({
  method: "delete",
  path: "/v1/descriptor-sets/{id}",
  summary: "Delete a descriptor set",
  description: "Refused with `conflict`, naming the services, while some refer to it.",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 204: { description: "The set is gone" } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, config, params }) {
    const { deleteDescriptorSet: remove } = await load();
    if (!(await remove(core, config, params.id))) throw notFound("descriptor set", params.id);
    return c.body(null, 204);
  },
});
