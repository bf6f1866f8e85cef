/**
 * Whose a grant is and what is kept of it. A token belongs to one tenant, one owner (the tenant itself
 * or one user) and one client; nothing is ever looked up with less (design "Tenants, callers, secrets").
 */
import * as z from "zod";
import type { CredentialContext } from "../blind/credential-resolver.ts";
import { findCredential } from "../blind/credential-resolver.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { canonicalJson } from "../json.ts";
import type { OAuthGrant, OAuthGrantKey } from "../ports/oauth.ts";
import type { Sealer } from "../secrets/sealer.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { OAuthClient } from "./client.ts";
import type { TokenReply } from "./token-endpoint.ts";

export interface GrantOwner extends OAuthGrantKey {
  /** Made from values that came with the request: nothing of it is stored (BLIND-7). */
  readonly isInline: boolean;
}

/**
 * A user's own access is the user's alone. The tenant's own is shared, unless a user's credential goes
 * into the client: then what comes of it is that user's, too.
 */
export async function ownerOf(sealer: Sealer, context: CredentialContext, client: OAuthClient): Promise<GrantOwner> {
  requireOwnClient(context, client);
  const origins = Object.values(client.sources).map((source) => findCredential(context, source));
  const inline = origins.find((origin) => origin?.level === "inline");
  if (inline !== undefined && client.grant === "authorization_code") throw inlineConnection(inline.name);
  const isUsers = client.grant === "authorization_code" || origins.some((origin) => origin?.level === "user");
  const versions = origins.map((origin) => origin?.version ?? 0);
  const text = canonicalJson(
    client.grant === "authorization_code" ? identityOfUser(client) : identityOfTenant(client, versions),
  );
  return {
    userId: isUsers ? (context.caller.userId ?? null) : null,
    identity: await sealer.hash(context.tenant, context.config.wrappedKey, `oauth ${text}`),
    isInline: inline !== undefined,
  };
}

/**
 * Users may set their own values without any scope: the tenant's secret is neither sent where one of them says, nor does
 * it get for the tenant's own access what one of them asks for.
 * @throws GatewayError `credential_invalid` naming the user's value
 */
export function requireOwnClient(context: CredentialContext, { grant, sources }: OAuthClient): void {
  const { client_secret: secret } = sources;
  if (secret === undefined || findCredential(context, secret)?.level !== "tenant") return;
  const addresses = ["token_url", "revocation_url"] as const;
  for (const target of grant === "client_credentials" ? ([...addresses, "scope"] as const) : addresses) {
    const source = sources[target];
    const origin = source === undefined ? undefined : findCredential(context, source);
    if (origin?.level !== "user") continue;
    const { name, userId } = origin;
    throw withDelivery(
      new GatewayError(
        "credential_invalid",
        `Credential '${name}' (${target}) is user '${userId}''s own, and '${secret}' (client_secret) is the tenant's, which is used as the tenant has set it up only; set '${secret}' for this user, too, or delete the user's '${name}'.`,
        { param: name },
      ),
      "not_sent",
    );
  }
}

/** A connection outlives the request, and what came with the request does not. */
function inlineConnection(name: string): GatewayError {
  return withDelivery(
    new GatewayError(
      "credential_invalid",
      `Credential '${name}' belongs to a client to which users connect, so it must be a stored one; leave it out of 'runtime_config.credentials'.`,
      { param: name },
    ),
    "not_sent",
  );
}

/** Setting any part again, even to the same value, makes another identity: old tokens are not used any more. */
function identityOfTenant(client: OAuthClient, versions: readonly number[]): readonly unknown[] {
  const { grant, clientId, clientSecret, tokenUrl, scope, audience, resource, clientAuth } = client;
  return [grant, clientId, clientSecret, tokenUrl, scope, audience, resource, clientAuth, versions].map(
    (part) => part ?? null,
  );
}

/** A user's consent is to this client and scope, and outlives a new secret. */
function identityOfUser(client: OAuthClient): readonly unknown[] {
  const { grant, clientId, tokenUrl, authorizationUrl, scope, audience, resource } = client;
  return [grant, clientId, tokenUrl, authorizationUrl, scope, audience, resource].map((part) => part ?? null);
}

