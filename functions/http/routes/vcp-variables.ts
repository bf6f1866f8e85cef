/** Variables of prompts (VCP specification 11; VCP-19; docs/vcp-variables.md). */
import { isJsonObject, parseJson, type JsonObject } from "@toolyard/core/json";
import { readAll } from "@toolyard/core/ports/blob-store";
import { toRfc3339 } from "@toolyard/core/time";
import {
  largestContent,
  variableKindSchema,
  variableOptionsSchema,
  type VariableEntry,
  type VariableOptions,
} from "@toolyard/core/vcp/placeholders/variable";
import type { ImportedFile } from "@toolyard/core/vcp/placeholders/import";
import * as z from "zod";
import { headerOf, type AppContext } from "../app-env.ts";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { toInvalidRequest } from "../errors.ts";
import { readIfMatch } from "../if-match.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { found, idOf, idParams, notFound, timeSchema, withoutUndefined } from "./shared.ts";

const tags = ["vcp"];

/** Most requests are for something else. */
// oxlint-disable-next-line typescript/explicit-function-return-type
const load = () => import("@toolyard/core/vcp/placeholders/register");

const options = variableOptionsSchema.shape;
const optionFields = {
  models: options.models.meta({ description: "`sar`: models that the text is for, as back ends know them." }),
  match_mode: options.match_mode.meta({ description: "`sar`: whole names (`exact`, the default) or parts of them." }),
  output: options.output.meta({ description: "Detectors: what is put in place of the content." }),
  description: options.description.meta({ description: "For people." }),
};

const itemSchema = z.strictObject({
  id: z.string().meta({ example: "var_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("vcp_variable"),
  kind: variableKindSchema,
  name: z.string().meta({ example: "VarCity" }),
  ...optionFields,
  position: z.int().meta({ description: "Order of definition: a value may hold those that are defined after it." }),
  bytes: z.int().meta({ description: "Of the content." }),
  version: z.int().meta({ description: "Rises with every change; also the `etag`." }),
  created_at: timeSchema,
  updated_at: timeSchema,
});
const variableSchema = itemSchema.extend({ content: z.string() }).meta({ id: "VcpVariableContent" });

function viewItem(entry: VariableEntry): z.output<typeof itemSchema> {
  const { id, kind, name, position, bytes, version } = entry;
  return {
    id,
    object: "vcp_variable",
    kind,
    name,
    ...entry.options,
    position,
    bytes,
    version,
    created_at: toRfc3339(entry.createdAt),
    updated_at: toRfc3339(entry.updatedAt),
  };
}

/** A variable of the owner, for the isolation suite. */
async function arrangeVariable(owner: IsolationDriver): Promise<string> {
  const name = `VarPrivate${Math.random().toString(36).slice(2)}`;
  const made = await owner.send("post", "/v1/vcp/variables", { kind: "var", name, content: "private" });
  return String(made["id"]);
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: await arrangeVariable(owner) },
});

const contentField = z.string().max(largestContent).meta({
  description: "The text; of a `tar`, `var`, `sar` or `toolbox` also the name of a text, which ends with `.txt`.",
});
const positionField = z.int().min(0).max(1_000_000_000);
/** As many as a content may be, written as JSON. */
const mostBytes = 4_194_304;

