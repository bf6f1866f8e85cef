/**
 * A user connects: from the link to the authorization server and back with a code, which becomes tokens
 * of that user alone (RFC 6749 authorization code, RFC 7636 PKCE, RFC 9207 issuer). Who follows a link
 * brings no key, so everything is decided by the state, and whoever has a wrong one learns nothing.
 */
import type { CallContext } from "../context.ts";
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { isOutage, throughOutage } from "../errors/outage.ts";
import type { OAuthGrant, OAuthLink } from "../ports/oauth.ts";
import { Redactor } from "../secrets/redactor.ts";
import { findTool } from "../tools/catalog.ts";
import type { Tool } from "../tools/tool.ts";
import type { OAuthClient } from "./client.ts";
import {
  authorizationUrlOf,
  callbackPath,
  hashState,
  missingGrant,
  noUser,
  offerConnectLink,
  openLink,
  tenantOfState,
  type ConnectLink,
  type ConnectTarget,
} from "./connect-link.ts";
import { openToken, ownerOf, requireOwnClient, sealReply } from "./grant.ts";
import { challengeOf } from "./pkce.ts";
import { requestToken, revokeToken } from "./token-endpoint.ts";

/** The client with which a tool acts for its user; undefined for tools that need no user's access. */
async function connectTargetOf(
  deps: Pick<CoreDeps, "adapters">,
  context: CallContext,
  tool: Tool,
): Promise<ConnectTarget | undefined> {
  if (tool.actsForUser !== true) return undefined;
  const { adapter } = findTool(deps.adapters, context, tool.uri);
  const client = await adapter.userClient?.(tool, context);
  return client === undefined ? undefined : { client, tool: tool.uri, toolName: tool.name };
}

/**
 * Looks before anything is recorded or a model is asked whether the tool may act for its caller.
 * @throws GatewayError `credential_missing` with `connect_url` where the user has still to allow it
 */
export async function requireConnection(deps: CoreDeps, context: CallContext, tool: Tool): Promise<void> {
  const target = await connectTargetOf(deps, context, tool);
  if (target === undefined) return;
  if (context.caller.userId === undefined) throw noUser(tool.name);
  if (!(await deps.tokens.isConnected(target.client, context))) throw await missingGrant(deps, context, target);
}

/**
 * A link for a user to follow, on demand.
 * @throws GatewayError `invalid_request` for a tool that needs no connection, `credential_missing`
 * where its client is not set up
 */
export async function startConnection(deps: CoreDeps, context: CallContext, tool: Tool): Promise<ConnectLink> {
  const target = await connectTargetOf(deps, context, tool);
  if (target === undefined) {
    throw new GatewayError(
      "invalid_request",
      `Tool '${tool.name}' acts with the tenant's own credentials; there is nothing for a user to connect.`,
      { param: "tool", toolName: tool.name },
    );
  }
  return offerConnectLink(deps, context, target);
}

/**
 * Where the browser of somebody who follows a link goes.
 * @throws GatewayError `not_found` for a state that is unknown, used or over, without saying which
 */
export async function authorizationUrlFor(deps: CoreDeps, state: string): Promise<string> {
  const tenant = tenantOfState(state);
  const link = tenant === undefined ? undefined : await deps.repos.oauth.findLink(tenant, hashState(state));
  if (tenant === undefined || link === undefined) throw noLink();
  const { context, target } = await followedFrom(deps, tenant, link);
  const { verifier } = await openLink(deps, context, link);
  const { client } = target;
  const url = new URL(authorizationUrlOf(client));
  const query = {
    response_type: "code",
    client_id: client.clientId,
    redirect_uri: redirectUri(deps),
    state,
    code_challenge: challengeOf(verifier),
    code_challenge_method: "S256",
    ...(client.scope === undefined ? {} : { scope: client.scope }),
    ...(client.audience === undefined ? {} : { audience: client.audience }),
    ...(client.resource === undefined ? {} : { resource: client.resource }),
  };
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url.href;
}

/** What the authorization server sends back with the browser. */
export interface AuthorizationAnswer {
  readonly state: string;
  readonly code?: string | undefined;
  readonly error?: string | undefined;
  readonly issuer?: string | undefined;
}

/** What was connected. */
export interface Connected {
  readonly tenant: string;
  readonly userId: string;
  readonly toolName: string;
}

/**
 * @throws GatewayError `not_found` for a state that is unknown, used or over; `connection_refused` where
 * the server or its user said no, or somebody else answered; what the token endpoint fails with
 */
export async function finishConnection(deps: CoreDeps, answer: AuthorizationAnswer): Promise<Connected> {
  const tenant = tenantOfState(answer.state);
  const hash = hashState(answer.state);
  const link = tenant === undefined ? undefined : await deps.repos.oauth.findLink(tenant, hash);
  if (tenant === undefined || link === undefined) throw noLink();
  const { context, target } = await followedFrom(deps, tenant, link);
  const { verifier } = await openLink(deps, context, link);
  // Only now: an outage of ours before it lets the browser come again with the same answer.
  if ((await deps.repos.oauth.takeLink(tenant, hash)) === undefined) throw noLink();
  checkIssuer(target.client, answer.issuer);
  const code = codeOf(answer);
  const started = deps.clock.now();
  const reply = await requestToken(deps.egress, target.client, {
    form: { grant_type: "authorization_code", code, redirect_uri: redirectUri(deps), code_verifier: verifier },
    clientAuth: undefined,
  });
  // The code is spent: without this its user would have to give access anew.
  await throughOutage(deps.clock, keepingMs, () =>
    keepConnection(deps, context, { link, reply, elapsedMs: deps.clock.now() - started }),
  );
  return { tenant, userId: link.grant.userId ?? "", toolName: target.toolName };
}

