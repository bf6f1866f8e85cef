/**
 * Connections: access to accounts elsewhere that users give to tools which act for them (BLIND-3). The
 * two addresses that a browser visits need no key: the state in them is known to one user only, works
 * once, and says nothing to anybody else.
 */
import { requireScope } from "@toolyard/core/calls/admit";
import { hasScope, mayUseTool, type Caller } from "@toolyard/core/callers/caller";
import { GatewayError, toGatewayError } from "@toolyard/core/errors/gateway-error";
import { isOutage } from "@toolyard/core/errors/outage";
import { newId } from "@toolyard/core/ids";
import { authorizationUrlFor, endConnection, finishConnection, startConnection } from "@toolyard/core/oauth/connect";
import { callbackPath, connectPath } from "@toolyard/core/oauth/connect-link";
import { isGiven } from "@toolyard/core/oauth/grant";
import type { OAuthGrant } from "@toolyard/core/ports/oauth";
import { toRfc3339 } from "@toolyard/core/time";
import { findTool } from "@toolyard/core/tools/catalog";
import { egressUnder } from "@toolyard/core/traces/egress-under";
import * as z from "zod";
import { headerOf, type AppContext } from "../app-env.ts";
import { connectPageHeaders, renderConnectPage, type ConnectPage } from "../connect-page.ts";
import { defineRoute, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { found, idOf, idParams, notFound, timeSchema } from "./shared.ts";

const tags = ["oauth"];

const connectionSchema = z.strictObject({
  id: z.string().meta({ example: "conn_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("connection"),
  tool: z.string().meta({ description: "The tool for which it was made; tools of the same client share it." }),
  user_id: z.string(),
  status: z
    .enum(["connected", "pending", "ended"])
    .meta({ description: "'pending': the link was not followed yet; 'ended': the access was withdrawn or ran out." }),
  scope: z.string().nullable().meta({ description: "As the authorization server has granted it." }),
  link_until: timeSchema.nullable().meta({ description: "Until when its connect link can be followed." }),
  created_at: timeSchema,
  updated_at: timeSchema,
});

function viewConnection(grant: OAuthGrant): z.output<typeof connectionSchema> {
  return {
    id: grant.id,
    object: "connection",
    tool: grant.tool,
    user_id: grant.userId ?? "",
    status: isGiven(grant) ? "connected" : grant.linkUntil === null ? "ended" : "pending",
    scope: grant.scope,
    link_until: grant.linkUntil === null ? null : toRfc3339(grant.linkUntil),
    created_at: toRfc3339(grant.createdAt),
    updated_at: toRfc3339(grant.updatedAt),
  };
}

/** Everybody looks after their own; everything else is management. */
function requireOwn(caller: Caller, userId: string | null): void {
  if (userId === null || userId !== caller.userId) requireScope(caller, "manage");
}

/** A connection of the owner that waits for its user, for the isolation suite. */
async function arrangeConnection(owner: IsolationDriver): Promise<string> {
  const name = `crm_${newId("request")}`;
  const values = { CLIENT_ID: "toolyard", TOKEN_URL: "https://login.example.com/token" };
  for (const [key, value] of Object.entries(values))
    await owner.send("put", `/v1/credentials/${name}_${key}`, { value });
  await owner.send("post", "/v1/plugins", {
    schema_version: "v1",
    name,
    description: "Looks up a customer.",
    parameters: { type: "object", properties: {} },
    execution: { method: "GET", base_url: "https://crm.example.com/me", param_placement: "query" },
    auth_config: {
      type: "oauth2",
      grant: "authorization_code",
      authorization_url: "https://login.example.com/authorize",
      mapping: [
        { source: `${name}_CLIENT_ID`, target: "client_id" },
        { source: `${name}_TOKEN_URL`, target: "token_url" },
      ],
    },
  });
  const connection = await owner.send("post", "/v1/oauth/connections", { tool: name, user_id: "ann" });
  return String(connection["id"]);
}

export const createConnection = defineRoute({
  method: "post",
  path: "/v1/oauth/connections",
  summary: "Ask for a link with which a user connects an account",
  description:
    "A call that needs a connection which is not there is refused with such a link, too. Give it to nobody but the user: whoever follows it connects an account for that user. It works once, for half an hour. Links for other users need 'manage'.",
  tags,
  scope: null,
  request: {
    body: z.strictObject({
      tool: z.string().min(1).max(2_048).meta({ description: "Name or URI of a tool that acts for its user." }),
      user_id: z.string().min(1).max(1_024).optional().meta({ description: "Absent: the caller's own user." }),
    }),
  },
  responses: {
    201: {
      description: "The connection, and the link to follow",
      schema: connectionSchema.extend({ connect_url: z.url() }).meta({ id: "CreatedConnection" }),
    },
  },
  isolation: { kind: "nothing-owned", reason: "Tools are found among those of the caller's own tenant." },
  async handler(c, { core, caller, context, tenant, body }) {
    const userId = body.user_id ?? caller.userId;
    if (userId === undefined) {
      throw new GatewayError("invalid_request", "This key names no user; say in 'user_id' who is to connect.", {
        param: "user_id",
      });
    }
    requireOwn(caller, userId);
    const { tool } = findTool(core.adapters, context, body.tool);
    if (!mayUseTool(caller, tool)) {
      throw new GatewayError("tool_not_found", `Tool '${body.tool}' not found`, { param: "tool", toolName: body.tool });
    }
    const link = await startConnection(core, { ...context, caller: { ...caller, userId } }, tool);
    const grant = found(await core.repos.oauth.get(tenant, link.connectionId), "connection", link.connectionId);
    return c.json({ ...viewConnection(grant), connect_url: link.url }, 201);
  },
});

export const listConnections = defineRoute({
  method: "get",
  path: "/v1/oauth/connections",
  summary: "List connections, without their tokens",
  description: "One's own; with 'manage' those of all users of the tenant.",
  tags,
  scope: null,
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of connections", schema: listSchema(connectionSchema) } },
  isolation: { kind: "list", arrange: arrangeConnection },
  async handler(c, { core, caller, tenant, query }) {
    const all = hasScope(caller, "manage");
    if (!all && caller.userId === undefined) requireScope(caller, "manage");
    const page = await core.repos.oauth.list(tenant, toPageRequest(query), all ? undefined : caller.userId);
    return c.json(toList(page, viewConnection, idOf));
  },
});

export const deleteConnection = defineRoute({
  method: "delete",
  path: "/v1/oauth/connections/{id}",
  summary: "End a connection",
  description:
    "Its tokens are forgotten at once and revoked at the authorization server where its 'revocation_url' is known. Others' connections need 'manage'.",
  tags,
  scope: null,
  request: { params: idParams },
  responses: { 204: { description: "The connection has ended" } },
  isolation: { kind: "object", arrange: async (owner) => ({ params: { id: await arrangeConnection(owner) } }) },
  async handler(c, { core, caller, context, tenant, params }) {
    const grant = await core.repos.oauth.get(tenant, params.id);
    if (grant === undefined || grant.kind !== "authorization_code") throw notFound("connection", params.id);
    // That others have one is theirs to know.
    if (grant.userId !== caller.userId && !hasScope(caller, "manage")) throw notFound("connection", params.id);
    if (!(await endConnection({ ...core, egress: egressUnder(core.egress, context.span) }, context, params.id)))
      throw notFound("connection", params.id);
    return c.body(null, 204);
  },
});

const open = { tags, scope: null, admission: "none" } as const;

export const followConnectLink = defineRoute({
  ...open,
  method: "get",
  path: `${connectPath}{state}`,
  summary: "Where a connect link leads",
  description: "For the browser of the user: goes on to the authorization server.",
  request: { params: z.strictObject({ state: z.string() }) },
  responses: { 302: { description: "To the authorization server" } },
  async handler(c, { core, params }) {
    try {
      return c.redirect(await authorizationUrlFor(core, params.state), 302);
    } catch (error) {
      return answerBrowser(c, toGatewayError(error));
    }
  },
});

/** A parameter given twice is nobody's answer. */
const once = z.string().max(8_192).optional();

export const finishConnectLink = defineRoute({
  ...open,
  method: "get",
  path: callbackPath,
  summary: "Where the authorization server sends the user back",
  description: "The redirect URI to register with the authorization server.",
  request: {
    // Servers add what they like, and none of it is anybody's fault here.
    query: z.looseObject({ state: once, code: once, error: once, iss: once }),
  },
  responses: { 200: { description: "A page that says what was connected", mediaType: "text/html" } },
  async handler(c, { core, query }) {
    const egress = egressUnder(core.egress, c.get("exchange").span);
    const { state = "", code, error, iss: issuer } = query;
    try {
      const { toolName, tenant } = await finishConnection({ ...core, egress }, { state, code, error, issuer });
      c.get("exchange").tenant = tenant;
      return answerPage(c, 200, {
        title: "Connected",
        text: `'${toolName}' can act for you now. Go back and try again.`,
      });
    } catch (thrown) {
      return answerBrowser(c, toGatewayError(thrown));
    }
  },
});

function answerPage(c: AppContext, status: 200 | 400 | 404 | 500 | 502 | 503 | 504, page: ConnectPage): Response {
  return c.body(renderConnectPage(page), status, connectPageHeaders);
}

/**
 * A person reads it, so it is a page; programs get the usual error. What is wrong with the tenant's
 * settings is for the tenant: it goes to the log, not to whoever holds a link.
 */
function answerBrowser(c: AppContext, error: GatewayError): Response {
  const isForPeople = headerOf(c, "accept")?.includes("text/html") === true;
  const shown = isTold(error) ? error : unfinished(error);
  if (shown !== error) logFailure(c, error);
  if (!isForPeople) throw shown;
  const status = shown.spec.http === 404 ? 404 : shown.spec.http === 503 ? 503 : 400;
  return answerPage(c, status, { title: "Not connected", text: shown.message });
}

function isTold(error: GatewayError): boolean {
  return error.code === "not_found" || error.code === "connection_refused" || isOutage(error);
}

function unfinished(error: GatewayError): GatewayError {
  return new GatewayError(
    "connection_refused",
    "The connection could not be finished; ask whoever runs this service, who finds the reason in the log under this request's id.",
    { cause: error },
  );
}

function logFailure(c: AppContext, error: GatewayError): void {
  const { log, requestId, traceId } = c.get("exchange");
  log.log("warn", "a connection could not be finished", {
    request_id: requestId,
    trace_id: traceId,
    code: error.code,
    error:
      error.code === "internal_error" ? String(error.cause instanceof Error ? error.cause.stack : "") : error.message,
  });
}
