/** Flows: what is worked on, what was published, and what is wrong with a definition (FLOW-1, FLOW-4; docs/flows.md). */
import { describedBy } from "@toolyard/core/described-by";
import type { FlowProblem } from "@toolyard/core/flows/validate";
import { isJsonObject, parseJson, type JsonObject, type JsonValue } from "@toolyard/core/json";
import type { FlowRecord, FlowVersion } from "@toolyard/core/ports/flows";
import { toRfc3339 } from "@toolyard/core/time";
import * as z from "zod";
import type { AppContext } from "../app-env.ts";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { readIfMatch } from "../if-match.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { arrangeFlow } from "./arrange-flow.ts";
import {
  confirmed,
  emptyBody,
  found,
  idOf,
  idParams,
  referencesSchema,
  timeSchema,
  withoutUndefined,
} from "./shared.ts";

const tags = ["flows"];

/** What a definition is made of is read where there is one. */
// oxlint-disable-next-line typescript/explicit-function-return-type
const register = () => import("@toolyard/core/flows/register");

/** As it came: a draft may have faults, which are told beside it. */
const draftField = z.custom<JsonObject>(isJsonObject, "Invalid input: expected object").meta({
  type: "object",
  properties: { name: { type: "string", pattern: "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$" } },
  required: ["name"],
  additionalProperties: true,
  description: "The flow; `GET /v1/flows/schema` has its JSON Schema. Its `name` never changes.",
});

/** Looked at by what checks flows, which knows how much is too much. */
const anyField = z
  .custom<JsonValue>((value) => value !== undefined, "Invalid input: expected a value")
  .meta({ description: "The flow; what is none is told what is wrong with it." });

/** A flow as it stands in its author's file: that is told, rather than that none of its fields is known here. */
function wrapped<Body extends z.ZodType>(body: Body): z.ZodType<z.output<Body>> {
  return z
    .unknown()
    .transform((given, context) => {
      if (isJsonObject(given) && given["definition"] === undefined && given["nodes"] !== undefined) {
        const message = 'is required, with the flow in it: send {"definition": {…}}';
        context.addIssue({ code: "custom", path: ["definition"], message });
      }
      return given;
    })
    .pipe(body)
    .meta(describedBy(() => body));
}

const problemSchema = z.strictObject({
  pointer: z.string().meta({ description: "JSON pointer into the definition.", example: "/nodes/fetch/uri" }),
  message: z.string(),
});

const fields = {
  id: z.string().meta({ example: "flow_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("flow"),
  name: z.string().meta({ description: "As in `flow://name`." }),
  enabled: z.boolean(),
  latest_version: z.int().nullable().meta({ description: "What a call without `version` runs; null: none yet." }),
  unpublished_changes: z.boolean().meta({ description: "The draft is another than the newest version." }),
  revision: z.int().meta({ description: "Rises with every change; also the `etag`." }),
  created_at: timeSchema,
  updated_at: timeSchema,
};
const flowSchema = z.strictObject(fields);
const editedSchema = z
  .strictObject({
    ...fields,
    definition: draftField.meta({ description: "The draft." }),
    problems: z.array(problemSchema).meta({ description: "What is wrong with the draft; it cannot be published so." }),
  })
  .meta({ id: "FlowDraft" });

const versionFields = {
  id: z.string().meta({ example: "ver_3" }),
  object: z.literal("flow.version"),
  version: z.int(),
  hash: z.string().meta({ description: "SHA-256 of the definition." }),
  description: z.string(),
  published_by: z.string().meta({ description: "Caller." }),
  published_at: timeSchema,
};
const versionSchema = z.strictObject(versionFields);
const wholeVersionSchema = z
  .strictObject({ ...versionFields, definition: draftField })
  .meta({ id: "FlowVersionDefinition" });

function viewFlow(flow: FlowRecord): z.output<typeof flowSchema> {
  return {
    id: flow.id,
    object: "flow",
    name: flow.name,
    enabled: flow.enabled,
    latest_version: flow.latest,
    unpublished_changes: flow.draftHash !== flow.latestHash,
    revision: flow.revision,
    created_at: toRfc3339(flow.createdAt),
    updated_at: toRfc3339(flow.updatedAt),
  };
}

function viewEdited(flow: FlowRecord, problems: readonly FlowProblem[]): z.output<typeof editedSchema> {
  return { ...viewFlow(flow), definition: objectOf(flow.draft), problems: problems.map((problem) => ({ ...problem })) };
}

function viewVersion({
  number,
  hash,
  description,
  publishedBy,
  publishedAt,
}: FlowVersion): z.output<typeof versionSchema> {
  return {
    id: `ver_${number}`,
    object: "flow.version",
    version: number,
    hash,
    description,
    published_by: publishedBy,
    published_at: toRfc3339(publishedAt),
  };
}

function objectOf(text: string): JsonObject {
  const value = parseJson(text);
  return isJsonObject(value) ? value : {};
}

function answer(
  c: AppContext,
  { flow, problems }: { readonly flow: FlowRecord; readonly problems: readonly FlowProblem[] },
  status: 200 | 201 = 200,
): Response {
  return c.json(viewEdited(flow, problems), status, { etag: `"${flow.revision}"` });
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: await arrangeFlow(owner) },
});

