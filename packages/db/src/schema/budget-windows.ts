/**
 * What calls that have ended used of each budget, in its newest window; written by the meter (migration
 * `meter`) as a call's row ends, and by nothing else. A window that is over counts for nothing.
 */
import { integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenantColumn, time } from "../columns.ts";

export const budgetWindows = sqliteTable(
  "budget_windows",
  {
    tenant: tenantColumn().notNull(),
    budgetId: text("budget_id").notNull(),
    windowStart: time("window_start").notNull(),
    tokens: integer("tokens").notNull(),
    micros: integer("micros").notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenant, table.budgetId] })],
);