export const createVcpVariable = defineRoute({
  method: "post",
  path: "/v1/vcp/variables",
  summary: "Define a variable",
  description: "What `{{name}}` stands for in prompts of this tenant from the next request on.",
  tags,
  scope: "manage",
  request: {
    body: z.strictObject({
      kind: variableKindSchema,
      name: z.string().min(1).max(256).meta({ example: "VarCity" }),
      content: contentField,
      position: positionField.optional().meta({ description: "Left out: after all there are." }),
      ...optionFields,
    }),
    maxBytes: mostBytes,
  },
  responses: { 201: { description: "The variable", schema: variableSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes a variable of the caller's own tenant." },
  async handler(c, { core, tenant, body }) {
    const { createVariable } = await load();
    const { kind, name, content, position, ...rest } = body;
    const entry = await createVariable(core, tenant, {
      kind,
      name,
      content,
      options: rest,
      ...(position === undefined ? {} : { position }),
    });
    return c.json({ ...viewItem(entry), content }, 201, { etag: `"${entry.version}"` });
  },
});

export const listVcpVariables = defineRoute({
  method: "get",
  path: "/v1/vcp/variables",
  summary: "List variables, without their contents",
  tags,
  scope: "manage",
  list: true,
  request: { query: pageQuery.extend({ kind: variableKindSchema.optional() }) },
  responses: { 200: { description: "A page of variables", schema: listSchema(itemSchema) } },
  isolation: { kind: "list", arrange: arrangeVariable },
  async handler(c, { core, tenant, query }) {
    const { kind, ...page } = query;
    const found = await core.repos.variables.list(tenant, {
      ...toPageRequest(page),
      ...(kind === undefined ? {} : { kind }),
    });
    return c.json(toList(found, viewItem, idOf));
  },
});

export const getVcpVariable = defineRoute({
  method: "get",
  path: "/v1/vcp/variables/{id}",
  summary: "One variable, with its content",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 200: { description: "The variable", schema: variableSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, params }) {
    const { readVariable } = await load();
    const { entry, content } = found(await readVariable(core, tenant, params.id), "variable", params.id);
    return c.json({ ...viewItem(entry), content }, 200, { etag: `"${entry.version}"` });
  },
});

export const updateVcpVariable = defineRoute({
  method: "patch",
  path: "/v1/vcp/variables/{id}",
  summary: "Change a variable",
  description: "Fields that are left out stay as they are. Every instance has the change with its next request.",
  tags,
  scope: "manage",
  request: {
    params: idParams,
    body: z.strictObject({
      content: contentField.optional(),
      position: positionField.optional(),
      ...optionFields,
      version: z
        .int()
        .min(1)
        .optional()
        .meta({ description: "Refuse unless it is the variable's; `if-match` does the same." }),
    }),
    headers: { "if-match": "The `etag` that the change is based on; 412 where the variable has another by now." },
    maxBytes: mostBytes,
  },
  responses: { 200: { description: "The variable as it is now", schema: variableSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ ...(await arrangeObject(owner)), body: { content: "changed" } }),
  },
  async handler(c, { core, tenant, params, body }) {
    const { readVariable, updateVariable } = await load();
    const { version, content, position, ...changed } = body;
    const expectedVersion = readIfMatch(c, version, "variable");
    const { entry } = found(await readVariable(core, tenant, params.id), "variable", params.id);
    const merged: VariableOptions = { ...entry.options, ...withoutUndefined(changed) };
    const updated = await updateVariable(core, tenant, {
      id: params.id,
      patch: {
        ...(Object.keys(changed).length === 0 ? {} : { options: merged }),
        ...withoutUndefined({ content, position }),
      },
      ...(expectedVersion === undefined ? {} : { expectedVersion }),
    });
    const now = found(updated && (await readVariable(core, tenant, params.id)), "variable", params.id);
    return c.json({ ...viewItem(now.entry), content: now.content }, 200, { etag: `"${now.entry.version}"` });
  },
});

export const deleteVcpVariable = defineRoute({
  method: "delete",
  path: "/v1/vcp/variables/{id}",
  summary: "Delete a variable",
  description: "Its placeholder stays in prompts as it stands there.",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 204: { description: "The variable is gone" } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, params }) {
    if (!(await core.repos.variables.delete(tenant, params.id))) throw notFound("variable", params.id);
    return c.body(null, 204);
  },
});

const isMessage = (value: unknown): value is JsonObject => isJsonObject(value) && typeof value["role"] === "string";

const messageSchema = z.custom<JsonObject>(isMessage, "must be a message of a chat, with its 'role'").meta({
  type: "object",
  properties: { role: { type: "string" }, content: {} },
  required: ["role"],
  additionalProperties: true,
});
const messagesField = z.array(messageSchema).min(1).max(1_000);

