/**
 * Knowledge bases and their documents: the management plane of KB-1, one JSON answer each. Queries are beside it, in
 * knowledge-query.ts. Every field may be given by its camelCase name too.
 */
import { hasScope, type Caller } from "@toolyard/core/callers/caller";
import {
  knowledgeAclSchema,
  knowledgeConfigChangeSchema,
  knowledgeConfigSchema,
  readerOf,
} from "@toolyard/core/knowledge/config";
import type { DocumentSource } from "@toolyard/core/knowledge/documents";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { documentStates, type KnowledgeBase, type KnowledgeDocument } from "@toolyard/core/ports/knowledge";
import { toRfc3339 } from "@toolyard/core/time";
import * as z from "zod";
import { inEitherSpelling } from "../camel-names.ts";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { idOf, timeSchema } from "./shared.ts";

const tags = ["knowledge"];

/** Most requests are for something else. */
// oxlint-disable-next-line typescript/explicit-function-return-type
const loadBases = () => import("@toolyard/core/knowledge/bases");
// oxlint-disable-next-line typescript/explicit-function-return-type
const loadDocuments = () => import("@toolyard/core/knowledge/documents");

function bodyOf<Shape extends z.core.$ZodLooseShape>(
  shape: Shape,
): z.ZodType<z.output<z.ZodObject<Shape, z.core.$strict>>> {
  return inEitherSpelling(z.strictObject(shape));
}

const nameField = z.string().trim().min(1).max(128).meta({ example: "handbook" });
const baseField = z.string().min(1).max(128).meta({ description: "Id or name of the knowledge base." });
const documentIdField = z
  .string()
  .regex(
    /^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$/,
    "must be 1 to 128 letters, digits or any of ._:@-, and begin with one of the first two",
  )
  .meta({ example: "handbook-2026" });
const pageFields = {
  limit: z.int().min(1).max(100).default(20),
  after: pageQuery.shape.after,
  order: pageQuery.shape.order,
};

