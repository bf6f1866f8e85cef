/** What `POST /v1/plugins/import` takes: one source, and how it is to be read. */
import * as z from "zod";
import { authConfigSchema, credentialNameSchema } from "../blind/definition.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { vcpSourceSchema } from "../vcp/plugins/source.ts";
import { importLimits } from "./limits.ts";

const address = z.string().min(1).max(2_048);
const patterns = z.array(z.string().min(1).max(512)).min(1).max(200);

const documentSchema = z.union([
  z.string().min(1).max(importLimits.documentBytes),
  // Its members are looked at as they are read; copying them here would cost as much again.
  z
    .custom<JsonObject>(isJsonObject, "Invalid input: expected a document, as an object or as text")
    .meta({ type: "object" }),
]);

const authSchema = z.strictObject({
  scheme: z.string().min(1).max(128).optional().meta({
    description: "The scheme of `securitySchemes` to use where there are several, or where no operation asks for one.",
  }),
  credentials: z.record(z.string(), credentialNameSchema).optional().meta({
    description:
      "Names of credentials by scheme (`bearerAuth`, `basicAuth.username`) or parameter (`X-Api-Key`); absent: names that hold the host.",
  }),
  config: authConfigSchema.nullable().optional().meta({
    description: "An `auth_config` for all operations instead of what the document says; null: none.",
  }),
});

export const importRequestSchema = z
  .strictObject({
    openapi: documentSchema
      .optional()
      .meta({ description: "OpenAPI 3.0 or 3.1 or Swagger 2.0, as an object or as JSON or YAML text." }),
    url: address.optional().meta({
      description:
        "Where the document is. Fetched where `openapi` is absent, else only what relative addresses start from.",
    }),
    curl: z
      .string()
      .min(1)
      .max(importLimits.curlCharacters)
      .optional()
      .meta({ description: "A curl command, as a shell would take it." }),
    definitions: z
      .array(z.unknown())
      .min(1)
      .max(importLimits.definitions)
      .optional()
      .meta({ description: "JSON definitions, as POST /v1/plugins takes them." }),
    vcp: vcpSourceSchema
      .optional()
      .meta({ description: "VCP plugins: an archive of folders, or one manifest with files." }),

    dry_run: z.boolean().default(false).meta({ description: "Say what would be done, and do nothing." }),
    document_id: z.string().min(1).max(500).optional().meta({
      description:
        "What a later import finds these tools by; absent: the document's address, else its title; of a curl command its method and address.",
    }),
    remove_missing: z
      .boolean()
      .default(false)
      .meta({ description: "Delete tools of this document whose operation is gone." }),
    prefix: z
      .string()
      .regex(/^[a-zA-Z0-9_-]{1,32}$/, "must be 1 to 32 letters, digits, '_' or '-'")
      .optional()
      .meta({ description: "In front of every name." }),
    name: z
      .string()
      .regex(/^[a-zA-Z0-9_-]{1,64}$/, "must be 1 to 64 letters, digits, '_' or '-'")
      .optional()
      .meta({ description: "Of the one tool that a curl command makes." }),
    include: patterns.optional().meta({
      description: "Only these operations: `tag:billing`, `GET /users/*`, `/users/*`, or a pattern of operation ids.",
    }),
    exclude: patterns.optional().meta({ description: "Not these, in the same form." }),
    base_url: address.optional().meta({ description: "Where the API is, whatever the document says." }),
    allowed_origins: z.array(address).max(20).default([]).meta({
      description: "Origins beside the first one that operations may name, and to which an earlier import may move.",
    }),
    server_variables: z
      .record(z.string(), z.string().max(256))
      .default({})
      .meta({ description: "Values for variables in the addresses of servers." }),
    allow_external_refs: z
      .boolean()
      .default(false)
      .meta({ description: "Load https documents that the document refers to." }),
    auth: authSchema.default({}),
    store_credentials: z
      .boolean()
      .default(false)
      .meta({ description: "Store the secrets of a curl command as credentials." }),
  })
  .superRefine((body, context) => {
    const given = [body.openapi ?? body.url, body.curl, body.definitions, body.vcp].filter(
      (source) => source !== undefined,
    );
    if (given.length !== 1) {
      context.addIssue({
        code: "custom",
        path: ["openapi"],
        message: "needs exactly one of 'openapi' (or 'url'), 'curl', 'definitions' and 'vcp'",
      });
      return;
    }
    const source = sourceOf(body);
    for (const [field, ...sources] of ownFields) {
      const isUsed = body[field] !== undefined && body[field] !== false;
      if (isUsed && !sources.includes(source)) {
        context.addIssue({ code: "custom", path: [field], message: `is for '${sources.join("' and '")}' only` });
      }
    }
    if (body.remove_missing && body.definitions !== undefined && body.document_id === undefined) {
      context.addIssue({
        code: "custom",
        path: ["document_id"],
        message: "is needed for 'remove_missing' with 'definitions'",
      });
    }
  });

function sourceOf({ curl, definitions, vcp }: Readonly<Record<string, unknown>>): string {
  if (vcp !== undefined) return "vcp";
  if (curl !== undefined) return "curl";
  return definitions === undefined ? "openapi" : "definitions";
}

type OwnField =
  | "document_id"
  | "remove_missing"
  | "name"
  | "prefix"
  | "store_credentials"
  | "include"
  | "exclude"
  | "base_url"
  | "allow_external_refs";

/** Fields that mean something for some sources only. */
const ownFields: readonly (readonly [field: OwnField, ...sources: string[]])[] = [
  ["document_id", "openapi", "curl", "definitions"],
  ["remove_missing", "openapi", "curl", "definitions"],
  ["name", "curl"],
  ["store_credentials", "curl"],
  ["prefix", "openapi", "curl"],
  ["include", "openapi"],
  ["exclude", "openapi"],
  ["base_url", "openapi"],
  ["allow_external_refs", "openapi"],
];

export type ImportRequest = z.output<typeof importRequestSchema>;
