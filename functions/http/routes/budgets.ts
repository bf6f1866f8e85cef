/** Budgets of the tenant, its keys and its users, with what stands against them now (CHAT-12). */
import { budgetPeriods, budgetScopes, type BudgetState } from "@toolyard/core/budgets/budget";
import type { CoreDeps } from "@toolyard/core/core-deps";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import { toRfc3339 } from "@toolyard/core/time";
import * as z from "zod";
import { defineRoute, type IsolatedRequest, type IsolationDriver } from "../define-route.ts";
import { listSchema, pageQuery, toList, toPageRequest } from "../list.ts";
import { found, idOf, idParams, nameField, notFound, timeSchema, withoutUndefined } from "./shared.ts";

const tags = ["budgets"];

const limit = z.int().min(0).max(Number.MAX_SAFE_INTEGER).nullable();
const limitTokens = limit.meta({ description: "Tokens of model calls in one window; null: not limited." });
const limitMicros = limit.meta({ description: "Cost in one window, in micro-units as prices are; null: not limited." });
const amountSchema = z.strictObject({ tokens: z.int(), micros: z.int() });

const budgetSchema = z.strictObject({
  id: z.string().meta({ example: "bud_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("budget"),
  name: z.string(),
  scope: z.enum(budgetScopes),
  scope_id: z.string().nullable().meta({ description: "Id of the key or of the user." }),
  period: z.enum(budgetPeriods).meta({ description: "Windows follow each other in UTC; 'total' never ends." }),
  limit_tokens: limitTokens,
  limit_micros: limitMicros,
  enabled: z.boolean(),
  window: z.strictObject({ starts_at: timeSchema, ends_at: timeSchema.nullable() }),
  used: amountSchema.meta({ description: "By calls that ended in this window." }),
  reserved: amountSchema.meta({ description: "By calls that run." }),
  remaining: z
    .strictObject({ tokens: z.int().nullable(), micros: z.int().nullable() })
    .meta({ description: "What a new call may reserve; null: not limited." }),
  created_at: timeSchema,
});

function viewBudget(budget: BudgetState): z.output<typeof budgetSchema> {
  const { used, reserved } = budget;
  const left = (of: number | null, measure: keyof typeof used): number | null =>
    of === null ? null : Math.max(0, of - used[measure] - reserved[measure]);
  return {
    id: budget.id,
    object: "budget",
    name: budget.name,
    scope: budget.scope,
    scope_id: budget.scope === "tenant" ? null : budget.scopeId,
    period: budget.period,
    limit_tokens: budget.limitTokens,
    limit_micros: budget.limitMicros,
    enabled: budget.enabled,
    window: {
      starts_at: toRfc3339(budget.windowStart),
      ends_at: budget.windowEnd === null ? null : toRfc3339(budget.windowEnd),
    },
    used: { ...used },
    reserved: { ...reserved },
    remaining: { tokens: left(budget.limitTokens, "tokens"), micros: left(budget.limitMicros, "micros") },
    created_at: toRfc3339(budget.createdAt),
  };
}

const newBudgetSchema = z.strictObject({
  name: nameField.default("Budget"),
  scope: budgetSchema.shape.scope.default("tenant"),
  scope_id: z.string().min(1).max(1_024).nullable().default(null),
  period: budgetSchema.shape.period,
  limit_tokens: limitTokens.default(null),
  limit_micros: limitMicros.default(null),
  enabled: z.boolean().default(true),
});

const changeSchema = z.strictObject({
  name: nameField.optional(),
  limit_tokens: limitTokens.optional(),
  limit_micros: limitMicros.optional(),
  enabled: z.boolean().optional(),
});

/** A budget without a limit would look like one and be none. */
function requireLimit(limits: { readonly limitTokens: number | null; readonly limitMicros: number | null }): void {
  if (limits.limitTokens !== null || limits.limitMicros !== null) return;
  throw new GatewayError("invalid_request", "A budget needs 'limit_tokens', 'limit_micros' or both.", {
    param: "limit_tokens",
  });
}

/** @throws GatewayError `invalid_request` where the scope and its id do not fit together */
async function checkScope(
  core: CoreDeps,
  tenant: string,
  { scope, scope_id: id }: z.output<typeof newBudgetSchema>,
): Promise<string> {
  if (scope === "tenant") {
    if (id === null) return "";
    throw new GatewayError("invalid_request", "A budget of the tenant takes no 'scope_id'.", { param: "scope_id" });
  }
  if (id === null) {
    throw new GatewayError("invalid_request", `A budget of a ${scope} needs its id in 'scope_id'.`, {
      param: "scope_id",
    });
  }
  if (scope === "key" && (await core.repos.apiKeys.get(tenant, id)) === undefined) {
    throw new GatewayError("invalid_request", `There is no key '${id}'; see GET /v1/api-keys.`, { param: "scope_id" });
  }
  return id;
}

async function arrangeBudget(owner: IsolationDriver): Promise<string> {
  const budget = await owner.send("post", "/v1/budgets", {
    name: "of another tenant",
    scope: "user",
    scope_id: newId("request"),
    period: "day",
    limit_tokens: 1_000,
  });
  return String(budget["id"]);
}

const arrangeObject = async (owner: IsolationDriver): Promise<IsolatedRequest> => ({
  params: { id: await arrangeBudget(owner) },
});

export const createBudget = defineRoute({
  method: "post",
  path: "/v1/budgets",
  summary: "Add a budget",
  description:
    "Holds from the next request on, on every route. It needs `limit_tokens`, `limit_micros` or both. A window of a day or longer that has begun counts what was used in it already.",
  tags,
  scope: "manage",
  request: { body: newBudgetSchema },
  responses: { 201: { description: "The budget", schema: budgetSchema } },
  isolation: { kind: "nothing-owned", reason: "Makes a budget of the caller's own tenant." },
  async handler(c, { core, tenant, body }) {
    const limits = { limitTokens: body.limit_tokens, limitMicros: body.limit_micros };
    requireLimit(limits);
    const scopeId = await checkScope(core, tenant, body);
    const { name, scope, period, enabled } = body;
    const budget = { name, scope, scopeId, period, enabled, ...limits };
    return c.json(viewBudget(await core.repos.budgets.create(tenant, newId("budget"), budget)), 201);
  },
});

export const listBudgets = defineRoute({
  method: "get",
  path: "/v1/budgets",
  summary: "List budgets, with what is used, reserved and left now",
  tags,
  scope: "manage",
  list: true,
  request: { query: pageQuery },
  responses: { 200: { description: "A page of budgets", schema: listSchema(budgetSchema) } },
  isolation: { kind: "list", arrange: arrangeBudget },
  handler: async (c, { core, tenant, query }) =>
    c.json(toList(await core.repos.budgets.list(tenant, toPageRequest(query)), viewBudget, idOf)),
});

export const getBudget = defineRoute({
  method: "get",
  path: "/v1/budgets/{id}",
  summary: "One budget",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 200: { description: "The budget", schema: budgetSchema } },
  isolation: { kind: "object", arrange: arrangeObject },
  handler: async (c, { core, tenant, params }) =>
    c.json(viewBudget(found(await core.repos.budgets.get(tenant, params.id), "budget", params.id))),
});

export const updateBudget = defineRoute({
  method: "patch",
  path: "/v1/budgets/{id}",
  summary: "Change a budget's limits or name, or switch it on or off",
  description: "Fields that are left out stay as they are; null takes a limit away. What was used stays counted.",
  tags,
  scope: "manage",
  request: { params: idParams, body: changeSchema },
  responses: { 200: { description: "The budget as it is now", schema: budgetSchema } },
  isolation: {
    kind: "object",
    arrange: async (owner) => ({ ...(await arrangeObject(owner)), body: { enabled: false } }),
  },
  async handler(c, { core, tenant, params, body }) {
    const before = found(await core.repos.budgets.get(tenant, params.id), "budget", params.id);
    const change = withoutUndefined({
      name: body.name,
      limitTokens: body.limit_tokens,
      limitMicros: body.limit_micros,
      enabled: body.enabled,
    });
    requireLimit({ ...before, ...change });
    return c.json(viewBudget(found(await core.repos.budgets.update(tenant, params.id, change), "budget", params.id)));
  },
});

export const deleteBudget = defineRoute({
  method: "delete",
  path: "/v1/budgets/{id}",
  summary: "Remove a budget",
  tags,
  scope: "manage",
  request: { params: idParams },
  responses: { 204: { description: "It limits nobody any more" } },
  isolation: { kind: "object", arrange: arrangeObject },
  async handler(c, { core, tenant, params }) {
    if (!(await core.repos.budgets.delete(tenant, params.id))) throw notFound("budget", params.id);
    return c.body(null, 204);
  },
});
