/**
 * Tokens of issuers that tenants trust. The tenant follows from the unique (issuer, audience) pair;
 * keys are fetched through the guarded door and kept (design "Tenants, callers, secrets").
 */
import { decodeJwt, errors, jwtVerify, type JWTPayload } from "jose";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Clock } from "../ports/clock.ts";
import type { Egress } from "../ports/egress.ts";
import type { Log } from "../ports/log.ts";
import type { IssuerRepo, TrustedIssuer } from "../ports/issuers.ts";
import type { Traces } from "../ports/traces.ts";
import { scopeSchema, type Caller, type Role, type Scope } from "./caller.ts";
import { JwksCache } from "./jwks-cache.ts";

export interface TokenDeps {
  readonly issuers: Pick<IssuerRepo, "find">;
  readonly egress: Egress;
  readonly clock: Clock;
  readonly log: Log;
  readonly traces?: Traces | undefined;
}

export interface VerifiedToken {
  readonly tenant: string;
  readonly caller: Caller;
  /** When it runs out, in epoch milliseconds. */
  readonly until: number | undefined;
}

/** @param tenant what `x-toolyard-tenant` names, if anything */
export type TokenVerifier = (token: string, tenant: string | undefined) => Promise<VerifiedToken>;

/** Asymmetric only: an issuer's public key must never be usable as a shared secret. */
const algorithms = [
  "RS256",
  "RS384",
  "RS512",
  "PS256",
  "PS384",
  "PS512",
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
  "Ed25519",
];
const clockToleranceS = 30;
const longestToken = 16_384;
const mostAudiences = 16;
/** Trust is read from the database; this long it is remembered, so that tokens cost no second round trip. */
const trustLifetimeMs = 30_000;
const trustCapacity = 1_000;

export function looksLikeToken(credential: string): boolean {
  return /^eyJ[\w-]*\.[\w-]+\.[\w-]*$/.test(credential);
}

/**
 * The verifier throws GatewayError `invalid_token` naming the claim at fault, `tenant_required` where
 * several tenants trust the issuer, `issuer_unavailable` where its keys cannot be used, saying why.
 */
export function createTokenVerifier(deps: TokenDeps): TokenVerifier {
  const keys = new JwksCache(deps);
  const trust = new TrustCache(deps);
  return async (token, tenant) => {
    const { issuer, audiences } = readAddress(token);
    const trusted = chooseIssuer(await trust.find(issuer, audiences, tenant), tenant);
    const payload = await verify(token, trusted, { keys, now: deps.clock.now() });
    const until = payload.exp === undefined ? undefined : payload.exp * 1_000;
    return { tenant: trusted.tenant, caller: toCaller(payload, trusted), until };
  };
}

/** What the token claims about where it comes from; unproven until `verify`. */
function readAddress(token: string): { readonly issuer: string; readonly audiences: readonly string[] } {
  if (token.length > longestToken) throw invalid(`The token is longer than ${longestToken} characters.`);
  let payload: JWTPayload;
  try {
    payload = decodeJwt(token);
  } catch {
    throw invalid("The token is not a readable JWT.");
  }
  const { iss: issuer, aud } = payload;
  const audiences = (typeof aud === "string" ? [aud] : Array.isArray(aud) ? aud : []).filter(isText);
  if (!isText(issuer)) throw invalid("The token has no 'iss' claim.");
  if (audiences.length === 0) throw invalid("The token has no 'aud' claim.");
  if (audiences.length > mostAudiences)
    throw invalid(`The token's 'aud' claim has more than ${mostAudiences} entries.`);
  return { issuer, audiences };
}

function chooseIssuer(found: readonly TrustedIssuer[], tenant: string | undefined): TrustedIssuer {
  const candidates = tenant === undefined ? found : found.filter((issuer) => issuer.tenant === tenant);
  const first = candidates[0];
  if (first === undefined) {
    throw invalid(
      tenant === undefined
        ? "No tenant trusts the token's issuer ('iss') for its audience ('aud')."
        : "The tenant named by 'x-toolyard-tenant' does not trust the token's issuer ('iss') for its audience ('aud').",
    );
  }
  if (candidates.some((issuer) => issuer.tenant !== first.tenant)) {
    throw new GatewayError(
      "tenant_required",
      "Several tenants trust this token's issuer and audience; name one in the header 'x-toolyard-tenant'.",
      { param: "x-toolyard-tenant" },
    );
  }
  return first;
}

async function verify(
  token: string,
  trusted: TrustedIssuer,
  { keys, now }: { readonly keys: JwksCache; readonly now: number },
): Promise<JWTPayload> {
  try {
    const { payload } = await jwtVerify(token, (header) => keys.keyFor(trusted, header), {
      algorithms,
      issuer: trusted.issuer,
      audience: trusted.audience,
      requiredClaims: ["exp", "sub"],
      clockTolerance: clockToleranceS,
      currentDate: new Date(now),
    });
    return payload;
  } catch (cause) {
    throw cause instanceof GatewayError ? cause : invalid(reasonOf(cause), cause);
  }
}

