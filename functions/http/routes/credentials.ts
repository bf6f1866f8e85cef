/**
 * Secrets of a tenant and of its users (BLIND-5). A value goes in and never comes out: answers carry
 * names, versions and times. A user's own value beats the tenant's in that user's calls.
 */
import { credentialNameSchema } from "@toolyard/core/blind/definition";
import { sealCredential } from "@toolyard/core/blind/credential-resolver";
import { requireScope } from "@toolyard/core/calls/admit";
import { hasScope, type Caller } from "@toolyard/core/callers/caller";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import type { CredentialView } from "@toolyard/core/ports/credentials";
import { toRfc3339 } from "@toolyard/core/time";
import { looksLikeSecret, notAName } from "@toolyard/core/secrets/secret-shape";
import * as z from "zod";
import { defineRoute, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { idOf, timeSchema } from "./shared.ts";

const tags = ["credentials"];

const credentialSchema = z.strictObject({
  id: z.string().meta({ example: "cred_7" }),
  object: z.literal("credential"),
  name: z.string(),
  level: z.enum(["tenant", "user"]),
  user_id: z.string().nullable(),
  version: z.int().meta({ description: "Rises with every new value." }),
  last_used_at: timeSchema.nullable().meta({ description: "When this version was last opened, to the minute." }),
  created_at: timeSchema,
  updated_at: timeSchema,
});

function viewCredential(credential: CredentialView): z.output<typeof credentialSchema> {
  return {
    id: credential.id,
    object: "credential",
    name: credential.name,
    level: credential.level,
    user_id: credential.userId,
    version: credential.version,
    last_used_at: credential.lastUsedAt === null ? null : toRfc3339(credential.lastUsedAt),
    created_at: toRfc3339(credential.createdAt),
    updated_at: toRfc3339(credential.updatedAt),
  };
}

const nameParams = z.strictObject({ name: credentialNameSchema });
const userIdField = z
  .string()
  .min(1)
  .max(1_024)
  .optional()
  .meta({ description: "Whose value it is; absent: the tenant's. Others' values need the scope 'manage'." });

/** Of a key or certificate in PEM form, whose file ends in a line break. */
const pemStart = "-----BEGIN ";

/**
 * Keys in PEM form have lines. Whether a value may stand in a header is asked where one is made; here is refused what
 * nothing takes, and the line break that comes along where the output of a program is stored.
 */
const valueSchema = z
  .string()
  .regex(/\S/, "must not be empty, nor blanks alone")
  .max(65_536, "must have 65,536 characters at most")
  .refine((value) => !value.includes("\0"), "must not hold NUL characters")
  .refine(
    (value) => value.startsWith(pemStart) || !/^[\r\n]|[\r\n]$/.test(value),
    `must not begin or end with a line break, which is no part of a secret; only what begins with '${pemStart}' may`,
  );

/** Anybody may look after their own; everything else is management. */
function requireMayTend(caller: Caller, userId: string | undefined): void {
  if (userId === undefined || userId !== caller.userId) requireScope(caller, "manage");
}

/** @throws GatewayError `invalid_request` for a new one that looks like a secret; what has such a name already can be rotated */
async function requireName({ repos }: CoreDeps, tenant: string, name: string, userId: string | null): Promise<void> {
  if (!looksLikeSecret(name)) return;
  const versions = await Promise.all([userId, null].map((owner) => repos.credentials.nextVersion(tenant, name, owner)));
  if (versions.some((next) => next > 1)) return;
  throw new GatewayError("invalid_request", `Path field 'name' ${notAName}.`, { param: "name" });
}

async function arrangeCredential(owner: IsolationDriver): Promise<string> {
  const name = `SECRET_${newId("request")}`;
  await owner.send("put", `/v1/credentials/${name}`, { value: "value of another tenant" });
  return name;
}

export const putCredential = defineRoute({
  method: "put",
  path: "/v1/credentials/{name}",
  summary: "Set or rotate a credential",
  description:
    "The value is sealed under the tenant's own key and used from the next request on. Putting a name again replaces the value and raises 'version'. One's own value (with one's own 'user_id') needs no scope; everything else needs 'manage'. A tenant has 10,000 credentials of 16 MB together at most, a user 200 of 2 MB, as they are sealed: one more is a 'conflict' that names the limit, while a value of up to 8 KB always replaces another.",
  tags,
  scope: null,
  request: { params: nameParams, body: z.strictObject({ value: valueSchema, user_id: userIdField }) },
  responses: {
    200: { description: "The value was replaced", schema: credentialSchema },
    201: { description: "The credential is new", schema: credentialSchema },
  },
  isolation: { kind: "nothing-owned", reason: "Names are each tenant's own: the same name is another credential." },
  async handler(c, { core, caller, tenant, config, params, body }) {
    requireMayTend(caller, body.user_id);
    await requireName(core, tenant, params.name, body.user_id ?? null);
    const credential = await sealCredential(
      { sealer: core.sealer, credentials: core.repos.credentials },
      {
        tenant,
        wrappedKey: config.wrappedKey,
        name: params.name,
        value: body.value,
        userId: body.user_id ?? null,
      },
    );
    return c.json(viewCredential(credential), credential.version === 1 ? 201 : 200);
  },
});

export const listCredentials = defineRoute({
  method: "get",
  path: "/v1/credentials",
  summary: "List credentials, without their values",
  description: "One's own; with 'manage' all of the tenant and of its users.",
  tags,
  scope: null,
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of credentials", schema: listSchema(credentialSchema) } },
  isolation: { kind: "list", arrange: arrangeCredential },
  async handler(c, { core, caller, tenant, query }) {
    const all = hasScope(caller, "manage");
    if (!all) requireMayTend(caller, caller.userId);
    const page = await core.repos.credentials.list(tenant, toPageRequest(query), all ? undefined : caller.userId);
    return c.json(toList(page, viewCredential, idOf));
  },
});

export const deleteCredential = defineRoute({
  method: "delete",
  path: "/v1/credentials/{name}",
  summary: "Delete a credential",
  description: "Tools that need it are refused from the next request on.",
  tags,
  scope: null,
  request: { params: nameParams, query: z.strictObject({ user_id: userIdField }) },
  responses: { 204: { description: "The value is gone" } },
  isolation: { kind: "object", arrange: async (owner) => ({ params: { name: await arrangeCredential(owner) } }) },
  async handler(c, { core, caller, tenant, params, query }) {
    requireMayTend(caller, query.user_id);
    if (!(await core.repos.credentials.delete(tenant, params.name, query.user_id ?? null))) {
      throw new GatewayError("not_found", `There is no credential '${params.name}'.`, { param: "name" });
    }
    return c.body(null, 204);
  },
});
