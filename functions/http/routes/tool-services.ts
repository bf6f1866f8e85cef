/**
 * Tool services: configured back ends behind tool URIs (tool management specification, "工具服务配置管理";
 * CFG-1 to CFG-4). The routes are the same for every scheme; what a scheme's configuration holds is said
 * by GET /v1/tool-services/schemes.
 */
import { importRequestSchema } from "@toolyard/core/import/request";
import { missingCredentials } from "@toolyard/core/blind/credential-resolver";
import type { CallContext } from "@toolyard/core/context";
import { newId } from "@toolyard/core/ids";
import { isJsonObject, type JsonObject } from "@toolyard/core/json";
import {
  acceptTools,
  discoverIfPossible,
  listServiceTools,
  type ListedServiceTools,
} from "@toolyard/core/services/list-tools";
import { toPicked } from "@toolyard/core/services/picker";
import { findReferences, type Reference } from "@toolyard/core/services/references";
import {
  createService,
  deleteService,
  requireService,
  runtimeOf,
  serviceRuntimes,
  updateService,
  type ServicePatch,
} from "@toolyard/core/services/register";
import { serviceIdSchema, type ToolService } from "@toolyard/core/services/service";
import { testService } from "@toolyard/core/services/test-connection";
import { toRfc3339 } from "@toolyard/core/time";
import { toListedTool } from "@toolyard/core/tools/describe";
import { formatToolUri, parseToolUri } from "@toolyard/core/tools/uri";
import * as z from "zod";
import type { AppContext } from "../app-env.ts";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { readIfMatch } from "../if-match.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import {
  confirmed,
  emptyBody,
  idOf,
  idParams,
  nameField,
  referencesSchema,
  timeSchema,
  withoutUndefined,
} from "./shared.ts";
import { listedToolSchema } from "./tools-list.ts";

const tags = ["tool services"];

const configField = z
  .custom<JsonObject>(isJsonObject, "Invalid input: expected object")
  .meta({ type: "object", additionalProperties: true, description: "As the scheme's `config_schema` says." });

const notSecretField = z
  .array(z.string().max(1_024))
  .max(64)
  .optional()
  .meta({
    description:
      "Fixed headers and the like that hold no secret, whatever they are called, as errors name them. Not stored.",
    example: ["config.headers.X-Tenant-Key"],
  });

const schemeField = z.string().meta({ description: "Type of the tool URIs.", example: "api" });

const serviceSchema = z.strictObject({
  id: z.string().meta({ example: "svc_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("tool_service"),
  scheme: schemeField,
  service_id: z.string().meta({ example: "crm" }),
  uri: z.string().meta({ description: "Tool URIs go on with `/` and the tool id.", example: "api://crm" }),
  display_name: z.string().nullable(),
  description: z.string().nullable(),
  config: configField.meta({ description: "Secrets are references to credentials, never values." }),
  enabled: z.boolean(),
  version: z.int().meta({ description: "Rises with every change; also the `etag`." }),
  created_at: timeSchema,
  updated_at: timeSchema,
});

function viewService(service: ToolService): z.output<typeof serviceSchema> {
  return {
    id: service.id,
    object: "tool_service",
    scheme: service.scheme,
    service_id: service.serviceId,
    uri: formatToolUri(service.scheme, service.serviceId),
    display_name: service.displayName,
    description: service.description,
    config: service.config,
    enabled: service.enabled,
    version: service.version,
    created_at: toRfc3339(service.createdAt),
    updated_at: toRfc3339(service.updatedAt),
  };
}

function answerService(c: AppContext, service: ToolService): Response {
  return c.json(viewService(service), 200, { etag: `"${service.version}"` });
}

const changedServiceSchema = serviceSchema
  .extend({
    warnings: z
      .array(z.string())
      .optional()
      .meta({ description: "Where its back end names its tools and has not done so: why." }),
  })
  .meta({ id: "ChangedToolService" });

/** @param unknown why its back end has not named its tools now */
function answerChanged(
  c: AppContext,
  service: ToolService,
  { unknown, status = 200 }: { readonly unknown: string | undefined; readonly status?: 200 | 201 },
): Response {
  const path = `GET /v1/tool-services/${service.id}/tools`;
  const state =
    service.discovered === null
      ? `Models are offered none of its tools yet; ${path} asks for them again.`
      : `Models are offered the tools that it named before; ${path}?refresh=true asks for them again.`;
  const view: z.output<typeof changedServiceSchema> = {
    ...viewService(service),
    ...(unknown !== undefined && { warnings: [`${state} ${unknown}`] }),
  };
  return c.json(view, status, { etag: `"${service.version}"` });
}

const descriptionField = z.string().max(4_096).meta({ description: "For people." });

/** A service of the owner, for the isolation suite. */
async function arrangeService(owner: IsolationDriver): Promise<string> {
  const service = await owner.send("post", "/v1/tool-services", {
    scheme: "api",
    service_id: `private-${newId("request")}`,
    config: {
      base_url: "https://crm.example.com",
      tools: { customer_list: { description: "Lists customers.", endpoint: "/customers" } },
    },
  });
  return String(service["id"]);
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: await arrangeService(owner) },
});

