/** Budgets of a tenant, with what stands against each at the moment of reading. */
import { and, eq, getTableName, type SQL } from "drizzle-orm";
import { windowEnd, type Budget, type BudgetState } from "@toolyard/core/budgets/budget";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { BudgetRepo, NewBudget } from "@toolyard/core/ports/budgets";
import type { Shards, Statement, StatementResult } from "../database.ts";
import { budgets } from "../schema/budgets.ts";
import { build, decodeRow, statement } from "../sql.ts";
import { standing } from "./budget-fragments.ts";
import { raiseConfigVersion, type OnBrokenRow, type Reader } from "./rows.ts";

type Row = StatementResult["rows"][number];

/** Budgets as the configuration holds them. */
export function budgetReader(onBrokenRow: OnBrokenRow): Reader<typeof budgets, Budget> {
  return {
    table: budgets,
    tableName: getTableName(budgets),
    key: budgets.id,
    onBrokenRow,
    toRecord: ({ tenant: _tenant, ...budget }) => budget,
  };
}

const one = standing("b.tenant = ?1 AND b.id = ?2");

/** A page of budgets, with one more to know whether there are more. */
const pages = {
  asc: `${standing("b.tenant = ?1 AND b.id > ?2")} ORDER BY b.id ASC LIMIT ?3`,
  desc: `${standing("b.tenant = ?1 AND (?2 = '' OR b.id < ?2)")} ORDER BY b.id DESC LIMIT ?3`,
} as const;

/**
 * A window that has begun already holds what calls used in it, as far as that is known by day. Of the
 * budget just made, so that the same batch sent twice adds nothing.
 */
const beginWindow = `INSERT INTO budget_windows (tenant, budget_id, window_start, tokens, micros)
  SELECT b.tenant, b.id, b.window_start, COALESCE(SUM(u.tokens), 0), COALESCE(SUM(u.micros), 0)
  FROM (${one}) AS b LEFT JOIN usage_days AS u ON u.tenant = b.tenant AND u.day >= b.window_start
    AND (b.scope = 'tenant' OR (b.scope = 'key' AND u.caller_id = b.scope_id)
      OR (b.scope = 'user' AND u.user_id = b.scope_id))
  WHERE b.period IN ('day', 'month', 'total')
  GROUP BY b.id
  ON CONFLICT (tenant, budget_id) DO NOTHING`;

const forgetWindow = "DELETE FROM budget_windows WHERE tenant = ?1 AND budget_id = ?2";

export function createBudgetRepo(shards: Shards): BudgetRepo {
  const read = (tenant: string, id: string): Statement => ({ sql: one, args: [tenant, id] });
  return {
    create: async (tenant, id, budget) => {
      const insert = build
        .insert(budgets)
        .values({ ...budget, id, tenant })
        .onConflictDoNothing();
      const [, , , found] = await shards
        .databaseFor(tenant)
        .batch(
          [statement(insert), raiseConfigVersion(tenant), { sql: beginWindow, args: [tenant, id] }, read(tenant, id)],
          { repeatable: true },
        );
      const [created] = toStates(found);
      if (created === undefined) throw alreadyThere(budget);
      return created;
    },

    update: async (tenant, id, change) => {
      // Whoever changes nothing writes what is there.
      const update = build
        .update(budgets)
        .set({ tenant, ...change })
        .where(own(tenant, id));
      const [, , found] = await shards
        .databaseFor(tenant)
        .batch([statement(update), raiseConfigVersion(tenant), read(tenant, id)], { repeatable: true });
      return toStates(found)[0];
    },

    get: async (tenant, id) => {
      const [found] = await shards.databaseFor(tenant).batch([read(tenant, id)], { readonly: true });
      return toStates(found)[0];
    },

    list: async (tenant, page) => {
      const args = [tenant, page.after ?? "", page.limit + 1];
      const [found] = await shards.databaseFor(tenant).batch([{ sql: pages[page.order], args }], { readonly: true });
      const states = toStates(found);
      return { data: states.slice(0, page.limit), hasMore: states.length > page.limit };
    },

    delete: async (tenant, id) => {
      const [deleted] = await shards
        .databaseFor(tenant)
        .batch([
          statement(build.delete(budgets).where(own(tenant, id))),
          raiseConfigVersion(tenant),
          { sql: forgetWindow, args: [tenant, id] },
        ]);
      return (deleted?.changes ?? 0) > 0;
    },
  };
}

function toStates(result: StatementResult | undefined): readonly BudgetState[] {
  return (result?.rows ?? []).map(toState);
}

function toState(row: Row): BudgetState {
  const { tenant: _tenant, ...budget } = decodeRow(budgets, row);
  const windowStart = Number(row["window_start"]);
  return {
    ...budget,
    used: { tokens: Number(row["used_tokens"]), micros: Number(row["used_micros"]) },
    reserved: { tokens: Number(row["held_tokens"]), micros: Number(row["held_micros"]) },
    windowStart,
    windowEnd: windowEnd(budget.period, windowStart),
  };
}

function own(tenant: string, id: string): SQL | undefined {
  return and(eq(budgets.tenant, tenant), eq(budgets.id, id));
}

function alreadyThere({ scope, scopeId, period }: NewBudget): GatewayError {
  const whose = scope === "tenant" ? "the tenant" : `${scope} '${scopeId}'`;
  return new GatewayError(
    "conflict",
    `There is a budget of ${whose} for this period ('${period}') already; change that one.`,
    {
      param: "period",
    },
  );
}
