/**
 * Tools out of what somebody else wrote: an OpenAPI document, a curl command, a list of definitions
 * (BLIND-1). The answer is a review: what is added or changed and by which fields, what was cut, which
 * credentials are wanted and where they would go.
 */
import { pluginDefinitionSchema } from "@toolyard/core/blind/definition";
import { importRequestSchema } from "@toolyard/core/import/request";
import type { ImportAction, ImportedOperation, ImportResult } from "@toolyard/core/import/result";
import { haveNodesLook } from "@toolyard/core/nodes/look";
import { egressUnder } from "@toolyard/core/traces/egress-under";
import * as z from "zod";
import { defineRoute } from "../define-route.ts";

/** A document of 32 MiB and what JSON adds where it is sent as text. */
const largestBody = 50_331_648;

const actions = [
  "added",
  "changed",
  "unchanged",
  "skipped",
  "removed",
  "missing",
] as const satisfies readonly ImportAction[];

const operationSchema = z.strictObject({
  operation: z.string().meta({ example: "GET /users/{id}" }),
  action: z.enum(actions).meta({ description: "'missing': its operation is gone, and it was kept." }),
  name: z.string().nullable(),
  plugin_id: z.string().nullable().meta({ description: "Null in a dry run for what is new.", example: "plg_12" }),
  hash: z.string().nullable(),
  changed_fields: z.array(z.string()).meta({ example: ["execution.base_url", "parameters.properties.limit"] }),
  definition: pluginDefinitionSchema.nullable(),
  schemes: z.array(z.string()).meta({ description: "The document's securitySchemes behind `auth_config`." }),
  alternative_schemes: z.array(z.array(z.string())),
  warnings: z.array(z.string()).meta({ description: "What was cut, left out or guessed." }),
  reason: z.string().nullable().meta({ description: "Why it was skipped." }),
});

const importResultSchema = z.strictObject({
  object: z.literal("plugin_import"),
  dry_run: z.boolean(),
  document: z
    .strictObject({
      id: z.string().meta({ description: "What a later import of it finds these tools by." }),
      title: z.string().nullable(),
      version: z.string().nullable(),
      base_url: z.string().nullable(),
      origin: z.string().nullable().meta({ description: "Where calls, and credentials with them, are sent." }),
      other_servers: z.array(z.string()),
    })
    .nullable(),
  diff: z.strictObject({
    added: z.array(z.string()),
    changed: z.array(z.strictObject({ name: z.string(), fields: z.array(z.string()) })),
    unchanged: z.array(z.string()),
    removed: z
      .array(z.string())
      .meta({ description: "Their operations are gone; deleted only with `remove_missing`." }),
  }),
  operations: z.array(operationSchema),
  credentials: z
    .array(
      z.strictObject({
        name: z.string(),
        scheme: z.string().nullable(),
        holds: z.string().meta({ description: "What to store under this name." }),
        suggested_value: z.string().nullable(),
        stored: z.boolean(),
      }),
    )
    .meta({ description: "Credentials that the tools need; store them with PUT /v1/credentials/{name}." }),
  credentials_found: z.array(z.string()).meta({ description: "Names of secrets that stood in a curl command." }),
  confirmations: z
    .array(z.strictObject({ origin: z.string(), previous_origin: z.string().nullable(), message: z.string() }))
    .meta({ description: "In a dry run: what the import would stop for." }),
  warnings: z.array(z.string()),
});

function viewOperation(operation: ImportedOperation): z.output<typeof operationSchema> {
  return {
    operation: operation.operation,
    action: operation.action,
    name: operation.name,
    plugin_id: operation.pluginId === null ? null : `plg_${operation.pluginId}`,
    hash: operation.hash,
    changed_fields: [...operation.changedFields],
    definition: operation.definition,
    schemes: [...operation.schemes],
    alternative_schemes: operation.alternativeSchemes.map((schemes) => [...schemes]),
    warnings: [...operation.warnings],
    reason: operation.reason,
  };
}

function viewResult(result: ImportResult): z.output<typeof importResultSchema> {
  const { document, operations } = result;
  const namesOf = (...wanted: ImportAction[]): string[] =>
    operations.flatMap(({ action, name }) => (name !== null && wanted.includes(action) ? [name] : []));
  return {
    object: "plugin_import",
    dry_run: result.dryRun,
    document:
      document === null
        ? null
        : {
            id: document.id,
            title: document.title,
            version: document.version,
            base_url: document.baseUrl,
            origin: document.origin,
            other_servers: [...document.otherServers],
          },
    diff: {
      added: namesOf("added"),
      changed: operations.flatMap(({ action, name, changedFields }) =>
        action === "changed" && name !== null ? [{ name, fields: [...changedFields] }] : [],
      ),
      unchanged: namesOf("unchanged"),
      removed: namesOf("removed", "missing"),
    },
    operations: operations.map(viewOperation),
    credentials: result.credentials.map(({ name, scheme, holds, suggestedValue = null, isStored }) => ({
      name,
      scheme,
      holds,
      suggested_value: suggestedValue,
      stored: isStored,
    })),
    credentials_found: [...result.credentialsFound],
    confirmations: result.confirmations.map(({ origin, previous, message }) => ({
      origin,
      previous_origin: previous,
      message,
    })),
    warnings: [...result.warnings],
  };
}

export const importPlugins = defineRoute({
  method: "post",
  path: "/v1/plugins/import",
  summary: "Make tools out of an OpenAPI document, a curl command or a list of definitions",
  description:
    "Start with `dry_run: true`: the answer shows each tool, what was cut, where calls and credentials would go and which credentials are wanted. Importing the same source again changes nothing; a changed one is shown field by field. See docs/import.md.",
  tags: ["plugins"],
  scope: "manage",
  request: { body: importRequestSchema, maxBytes: largestBody },
  responses: { 200: { description: "What was done, or in a dry run would be", schema: importResultSchema } },
  isolation: {
    kind: "nothing-owned",
    reason: "Makes plugins of the caller's own tenant, and finds what an earlier import made among those only.",
  },
  handler: async (c, { core, context, body }) => {
    const egress = egressUnder(core.egress, context.span);
    // What reads documents is large, and most starts import nothing.
    const { importPlugins: runImport } = await import("@toolyard/core/import/import");
    const result = await runImport({ ...core, egress }, context, body);
    if ("vcp" in body && body.vcp !== undefined) await haveNodesLook(core, context.tenant);
    return c.json(viewResult(result));
  },
});