export const createToolService = defineRoute({
  method: "post",
  path: "/v1/tool-services",
  summary: "Create a tool service",
  description:
    'The configuration is checked as a whole, and its tools can be called from the next request on. A secret is {"credential": "NAME"} of PUT /v1/credentials/{name}; a literal in a secret\'s own field becomes a credential.',
  tags,
  scope: "manage",
  request: {
    body: z.strictObject({
      scheme: schemeField,
      service_id: serviceIdSchema.meta({ description: "What stands after `://`; case counts." }),
      display_name: nameField.nullable().default(null),
      description: descriptionField.nullable().default(null),
      enabled: z.boolean().default(true),
      config: configField,
      not_secret: notSecretField,
    }),
  },
  responses: { 201: { description: "The service", schema: changedServiceSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes a service of the caller's own tenant." },
  async handler(c, { core, context, body }) {
    const { scheme, service_id: serviceId, display_name: displayName, description, enabled, config } = body;
    const { not_secret: notSecret = [] } = body;
    const request = { scheme, serviceId, displayName, description, enabled, config, notSecret };
    const service = await createService(core, context, request);
    return answerChanged(c, service, { unknown: await discoverIfPossible(core, context, service), status: 201 });
  },
});

export const listToolServices = defineRoute({
  method: "get",
  path: "/v1/tool-services",
  summary: "List tool services",
  tags,
  scope: "manage",
  list: true,
  request: { query: pageQuery.extend({ scheme: schemeField.optional() }) },
  responses: { 200: { description: "A page of services", schema: listSchema(serviceSchema) } },
  isolation: { kind: "list", arrange: arrangeService },
  async handler(c, { core, tenant, query }) {
    const { scheme } = query;
    const ofScheme = scheme === undefined ? {} : { scheme: runtimeOf(core.adapters, scheme).scheme.scheme };
    const page = await core.repos.services.list(tenant, { ...toPageRequest(query), ...ofScheme });
    return c.json(toList(page, viewService, idOf));
  },
});

const optionSchema = z.strictObject({
  name: z.string(),
  type: z.enum(["integer", "boolean", "choice", "text"]),
  description: z.string(),
  min: z.number().nullable(),
  max: z.number().nullable(),
  values: z.array(z.string()),
});

const pickedSchema = z.strictObject({
  id: z.string(),
  object: z.literal("tool_service_scheme"),
  scheme: z.string(),
  title: z.string(),
  description: z.string(),
  icon: z.string(),
  discovers_tools: z.boolean().meta({ description: "The back end is asked for its tools." }),
  options: z.array(optionSchema).meta({ description: "What stands after the `?` of its URIs." }),
  fields: z.array(z.record(z.string(), z.unknown())).meta({ description: "A form for `config`." }),
  config_schema: z.record(z.string(), z.unknown()).meta({ description: "JSON Schema of `config`." }),
});

export const listToolServiceSchemes = defineRoute({
  method: "get",
  path: "/v1/tool-services/schemes",
  summary: "Schemes that tool services can have, for pickers",
  tags,
  scope: null,
  responses: {
    200: {
      description: "All schemes",
      schema: z.strictObject({ object: z.literal("list"), data: z.array(pickedSchema) }),
    },
  },
  isolation: { kind: "nothing-owned", reason: "Schemes are part of the release." },
  handler: (c, { core }) =>
    c.json({
      object: "list",
      data: serviceRuntimes(core.adapters).map((runtime) => {
        const picked = toPicked(runtime);
        return { id: picked.scheme, object: "tool_service_scheme", ...picked };
      }),
    }),
});

export const getToolService = defineRoute({
  method: "get",
  path: "/v1/tool-services/{id}",
  summary: "One tool service",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 200: { description: "The service", schema: serviceSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  handler: async (c, { core, tenant, params }) => answerService(c, await requireService(core, tenant, params.id)),
});

const changes = z.strictObject({
  display_name: nameField.nullable().optional(),
  description: descriptionField.nullable().optional(),
  enabled: z.boolean().optional(),
  config: configField.optional().meta({
    description: "Merged as RFC 7396 says: null removes a field, lists are replaced.",
  }),
  not_secret: notSecretField,
  version: z
    .int()
    .min(1)
    .optional()
    .meta({ description: "Refuse unless it is the service's; `if-match` does the same." }),
});

export const updateToolService = defineRoute({
  method: "patch",
  path: "/v1/tool-services/{id}",
  summary: "Change a tool service",
  description:
    "Fields that are left out stay as they are. In force from the next request on, on every instance; calls under way go on with what they started with.",
  tags,
  scope: "manage",
  request: {
    params: idParams,
    body: changes,
    headers: { "if-match": "The `etag` that the change is based on; 412 where the service has another by now." },
  },
  responses: { 200: { description: "The service as it is now", schema: changedServiceSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ ...(await arrangeObject(owner)), body: { display_name: "changed" } }),
  },
  async handler(c, { core, context, params, body }) {
    const { display_name: displayName, description, enabled, config, not_secret: notSecret } = body;
    const version = readIfMatch(c, body.version, "service");
    const patch: ServicePatch = withoutUndefined({ displayName, description, enabled, config, notSecret });
    const options = { id: params.id, patch, ...(version === undefined ? {} : { expectedVersion: version }) };
    const service = await updateService(core, context, options);
    const unknown = config === undefined ? undefined : await discoverIfPossible(core, context, service);
    return answerChanged(c, service, { unknown });
  },
});

export const deleteToolService = defineRoute({
  method: "delete",
  path: "/v1/tool-services/{id}",
  summary: "Delete a tool service",
  description:
    "Refused with `service_referenced`, naming the referrers, while something uses it; `force=true` deletes all the same. Credentials that were made of its literals go with it.",
  tags,
  scope: "manage",
  request: {
    params: idParams,
    query: z.strictObject({ force: confirmed.meta({ description: "'true': although it is in use." }) }),
  },
  responses: { 204: { description: "The service is gone" } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params, query }) {
    await deleteService(core, context, { id: params.id, force: query.force });
    return c.body(null, 204);
  },
});

function switchRoute(verb: "enable" | "disable", summary: string): ReturnType<typeof defineRoute> {
  return defineRoute({
    method: "post",
    path: `/v1/tool-services/{id}/${verb}`,
    summary,
    tags,
    scope: "manage",
    request: { params: idParams, body: emptyBody },
    responses: { 200: { description: "The service as it is now", schema: changedServiceSchema } },
    isolation: { kind: "object", arrange: arrangeObject },
    async handler(c, { core, context, params }) {
      const patch = { enabled: verb === "enable" };
      const service = await updateService(core, context, { id: params.id, patch });
      const unknown = service.discovered === null ? await discoverIfPossible(core, context, service) : undefined;
      return answerChanged(c, service, { unknown });
    },
  });
}

export const enableToolService = switchRoute("enable", "Let a tool service be called");
export const disableToolService = switchRoute("disable", "Refuse calls of a tool service");

export const listToolServiceReferences = defineRoute({
  method: "get",
  path: "/v1/tool-services/{id}/references",
  summary: "Who uses a tool service",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: {
    200: { description: "All that would be left without it", schema: referencesSchema },
  },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, tenant, params }) {
    const service = await requireService(core, tenant, params.id);
    const data: readonly Reference[] = await findReferences(core, context, service);
    return c.json({ object: "list", data });
  },
});