export const previewVcpVariables = defineRoute({
  method: "post",
  path: "/v1/vcp/variables/preview",
  summary: "See what placeholders in messages come to",
  description: "The messages as the model would get them after placeholders and detectors; no model is called.",
  tags,
  scope: "manage",
  request: {
    body: z.strictObject({
      messages: messagesField,
      model: z
        .string()
        .max(200)
        .default("")
        .meta({ description: "As a chat names it; decides which `SarPrompt…` are shown." }),
    }),
  },
  responses: {
    200: {
      description: "The messages",
      schema: z.strictObject({ object: z.literal("vcp_preview"), messages: z.array(messageSchema) }),
    },
  },
  isolation: { kind: "nothing-owned", reason: "Names nothing but variables of the caller's own tenant." },
  async handler(c, { core, context, body }) {
    const { expandPlaceholders } = await import("@toolyard/core/vcp/placeholders/expand-placeholders");
    const { applyDetectors } = await import("@toolyard/core/vcp/placeholders/detectors");
    const { takeMediaMarks } = await import("@toolyard/core/vcp/placeholders/media-marks");
    const { nameAtBackEnd } = await import("@toolyard/core/chat/providers/route");
    const { messages: given } = takeMediaMarks(body.messages);
    // As in a chat: texts are for models as back ends know them.
    const model = nameAtBackEnd(context.config, body.model, core.defaultProvider);
    const expanded = await expandPlaceholders(core, context, given, { model });
    const messages = await applyDetectors(core, context, expanded);
    return c.json({ object: "vcp_preview", messages });
  },
});

/** A request to a function has no more than 10 MB. */
const mostZipped = 8_388_608;
const zipLimits = { files: 2_000, bytes: 33_554_432, param: "body" } as const;
const jsonFiles = z.strictObject({
  files: z.array(z.strictObject({ path: z.string().min(1).max(512), content: z.string() })).max(zipLimits.files),
});

async function readFiles(c: AppContext, bytes: Uint8Array): Promise<readonly ImportedFile[]> {
  const { safePath, unpackZip } = await import("@toolyard/core/zip");
  if (headerOf(c, "content-type")?.includes("json") !== true) return unpackZip(bytes, zipLimits);
  const parsed = jsonFiles.safeParse(parseJson(Buffer.from(bytes).toString("utf8")));
  if (!parsed.success) throw toInvalidRequest(parsed.error, "body");
  return parsed.data.files.map(({ path, content }) => ({
    path: safePath(path, zipLimits),
    body: Buffer.from(content, "utf8"),
  }));
}

export const importVcpVariables = defineRoute({
  method: "post",
  path: "/v1/vcp/variables/import",
  summary: "Import variables from the files of a VCPToolBox",
  description:
    'A zip, or JSON `{"files": [{"path", "content"}]}`. Read are `TVStxt/`, `Agent/` with `agent_map.json`, `toolbox_map.json`, `sarprompt.json`, `…表情包.txt`, and of `config.env` the keys `Tar…`, `Var…`, `Agent…`, `SarModel…`, `SarPrompt…`, `Detector…` and `SuperDetector…`; no other key is looked at. What is there already is replaced; sending the same again changes nothing.',
  tags,
  scope: "manage",
  request: {
    stream: { mediaTypes: ["application/zip", "application/json"], description: "The files.", json: jsonFiles },
    maxBytes: mostZipped,
  },
  responses: {
    200: {
      description: "What has come of it",
      schema: z.strictObject({
        object: z.literal("vcp_variables_import"),
        created: z.int(),
        updated: z.int(),
        unchanged: z.int(),
        skipped: z.array(z.strictObject({ path: z.string(), reason: z.string() })),
      }),
    },
  },
  isolation: { kind: "nothing-owned", reason: "Makes variables of the caller's own tenant." },
  async handler(c, { core, context, stream }) {
    const { importVariables } = await import("@toolyard/core/vcp/placeholders/import");
    const report = await importVariables(core, context, await readFiles(c, await readAll(stream)));
    return c.json({ object: "vcp_variables_import", ...report, skipped: [...report.skipped] });
  },
});
