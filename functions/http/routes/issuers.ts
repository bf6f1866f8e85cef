/** Issuers whose JWTs this tenant trusts (design "Tenants, callers, secrets"). */
import { requireMayGrant } from "@toolyard/core/callers/grant";
import { scopes, scopeSchema, type Caller } from "@toolyard/core/callers/caller";
import { userIdOf } from "@toolyard/core/callers/jwt";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { newId } from "@toolyard/core/ids";
import type { TrustedIssuer } from "@toolyard/core/ports/issuers";
import { toRfc3339 } from "@toolyard/core/time";
import * as z from "zod";
import { defineRoute, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { found, idOf, idParams, notFound, timeSchema, withoutUndefined } from "./shared.ts";
import { requireReachable } from "./reachable-url.ts";

const tags = ["issuers"];
const claimName = z.string().min(1).max(128);

const claimsSchema = z
  .strictObject({
    role: claimName.optional(),
    scopes: claimName.optional(),
    tools: claimName.optional(),
    business_unit: claimName.optional(),
  })
  .meta({ description: "Names of the claims, dotted for nested ones, that say what a token's bearer may do." });

/** What may be another later; who is trusted, and for what, may not. */
const fields = {
  jwks_url: z.url({ protocol: /^https?$/ }).max(2_048),
  claims: claimsSchema,
  default_role: z.enum(["admin", "member"]),
  default_scopes: z.array(scopeSchema).max(scopeSchema.options.length),
};

const newIssuerSchema = z.strictObject({
  issuer: z.string().min(1).max(512).meta({ description: "The tokens' 'iss', exactly." }),
  audience: z.string().min(1).max(512).meta({ description: "An entry of the tokens' 'aud', exactly." }),
  ...fields,
  claims: fields.claims.default({}),
  default_role: fields.default_role.default("member"),
  default_scopes: fields.default_scopes.default(["chat", "tools"]),
});
type NewIssuer = z.output<typeof newIssuerSchema>;

const issuerSchema = z.strictObject({
  id: z.string().meta({ example: "iss_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("issuer"),
  issuer: z.string(),
  audience: z.string(),
  jwks_url: z.string(),
  claims: claimsSchema,
  default_role: z.enum(["admin", "member"]),
  default_scopes: z.array(scopeSchema),
  user_id_prefix: z.string().meta({
    example: "user:https://login.example.com/:",
    description:
      "How the ids of its users begin; the subject follows. Beside an issuer that is trusted already, where one's name and a ':' are the beginning of the other's, ':' and '%' are %3A and %25 in issuer and subject, so that no user can be taken for one of the other.",
  }),
  created_at: timeSchema,
});

/** As the body that would make it says it. */
export function toIssuerFields(issuer: TrustedIssuer): NewIssuer {
  const { businessUnit, ...claims } = issuer.claims;
  return {
    issuer: issuer.issuer,
    audience: issuer.audience,
    jwks_url: issuer.jwksUrl,
    claims: { ...claims, ...(businessUnit === undefined ? {} : { business_unit: businessUnit }) },
    // A token never makes an operator.
    default_role: issuer.defaultRole === "admin" ? "admin" : "member",
    default_scopes: [...issuer.defaultScopes],
  };
}

function viewIssuer(issuer: TrustedIssuer): z.output<typeof issuerSchema> {
  return {
    id: issuer.id,
    object: "issuer",
    ...toIssuerFields(issuer),
    user_id_prefix: userIdOf(issuer, ""),
    created_at: toRfc3339(issuer.createdAt),
  };
}

/** Where claims decide, the issuer can hand out everything, so its maker must have everything. */
function requireMayTrust(
  { core, caller }: { readonly core: CoreDeps; readonly caller: Caller },
  body: NewIssuer,
): void {
  requireMayGrant(caller, {
    role: body.claims.role === undefined ? body.default_role : "admin",
    scopes: body.claims.scopes === undefined ? body.default_scopes : scopes,
    tools: null,
    business_unit: null,
  });
  requireReachable(core.egress, body.jwks_url, "jwks_url");
}

function toRecord({ jwks_url: jwksUrl, claims, default_role: defaultRole, default_scopes: defaultScopes }: NewIssuer) {
  const { business_unit: businessUnit, ...named } = withoutUndefined(claims);
  return {
    jwksUrl,
    claims: { ...named, ...(businessUnit === undefined ? {} : { businessUnit }) },
    defaultRole,
    defaultScopes: [...new Set(defaultScopes)],
  };
}

async function arrangeIssuer(owner: IsolationDriver): Promise<string> {
  const issuer = await owner.send("post", "/v1/issuers", {
    issuer: "https://login.example.com/",
    audience: `toolyard-${newId("request")}`,
    jwks_url: "https://login.example.com/jwks.json",
  });
  return String(issuer["id"]);
}

export const createIssuer = defineRoute({
  method: "post",
  path: "/v1/issuers",
  summary: "Trust an issuer of JWTs",
  description: "From then on tokens that it signs for this audience count as keys of the tenant.",
  tags,
  scope: "manage",
  request: { body: newIssuerSchema },
  responses: { 201: { description: "The issuer", schema: issuerSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes an issuer of the caller's own tenant." },
  async handler(c, { core, caller, tenant, body }) {
    requireMayTrust({ core, caller }, body);
    const { issuer, audience } = body;
    const made = await core.repos.issuers.create(tenant, {
      id: newId("issuer"),
      issuer,
      audience,
      ...toRecord(body),
    });
    return c.json(viewIssuer(made), 201);
  },
});

export const listIssuers = defineRoute({
  method: "get",
  path: "/v1/issuers",
  summary: "List trusted issuers",
  tags,
  scope: "manage",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of issuers", schema: listSchema(issuerSchema) } },
  isolation: { kind: "list", arrange: arrangeIssuer },
  handler: async (c, { core, tenant, query }) =>
    c.json(toList(await core.repos.issuers.list(tenant, toPageRequest(query)), viewIssuer, idOf)),
});

export const updateIssuer = defineRoute({
  method: "patch",
  path: "/v1/issuers/{id}",
  summary: "Change what a trusted issuer's tokens say and may do",
  description:
    "Fields that are left out stay; `claims` is replaced as a whole. Its users stay who they are. An instance that has seen the issuer's tokens may go on as before for half a minute.",
  tags,
  scope: "manage",
  request: { params: idParams, body: z.strictObject(fields).partial() },
  responses: { 200: { description: "The issuer as it is now", schema: issuerSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ params: { id: await arrangeIssuer(owner) }, body: { default_scopes: ["chat"] } }),
  },
  async handler(c, { core, caller, tenant, params, body }) {
    const before = found(await core.repos.issuers.get(tenant, params.id), "issuer", params.id);
    const after = { ...toIssuerFields(before), ...withoutUndefined(body) };
    requireMayTrust({ core, caller }, after);
    return c.json(
      viewIssuer(found(await core.repos.issuers.update(tenant, params.id, toRecord(after)), "issuer", params.id)),
    );
  },
});

export const deleteIssuer = defineRoute({
  method: "delete",
  path: "/v1/issuers/{id}",
  summary: "Stop trusting an issuer",
  description: "An instance that has seen the issuer's tokens may go on accepting them for half a minute.",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 204: { description: "Its tokens are refused" } },
  isolation: { kind: "object", arrange: async (owner) => ({ params: { id: await arrangeIssuer(owner) } }) },
  async handler(c, { core, tenant, params }) {
    if (!(await core.repos.issuers.delete(tenant, params.id))) throw notFound("issuer", params.id);
    return c.body(null, 204);
  },
});
