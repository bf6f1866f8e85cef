/** A tenant's configuration as one document: read, compared and applied (docs/configuration.md; decision 0052). */
import { requireScope } from "@toolyard/core/calls/admit";
import { documentFormat, kindNames, wholeKinds, type KindName } from "@toolyard/core/configuration/names";
import type { Applied } from "@toolyard/core/configuration/apply";
import type { Plan, Step } from "@toolyard/core/configuration/plan";
import type { Caller } from "@toolyard/core/callers/caller";
import * as z from "zod";
import { defineRoute, type RouteModule } from "../define-route.ts";

const tags = ["configuration"];
const ownOnly = {
  kind: "nothing-owned",
  reason: "Names no object: it is the caller's own tenant that is read and changed.",
} as const;

/** As many as the largest of their kinds may be. */
const listSchema = z.array(z.unknown()).max(10_000);

type KindFields = { readonly [Name in KindName]: z.ZodOptional<z.ZodType> };

const kindFields = Object.fromEntries(
  kindNames.map((name) => [name, (wholeKinds.has(name) ? z.unknown() : listSchema).optional()]),
) as unknown as KindFields;

const neededSchema = z.array(
  z.strictObject({ name: z.string(), used_by: z.array(z.string()).meta({ example: ["providers/openai"] }) }),
);

const warningsSchema = z.array(
  z.strictObject({ path: z.string().meta({ example: "webhooks[0].url" }), message: z.string() }),
);

const documentFields = {
  object: z.literal("configuration"),
  format: z.literal(documentFormat, {
    error: ({ input }) =>
      input === undefined ? undefined : `must be ${documentFormat}, which is what this release reads and writes`,
  }),
  credentials: neededSchema.meta({ description: "Credentials that are needed, without values, and what needs them." }),
};
const documentSchema = z
  .strictObject({
    ...documentFields,
    warnings: warningsSchema
      .optional()
      .meta({ description: "Secrets that stand in it as they are, where there are any." }),
    ...kindFields,
  })
  .meta({ id: "TenantConfiguration" });

/** Of a document that is sent, what says what it is may be left out; credentials and warnings are found out anew. */
const givenSchema = z
  .strictObject({
    object: documentFields.object.optional(),
    format: documentFields.format.optional(),
    credentials: z.unknown().optional(),
    warnings: z.unknown().optional(),
    ...kindFields,
  })
  .meta({ id: "GivenConfiguration" });

const bodyFields = {
  configuration: givenSchema.meta({
    description: "As GET /v1/configuration has it. A kind that it does not name stays as it is.",
  }),
  remove_missing: z
    .boolean()
    .default(false)
    .meta({ description: "Of the kinds that it names, what it does not name is removed." }),
};

const largestBody = 50_331_648;

const stepSchema = z.strictObject({
  kind: z.enum(kindNames),
  name: z.string().meta({ description: "Empty for what a tenant has once." }),
  action: z.enum(["added", "changed", "unchanged", "removed", "kept", "invalid"]).meta({
    description: "'kept': it is there, and the document does not name it. 'invalid': see 'problems'.",
  }),
  fields: z
    .array(z.strictObject({ field: z.string(), before: z.unknown(), after: z.unknown() }))
    .optional()
    .meta({ description: "Of what is changed; long values are cut." }),
});

const planSchema = z.strictObject({
  object: z.literal("configuration_plan"),
  plan: z
    .string()
    .meta({ description: "Of this document and of what there is now; for POST /v1/configuration/apply." }),
  in_sync: z.boolean().meta({ description: "What the document says is what there is, and all of it." }),
  resources: z.array(stepSchema),
  problems: z
    .array(z.strictObject({ code: z.string(), path: z.string(), message: z.string() }))
    .meta({ description: "All that keeps the document from being applied." }),
  warnings: warningsSchema.meta({
    description: "Secrets that stand in the document as they are; they keep it from nothing.",
  }),
  missing_credentials: neededSchema.meta({ description: "Needed, and not stored here: PUT /v1/credentials/{name}." }),
});

const applySchema = z.strictObject({
  object: z.literal("configuration_apply"),
  complete: z.boolean().meta({ description: "False: the time was over; apply the document again for the rest." }),
  applied: z.array(stepSchema.omit({ fields: true })),
  not_applied: z.array(stepSchema.omit({ fields: true })),
  unchanged: z.int(),
  missing_credentials: planSchema.shape.missing_credentials,
});

/** It stands for routes of all three. @throws GatewayError `permission_denied` */
function requireScopes(caller: Caller): void {
  requireScope(caller, "tools");
  requireScope(caller, "chat");
}