export const getFlowSchema = defineRoute({
  method: "get",
  path: "/v1/flows/schema",
  summary: "JSON Schema of flows",
  description: "For editors. What a schema cannot say, `POST /v1/flows/validate` does.",
  tags,
  scope: null,
  responses: { 200: { description: "JSON Schema 2020-12", schema: z.looseObject({}) } },
  isolation: { kind: "nothing-owned", reason: "The same for everybody." },
  async handler(c) {
    const { flowDefinitionSchema } = await import("@toolyard/core/flows/definition");
    return c.json(z.toJSONSchema(flowDefinitionSchema, { io: "input", unrepresentable: "any" }));
  },
});

export const validateFlow = defineRoute({
  method: "post",
  path: "/v1/flows/validate",
  summary: "Say what is wrong with a flow",
  description: "All faults at once, each with its JSON pointer. Nothing is kept.",
  tags,
  scope: null,
  request: { body: wrapped(z.strictObject({ definition: anyField })), refusesRepeats: true },
  responses: {
    200: {
      description: "What was found",
      schema: z.strictObject({
        object: z.literal("flow.validation"),
        valid: z.boolean(),
        problems: z.array(problemSchema),
        references: z
          .array(z.strictObject({ field: z.string(), value: z.string() }))
          .meta({ description: "Tools, flows and agents that it calls by a fixed address or name." }),
      }),
    },
  },
  isolation: { kind: "nothing-owned", reason: "Keeps nothing." },
  async handler(c, { body }) {
    const { checkFlow } = await import("@toolyard/core/flows/validate");
    const { problems, refs } = await checkFlow(body.definition);
    return c.json({ object: "flow.validation", valid: problems.length === 0, problems, references: refs });
  },
});

export const createFlow = defineRoute({
  method: "post",
  path: "/v1/flows",
  summary: "Create a flow",
  description:
    "What is given is the draft; it may have faults, which are told with it. `publish: true` makes it version 1 at once, or creates nothing where it has faults.",
  tags,
  scope: "manage",
  request: {
    body: wrapped(
      z.strictObject({
        definition: draftField,
        enabled: z.boolean().default(true),
        publish: z.boolean().default(false),
      }),
    ),
  },
  responses: { 201: { description: "The flow", schema: editedSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes a flow of the caller's own tenant." },
  async handler(c, { core, context, body }) {
    const { createFlow: create, publishFlow: publish } = await register();
    const { definition, enabled } = body;
    if (body.publish) {
      const { requireFlow } = await import("@toolyard/core/flows/validate");
      await requireFlow(definition);
    }
    const created = await create(core, context, { definition, enabled });
    if (!body.publish) return answer(c, created, 201);
    return answer(c, { ...created, flow: await publish(core, context, { id: created.flow.id }) }, 201);
  },
});

export const listFlows = defineRoute({
  method: "get",
  path: "/v1/flows",
  summary: "List flows",
  tags,
  scope: "manage",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of flows, without their definitions", schema: listSchema(flowSchema) } },
  isolation: { kind: "list", arrange: arrangeFlow },
  async handler(c, { core, tenant, query }) {
    return c.json(toList(await core.repos.flows.list(tenant, toPageRequest(query)), viewFlow, idOf));
  },
});

export const getFlow = defineRoute({
  method: "get",
  path: "/v1/flows/{id}",
  summary: "One flow with its draft",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 200: { description: "The flow", schema: editedSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, params }) {
    const { requireFlowRecord, problemsOf } = await register();
    const flow = await requireFlowRecord(core, tenant, params.id);
    return answer(c, { flow, problems: await problemsOf(flow) });
  },
});

export const updateFlow = defineRoute({
  method: "patch",
  path: "/v1/flows/{id}",
  summary: "Change a flow's draft, or switch it on or off",
  description:
    "A new `definition` replaces the draft; versions and what runs are untouched until it is published. Disabled, it is not called; runs under way go on.",
  tags,
  scope: "manage",
  request: {
    params: idParams,
    body: wrapped(
      z.strictObject({
        definition: draftField.optional(),
        enabled: z.boolean().optional(),
        revision: z.int().min(1).optional().meta({ description: "As `if-match`." }),
      }),
    ),
    headers: { "if-match": "The `etag` that the change is based on; 412 where the flow has another by now." },
  },
  responses: { 200: { description: "The flow as it is now", schema: editedSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ ...(await arrangeObject(owner)), body: { enabled: false } }),
  },
  async handler(c, { core, context, params, body }) {
    const { updateFlow: update } = await register();
    const { revision, ...patch } = body;
    const expected = readIfMatch(c, revision, "flow");
    const options = { id: params.id, patch: withoutUndefined(patch), ...(expected === undefined ? {} : { expected }) };
    return answer(c, await update(core, context, options));
  },
});