const baseSchema = z.strictObject({
  id: z.string().meta({ example: "kb_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("knowledge_base"),
  name: z.string(),
  config: knowledgeConfigSchema,
  config_version: z.int().meta({ description: "Rises with every change; 'update_config' may expect it." }),
  documents: z.int(),
  documents_ready: z.int(),
  documents_failed: z.int(),
  chunks: z.int(),
  bytes: z.int(),
  reindex: z
    .strictObject({
      config: knowledgeConfigSchema,
      documents_done: z.int(),
      documents_to_do: z.int(),
    })
    .nullable()
    .meta({ description: "A configuration that is being built; it serves once every document is there." }),
  created_at: timeSchema,
  updated_at: timeSchema,
});

const briefBaseSchema = baseSchema
  .pick({ id: true, object: true, name: true, created_at: true, updated_at: true })
  .meta({ id: "KnowledgeBaseName" });

function viewBrief({ id, name, createdAt, updatedAt }: KnowledgeBase): z.output<typeof briefBaseSchema> {
  return {
    id,
    object: "knowledge_base",
    name,
    created_at: toRfc3339(createdAt),
    updated_at: toRfc3339(updatedAt),
  };
}

function viewBase(base: KnowledgeBase): z.output<typeof baseSchema> {
  const { config, configVersion, counts, next } = base;
  return {
    ...viewBrief(base),
    config,
    config_version: configVersion,
    documents: counts.documents,
    documents_ready: counts.ready,
    documents_failed: counts.failed,
    chunks: counts.chunks,
    bytes: counts.bytes,
    reindex:
      next === null ? null : { config: next.config, documents_done: counts.built, documents_to_do: counts.toBuild },
  };
}

const metadataField = z
  .record(z.string().min(1).max(64), z.union([z.string().max(1_024), z.number(), z.boolean(), z.null()]))
  .refine((fields) => Object.keys(fields).length <= 32, "must have at most 32 fields")
  .meta({ description: "What queries can filter by, and what hits show." });

const documentSchema = z.strictObject({
  id: z.string(),
  object: z.literal("knowledge_document"),
  knowledge_base: z.string().meta({ description: "Its id." }),
  name: z.string(),
  state: z.enum(documentStates).meta({
    description: "Of what was put last; until that is ready, what was ready before is searched.",
  }),
  error: z.strictObject({ code: z.string(), message: z.string() }).nullable(),
  progress: z.strictObject({ done: z.int(), total: z.int() }).meta({ description: "Chunks." }),
  call_id: z.string().meta({ description: "The call that ingests it: see GET /v1/calls/{id}." }),
  attempts: z.int().meta({ description: "Of that call." }),
  version: z.int(),
  current_version: z.int().nullable().meta({ description: "What is searched; null: nothing yet." }),
  media_type: z.string(),
  bytes: z.int(),
  characters: z.int(),
  chunk_count: z.int(),
  source_url: z.string().nullable(),
  metadata: metadataField,
  acl: knowledgeAclSchema.nullable(),
  created_at: timeSchema,
  updated_at: timeSchema,
  ready_at: timeSchema.nullable(),
});

function viewDocument(document: KnowledgeDocument): z.output<typeof documentSchema> {
  const { errorCode, errorMessage, readyAt } = document;
  return {
    id: document.id,
    object: "knowledge_document",
    knowledge_base: document.knowledgeBase,
    name: document.name,
    state: document.state,
    error: errorCode === null ? null : { code: errorCode, message: errorMessage ?? "" },
    progress: { done: document.progressDone, total: document.progressTotal },
    call_id: document.callId,
    attempts: document.attempt,
    version: document.version,
    current_version: document.currentVersion,
    media_type: document.mediaType,
    bytes: document.bytes,
    characters: document.characters,
    chunk_count: document.chunkCount,
    source_url: document.sourceUrl,
    metadata: { ...document.metadata },
    acl: document.acl,
    created_at: toRfc3339(document.createdAt),
    updated_at: toRfc3339(document.updatedAt),
    ready_at: readyAt === null ? null : toRfc3339(readyAt),
  };
}

/** @throws GatewayError `permission_denied` */
function requireReader(caller: Caller): void {
  if (hasScope(caller, "tools") || hasScope(caller, "manage")) return;
  throw new GatewayError("permission_denied", "This needs the scope 'tools' or 'manage'.", { param: "tools" });
}

const turn = (): Promise<void> => new Promise((done) => setTimeout(done, 10));

async function arrangeBase(owner: IsolationDriver): Promise<string> {
  const name = `private-${Math.random().toString(36).slice(2)}`;
  return String((await owner.send("post", "/v1/knowledge/create", { name }))["id"]);
}

const arrangedBase = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: {},
  body: { knowledge_base: await arrangeBase(owner) },
});

const arrangedDocument = async (owner: IsolationDriver): Promise<IsolatedRequest> => {
  const body = { knowledge_base: await arrangeBase(owner), document_id: "private" };
  const { call_id: callId } = await owner.send("post", "/v1/knowledge/upsert", { ...body, text: "private" });
  // Until the call has ended, what the owner has changes by itself.
  while ((await owner.send("get", `/v1/calls/${String(callId)}`))["finished_at"] === null) await turn();
  return { params: {}, body };
};