function viewStep({ kind, name, action }: Step): z.output<typeof applySchema.shape.applied.element> {
  return { kind, name, action };
}

function viewPlan({ hash, steps, problems, warnings, missing }: Plan): z.output<typeof planSchema> {
  return {
    object: "configuration_plan",
    plan: hash,
    in_sync: problems.length === 0 && steps.every(({ action }) => action === "unchanged"),
    resources: steps.map((step) => ({
      ...viewStep(step),
      ...(step.action === "changed" ? { fields: step.fields.map((field) => ({ ...field })) } : {}),
    })),
    problems: problems.map((problem) => ({ ...problem })),
    warnings: warnings.map((warning) => ({ ...warning })),
    missing_credentials: missing.map(viewNeeded),
  };
}

const viewNeeded = ({ name, usedBy }: Plan["missing"][number]): z.output<typeof neededSchema.element> => ({
  name,
  used_by: [...usedBy],
});

function viewApplied({ plan, done, left }: Applied): z.output<typeof applySchema> {
  return {
    object: "configuration_apply",
    complete: left.length === 0,
    applied: done.map(viewStep),
    not_applied: left.map(viewStep),
    unchanged: plan.steps.filter(({ action }) => action === "unchanged").length,
    missing_credentials: plan.missing.map(viewNeeded),
  };
}

/** Most requests are for something else. */
// oxlint-disable-next-line typescript/explicit-function-return-type
const load = async (routes: Readonly<Record<string, RouteModule>>) =>
  (await import("../configuration/kinds.ts")).kindsOver(routes);

export const getConfiguration = defineRoute({
  method: "get",
  path: "/v1/configuration",
  summary: "The tenant's configuration as one document",
  description:
    "Everything by its name and without ids and secrets; the same bytes for the same state. Needs the scopes 'tools' and 'chat' as well. See docs/configuration.md.",
  tags,
  scope: "manage",
  responses: { 200: { description: "The document", schema: documentSchema } },
  isolation: ownOnly,
  async handler(c, { core, routes, caller, context }) {
    requireScopes(caller);
    const { contextOfNow, readState, toExport } = await import("@toolyard/core/configuration/document");
    const kinds = await load(routes);
    const work = { core, context: await contextOfNow(core, context), idOf: () => undefined, goes: () => false };
    const text = JSON.stringify(toExport(kinds, await readState(kinds, work)), null, 2);
    return c.body(`${text}\n`, 200, { "content-type": "application/json" });
  },
});

export const planConfiguration = defineRoute({
  method: "post",
  path: "/v1/configuration/plan",
  summary: "What a document would change, and what is wrong with it",
  description:
    "Nothing is changed. Sent what GET /v1/configuration has said before, it tells what has changed since: `in_sync` is true where nothing has. Needs the scopes 'tools' and 'chat' as well.",
  tags,
  scope: "manage",
  request: { body: z.strictObject(bodyFields), exact: ["configuration"], maxBytes: largestBody },
  responses: { 200: { description: "The plan", schema: planSchema } },
  isolation: ownOnly,
  async handler(c, { core, routes, caller, context, body }) {
    requireScopes(caller);
    const { planConfiguration: plan } = await import("@toolyard/core/configuration/plan");
    const asked = { document: body.configuration, removeMissing: body.remove_missing };
    return c.json(viewPlan(await plan(await load(routes), core, context, asked)));
  },
});

export const applyConfiguration = defineRoute({
  method: "post",
  path: "/v1/configuration/apply",
  summary: "Make the tenant's configuration what a document says",
  description:
    "All of it is checked first, and nothing is written where something is wrong. What is written is not one transaction: where it stops, the error's `applied` and `not_applied` say how far it came, and applying the document again does the rest. Needs the scopes 'tools' and 'chat' as well.",
  tags,
  scope: "manage",
  request: {
    body: z.strictObject({
      ...bodyFields,
      plan: z
        .string()
        .max(128)
        .optional()
        .meta({ description: "Of POST /v1/configuration/plan: 409 where it would be another now." }),
    }),
    exact: ["configuration"],
    maxBytes: largestBody,
  },
  responses: { 200: { description: "What was done", schema: applySchema } },
  isolation: ownOnly,
  async handler(c, { core, routes, caller, context, presented, body }) {
    requireScopes(caller);
    const { applyConfiguration: apply } = await import("@toolyard/core/configuration/apply");
    const { configuration: document, remove_missing: removeMissing, plan } = body;
    const asked = { document, removeMissing, plan, presented };
    return c.json(viewApplied(await apply(await load(routes), core, context, asked)));
  },
});
