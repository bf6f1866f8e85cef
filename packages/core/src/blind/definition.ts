/**
 * A tool as one JSON definition (blind-execution specification, sections 1 and 2). Strict: it is our
 * own format, and a misspelt key must not silently change what is sent. Checks that span fields are
 * in `register.ts`.
 */
import * as z from "zod";
import { roleSchema } from "../callers/caller.ts";
import { isJsonObject, type JsonObject } from "../json.ts";

const text = (max: number) => z.string().min(1).max(max);

/** For documents; what is wrong with an address is told where it is checked. */
const webAddress = "^https?://";

const toolNameSchema = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/, "must be 1 to 64 letters, digits, '_' or '-'");

/** Shown to callers and models, and part of `PUT /v1/credentials/{name}`. */
export const credentialNameSchema = z
  .string()
  .regex(/^[\p{L}\p{N}_.:-]{1,128}$/u, "must be 1 to 128 letters, digits, '_', '.', ':' or '-'");

const httpMethodSchema = z.enum(["GET", "POST", "PUT", "DELETE", "PATCH"]);
export const placementSchema = z.enum(["query", "body", "path", "header", "cookie"]);
export type Placement = z.infer<typeof placementSchema>;

/** Kinds of request body; each has its writer in `body-writers.ts`. `raw`: text or bytes as they are given. */
export type BodyFormat = "json" | "form" | "multipart" | "xml" | "text" | "raw";

