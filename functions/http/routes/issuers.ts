/** Issuers whose JWTs this tenant trusts (design "Tenants, callers, secrets"). */
import { requireMayGrant } from "@toolyard/core/callers/grant";
import { scopes, scopeSchema, type Caller } from "@toolyard/core/callers/caller";
import { userIdOf } from "@toolyard/core/callers/jwt";
import { newId } from "@toolyard/core/ids";
import type { TrustedIssuer } from "@toolyard/core/ports/repos";
import { toRfc3339 } from "@toolyard/core/time";
import * as z from "zod";
import { defineRoute, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { idOf, idParams, notFound, timeSchema } from "./shared.ts";
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

const newIssuerSchema = z.strictObject({
  issuer: z.string().min(1).max(512).meta({ description: "The tokens' 'iss', exactly." }),
  audience: z.string().min(1).max(512).meta({ description: "An entry of the tokens' 'aud', exactly." }),
  jwks_url: z.url({ protocol: /^https?$/ }).max(2_048),
  claims: claimsSchema.default({}),
  default_role: z.enum(["admin", "member"]).default("member"),
  default_scopes: z.array(scopeSchema).max(scopeSchema.options.length).default(["chat", "tools"]),
});

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

function viewIssuer(issuer: TrustedIssuer): z.output<typeof issuerSchema> {
  const { businessUnit, ...claims } = issuer.claims;
  return {
    id: issuer.id,
    object: "issuer",
    issuer: issuer.issuer,
    audience: issuer.audience,
    jwks_url: issuer.jwksUrl,
    claims: { ...claims, ...(businessUnit === undefined ? {} : { business_unit: businessUnit }) },
    // A token never makes an operator.
    default_role: issuer.defaultRole === "admin" ? "admin" : "member",
    default_scopes: [...issuer.defaultScopes],
    user_id_prefix: userIdOf(issuer, ""),
    created_at: toRfc3339(issuer.createdAt),
  };
}

/** Where claims decide, the issuer can hand out everything, so its maker must have everything. */
function requireMayTrust(caller: Caller, body: z.output<typeof newIssuerSchema>): void {
  requireMayGrant(caller, {
    role: body.claims.role === undefined ? body.default_role : "admin",
    scopes: body.claims.scopes === undefined ? body.default_scopes : scopes,
    tools: null,
    business_unit: null,
  });
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
  tags,
  scope: "manage",
  request: { body: newIssuerSchema },
  responses: { 201: { description: "The issuer", schema: issuerSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes an issuer of the caller's own tenant." },
  async handler(c, { core, caller, tenant, body }) {
    requireMayTrust(caller, body);
    requireReachable(core.egress, body.jwks_url, "jwks_url");
    const { business_unit: businessUnit, role, scopes: scopesClaim, tools } = body.claims;
    const issuer = await core.repos.issuers.create(tenant, {
      id: newId("issuer"),
      issuer: body.issuer,
      audience: body.audience,
      jwksUrl: body.jwks_url,
      claims: {
        ...(role === undefined ? {} : { role }),
        ...(scopesClaim === undefined ? {} : { scopes: scopesClaim }),
        ...(tools === undefined ? {} : { tools }),
        ...(businessUnit === undefined ? {} : { businessUnit }),
      },
      defaultRole: body.default_role,
      defaultScopes: [...new Set(body.default_scopes)],
    });
    return c.json(viewIssuer(issuer), 201);
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
