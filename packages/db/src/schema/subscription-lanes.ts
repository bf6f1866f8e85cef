/** Of messages that become calls in order: the last one of each key that became one. */
import { index, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { nowMs, tenantColumn, time } from "../columns.ts";

export const subscriptionLanes = sqliteTable(
  "subscription_lanes",
  {
    tenant: tenantColumn().notNull(),
    subscriptionId: text("subscription_id").notNull(),
    /** Hash of the key. */
    lane: text("lane").notNull(),
    /** Idempotency key of the message's call. */
    key: text("key").notNull(),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.subscriptionId, table.lane] }),
    index("subscription_lanes_expiry").on(table.updatedAt),
  ],
);