function reasonOf(cause: unknown): string {
  if (cause instanceof errors.JWTExpired) return "The token has expired ('exp').";
  if (cause instanceof errors.JWTClaimValidationFailed) {
    return cause.claim === "nbf"
      ? "The token is not valid yet ('nbf')."
      : `The token's claim '${cause.claim}' is ${cause.reason === "missing" ? "missing" : "not acceptable"}.`;
  }
  if (cause instanceof errors.JOSEAlgNotAllowed || cause instanceof errors.JOSENotSupported) {
    return `The token's algorithm ('alg') is not one of ${algorithms.join(", ")}.`;
  }
  if (cause instanceof errors.JWKSNoMatchingKey)
    return "The issuer publishes no key that fits the token's 'kid' and 'alg'.";
  if (cause instanceof errors.JWKSMultipleMatchingKeys)
    return "Several keys of the issuer fit; the token needs a 'kid'.";
  if (cause instanceof errors.JWSSignatureVerificationFailed)
    return "The token's signature does not fit the issuer's key.";
  return "The token is not a valid signed JWT.";
}

function toCaller(payload: JWTPayload, trusted: TrustedIssuer): Caller {
  const { claims } = trusted;
  const subject = payload.sub;
  if (!isText(subject)) throw invalid("The token has no 'sub' claim.");
  const id = userIdOf(trusted, subject);
  const businessUnit = readClaim(payload, claims.businessUnit);
  return {
    kind: "user",
    id,
    role: toRole(readClaim(payload, claims.role), trusted.defaultRole),
    scopes: toScopes(toTexts(payload, claims.scopes), trusted.defaultScopes),
    tools: toTexts(payload, claims.tools) ?? null,
    userId: id,
    ...(isText(businessUnit) ? { businessUnit } : {}),
  };
}

/** Whose sessions, credentials and calls they are: no two users of a tenant may have one. */
export function userIdOf(
  { issuer, escapesIds }: Pick<TrustedIssuer, "issuer" | "escapesIds">,
  subject: string,
): string {
  const part = (text: string): string => (escapesIds ? text.replaceAll(/[%:]/g, encodeURIComponent) : text);
  return `user:${part(issuer)}:${part(subject)}`;
}

/** A token never makes an operator, whatever it or the issuer's row says. */
function toRole(claim: unknown, fallback: Role): Role {
  const wanted = Array.isArray(claim) ? claim : [claim];
  if (wanted.includes("admin")) return "admin";
  if (wanted.includes("member")) return "member";
  return fallback === "admin" ? "admin" : "member";
}

function toScopes(claim: readonly string[] | undefined, fallback: readonly Scope[]): readonly Scope[] {
  if (claim === undefined) return fallback;
  return claim.flatMap((text) => {
    const scope = scopeSchema.safeParse(text);
    return scope.success ? [scope.data] : [];
  });
}

/** A list of texts, or texts separated by spaces. Anything else is refused: ignoring it would widen what the caller may do. */
function toTexts(payload: JWTPayload, claim: string | undefined): readonly string[] | undefined {
  const value = readClaim(payload, claim);
  if (value === undefined || value === null) return undefined;
  if (typeof value === "string") return value.split(/\s+/).filter(isText);
  if (Array.isArray(value) && value.every(isText)) return value;
  throw invalid(`The token's claim '${claim}' must be a list of texts or texts separated by spaces.`);
}

/** A claim by its name, else by a dotted path (`realm_access.roles`). */
function readClaim(payload: JWTPayload, claim: string | undefined): unknown {
  if (claim === undefined) return undefined;
  if (Object.hasOwn(payload, claim)) return payload[claim];
  let value: unknown = payload;
  for (const part of claim.split(".")) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, part)) return undefined;
    value = Object.entries(value).find(([name]) => name === part)?.[1];
  }
  return value;
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value !== "";
}

function invalid(message: string, cause?: unknown): GatewayError {
  return new GatewayError("invalid_token", message, { param: "authorization", cause });
}

class TrustCache {
  readonly #deps: TokenDeps;
  readonly #known = new Map<string, { readonly found: readonly TrustedIssuer[]; readonly until: number }>();

  constructor(deps: TokenDeps) {
    this.#deps = deps;
  }

  async find(issuer: string, audiences: readonly string[], tenant?: string): Promise<readonly TrustedIssuer[]> {
    const key = JSON.stringify([issuer, ...audiences]);
    const now = this.#deps.clock.now();
    const known = this.#known.get(key);
    const isFresh = known !== undefined && known.until > now;
    if (isFresh && (tenant === undefined || known.found.some((one) => one.tenant === tenant))) return known.found;
    const found = await this.#deps.issuers.find(issuer, audiences);
    this.#known.delete(key);
    // Only trust is remembered: an issuer that has just been added works at once.
    if (found.length > 0) this.#known.set(key, { found, until: now + trustLifetimeMs });
    const oldest = this.#known.size > trustCapacity ? this.#known.keys().next().value : undefined;
    if (oldest !== undefined) this.#known.delete(oldest);
    return found;
  }
}
