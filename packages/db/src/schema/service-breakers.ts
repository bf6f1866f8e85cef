/** Breakers of tool services that are open; a row goes when its breaker closes. Read with every admission. */
import { integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenantColumn, time } from "../columns.ts";

export const serviceBreakers = sqliteTable(
  "service_breakers",
  {
    tenant: tenantColumn().notNull(),
    service: text("service").notNull(),
    /** Of the service; a changed one starts anew. */
    version: integer("version").notNull(),
    /** From then on one call may see whether the back end is well. */
    openUntil: time("open_until").notNull(),
    /** Until then somebody does. */
    trialUntil: time("trial_until"),
  },
  (table) => [primaryKey({ columns: [table.tenant, table.service] })],
);
