/**
 * An OAuth 2 client as a tool's definition describes it (BLIND-3): which credentials stand behind its
 * parts, so that every message can name the tenant's setting, and whose access it gets.
 */
import type { AuthConfig, OAuthGrantType } from "../blind/definition.ts";

const tenantTargets = ["client_id", "client_secret", "token_url", "scope"] as const;
const userTargets = [...tenantTargets, "authorization_url", "revocation_url"] as const;
/** Parts of a client that `auth_config.mapping` fills with credentials. */
export type OAuthTarget = (typeof userTargets)[number];

export interface OAuthClient {
  readonly grant: OAuthGrantType;
  readonly clientId: string;
  /** Undefined: a public client, which has none. */
  readonly clientSecret?: string | undefined;
  readonly tokenUrl: string;
  readonly scope?: string | undefined;
  /** Undefined: basic, and post where the server does not take it. */
  readonly clientAuth?: "basic" | "post" | undefined;
  readonly audience?: string | undefined;
  readonly resource?: string | undefined;
  readonly authorizationUrl?: string | undefined;
  readonly revocationUrl?: string | undefined;
  readonly issuer?: string | undefined;
  /** Names of the credentials behind the values. */
  readonly sources: Readonly<Partial<Record<OAuthTarget, string>>>;
}

/** Targets that there are for a grant, and those that must be mapped. */
export function oauthTargets(config: AuthConfig): {
  readonly known: readonly string[];
  readonly required: readonly string[];
} {
  if (grantOf(config) === "client_credentials") {
    return { known: tenantTargets, required: ["client_id", "client_secret", "token_url"] };
  }
  const hasUrl = config.authorization_url !== undefined;
  return { known: userTargets, required: ["client_id", "token_url", ...(hasUrl ? [] : ["authorization_url"])] };
}

/** A definition that says nothing acts for the tenant, never for one of its users. */
export function grantOf(config: AuthConfig): OAuthGrantType {
  return config.grant ?? "client_credentials";
}

/** Fields of `auth_config` beside `mapping`. */
const extras = [
  "grant",
  "client_auth",
  "audience",
  "resource",
  "authorization_url",
  "revocation_url",
  "issuer",
] as const;
const userExtras: readonly string[] = ["authorization_url", "revocation_url", "issuer"];

/** Of an `auth_config`. */
export interface AuthProblem {
  /** Below it. */
  readonly path: string;
  readonly message: string;
}

/** What is wrong with the fields beside `mapping`, for registration. */
export function oauthProblems(config: AuthConfig): readonly AuthProblem[] {
  const given = extras.filter((name) => config[name] !== undefined);
  if (config.type !== "oauth2") {
    return given.map((path) => ({ path, message: `is for type 'oauth2' only, not for '${config.type}'` }));
  }
  const isUsers = grantOf(config) === "authorization_code";
  return given.flatMap((path) => {
    const problem =
      !isUsers && userExtras.includes(path) ? "is for grant 'authorization_code' only" : valueProblem(config, path);
    return problem === undefined ? [] : [{ path, message: problem }];
  });
}

function valueProblem(config: AuthConfig, name: (typeof extras)[number]): string | undefined {
  const value = config[name] ?? "";
  if (name === "client_auth" && !isMapped(config, "client_secret")) return "needs a 'client_secret' in 'mapping'";
  if (name === "authorization_url" || name === "revocation_url") {
    if (isMapped(config, name)) return "is a target of 'mapping', too; give it once";
    if (!isWebAddress(value)) return "must be an http or https URL without user name, password and fragment";
  }
  if (name === "resource" && (!URL.canParse(value) || value.includes("#"))) {
    return "must be an absolute URI without fragment";
  }
  return undefined;
}

function isMapped(config: AuthConfig, target: OAuthTarget): boolean {
  return config.mapping.some((entry) => entry.type === undefined && entry.target === target);
}

/** Addresses to which a client is sent or sends itself. */
export function isWebAddress(value: string): boolean {
  const url = URL.parse(value);
  if (url === null || !/^https?:$/.test(url.protocol)) return false;
  return url.username === "" && url.password === "" && url.hash === "";
}

/** @param valueOf the value of a credential by its name; throws where there is none */
export function readOAuthClient(config: AuthConfig, valueOf: (source: string) => string): OAuthClient {
  const sources: Partial<Record<OAuthTarget, string>> = {};
  for (const { target, source, type } of config.mapping) {
    const known = type === undefined ? userTargets.find((name) => name === target) : undefined;
    if (known !== undefined) sources[known] = source;
  }
  const read = (target: OAuthTarget): string | undefined => {
    const source = sources[target];
    return source === undefined ? undefined : valueOf(source);
  };
  return {
    grant: grantOf(config),
    clientId: read("client_id") ?? "",
    clientSecret: read("client_secret"),
    tokenUrl: read("token_url") ?? "",
    scope: read("scope"),
    clientAuth: config.client_auth,
    audience: config.audience,
    resource: config.resource,
    authorizationUrl: read("authorization_url") ?? config.authorization_url,
    revocationUrl: read("revocation_url") ?? config.revocation_url,
    issuer: config.issuer,
    sources,
  };
}

/** A part of the client as its tenant knows it: `credential 'CRM_ID' (client_id)`. */
export function settingOf(client: OAuthClient, target: OAuthTarget): string {
  const source = credentialOf(client, target);
  return source === undefined ? `'auth_config.${target}'` : `credential '${source}' (${target})`;
}

/** Name of the credential behind a part; undefined where the definition, or the configuration of a service, says it. */
export function credentialOf({ sources }: OAuthClient, target: OAuthTarget): string | undefined {
  const source = sources[target];
  return source === `auth_config.${target}` ? undefined : source;
}
