/**
 * How services over HTTP prove who is calling (API-3): the fields of the specification, `auth_type` and
 * `auth_config`, or a mapping of credentials as plugins have it. Shared by all schemes over HTTP; what it
 * becomes is the mapping that blind definitions are executed with.
 */
import * as z from "zod";
import { isHeaderName, isTransportHeader } from "../blind/header-rules.ts";
import { mappingProblems } from "../blind/auth-mapping.ts";
import { authConfigSchema, type AuthConfig, type AuthMapping } from "../blind/definition.ts";
import type { CredentialContext, CredentialResolver } from "../blind/credential-resolver.ts";
import { isWebAddress } from "../oauth/client.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { credentialsIn, SchemaVariants, secretField, variantsKeyword, type SecretReference } from "./config-fields.ts";
import { jwtSchema, type JwtConfig } from "./jwt.ts";
import { addProblems } from "./invalid-config.ts";

const text = (description: string) => z.string().min(1).max(2_048).meta({ description });
const webAddress = (description: string) =>
  text(description).refine(isWebAddress, "must be an http or https URL without user name, password and fragment");

/** By `auth_type`: what `auth_config` holds. */
const authConfigs = {
  none: z.strictObject({}).default({}),
  apikey: z
    .strictObject({
      header: z
        .string()
        .refine(
          (name) => isHeaderName(name) && !isTransportHeader(name),
          "must be the name of a header that may be set",
        )
        .optional()
        .meta({ description: "Header that carries the key.", example: "X-API-Key" }),
      query: z.string().min(1).max(128).optional().meta({ description: "Query parameter that carries it, instead." }),
      value: secretField("The key."),
    })
    .refine(({ header, query }) => (header === undefined) !== (query === undefined), {
      error: "needs either 'header' or 'query'",
      path: ["header"],
    }),
  bearer: z.strictObject({ token: secretField("Sent as `Authorization: Bearer …`.") }),
  basic: z.strictObject({ username: text("User name."), password: secretField("Password.") }),
  oauth2: z.strictObject({
    client_id: text("Client id."),
    client_secret: secretField("Client secret."),
    token_url: webAddress("Where access tokens come from."),
    scope: text("Scopes, separated by spaces.").optional(),
    audience: text("Sent with token requests where the server asks for it.").optional(),
    resource: text("RFC 8707: absolute URI of the back end.").optional(),
    client_auth: z.enum(["basic", "post"]).optional().meta({ description: "How the client proves itself." }),
  }),
  /** A token of its own for each call, signed here (SVC-2). */
  jwt: jwtSchema,
  /** Any number of credentials in headers and query, or a user's own access, as plugins have it. */
  mapping: authConfigSchema.superRefine((config, check) => {
    for (const { path, message } of mappingProblems(config)) {
      check.addIssue({ code: "custom", message, path: path.split(".") });
    }
    config.mapping.forEach(({ location }, index) => {
      if (location === "header" || location === "query") return;
      const message = "must be 'header' or 'query': path and body are a single tool's; make it a plugin";
      check.addIssue({ code: "custom", message, path: ["mapping", index, "location"] });
    });
  }),
} as const;

const authTypes = Object.keys(authConfigs) as readonly (keyof typeof authConfigs)[];
export type AuthType = keyof typeof authConfigs;

export const authFields = {
  auth_type: z.enum(authTypes).default("none").meta({ description: "How calls prove who is calling." }),
  auth_config: z
    .record(z.string(), z.unknown())
    .optional()
    .meta({
      description: 'Depends on `auth_type`. A secret is {"credential": "NAME"}, or a literal that becomes one.',
      "x-depends-on": "auth_type",
      [variantsKeyword]: new SchemaVariants(authConfigs),
    }),
};

export interface AuthFields {
  readonly auth_type: AuthType;
  readonly auth_config?: Record<string, unknown> | undefined;
}

/** Parses `auth_config` by `auth_type`; to be the `transform` of a configuration with `authFields`. */
export function readAuth<Config extends AuthFields>(config: Config, check: z.RefinementCtx): Config {
  const parsed = authConfigs[config.auth_type].safeParse(config.auth_config);
  if (parsed.success) return { ...config, auth_config: parsed.data };
  addProblems(check, parsed.error, "auth_config");
  return z.NEVER;
}

export interface HttpAuth {
  readonly authConfig: AuthConfig | undefined;
  /** Values of the mapping that stand in the configuration itself, by the name that stands for them. */
  readonly literals: ReadonlyMap<string, string | MadeValue>;
}

/** A value that is made anew for each call. */
export interface MadeValue {
  /** Credentials of the tenant that it is made from. */
  readonly sources: readonly string[];
  make(credentials: CredentialResolver, context: CredentialContext): Promise<string>;
}

type Parts = Readonly<Record<string, string | SecretReference | undefined>>;

const read = new WeakMap<AuthFields, HttpAuth>();

/** Made once for each configuration. @param fields as `readAuth` left them */
export function toHttpAuth(fields: AuthFields): HttpAuth {
  const known = read.get(fields);
  if (known !== undefined) return known;
  const made = makeHttpAuth(fields);
  read.set(fields, made);
  return made;
}

