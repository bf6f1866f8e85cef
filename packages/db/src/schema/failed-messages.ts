/** Messages of which no call could be made, yet or for good; what they held is the broker's. */
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { flag, nowMs, tenantColumn, time } from "../columns.ts";

export const failedMessages = sqliteTable(
  "failed_messages",
  {
    tenant: tenantColumn().notNull(),
    subscriptionId: text("subscription_id").notNull(),
    /** Idempotency key that its call would have. */
    key: text("key").notNull(),
    id: text("id").notNull(),
    messageId: text("message_id"),
    attempts: integer("attempts").notNull(),
    isDead: flag("is_dead").notNull(),
    code: text("code").notNull(),
    message: text("message").notNull(),
    firstAt: time("first_at").notNull().default(nowMs),
    lastAt: time("last_at").notNull().default(nowMs),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.subscriptionId, table.key] }),
    index("failed_messages_id").on(table.tenant, table.subscriptionId, table.id),
    index("failed_messages_expiry").on(table.lastAt),
  ],
);
