/** What model tokens and tool calls cost: the tenant's table, and the operator's for all tenants. */
import { mostPrices, priceSchema, type Price } from "@toolyard/core/budgets/price";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import * as z from "zod";
import { defineRoute } from "../define-route.ts";

const tags = ["prices"];

const ownOnly = {
  kind: "nothing-owned",
  reason: "Names no object: it is the caller's own tenant that is read and changed.",
} as const;
const operatorOnly = {
  kind: "nothing-owned",
  reason: "Only the operator's key is admitted, never a tenant's.",
} as const;

const tableSchema = z.array(priceSchema).max(mostPrices);
export const pricesBody = z.strictObject({ prices: tableSchema });
const operatorSchema = z.strictObject({ object: z.literal("price_table"), prices: tableSchema });
const pricesSchema = operatorSchema
  .extend({
    operator_prices: tableSchema.meta({ description: "They hold for names that no entry of 'prices' fits." }),
  })
  .meta({ id: "PriceTables" });

/** @throws GatewayError `invalid_request` naming the entry that is there twice */
export function checkTable(prices: readonly Price[]): void {
  const seen = new Set<string>();
  for (const [at, { kind, pattern, effective_from: from }] of prices.entries()) {
    const identity = JSON.stringify([kind, pattern, from === null ? null : Date.parse(from)]);
    if (seen.has(identity)) {
      const since = from === null ? "without 'effective_from'" : `from ${from} on`;
      throw new GatewayError("invalid_request", `The ${kind} '${pattern}' has two prices ${since}; keep one.`, {
        param: `prices.${at}`,
      });
    }
    seen.add(identity);
  }
}

const explanation =
  "Amounts are whole micro-units (millionths) of your currency; 2,500,000 for a million tokens is 2.50. The most exact pattern counts, and of its entries the newest that is in force.";

export const getPrices = defineRoute({
  method: "get",
  path: "/v1/prices",
  summary: "The tenant's prices, and those of the operator",
  description: explanation,
  tags,
  scope: "manage",
  responses: { 200: { description: "Both tables", schema: pricesSchema } },
  isolation: ownOnly,
  handler: (c, { config }) => {
    const { own, operator } = config.prices;
    return c.json({ object: "price_table" as const, prices: [...own], operator_prices: [...operator] });
  },
});

export const putPrices = defineRoute({
  method: "put",
  path: "/v1/prices",
  summary: "Replace the tenant's prices",
  description: `${explanation} Calls that have ended keep the cost that they had.`,
  tags,
  scope: "manage",
  request: { body: pricesBody },
  responses: { 200: { description: "Both tables as they are now", schema: pricesSchema } },
  isolation: ownOnly,
  async handler(c, { core, tenant, config, body }) {
    checkTable(body.prices);
    await core.repos.prices.put(tenant, body.prices);
    const operatorPrices = [...config.prices.operator];
    return c.json({ object: "price_table" as const, prices: body.prices, operator_prices: operatorPrices });
  },
});

export const getOperatorPrices = defineRoute({
  method: "get",
  path: "/v1/prices/operator",
  summary: "The operator's prices",
  tags,
  scope: "operator",
  responses: { 200: { description: "The table", schema: operatorSchema } },
  isolation: operatorOnly,
  handler: async (c, { core }) =>
    c.json({ object: "price_table" as const, prices: [...(await core.repos.prices.readOperator())] }),
});

export const putOperatorPrices = defineRoute({
  method: "put",
  path: "/v1/prices/operator",
  summary: "Replace the operator's prices",
  description: "For every tenant, where it has no price of its own for a name.",
  tags,
  scope: "operator",
  request: { body: pricesBody },
  responses: { 200: { description: "The table as it is now", schema: operatorSchema } },
  isolation: operatorOnly,
  async handler(c, { core, body }) {
    checkTable(body.prices);
    await core.repos.prices.putOperator(body.prices);
    return c.json({ object: "price_table" as const, prices: body.prices });
  },
});