/** Of a stored configuration with `authFields`: where its credentials go. */
export function authConfigOf(config: JsonObject): AuthConfig | undefined {
  return toHttpAuth(z.object(authFields).parse(config)).authConfig;
}

function makeHttpAuth({ auth_type: type, auth_config: config }: AuthFields): HttpAuth {
  if (type === "none") return { authConfig: undefined, literals: new Map() };
  if (type === "mapping") return { authConfig: authConfigSchema.parse(config), literals: new Map() };
  if (type === "jwt") return toJwtAuth(jwtSchema.parse(config));
  const parts = config as Parts;
  const literals = new Map<string, string>();
  const map = (target: string, part: string, location: AuthMapping["location"] = "header"): AuthMapping[] => {
    const value = parts[part];
    if (value === undefined) return [];
    if (typeof value !== "string") return [{ source: value.credential, target, location }];
    const source = `auth_config.${part}`;
    literals.set(source, value);
    return [{ source, target, location }];
  };
  return { authConfig: { type: blindTypes[type], ...mappings[type](parts, map) }, literals };
}

/** The name by which the mapping knows the token. */
const jwtSource = "auth_config.jwt";

function toJwtAuth(jwt: JwtConfig): HttpAuth {
  const target = jwt.header ?? "Authorization";
  const type = target.toLowerCase() === "authorization" ? "bearer" : "api_key";
  const token: MadeValue = {
    sources: [jwt.key.credential],
    async make(credentials, context) {
      const { signJwt } = await import("./sign-jwt.ts");
      return signJwt(jwt, { credentials, context, now: Date.now() });
    },
  };
  return {
    authConfig: { type, mapping: [{ source: jwtSource, target, location: "header" }] },
    literals: new Map([[jwtSource, token]]),
  };
}

/** Credentials of the tenant that the authentication needs. */
export function authSources({ authConfig, literals }: HttpAuth): readonly string[] {
  return (authConfig?.mapping ?? []).flatMap(({ source }) => {
    const literal = literals.get(source);
    if (literal === undefined) return [source];
    return typeof literal === "string" ? [] : literal.sources;
  });
}

/** What explaining takes as set, although no credential of the tenant has these names. */
export function standIns({ literals }: HttpAuth): ReadonlyMap<string, string> {
  return new Map(
    [...literals].map(([name, value]) => [name, typeof value === "string" ? value : "made for each call"]),
  );
}

const blindTypes = { apikey: "api_key", bearer: "bearer", basic: "basic", oauth2: "oauth2" } as const;

type Mapper = (target: string, part: string, location?: AuthMapping["location"]) => AuthMapping[];

const mappings: Readonly<Record<keyof typeof blindTypes, (parts: Parts, map: Mapper) => Omit<AuthConfig, "type">>> = {
  apikey: ({ header, query }, map) => ({
    mapping:
      typeof header === "string"
        ? map(header, "value")
        : map(typeof query === "string" ? query : "key", "value", "query"),
  }),
  bearer: (_parts, map) => ({ mapping: map("Authorization", "token") }),
  basic: (_parts, map) => ({ mapping: [...map("username", "username"), ...map("password", "password")] }),
  oauth2: ({ audience, resource, client_auth: clientAuth }, map) => ({
    mapping: ["client_id", "client_secret", "token_url", "scope"].flatMap((part) => map(part, part)),
    ...(typeof audience === "string" ? { audience } : {}),
    ...(typeof resource === "string" ? { resource } : {}),
    ...(clientAuth === "basic" || clientAuth === "post" ? { client_auth: clientAuth } : {}),
  }),
};

/** For tests of connections: the back end is there, and does not take who is calling. */
export function toRefusedCredentials(
  config: AuthFields,
  refusal: { readonly status: number; readonly cause: unknown },
): GatewayError {
  const { status, cause } = refusal;
  const [name] = credentialsIn(config.auth_config);
  const advice =
    name === undefined
      ? "give 'config.auth_type' and 'config.auth_config'"
      : `check 'config.auth_config', or set '${name}' again with PUT /v1/credentials/${encodeURIComponent(name)}`;
  return new GatewayError("credential_invalid", `The back end refused who is calling (${status}); ${advice}.`, {
    param: "config.auth_config",
    extra: { status },
    cause,
  });
}

/** Gives what the configuration itself holds or makes, and asks for the others. */
export function withLiterals(credentials: CredentialResolver, literals: HttpAuth["literals"]): CredentialResolver {
  if (literals.size === 0) return credentials;
  return {
    async resolve(context, names) {
      const stored = names.filter((name) => !literals.has(name));
      const values = stored.length === 0 ? new Map<string, string>() : await credentials.resolve(context, stored);
      const own = [...literals].filter(([name]) => names.includes(name));
      const made = own.map(
        async ([name, value]) =>
          [name, typeof value === "string" ? value : await value.make(credentials, context)] as const,
      );
      return new Map([...values, ...(await Promise.all(made))]);
    },
  };
}