export const createKnowledgeBase = defineRoute({
  method: "post",
  path: "/v1/knowledge/create",
  summary: "Create a knowledge base",
  tags,
  scope: "manage",
  request: {
    body: bodyOf({
      name: nameField,
      config: knowledgeConfigChangeSchema.default({}),
    }),
  },
  responses: { 201: { description: "The knowledge base", schema: baseSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes a knowledge base of the caller's own tenant." },
  async handler(c, { core, context, body }) {
    const { createBase } = await loadBases();
    return c.json(viewBase(await createBase(core, context, body)), 201);
  },
});

export const updateKnowledgeConfig = defineRoute({
  method: "post",
  path: "/v1/knowledge/update_config",
  summary: "Change how a knowledge base cuts, embeds and searches",
  description:
    "What is left out stays as it is. Where documents have to be cut or embedded anew, that is done beside the present index, which serves until all of them are there; 'reindex' says how far it is.",
  tags,
  scope: "manage",
  request: {
    body: bodyOf({
      knowledge_base: baseField,
      config: knowledgeConfigChangeSchema,
      config_version: z.int().optional().meta({ description: "Refused where the configuration has another one." }),
    }),
  },
  responses: { 200: { description: "The knowledge base", schema: baseSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({
      params: {},
      body: { knowledge_base: await arrangeBase(owner), config: { top_k: 3 } },
    }),
  },
  async handler(c, { core, context, body }) {
    const { updateConfig } = await loadBases();
    const { knowledge_base: base, config: change, config_version: expectedVersion } = body;
    return c.json(viewBase(await updateConfig(core, context, { base, change, expectedVersion })));
  },
});

export const deleteKnowledgeBase = defineRoute({
  method: "post",
  path: "/v1/knowledge/delete",
  summary: "Delete a knowledge base with all that is in it",
  tags,
  scope: "manage",
  request: { body: bodyOf({ knowledge_base: baseField }) },
  responses: {
    200: {
      description: "It is gone",
      schema: z.strictObject({ id: z.string(), deleted: z.boolean(), documents: z.int() }),
    },
  },
  isolation: { kind: "object", arrange: arrangedBase },
  async handler(c, { core, tenant, body }) {
    const { deleteBase } = await loadBases();
    const { id, documents } = await deleteBase(core, tenant, body.knowledge_base);
    return c.json({ id, deleted: true, documents });
  },
});

export const listKnowledgeBases = defineRoute({
  method: "post",
  path: "/v1/knowledge/list",
  summary: "List knowledge bases",
  description: "Callers without the scope 'manage' see their names.",
  tags,
  scope: null,
  request: { body: inEitherSpelling(z.strictObject(pageFields).prefault({})) },
  responses: { 200: { description: "A page of them", schema: listSchema(z.union([baseSchema, briefBaseSchema])) } },
  isolation: { kind: "nothing-owned", reason: "Lists those of the caller's own tenant; test/e2e/knowledge.test.ts." },
  async handler(c, { core, tenant, caller, body }) {
    requireReader(caller);
    const view = hasScope(caller, "manage") ? viewBase : viewBrief;
    return c.json(toList(await core.repos.knowledge.listBases(tenant, toPageRequest(body)), view, idOf));
  },
});

export const upsertKnowledgeDocument = defineRoute({
  method: "post",
  path: "/v1/knowledge/upsert",
  summary: "Put a document into a knowledge base",
  description:
    "Text, Markdown, HTML, PDF, DOCX, CSV or JSON, given by one of 'text', 'content_base64', 'file' and 'url'. It is read, cut and embedded by a call; what was there before under its id serves until that is done.",
  tags,
  scope: "manage",
  request: {
    body: bodyOf({
      knowledge_base: baseField,
      document_id: documentIdField.optional().meta({
        description: "What it is known by. Left out: its name, so that the same name is the same document.",
      }),
      name: z.string().trim().min(1).max(512).optional(),
      text: z.string().min(1).max(4_194_304).optional(),
      content_base64: z
        .base64()
        .max(5_592_408)
        .optional()
        .meta({ description: "At most 4 MiB; larger ones by 'file'." }),
      file: z
        .strictObject({ session_id: z.string().min(1).max(128), path: z.string().min(1).max(1_024) })
        .optional()
        .meta({ description: "A file of a session; upload links put large ones there." }),
      url: z
        .url({ protocol: /^https?$/ })
        .max(8_192)
        .optional(),
      media_type: z.string().min(3).max(200).optional(),
      source_url: z
        .url({ protocol: /^https?$/ })
        .max(8_192)
        .optional()
        .meta({ description: "Cited in hits." }),
      metadata: metadataField.default({}),
      acl: knowledgeAclSchema.nullable().default(null).meta({ description: "Null: that of the base." }),
    }),
    exact: ["metadata"],
    maxBytes: 6_291_456,
  },
  responses: {
    200: { description: "Its content is what it was", schema: documentSchema },
    202: { description: "It is being ingested", schema: documentSchema },
  },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ params: {}, body: { knowledge_base: await arrangeBase(owner), text: "private" } }),
  },
  async handler(c, { core, context, body }) {
    const { upsertDocument } = await loadDocuments();
    const { document, isQueued } = await upsertDocument(core, context, {
      base: body.knowledge_base,
      documentId: body.document_id,
      name: body.name,
      source: sourceOf(body),
      mediaType: body.media_type ?? (body.text === undefined ? undefined : "text/plain; charset=utf-8"),
      sourceUrl: body.source_url,
      metadata: body.metadata,
      acl: body.acl,
    });
    return c.json(viewDocument(document), isQueued ? 202 : 200);
  },
});

