/** Budgets of a tenant, its keys and its users (CHAT-12); part of the tenant's configuration. */
import { integer, index, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { budgetPeriods, budgetScopes } from "@toolyard/core/budgets/budget";
import { flag, nowMs, tenantColumn, time } from "../columns.ts";

export const budgets = sqliteTable(
  "budgets",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    name: text("name").notNull(),
    scope: text("scope", { enum: budgetScopes }).notNull(),
    /** Empty for the tenant. */
    scopeId: text("scope_id").notNull(),
    period: text("period", { enum: budgetPeriods }).notNull(),
    limitTokens: integer("limit_tokens"),
    limitMicros: integer("limit_micros"),
    enabled: flag("enabled").notNull(),
    createdAt: time("created_at").notNull().default(nowMs),
  },
  (table) => [
    uniqueIndex("budgets_scope_period").on(table.tenant, table.scope, table.scopeId, table.period),
    index("budgets_tenant_id").on(table.tenant, table.id),
  ],
);