const tokenRecordSchema = z.strictObject({
  access_token: z.string(),
  refresh_token: z.string().optional(),
  client_auth: z.enum(["basic", "post", "none"]),
});
export type TokenRecord = z.infer<typeof tokenRecordSchema>;

type Holder = Pick<CredentialContext, "tenant" | "config">;

/** There is a token that may still be used, or another can be had without the user. */
export function isGiven({ sealed, usableForMs, renewable }: OAuthGrant): boolean {
  return sealed !== null && (renewable || usableForMs === null || usableForMs > 0);
}

/**
 * What is stored of an answer, as the grant's next token. Sealed for its row and generation: moved to
 * another user's row, it does not open.
 */
export async function sealReply(
  sealer: Sealer,
  { tenant, config }: Holder,
  got: SealReplyOptions,
): Promise<SealedReply> {
  const { accessToken, refreshToken, clientAuth, expiresIn, scope } = got.reply;
  const record: TokenRecord = {
    access_token: accessToken,
    client_auth: clientAuth,
    ...(refreshToken === undefined ? {} : { refresh_token: refreshToken }),
  };
  const next = { ...got.grant, generation: got.grant.generation + 1 };
  const renewable = next.kind === "client_credentials" || refreshToken !== undefined;
  return {
    generation: next.generation,
    sealed: await sealer.seal(tenant, config.wrappedKey, tokenAad(next), JSON.stringify(record)),
    scope: scope ?? null,
    renewable,
    usableForMs: usableMs({ expiresIn, renewable }, got.elapsedMs),
  };
}

interface SealReplyOptions {
  readonly grant: OAuthGrant;
  readonly reply: TokenReply;
  /** Since the request was sent: by then the token was already ageing. */
  readonly elapsedMs: number;
}

interface SealedReply {
  readonly generation: number;
  readonly sealed: string;
  readonly scope: string | null;
  readonly renewable: boolean;
  readonly usableForMs: number | null;
}

/** Undefined: there is no token. @throws GatewayError `credential_unreadable` naming the connection */
export async function openToken(
  sealer: Sealer,
  { tenant, config }: Holder,
  grant: OAuthGrant,
): Promise<TokenRecord | undefined> {
  if (grant.sealed === null) return undefined;
  try {
    const text = await sealer.open(tenant, config.wrappedKey, tokenAad(grant), grant.sealed);
    return tokenRecordSchema.parse(JSON.parse(text));
  } catch (cause) {
    if (cause instanceof GatewayError && cause.code !== "credential_unreadable") throw cause;
    throw withDelivery(
      new GatewayError(
        "credential_unreadable",
        `The tokens of connection '${grant.id}' cannot be opened with this tenant's key; end it with DELETE /v1/oauth/connections/${grant.id} and connect again.`,
        { param: grant.id, cause },
      ),
      "not_sent",
    );
  }
}

function tokenAad({ userId, identity, generation }: OAuthGrant): string[] {
  return ["oauth-token", userId ?? "", identity, String(generation)];
}

/** Longest time for which any number in an answer is believed. */
const longestSeconds = 365 * 86_400;
/** Where the server says nothing and a new token is easily had. */
const defaultSeconds = 300;

/**
 * How long an access token is used: until some time before it runs out, so that none dies on its way.
 * Only spans count, no clock is compared with the server's. Null: until the back end refuses it.
 */
export function usableMs(
  token: { readonly expiresIn: number | undefined; readonly renewable: boolean },
  elapsedMs: number,
): number | null {
  const { expiresIn, renewable } = token;
  if (expiresIn === undefined && !renewable) return null;
  const seconds = Math.min(Math.max(expiresIn ?? defaultSeconds, 0), longestSeconds);
  const reserve = Math.min(Math.max(30, seconds / 10), seconds / 2);
  return Math.max(0, Math.floor((seconds - reserve) * 1_000 - elapsedMs));
}