const testSchema = z.strictObject({
  object: z.literal("tool_service_test"),
  ok: z.boolean(),
  detail: z.string(),
  duration_ms: z.int(),
  error: z
    .strictObject({ code: z.string(), message: z.string(), param: z.string().nullable(), retryable: z.boolean() })
    .nullable(),
});

export const testToolService = defineRoute({
  method: "post",
  path: "/v1/tool-services/{id}/test",
  summary: "Test the connection of a tool service",
  description:
    "Without a side effect at the back end. A failure is the result of the test, with the code that a call would have.",
  tags,
  scope: "manage",
  request: { params: idParams, body: emptyBody },
  responses: { 200: { description: "What was found", schema: testSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params }) {
    const { ok, detail, durationMs, error } = await testService(core, context, params.id);
    return c.json({
      object: "tool_service_test",
      ok,
      detail,
      duration_ms: durationMs,
      error:
        error === undefined
          ? null
          : { code: error.code, message: detail, param: error.details.param ?? null, retryable: error.spec.retryable },
    });
  },
});

const quarantinedSchema = z.strictObject({
  tool_id: z.string(),
  uri: z.string(),
  reason: z.enum(["new", "changed"]),
  changed_parts: z.array(z.string()).meta({ description: "What differs from the accepted definition." }),
  hash: z.string().meta({ description: "Names this definition; to be sent back by whoever accepts it." }),
  description: z.string().meta({ description: "As the back end has it now." }),
  parameters: z.record(z.string(), z.unknown()),
});

