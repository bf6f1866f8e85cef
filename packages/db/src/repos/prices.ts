/** Price tables: a tenant's own lies with its other rows, the operator's in the directory. */
import { inArray, sql } from "drizzle-orm";
import { priceSchema, type Price } from "@toolyard/core/budgets/price";
import { parseJson } from "@toolyard/core/json";
import type { PriceRepo } from "@toolyard/core/ports/budgets";
import { nowMs } from "../columns.ts";
import type { Shards, Statement, StatementResult } from "../database.ts";
import { priceTables } from "../schema/price-tables.ts";
import { tenants } from "../schema/tenants.ts";
import { build, decodeRow, statement } from "../sql.ts";
import { raiseConfigVersion, type OnBrokenRow } from "./rows.ts";

/** Owner of the operator's table. */
export const operator = "";

export function createPriceRepo(shards: Shards, onBrokenRow: OnBrokenRow): PriceRepo {
  return {
    put: async (tenant, prices) => {
      await shards
        .databaseFor(tenant)
        .batch([putTable(tenant, prices), raiseConfigVersion(tenant)], { repeatable: true });
    },

    readOperator: async () => {
      const [found] = await shards.directory.batch([selectPrices()], { readonly: true });
      return readPrices(found, operator, onBrokenRow);
    },

    putOperator: async (prices) => {
      const raise = statement(build.update(tenants).set({ configVersion: sql`${tenants.configVersion} + 1` }));
      await shards.directory.batch([putTable(operator, prices), raise], { repeatable: true });
      // After the table: whoever loads a configuration in between has to load it once more.
      const others = shards.all().filter((database) => database !== shards.directory);
      await Promise.all(others.map((database) => database.batch([raise], { repeatable: true })));
    },
  };
}

function putTable(owner: string, prices: readonly Price[]): Statement {
  const values = { tenant: owner, prices: JSON.stringify(prices) };
  return statement(
    build
      .insert(priceTables)
      .values(values)
      .onConflictDoUpdate({ target: priceTables.tenant, set: { prices: values.prices, updatedAt: nowMs } }),
  );
}

/** The operator's table, and those of tenants. */
export function selectPrices(...owners: readonly string[]): Statement {
  return statement(
    build
      .select()
      .from(priceTables)
      .where(inArray(priceTables.tenant, [operator, ...owners])),
  );
}

/** The table of one owner among those read. An entry that cannot be read is left out and reported. */
export function readPrices(
  result: StatementResult | undefined,
  owner: string,
  onBrokenRow: OnBrokenRow,
): readonly Price[] {
  const rows = (result?.rows ?? []).map((row) => decodeRow(priceTables, row));
  const stored = parseJson(rows.find(({ tenant }) => tenant === owner)?.prices ?? "[]");
  const report = (id: string): void => onBrokenRow({ table: "price_tables", tenant: owner, id, reason: "is no price" });
  if (!Array.isArray(stored)) {
    report("prices");
    return [];
  }
  return stored.flatMap((entry, at) => {
    const parsed = priceSchema.safeParse(entry);
    if (!parsed.success) report(String(at));
    return parsed.success ? [parsed.data] : [];
  });
}
