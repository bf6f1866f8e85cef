/** Prices of models and tools: one table for each tenant, and the operator's for all of them. */
import { sqliteTable, text } from "drizzle-orm/sqlite-core";
import { nowMs, tenantColumn, time } from "../columns.ts";

export const priceTables = sqliteTable("price_tables", {
  /** Empty: the operator's, which lies in the directory. */
  tenant: tenantColumn().primaryKey(),
  /** JSON list; read by prices.ts beside the repositories, entry by entry. */
  prices: text("prices").notNull(),
  updatedAt: time("updated_at").notNull().default(nowMs),
});