export const publishFlow = defineRoute({
  method: "post",
  path: "/v1/flows/{id}/publish",
  summary: "Publish the draft as the next version",
  description:
    "From then on calls without `version` run it; earlier versions stay as they are and can be called by number. Published again without a change it stays the version that it is. `flow_invalid` names all faults.",
  tags,
  scope: "manage",
  request: {
    params: idParams,
    body: emptyBody,
    headers: { "if-match": "The `etag` of the draft that is meant; 412 where the flow has another by now." },
  },
  responses: { 200: { description: "The flow as it is now", schema: flowSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params }) {
    const { publishFlow: publish } = await register();
    const expected = readIfMatch(c, undefined, "flow");
    const flow = await publish(core, context, { id: params.id, ...(expected === undefined ? {} : { expected }) });
    return c.json(viewFlow(flow), 200, { etag: `"${flow.revision}"` });
  },
});

export const deleteFlow = defineRoute({
  method: "delete",
  path: "/v1/flows/{id}",
  summary: "Delete a flow with all its versions",
  description:
    "Refused with `service_referenced`, naming the referrers, while something calls it; `force=true` deletes all the same.",
  tags,
  scope: "manage",
  request: {
    params: idParams,
    query: z.strictObject({
      force: confirmed.meta({ description: "'true': although it is in use." }),
    }),
  },
  responses: { 204: { description: "The flow is gone" } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params, query }) {
    const { deleteFlow: remove } = await register();
    await remove(core, context, { id: params.id, force: query.force });
    return c.body(null, 204);
  },
});

export const listFlowReferences = defineRoute({
  method: "get",
  path: "/v1/flows/{id}/references",
  summary: "Who uses a flow",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: {
    200: { description: "All that would be left without it", schema: referencesSchema },
  },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, tenant, params }) {
    const { flowReferences, requireFlowRecord } = await register();
    const flow = await requireFlowRecord(core, tenant, params.id);
    return c.json({ object: "list", data: await flowReferences(core, context, flow) });
  },
});

export const listFlowVersions = defineRoute({
  method: "get",
  path: "/v1/flows/{id}/versions",
  summary: "List published versions",
  tags,
  scope: "manage",
  list: true,
  request: { params: idParams, query: pageQuery },
  responses: { 200: { description: "A page of versions", schema: listSchema(versionSchema) } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, params, query }) {
    const page = await core.repos.flows.versions(tenant, params.id, toPageRequest(query));
    return c.json(toList(found(page, "flow", params.id), viewVersion, idOf));
  },
});

export const getFlowVersion = defineRoute({
  method: "get",
  path: "/v1/flows/{id}/versions/{version}",
  summary: "One published version",
  tags,
  scope: "manage",
  request: { params: z.strictObject({ id: z.string(), version: z.string().meta({ example: "3" }) }) },
  responses: { 200: { description: "The version with its definition", schema: wholeVersionSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ params: { id: await arrangeFlow(owner), version: "1" } }),
  },
  async handler(c, { core, tenant, params: { id, version } }) {
    const number = /^(?:ver_)?(\d{1,9})$/.exec(version)?.[1];
    const record = number === undefined ? undefined : await core.repos.flows.version(tenant, id, Number(number));
    const whole = found(record, "version", version, "version");
    return c.json({ ...viewVersion(whole), definition: objectOf(whole.definition) });
  },
});