interface Followed {
  readonly context: CallContext;
  readonly target: ConnectTarget;
}

/** The tool and its client as they are now. What was changed since the link was made is not connected to. */
async function followedFrom(deps: CoreDeps, tenant: string, link: OAuthLink): Promise<Followed> {
  const owner = await deps.repos.tenants.get(tenant);
  const { userId, identity, tool: uri } = link.grant;
  if (owner?.status !== "active" || userId === null) throw noLink();
  const config = await deps.configs.get(tenant, owner.configVersion);
  const context = contextOfUser(tenant, config, userId);
  try {
    const { tool } = findTool(deps.adapters, context, uri);
    // A definition that waits to be accepted changes nothing in who asks for access.
    const isThere = tool.enabled || tool.quarantined === true;
    const target = isThere ? await connectTargetOf(deps, context, tool) : undefined;
    if (target !== undefined && (await ownerOf(deps.sealer, context, target.client)).identity === identity) {
      return { context, target };
    }
  } catch (error) {
    const failure = toGatewayError(error);
    const { code } = failure;
    if (isOutage(failure)) throw error;
    deps.log.log("warn", "a connect link leads to a tool that cannot be used", { tenant, tool: uri, code });
  }
  throw noLink();
}

/** Whoever follows the link acts for the user it was made for, in this one thing. */
function contextOfUser(tenant: string, config: CallContext["config"], userId: string): CallContext {
  return {
    tenant,
    config,
    caller: { kind: "user", id: `user:${userId}`, role: "member", scopes: [], tools: null, userId },
    requestId: "",
    traceId: "",
    redactor: new Redactor(),
  };
}

/** Exactly as it was sent with the authorization request. */
function redirectUri({ publicUrl }: Pick<CoreDeps, "publicUrl">): string {
  return `${publicUrl}${callbackPath}`;
}

/** An answer that names another server than the one asked is not for us (RFC 9207): the code is not used. */
function checkIssuer(client: OAuthClient, issuer: string | undefined): void {
  if (issuer === undefined) return;
  const isExpected =
    client.issuer === undefined
      ? URL.parse(issuer)?.origin === new URL(authorizationUrlOf(client)).origin
      : issuer === client.issuer;
  if (isExpected) return;
  throw new GatewayError(
    "connection_refused",
    "The answer came from another authorization server than the one that was asked; if that is intended, name it in 'auth_config.issuer'.",
    { param: "iss" },
  );
}

function codeOf({ code, error }: AuthorizationAnswer): string {
  if (error !== undefined) {
    const named = /^[\w.-]{1,64}$/.test(error) ? ` ('${error}')` : "";
    throw new GatewayError(
      "connection_refused",
      `The authorization server gave no access${named}; ask for a new link to try again.`,
      { param: "error" },
    );
  }
  if (code === undefined || code === "") {
    throw new GatewayError("connection_refused", "The authorization server sent no code.", { param: "code" });
  }
  return code;
}

const mostTries = 4;
/** Longest that a browser waits for its connection to be kept. */
const keepingMs = 20_000;

async function keepConnection(
  deps: CoreDeps,
  { tenant, config }: CallContext,
  got: {
    readonly link: OAuthLink;
    readonly reply: Awaited<ReturnType<typeof requestToken>>;
    readonly elapsedMs: number;
  },
): Promise<void> {
  const { id } = got.link.grant;
  for (let attempt = 1; attempt <= mostTries; attempt += 1) {
    const grant = await deps.repos.oauth.get(tenant, id);
    if (grant === undefined) throw noLink();
    const token = await sealReply(deps.sealer, { tenant, config }, { ...got, grant });
    // Where there was a token before, it may have been another account's.
    if (await deps.repos.oauth.store(tenant, id, { ...token, raiseConfig: grant.generation > 0 })) return;
  }
  throw new GatewayError("conflict", "This connection keeps changing; ask for a new link.");
}

/** The same for a state that never was, one that was used, and one whose time is over. */
function noLink(): GatewayError {
  return new GatewayError("not_found", "This link cannot be used; ask for a new one where it came from.", {
    param: "state",
  });
}

/**
 * Ends a connection here at once, and at the server as far as it offers that.
 * @returns false where there is none with this id
 */
export async function endConnection(deps: CoreDeps, context: CallContext, id: string): Promise<boolean> {
  const grant = await deps.repos.oauth.delete(context.tenant, id);
  if (grant === undefined) return false;
  try {
    await revokeGrant(deps, context, grant);
  } catch (error) {
    const { code } = toGatewayError(error);
    deps.log.log("warn", "a token was not revoked at its server", { tenant: context.tenant, connection: id, code });
  }
  return true;
}

async function revokeGrant(deps: CoreDeps, { tenant, config }: CallContext, grant: OAuthGrant): Promise<void> {
  const { sealer, adapters, egress } = deps;
  if (grant.userId === null || grant.sealed === null) return;
  const context = contextOfUser(tenant, config, grant.userId);
  const { tool } = findTool(adapters, context, grant.tool);
  const target = await connectTargetOf(deps, context, tool);
  const token = await openToken(sealer, context, grant);
  if (target === undefined || token === undefined) return;
  requireOwnClient(context, target.client);
  const [value, hint] =
    token.refresh_token === undefined
      ? ([token.access_token, "access_token"] as const)
      : ([token.refresh_token, "refresh_token"] as const);
  await revokeToken(egress, target.client, { value, hint, clientAuth: token.client_auth });
}
