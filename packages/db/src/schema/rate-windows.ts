/**
 * Requests of the running minute, one row per tenant (scope `tenant`) and per key with a limit of its
 * own (scope `key:{id}`); besides, what a tenant's nodes say through API Gateway (scope `nodes`). The tenant's row also carries the decision about the request being admitted,
 * for the later statements of the same batch; outside of one batch those columns mean nothing.
 */
import { integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenantColumn, time } from "../columns.ts";

export const rateWindows = sqliteTable(
  "rate_windows",
  {
    tenant: tenantColumn().notNull(),
    scope: text("scope").notNull(),
    windowStart: time("window_start").notNull(),
    count: integer("count").notNull(),
    /** Call id, or a name made up for a request without one. */
    request: text("request"),
    verdict: text("verdict"),
    callerId: text("caller_id"),
    /** The earlier call that the request belongs to. */
    existing: text("existing"),
    /** Tool slots granted. */
    slots: integer("slots"),
    /** JSON of the budget that has no room, and of what stands against it. */
    overBudget: text("over_budget"),
  },
  (table) => [primaryKey({ columns: [table.tenant, table.scope] })],
);
