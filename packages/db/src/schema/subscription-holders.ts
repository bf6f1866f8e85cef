/** Processes of nodes that hold subscriptions now, and how they stand with them. */
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { nowMs, tenantColumn, time } from "../columns.ts";

export const subscriptionHolders = sqliteTable(
  "subscription_holders",
  {
    tenant: tenantColumn().notNull(),
    subscriptionId: text("subscription_id").notNull(),
    instance: text("instance").notNull(),
    node: text("node").notNull(),
    connectionId: text("connection_id").notNull(),
    /** What it was given it may use for so long without a sign of life. */
    leaseUntil: time("lease_until").notNull(),
    state: text("state", { enum: ["starting", "consuming", "failing"] }),
    errorCode: text("error_code"),
    errorMessage: text("error_message"),
    lastErrorAt: time("last_error_at"),
    waiting: integer("waiting"),
    inHand: integer("in_hand").notNull().default(0),
    since: time("since").notNull().default(nowMs),
    seenAt: time("seen_at").notNull().default(nowMs),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.subscriptionId, table.instance] }),
    index("subscription_holders_instance").on(table.tenant, table.instance),
    index("subscription_holders_expiry").on(table.leaseUntil),
  ],
);