const serviceToolsSchema = z
  .strictObject({
    object: z.literal("list"),
    data: z.array(listedToolSchema),
    discovered_at: timeSchema.nullable().meta({ description: "When the back end named them." }),
    quarantined: z
      .array(quarantinedSchema)
      .meta({ description: "Neither listed to models nor called until they are accepted." }),
    warnings: z.array(z.string()).meta({ description: "What the back end named and was left out, with the reason." }),
  })
  .meta({ id: "ToolServiceTools" });

function viewTools(context: CallContext, listed: ListedServiceTools): object {
  const { service, tools, quarantined } = listed;
  return {
    object: "list",
    data: tools.map((tool) => toListedTool(tool, missingCredentials(context, tool.requiredCredentials))),
    discovered_at: service.discovered === null ? null : toRfc3339(service.discovered.at),
    quarantined: quarantined.map(({ tool, quarantine, hash }) => ({
      tool_id: parseToolUri(tool.uri).tool,
      uri: tool.uri,
      reason: quarantine.reason,
      changed_parts: quarantine.reason === "changed" ? [...quarantine.parts] : [],
      hash,
      description: tool.description,
      parameters: tool.parameters,
    })),
    warnings: [...(service.discovered?.warnings ?? [])],
  };
}

export const listToolServiceTools = defineRoute({
  method: "get",
  path: "/v1/tool-services/{id}/tools",
  summary: "Tools of a service, with their parameters",
  description:
    "Those that are configured, or those that the back end named; it is asked at first and with `refresh=true`.",
  tags,
  scope: "manage",
  request: {
    params: idParams,
    query: z.strictObject({ refresh: confirmed.meta({ description: "'true': ask the back end again." }) }),
  },
  responses: { 200: { description: "All tools", schema: serviceToolsSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, context, params, query }) {
    const listed = await listServiceTools(core, context, { id: params.id, refresh: query.refresh });
    return c.json(viewTools(context, listed));
  },
});