const contentTypes: readonly (readonly [RegExp, BodyFormat])[] = [
  [/^application\/(?:json|[a-z0-9.-]+\+json)$/, "json"],
  [/^application\/x-www-form-urlencoded$/, "form"],
  [/^multipart\/form-data$/, "multipart"],
  [/^(?:application|text)\/xml$|^application\/[a-z0-9.-]+\+xml$/, "xml"],
  [/^text\/plain$/, "text"],
  // Whatever else is a media type; its body is one argument, see `body_param`.
  [/^[a-z0-9][a-z0-9!#$&^_.+-]{0,62}\/[a-z0-9][a-z0-9!#$&^_.+-]{0,62}$/, "raw"],
];

/** How a media type's body is written; `undefined` for what is no media type. */
export function bodyFormatOf(contentType: string): BodyFormat | undefined {
  const essence = contentType.replace(/; ?charset=utf-8$/i, "").toLowerCase();
  return contentTypes.find(([pattern]) => pattern.test(essence))?.[1];
}

const queryStyles = ["form", "spaceDelimited", "pipeDelimited", "deepObject", "json"] as const;
const pathStyles = ["simple", "label", "matrix"] as const;

/**
 * How arrays and objects stand in a query, a form, a cookie (`form`, exploded), a path or a header
 * (`simple`), in OpenAPI's words. `json`: the whole value as JSON text.
 */
export const parameterStyleSchema = z.strictObject({
  style: z.enum([...queryStyles, ...pathStyles]).default("form"),
  /** A repeated key for each item instead of one joined value. */
  explode: z.boolean().optional(),
  /** With `deepObject`: what lies deeper goes on in brackets (`a[b][0]=…`) instead of being JSON. */
  nested: z.boolean().optional(),
});
export type ParameterStyle = z.infer<typeof parameterStyleSchema>;

/** Styles that a value in this place may have. */
export function stylesOf(placement: Placement): readonly ParameterStyle["style"][] {
  if (placement === "path") return pathStyles;
  if (placement === "header") return ["simple"];
  return placement === "cookie" ? ["form", "json"] : queryStyles;
}

const mediaTypeSchema = z
  .string()
  .regex(/^[\w.+-]{1,64}\/[\w.+-]{1,64}(?:; ?charset=[\w-]{1,32})?$/, "must be a media type");

/** The table's format calls it `url` (BLIND-4). */
function readUrlAlias(input: unknown): unknown {
  if (!isJsonObject(input) || !Object.hasOwn(input, "url") || Object.hasOwn(input, "base_url")) return input;
  const { url, ...others } = input;
  return { ...others, base_url: url };
}

/** Fields of `execution`; operations of an `api://` service have the same but for the address. */
export const executionFields = z.strictObject({
  method: httpMethodSchema,
  /** With `{name}` where a path parameter stands. */
  base_url: text(2_048).meta({ pattern: webAddress }),
  content_type: z
    .string()
    .max(128)
    .refine((type) => bodyFormatOf(type) !== undefined, {
      error:
        "must be a media type without parameters, for example application/json, application/x-www-form-urlencoded or multipart/form-data",
    })
    .default("application/json"),
  param_placement: z.enum(["query", "body", "path"]),
  /** Placement of single parameters where it differs from `param_placement`. */
  param_overrides: z.record(z.string(), placementSchema).optional(),
  /** What the back end calls single parameters, where it is not the name of the argument. */
  param_names: z.record(z.string(), text(256)).optional(),
  /** Style of single parameters that are arrays or objects. */
  param_styles: z.record(z.string(), parameterStyleSchema).optional(),
  /** The argument that is the whole body, for bodies that are no object. */
  body_param: text(128).optional(),
  /** Media types of single parts of a multipart body that are no files. */
  part_types: z.record(z.string(), mediaTypeSchema).optional(),
  /** Root element of an XML body; default `request`. */
  xml_root: z
    .string()
    .regex(/^[A-Za-z_][A-Za-z0-9._-]{0,127}$/, "must be an XML element name")
    .optional(),
  /** Fixed headers, for example a vendor's API version. Never secrets: those belong to `auth_config`. */
  headers: z.record(z.string(), z.string()).optional(),
  /** Name of the header in which the back end honours an idempotency key; makes writes safe to repeat. */
  idempotency_header: z
    .string()
    .regex(/^[A-Za-z0-9-]{1,64}$/)
    .optional(),
  /** `read`: no side effect although the method is not GET, or the reverse. Default by method. */
  effect: z.enum(["read", "write"]).optional(),
  timeout_ms: z.int().min(1).max(840_000).optional(),
  max_attempts: z.int().min(1).max(10).optional(),
});

export const executionSchema = z.preprocess(readUrlAlias, executionFields);
export type Execution = z.infer<typeof executionSchema>;

const authTypes = ["api_key", "bearer", "basic", "oauth2"] as const;

/** Where credentials stand in a request. */
export const secretLocations = ["header", "query", "path", "body"] as const;

export const authMappingSchema = z.strictObject({
  /** Name of a credential of the tenant. */
  source: credentialNameSchema,
  /**
   * Header or query parameter, placeholder of `base_url`, field of the body (further in one of JSON by a pointer,
   * `/merchant/apiKey`); for basic `username`/`password`;
   * for oauth2 `client_id`, …
   */
  target: text(128).optional(),
  location: z.enum(secretLocations).default("header"),
  /** A key that is sent beside what the `type` of all is about, as with type `api_key`. */
  type: z.literal("api_key").optional(),
});
export type AuthMapping = z.infer<typeof authMappingSchema>;

/** Whose access an oauth2 tool uses: the tenant's own, or that which each user gives with a connect link. */
const oauthGrantTypes = ["client_credentials", "authorization_code"] as const;
export type OAuthGrantType = (typeof oauthGrantTypes)[number];

export const authConfigSchema = z.strictObject({
  type: z.enum(authTypes),
  mapping: z.array(authMappingSchema).min(1).max(16),
  /** Of oauth2, like everything below; absent: `client_credentials`. */
  grant: z.enum(oauthGrantTypes).optional(),
  /** How the client proves itself at the token endpoint; absent: `basic`, and `post` where that is refused. */
  client_auth: z.enum(["basic", "post"]).optional(),
  /** Sent with token requests where the server asks for it. */
  audience: text(2_048).optional(),
  /** RFC 8707: absolute URI of the back end. */
  resource: text(2_048).optional(),
  /** Of `authorization_code`; alternatively targets of `mapping`. */
  authorization_url: text(2_048).optional(),
  revocation_url: text(2_048).optional(),
  /** What the server calls itself (RFC 9207), where that is not at the origin of `authorization_url`. */
  issuer: text(2_048).optional(),
});
export type AuthConfig = z.infer<typeof authConfigSchema>;

/** Where an imported definition came from: what a later import of the same document finds it by. */
export const importSourceSchema = z.strictObject({
  document: text(512),
  /** For OpenAPI `GET /users/{}`: method and path without the names of placeholders. */
  operation: text(2_048),
});
export type ImportSource = z.infer<typeof importSourceSchema>;

/** Checked by the compiler of arguments; copying it here would lose names like `__proto__`. */
const parametersSchema = z.custom<JsonObject>(isJsonObject, "Invalid input: expected object").meta({
  type: "object",
  properties: { type: { const: "object" } },
  required: ["type"],
  additionalProperties: true,
  description: "JSON Schema of an object.",
});

export const pluginDefinitionSchema = z.strictObject({
  schema_version: z.literal("v1", 'must be "v1"'),
  name: toolNameSchema,
  description: text(16_384),
  title: text(256).optional(),
  icon_url: text(2_048).meta({ pattern: webAddress }).optional(),
  parameters: parametersSchema,
  execution: executionSchema,
  auth_config: authConfigSchema.optional(),
  required_credentials: z.array(credentialNameSchema).max(32).optional(),
  source: importSourceSchema.optional(),
  /** Policy of this gateway, not part of the source format. */
  sensitive: z.boolean().optional(),
  roles: z.array(roleSchema).max(16).optional(),
});
export type PluginDefinition = z.infer<typeof pluginDefinitionSchema>;
