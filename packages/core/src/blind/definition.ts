/**
 * A tool as one JSON definition (blind-execution specification, sections 1 and 2). Strict: it is our
 * own format, and a misspelt key must not silently change what is sent. Checks that span fields are
 * in `register.ts`.
 */
import * as z from "zod";
import { roleSchema } from "../callers/caller.ts";

const text = (max: number) => z.string().min(1).max(max);

export const toolNameSchema = z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/, "must be 1 to 64 letters, digits, '_' or '-'");

export const httpMethodSchema = z.enum(["GET", "POST", "PUT", "DELETE", "PATCH"]);
export const placementSchema = z.enum(["query", "body", "path", "header"]);
export type Placement = z.infer<typeof placementSchema>;

export const executionSchema = z.strictObject({
  method: httpMethodSchema,
  base_url: text(2_048),
  content_type: z
    .enum([
      "application/json",
      "application/x-www-form-urlencoded",
      "multipart/form-data",
      "application/xml",
      "text/xml",
      "text/plain",
    ])
    .default("application/json"),
  param_placement: z.enum(["query", "body", "path"]),
  /** Placement of single parameters where it differs from `param_placement`. */
  param_overrides: z.record(z.string(), placementSchema).optional(),
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
export type Execution = z.infer<typeof executionSchema>;

export const authTypes = ["api_key", "bearer", "basic", "oauth2"] as const;

export const authMappingSchema = z.strictObject({
  /** Name of a credential of the tenant. */
  source: text(128),
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
  required_credentials: z.array(text(128)).max(32).optional(),
  /** Policy of this gateway, not part of the source format. */
  sensitive: z.boolean().optional(),
  roles: z.array(roleSchema).optional(),
});
export type PluginDefinition = z.infer<typeof pluginDefinitionSchema>;