interface GivenSource {
  readonly text?: string | undefined;
  readonly content_base64?: string | undefined;
  readonly file?: { readonly session_id: string; readonly path: string } | undefined;
  readonly url?: string | undefined;
}

/** @throws GatewayError `invalid_request` unless there is exactly one */
function sourceOf({ text, content_base64: base64, file, url }: GivenSource): DocumentSource {
  const given: DocumentSource[] = [];
  if (text !== undefined) given.push({ kind: "bytes", bytes: Buffer.from(text, "utf8") });
  if (base64 !== undefined) given.push({ kind: "bytes", bytes: Buffer.from(base64, "base64") });
  if (file !== undefined) given.push({ kind: "file", session: file.session_id, path: file.path });
  if (url !== undefined) given.push({ kind: "url", url });
  const [source] = given;
  if (source !== undefined && given.length === 1) return source;
  throw new GatewayError(
    "invalid_request",
    "Give the document by exactly one of 'text', 'content_base64', 'file' and 'url'.",
    { param: "text" },
  );
}

export const listKnowledgeDocuments = defineRoute({
  method: "post",
  path: "/v1/knowledge/list_docs",
  summary: "List documents of a knowledge base",
  description: "Those that the caller may read, with how far each of them is.",
  tags,
  scope: null,
  request: {
    body: bodyOf({ knowledge_base: baseField, state: z.enum(documentStates).optional(), ...pageFields }),
  },
  responses: { 200: { description: "A page of them", schema: listSchema(documentSchema) } },
  isolation: { kind: "object", arrange: arrangedBase },
  async handler(c, { core, tenant, caller, body }) {
    requireReader(caller);
    const { requireBase } = await loadBases();
    const { knowledge_base: name, state, ...page } = body;
    const base = await requireBase(core, tenant, name);
    const found = await core.repos.knowledge.listDocuments(tenant, base.id, {
      ...toPageRequest(page),
      reader: readerOf(caller),
      ...(state === undefined ? {} : { state }),
    });
    return c.json(toList(found, viewDocument, idOf));
  },
});

const documentBody = bodyOf({ knowledge_base: baseField, document_id: documentIdField });

export const getKnowledgeDocument = defineRoute({
  method: "post",
  path: "/v1/knowledge/get_doc",
  summary: "One document of a knowledge base",
  tags,
  scope: null,
  request: { body: documentBody },
  responses: { 200: { description: "The document", schema: documentSchema } },
  isolation: { kind: "object", arrange: arrangedDocument },
  async handler(c, { core, tenant, caller, body }) {
    requireReader(caller);
    const { requireDocument } = await loadDocuments();
    const asked = { base: body.knowledge_base, document: body.document_id, reader: readerOf(caller) };
    return c.json(viewDocument((await requireDocument(core, tenant, asked)).document));
  },
});

export const deleteKnowledgeDocument = defineRoute({
  method: "post",
  path: "/v1/knowledge/delete_doc",
  summary: "Delete a document from a knowledge base",
  description: "It is not found from the answer on, also where it is being ingested.",
  tags,
  scope: "manage",
  request: { body: documentBody },
  responses: {
    200: {
      description: "It is gone",
      schema: z.strictObject({ id: z.string(), deleted: z.boolean() }),
    },
  },
  isolation: { kind: "object", arrange: arrangedDocument },
  async handler(c, { core, tenant, body }) {
    const { deleteDocument } = await loadDocuments();
    await deleteDocument(core, tenant, { base: body.knowledge_base, document: body.document_id });
    return c.json({ id: body.document_id, deleted: true });
  },
});

export const retryKnowledgeDocument = defineRoute({
  method: "post",
  path: "/v1/knowledge/retry_doc",
  summary: "Ingest a document again",
  description: "One that failed, or whose call was cancelled; one that is at work goes on.",
  tags,
  scope: "manage",
  request: { body: documentBody },
  responses: { 202: { description: "The document", schema: documentSchema } },
  isolation: { kind: "object", arrange: arrangedDocument },
  async handler(c, { core, context, body }) {
    const { retryDocument } = await loadDocuments();
    const asked = { base: body.knowledge_base, document: body.document_id };
    return c.json(viewDocument(await retryDocument(core, context, asked)), 202);
  },
});