export const acceptToolServiceTools = defineRoute({
  method: "post",
  path: "/v1/tool-services/{id}/tools/accept",
  summary: "Accept definitions of quarantined tools",
  description:
    "What is accepted is the definition that the hash names; `version_conflict` (412) where the tool has another by now.",
  tags,
  scope: "manage",
  request: {
    params: idParams,
    body: z.strictObject({
      tools: z
        .array(z.strictObject({ id: z.string().min(1).max(256), hash: z.string().min(1).max(128) }))
        .min(1)
        .max(1_000),
    }),
  },
  responses: { 200: { description: "All tools as they are now", schema: serviceToolsSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ ...(await arrangeObject(owner)), body: { tools: [{ id: "x", hash: "x" }] } }),
  },
  async handler(c, { core, context, params, body }) {
    return c.json(viewTools(context, await acceptTools(core, context, { id: params.id, tools: body.tools })));
  },
});

const { openapi, url, include, exclude, document_id, remove_missing, allow_external_refs, dry_run } =
  importRequestSchema.shape;

const importBody = z
  .strictObject({ openapi, url, include, exclude, document_id, remove_missing, allow_external_refs, dry_run })
  .refine((body) => body.openapi !== undefined || body.url !== undefined, {
    error: "needs 'openapi' or 'url'",
    path: ["openapi"],
  });

const importSchema = z.strictObject({
  object: z.literal("tool_service_import"),
  dry_run: z.boolean(),
  service: serviceSchema,
  document: z.strictObject({ id: z.string(), title: z.string().nullable(), version: z.string().nullable() }),
  tools: z.array(
    z.strictObject({
      operation: z.string().meta({ example: "GET /users/{id}" }),
      action: z
        .enum(["added", "changed", "unchanged", "removed", "missing", "skipped"])
        .meta({ description: "'missing': its operation is gone, and it was kept." }),
      tool: z.string().nullable(),
      uri: z.string().nullable(),
      changed_fields: z.array(z.string()),
      warnings: z.array(z.string()).meta({ description: "What was cut, left out or guessed." }),
      reason: z.string().nullable().meta({ description: "Why it was skipped." }),
    }),
  ),
  warnings: z.array(z.string()),
});

/** A document of 32 MiB and what JSON adds where it is sent as text. */
const largestImport = 50_331_648;

export const importToolService = defineRoute({
  method: "post",
  path: "/v1/tool-services/{id}/import",
  summary: "Make tools of an OpenAPI document's operations",
  description:
    "For services of the scheme 'api'. Address and credentials stay the service's own; operations elsewhere are skipped. Importing a document again changes what has changed in it.",
  tags,
  scope: "manage",
  request: { params: idParams, body: importBody, maxBytes: largestImport },
  responses: { 200: { description: "What was done, or would be", schema: importSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ ...(await arrangeObject(owner)), body: { openapi: smallDocument, dry_run: false } }),
  },
  async handler(c, { core, context, params, body }) {
    // What reads documents is large, and most starts import nothing.
    const { importIntoService } = await import("@toolyard/core/import/into-service");
    const result = await importIntoService(core, context, { id: params.id, ...body });
    const { service, document, tools, warnings } = result;
    return c.json({
      object: "tool_service_import",
      dry_run: body.dry_run,
      service: viewService(service),
      document,
      tools,
      warnings,
    });
  },
});

const smallDocument = {
  openapi: "3.1.0",
  info: { title: "CRM", version: "1" },
  paths: { "/customers": { get: { operationId: "stolen" } } },
};
