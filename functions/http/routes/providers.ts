/** Model back ends of a tenant. The key is a credential that the provider names, never a value (BLIND-5). */
import type { ProviderRecord } from "@toolyard/core/chat/providers/provider";
import { providerKinds } from "@toolyard/core/chat/providers/index";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import type { Egress } from "@toolyard/core/ports/egress";
import { schemaFamilies } from "@toolyard/core/tools/schema-projection";
import type { NewProvider } from "@toolyard/core/ports/providers";
import { looksLikeSecret, notAName } from "@toolyard/core/secrets/secret-shape";
import * as z from "zod";
import { defineRoute, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { credentialNameSchema } from "@toolyard/core/blind/definition";
import { requireReachable } from "./reachable-url.ts";
import { found, idOf, idParams, nameField, notFound, withoutUndefined } from "./shared.ts";

const tags = ["providers"];
const modelName = z.string().min(1).max(256);

const fields = {
  name: nameField,
  kind: z.enum(providerKinds).meta({ description: "Which protocol the back end speaks." }),
  base_url: z
    .url({ protocol: /^https?$/ })
    .max(2_048)
    .nullable()
    .meta({
      description:
        "What '/chat/completions' and '/embeddings' are put behind; usually ends in /v1. A query stays one ('?api-version=…'). Required for the kind 'openai'; null for 'scripted', which has none.",
      example: "https://api.openai.com/v1",
    }),
  credential: credentialNameSchema
    .nullable()
    .meta({ description: "Name of the credential that holds the key; null: the back end asks for none." }),
  models: z
    .record(modelName, modelName)
    .meta({ description: "Model names as callers write them, and as the back end knows them." }),
  passthrough_models: z.boolean().meta({ description: "Serve models that are not listed, under their own names." }),
  schema_family: z.enum(schemaFamilies).nullable().meta({
    description:
      "Which schemas of tools its models read: 'openai' all of JSON Schema, 'anthropic-compatible' no alternatives at the top, 'gemini' Gemini's subset, 'plain' types and descriptions. null: by the model's name.",
  }),
  priority: z.int().min(0).max(10_000).meta({ description: "Lower ones are asked first." }),
  enabled: z.boolean(),
  max_attempts: z.int().min(1).max(10).meta({ description: "Sends in all, before the first byte only." }),
  timeout_ms: z.int().min(1_000).max(840_000),
};

const newProviderSchema = z.strictObject({
  ...fields,
  base_url: fields.base_url.default(null),
  credential: fields.credential.default(null),
  models: fields.models.default({}),
  passthrough_models: fields.passthrough_models.default(false),
  schema_family: fields.schema_family.default(null),
  priority: fields.priority.default(100),
  enabled: fields.enabled.default(true),
  max_attempts: fields.max_attempts.default(2),
  timeout_ms: fields.timeout_ms.default(300_000),
});

const providerSchema = z.strictObject({
  id: z.string().meta({ example: "prv_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("provider"),
  ...fields,
  kind: z.string(),
});

function viewProvider(provider: ProviderRecord): z.output<typeof providerSchema> {
  return { id: provider.id, object: "provider", ...toFields(provider) };
}

/** As it stands in a body. */
export function toFields(provider: NewProvider): Omit<z.output<typeof providerSchema>, "id" | "object"> {
  return {
    name: provider.name,
    kind: provider.kind,
    base_url: provider.baseUrl === "" ? null : provider.baseUrl,
    credential: provider.credential,
    models: { ...provider.models },
    passthrough_models: provider.passthroughModels,
    schema_family: provider.schemaFamily,
    priority: provider.priority,
    enabled: provider.enabled,
    max_attempts: provider.maxAttempts,
    timeout_ms: provider.timeoutMs,
  };
}

function toProvider(body: Omit<z.output<typeof providerSchema>, "id" | "object">): NewProvider {
  return {
    name: body.name,
    kind: body.kind,
    baseUrl: body.base_url ?? "",
    credential: body.credential,
    models: body.models,
    passthroughModels: body.passthrough_models,
    schemaFamily: body.schema_family,
    priority: body.priority,
    enabled: body.enabled,
    maxAttempts: body.max_attempts,
    timeoutMs: body.timeout_ms,
  };
}

/**
 * The built-in back end answers within the process; every other one is somewhere.
 * @throws GatewayError `invalid_request`, `egress_denied`
 */
function requireAddress(egress: Egress, { kind, baseUrl }: NewProvider): void {
  if (baseUrl !== "") requireReachable(egress, baseUrl, "base_url");
  else if (kind !== "scripted") {
    throw new GatewayError("invalid_request", "Body field 'base_url' is required.", { param: "base_url" });
  }
}

/** @throws GatewayError `invalid_request` */
function requireName({ credential }: NewProvider, before?: string | null): void {
  if (credential !== null && credential !== before && looksLikeSecret(credential)) {
    throw new GatewayError("invalid_request", `Body field 'credential' ${notAName}.`, { param: "credential" });
  }
}

async function arrangeProvider(owner: IsolationDriver): Promise<string> {
  const provider = await owner.send("post", "/v1/providers", {
    name: `of another tenant ${newId("request")}`,
    kind: "openai",
    base_url: "https://models.example.com/v1",
    models: { "private-model": "private-model" },
  });
  return String(provider["id"]);
}

export const createProvider = defineRoute({
  method: "post",
  path: "/v1/providers",
  summary: "Add a model back end",
  description:
    "Its models can be used from the next request on. Store its key with PUT /v1/credentials/{name}. A tenant has 200 providers at most.",
  tags,
  scope: "manage",
  request: { body: newProviderSchema },
  responses: { 201: { description: "The provider", schema: providerSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes a provider of the caller's own tenant." },
  async handler(c, { core, tenant, body }) {
    const provider = toProvider(body);
    requireName(provider);
    requireAddress(core.egress, provider);
    return c.json(viewProvider(await core.repos.providers.create(tenant, newId("provider"), provider)), 201);
  },
});

export const listProviders = defineRoute({
  method: "get",
  path: "/v1/providers",
  summary: "List model back ends",
  tags,
  scope: "manage",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of providers", schema: listSchema(providerSchema) } },
  isolation: { kind: "list", arrange: arrangeProvider },
  handler: async (c, { core, tenant, query }) =>
    c.json(toList(await core.repos.providers.list(tenant, toPageRequest(query)), viewProvider, idOf)),
});

export const getProvider = defineRoute({
  method: "get",
  path: "/v1/providers/{id}",
  summary: "One model back end",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 200: { description: "The provider", schema: providerSchema } },
  isolation: { kind: "object", arrange: async (owner) => ({ params: { id: await arrangeProvider(owner) } }) },
  handler: async (c, { core, tenant, params }) =>
    c.json(viewProvider(found(await core.repos.providers.get(tenant, params.id), "provider", params.id))),
});

export const updateProvider = defineRoute({
  method: "patch",
  path: "/v1/providers/{id}",
  summary: "Change a model back end",
  description: "Fields that are left out stay as they are; 'models' is replaced as a whole.",
  tags,
  scope: "manage",
  request: { params: idParams, body: z.strictObject(fields).partial() },
  responses: { 200: { description: "The provider as it is now", schema: providerSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ params: { id: await arrangeProvider(owner) }, body: { enabled: false } }),
  },
  async handler(c, { core, tenant, params, body }) {
    const provider = found(await core.repos.providers.get(tenant, params.id), "provider", params.id);
    const changed = toProvider({ ...toFields(provider), ...withoutUndefined(body) });
    requireName(changed, provider.credential);
    // Renaming one, or switching it off, is no occasion to refuse its address under rules that are newer than it.
    if (body.base_url !== undefined || body.kind !== undefined) requireAddress(core.egress, changed);
    const updated = await core.repos.providers.update(tenant, params.id, changed);
    return c.json(viewProvider(found(updated, "provider", params.id)));
  },
});

export const deleteProvider = defineRoute({
  method: "delete",
  path: "/v1/providers/{id}",
  summary: "Remove a model back end",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 204: { description: "Its models are gone; requests under way are not disturbed" } },
  isolation: { kind: "object", arrange: async (owner) => ({ params: { id: await arrangeProvider(owner) } }) },
  async handler(c, { core, tenant, params }) {
    if (!(await core.repos.providers.delete(tenant, params.id))) throw notFound("provider", params.id);
    return c.body(null, 204);
  },
});
