/**
 * Links with which a user gives a tool access to an account elsewhere (authorization code, RFC 6749).
 * A link is a state: 256 random bits bound to tenant, user and tool, of which only a hash is stored and
 * which ends with its first use. It says nothing by itself and carries no secret.
 */
import { createHash, randomBytes } from "node:crypto";
import * as z from "zod";
import type { CredentialContext } from "../blind/credential-resolver.ts";
import type { AdapterDeps } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { idPrefixes, newId } from "../ids.ts";
import type { OAuthGrantKey, OAuthLink } from "../ports/oauth.ts";
import { withDelivery } from "../errors/delivery.ts";
import { isWebAddress, settingOf, type OAuthClient } from "./client.ts";
import { ownerOf } from "./grant.ts";
import { newVerifier } from "./pkce.ts";

/** A link can be followed for half an hour; one that has less than half of it left is not handed out again. */
const lifetimeMs = 30 * 60_000;

export const connectPath = "/v1/oauth/connect/";
export const callbackPath = "/v1/oauth/callback";

export type ConnectDeps = Pick<AdapterDeps, "repos" | "sealer" | "publicUrl">;

export interface ConnectTarget {
  readonly client: OAuthClient;
  /** URI of the tool, and what it is called in messages. */
  readonly tool: string;
  readonly toolName: string;
}

export interface ConnectLink {
  readonly connectionId: string;
  readonly url: string;
  /** Epoch milliseconds. */
  readonly until: number;
}

/**
 * @throws GatewayError `credential_missing` for a caller who is nobody in particular, `credential_invalid`
 * where there is nowhere to send users
 */
export async function offerConnectLink(
  deps: ConnectDeps,
  context: CredentialContext,
  target: ConnectTarget,
): Promise<ConnectLink> {
  const owner = await ownerOf(deps.sealer, context, target.client);
  if (owner.userId === null) throw noUser(target.toolName);
  authorizationUrlOf(target.client);
  const { tenant, config } = context;
  const state = newState(tenant);
  const hash = hashState(state);
  const sealed = await deps.sealer.seal(
    tenant,
    config.wrappedKey,
    linkAad(owner, hash),
    JSON.stringify({ state, verifier: newVerifier() }),
  );
  const grant = {
    id: newId("connection"),
    kind: "authorization_code",
    userId: owner.userId,
    identity: owner.identity,
    tool: target.tool,
  } as const;
  const link = await deps.repos.oauth.offerLink(tenant, grant, { hash, sealed, lifetimeMs, leastMs: lifetimeMs / 2 });
  const known = link.hash === hash ? state : (await openLink(deps, context, link)).state;
  return { connectionId: link.grant.id, url: `${deps.publicUrl}${connectPath}${known}`, until: link.until };
}

/** The address goes to a browser: a page's script or a file must not come of it. */
export function authorizationUrlOf(client: OAuthClient): string {
  const { authorizationUrl = "" } = client;
  if (isWebAddress(authorizationUrl)) return authorizationUrl;
  throw withDelivery(
    new GatewayError(
      "credential_invalid",
      `The address to which users are sent, ${settingOf(client, "authorization_url")}, must be an http or https URL without user name, password and fragment.`,
      { param: client.sources.authorization_url ?? "auth_config.authorization_url" },
    ),
    "not_sent",
  );
}

/** The user's access is missing: what to do, with a link to do it. */
export async function missingGrant(
  deps: ConnectDeps,
  context: CredentialContext,
  target: ConnectTarget,
): Promise<GatewayError> {
  const { toolName } = target;
  const link = await offerConnectLink(deps, context, target);
  return withDelivery(
    new GatewayError(
      "credential_missing",
      `Tool '${toolName}' acts with its user's own access, which '${context.caller.userId}' has not given or which has ended; open 'connect_url' (POST /v1/oauth/connections makes another) to give it, then try again.`,
      {
        toolName,
        param: "auth_config.grant",
        extra: {
          connect_url: link.url,
          connection_id: link.connectionId,
          connect_until: new Date(link.until).toISOString(),
        },
      },
    ),
    "not_sent",
  );
}

export function noUser(toolName: string): GatewayError {
  return withDelivery(
    new GatewayError(
      "credential_missing",
      `Tool '${toolName}' acts with its user's own access, and this caller is no user; use a key with 'user_id' or a user's token.`,
      { toolName, param: "user_id" },
    ),
    "not_sent",
  );
}

const linkSchema = z.strictObject({ state: z.string(), verifier: z.string() });

/** @throws GatewayError `credential_unreadable` for what was sealed for another row */
export async function openLink(
  { sealer }: Pick<ConnectDeps, "sealer">,
  { tenant, config }: Pick<CredentialContext, "tenant" | "config">,
  link: OAuthLink,
): Promise<z.infer<typeof linkSchema>> {
  const text = await sealer.open(tenant, config.wrappedKey, linkAad(link.grant, link.hash), link.sealed);
  return linkSchema.parse(JSON.parse(text));
}

function linkAad({ userId, identity }: OAuthGrantKey, hash: string): string[] {
  return ["oauth-link", userId ?? "", identity, hash];
}

const statePattern = /^([0-9a-z]{1,40})_[A-Za-z0-9_-]{43}$/;

/** The tenant is part of the state, as it is of keys, so that the right database is asked. */
function newState(tenant: string): string {
  return `${tenant.slice(idPrefixes.tenant.length + 1)}_${randomBytes(32).toString("base64url")}`;
}

export function hashState(state: string): string {
  return createHash("sha256").update(state, "utf8").digest("base64url");
}

/** `undefined` for text that is no state of ours. */
export function tenantOfState(state: string): string | undefined {
  const part = statePattern.exec(state)?.[1];
  return part === undefined ? undefined : `${idPrefixes.tenant}_${part}`;
}
