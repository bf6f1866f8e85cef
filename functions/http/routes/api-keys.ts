/** API keys of a tenant. The key itself is shown once, when it is made; only its hash is stored. */
import { newApiKey } from "@toolyard/core/callers/api-key";
import { requireMayGrant } from "@toolyard/core/callers/grant";
import { scopeSchema, toolPatternSchema } from "@toolyard/core/callers/caller";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import type { ApiKey } from "@toolyard/core/ports/api-keys";
import { toRfc3339 } from "@toolyard/core/time";
import * as z from "zod";
import { defineRoute, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { found, givenTimeSchema, idOf, idParams, nameField, notFound, timeSchema } from "./shared.ts";

const tags = ["api keys"];

const toolPatternsSchema = z
  .array(toolPatternSchema)
  .max(256)
  .nullable()
  .meta({
    description: "Tools that the key may list and run; null: all enabled tools.",
    example: ["crm_*", "api://crm/*"],
  });

const scopesSchema = z.array(scopeSchema).max(scopeSchema.options.length);

const apiKeySchema = z.strictObject({
  id: z.string().meta({ example: "key_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("api_key"),
  name: z.string(),
  role: z.enum(["admin", "member"]),
  scopes: scopesSchema,
  tools: toolPatternsSchema,
  user_id: z.string().nullable(),
  business_unit: z.string().nullable(),
  requests_per_minute: z.int().nullable(),
  concurrent_requests: z.int().nullable(),
  hint: z.string().meta({ description: "How the key begins." }),
  expires_at: timeSchema.nullable(),
  revoked_at: timeSchema.nullable(),
  created_at: timeSchema,
});

function viewApiKey(key: ApiKey): z.output<typeof apiKeySchema> {
  return {
    id: key.id,
    object: "api_key",
    name: key.name,
    role: key.role,
    scopes: [...key.scopes],
    tools: key.tools === null ? null : [...key.tools],
    user_id: key.userId,
    business_unit: key.businessUnit,
    requests_per_minute: key.requestsPerMinute,
    concurrent_requests: key.concurrentRequests,
    hint: key.hint,
    expires_at: key.expiresAt === null ? null : toRfc3339(key.expiresAt),
    revoked_at: key.revokedAt === null ? null : toRfc3339(key.revokedAt),
    created_at: toRfc3339(key.createdAt),
  };
}

const newApiKeySchema = z.strictObject({
  name: nameField,
  role: z.enum(["admin", "member"]).default("member"),
  scopes: scopesSchema.default(["chat", "tools"]),
  tools: toolPatternsSchema.default(null),
  user_id: z
    .string()
    .min(1)
    .max(256)
    .nullable()
    .default(null)
    .meta({ description: "End user whose own credentials the key's calls use before the tenant's." }),
  business_unit: z.string().min(1).max(128).nullable().default(null),
  requests_per_minute: z.int().min(1).max(1_000_000).nullable().default(null),
  concurrent_requests: z.int().min(1).max(10_000).nullable().default(null),
  expires_at: givenTimeSchema.nullable().default(null),
});

async function arrangeApiKey(owner: IsolationDriver): Promise<string> {
  const key = await owner.send("post", "/v1/api-keys", { name: "of another tenant", scopes: ["chat"] });
  return String(key["id"]);
}

export const createApiKey = defineRoute({
  method: "post",
  path: "/v1/api-keys",
  summary: "Create an API key",
  description:
    "The answer's 'key' is shown this once. A key can do at most what its maker can, and a maker of a business unit makes keys of that unit.",
  tags,
  scope: "manage",
  request: { body: newApiKeySchema },
  responses: {
    201: {
      description: "The key",
      schema: apiKeySchema
        .extend({ key: z.string().meta({ description: "Shown once." }) })
        .meta({ id: "CreatedApiKey" }),
    },
  },
  isolation: { kind: "nothing-owned", reason: "Makes a key of the caller's own tenant." },
  async handler(c, { core, caller, tenant, body }) {
    requireMayGrant(caller, body);
    const expiresAt = body.expires_at === null ? null : Date.parse(body.expires_at);
    if (expiresAt !== null && expiresAt <= core.clock.now()) {
      throw new GatewayError("invalid_request", "'expires_at' is in the past.", { param: "expires_at" });
    }
    const { key, hash, hint } = newApiKey(tenant);
    const created = await core.repos.apiKeys.create(tenant, {
      id: newId("apiKey"),
      name: body.name,
      role: body.role,
      scopes: [...new Set(body.scopes)],
      tools: body.tools,
      userId: body.user_id,
      businessUnit: body.business_unit,
      requestsPerMinute: body.requests_per_minute,
      concurrentRequests: body.concurrent_requests,
      hash,
      hint,
      expiresAt,
    });
    return c.json({ ...viewApiKey(created), key }, 201);
  },
});

export const listApiKeys = defineRoute({
  method: "get",
  path: "/v1/api-keys",
  summary: "List API keys, revoked ones too",
  tags,
  scope: "manage",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of keys", schema: listSchema(apiKeySchema) } },
  isolation: { kind: "list", arrange: arrangeApiKey },
  handler: async (c, { core, tenant, query }) =>
    c.json(toList(await core.repos.apiKeys.list(tenant, toPageRequest(query)), viewApiKey, idOf)),
});

export const getApiKey = defineRoute({
  method: "get",
  path: "/v1/api-keys/{id}",
  summary: "One API key",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 200: { description: "The key, without its value", schema: apiKeySchema } },
  isolation: { kind: "object", arrange: async (owner) => ({ params: { id: await arrangeApiKey(owner) } }) },
  handler: async (c, { core, tenant, params }) =>
    c.json(viewApiKey(found(await core.repos.apiKeys.get(tenant, params.id), "API key", params.id))),
});

export const revokeApiKey = defineRoute({
  method: "delete",
  path: "/v1/api-keys/{id}",
  summary: "Revoke an API key",
  description: "Works from the next request on, and for calls of the key that still wait. The key stays in the list.",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 204: { description: "The key is revoked" } },
  isolation: { kind: "object", arrange: async (owner) => ({ params: { id: await arrangeApiKey(owner) } }) },
  async handler(c, { core, tenant, params }) {
    if (!(await core.repos.apiKeys.revoke(tenant, params.id))) throw notFound("API key", params.id);
    return c.body(null, 204);
  },
});
