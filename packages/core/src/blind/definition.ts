/**
 * A tool as one JSON definition (blind-execution specification, sections 1 and 2). Strict: it is our
 * own format, and a misspelt key must not silently change what is sent. Checks that span fields are
 * in `register.ts`.
 */
import * as z from "zod";
import { roleSchema } from "../callers/caller.ts";
import { isJsonObject } from "../json.ts";

const text = (max: number) => z.string().min(1).max(max);

const toolNameSchema = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/, "must be 1 to 64 letters, digits, '_' or '-'");

/** Shown to callers and models, and part of `PUT /v1/credentials/{name}`. */
export const credentialNameSchema = z
  .string()
  .regex(/^[\p{L}\p{N}_.:-]{1,128}$/u, "must be 1 to 128 letters, digits, '_', '.', ':' or '-'");

const httpMethodSchema = z.enum(["GET", "POST", "PUT", "DELETE", "PATCH"]);
export const placementSchema = z.enum(["query", "body", "path", "header"]);
export type Placement = z.infer<typeof placementSchema>;

/** Kinds of request body; each has its writer in `body-writers.ts`. */
export type BodyFormat = "json" | "form" | "multipart" | "xml" | "text";

const contentTypes: readonly (readonly [RegExp, BodyFormat])[] = [
  [/^application\/(?:json|[a-z0-9.-]+\+json)$/, "json"],
  [/^application\/x-www-form-urlencoded$/, "form"],
  [/^multipart\/form-data$/, "multipart"],
  [/^(?:application|text)\/xml$|^application\/[a-z0-9.-]+\+xml$/, "xml"],
  [/^text\/plain$/, "text"],
];

/** How a media type's body is written; `undefined` for one that we cannot write. */
export function bodyFormatOf(contentType: string): BodyFormat | undefined {
  const essence = contentType.replace(/; ?charset=utf-8$/i, "").toLowerCase();
  return contentTypes.find(([pattern]) => pattern.test(essence))?.[1];
}

/** How arrays and objects stand in a query, in OpenAPI's words; default `form`, exploded. */
export const parameterStyleSchema = z.strictObject({
  style: z.enum(["form", "spaceDelimited", "pipeDelimited", "deepObject"]).default("form"),
  /** A repeated key for each item instead of one joined value. */
  explode: z.boolean().optional(),
});
export type ParameterStyle = z.infer<typeof parameterStyleSchema>;

/** The table's format calls it `url` (BLIND-4). */
function readUrlAlias(input: unknown): unknown {
  if (!isJsonObject(input) || !Object.hasOwn(input, "url") || Object.hasOwn(input, "base_url")) return input;
  const { url, ...others } = input;
  return { ...others, base_url: url };
}

export const executionSchema = z.preprocess(
  readUrlAlias,
  z.strictObject({
    method: httpMethodSchema,
    /** With `{name}` where a path parameter stands. */
    base_url: text(2_048),
    content_type: z
      .string()
      .max(128)
      .refine((type) => bodyFormatOf(type) !== undefined, {
        error:
          "must be application/json, application/*+json, application/x-www-form-urlencoded, multipart/form-data, application/xml, text/xml or text/plain",
      })
      .default("application/json"),
    param_placement: z.enum(["query", "body", "path"]),
    /** Placement of single parameters where it differs from `param_placement`. */
    param_overrides: z.record(z.string(), placementSchema).optional(),
    /** Style of single query parameters that are arrays or objects. */
    param_styles: z.record(z.string(), parameterStyleSchema).optional(),
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
  }),
);
export type Execution = z.infer<typeof executionSchema>;

const authTypes = ["api_key", "bearer", "basic", "oauth2"] as const;

export const authMappingSchema = z.strictObject({
  /** Name of a credential of the tenant. */
  source: credentialNameSchema,
  /** Header or query parameter; for basic `username`/`password`; for oauth2 `client_id`, … */
  target: text(128).optional(),
  location: z.enum(["header", "query"]).default("header"),
});
export type AuthMapping = z.infer<typeof authMappingSchema>;

export const authConfigSchema = z.strictObject({
  type: z.enum(authTypes),
  mapping: z.array(authMappingSchema).min(1).max(16),
});
export type AuthConfig = z.infer<typeof authConfigSchema>;

export const pluginDefinitionSchema = z.strictObject({
  schema_version: z.literal("v1", 'must be "v1"'),
  name: toolNameSchema,
  description: text(16_384),
  title: text(256).optional(),
  icon_url: text(2_048).optional(),
  /** JSON Schema of an object. */
  parameters: z.record(z.string(), z.json()),
  execution: executionSchema,
  auth_config: authConfigSchema.optional(),
  required_credentials: z.array(credentialNameSchema).max(32).optional(),
  /** Policy of this gateway, not part of the source format. */
  sensitive: z.boolean().optional(),
  roles: z.array(roleSchema).optional(),
});
export type PluginDefinition = z.infer<typeof pluginDefinitionSchema>;
