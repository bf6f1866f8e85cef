/** Messages of the database queue: pointers to call rows, see queue.ts. Held in the directory database. */
import { sql } from "drizzle-orm";
import { index, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenantColumn, time } from "../columns.ts";

export const queueMessages = sqliteTable(
  "queue_messages",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    queue: text("queue", { enum: ["short", "long"] }).notNull(),
    callId: text("call_id").notNull(),
    visibleAt: time("visible_at").notNull(),
    receives: integer("receives").notNull().default(0),
    /** Of the newest receive; only its holder may delete the message. */
    receipt: text("receipt"),
    deadAt: time("dead_at"),
  },
  (table) => [
    index("queue_messages_visible")
      .on(table.queue, table.visibleAt)
      .where(sql`dead_at is null`),
    // A tenant's own, so that nobody's backlog is walked to find somebody else's message.
    index("queue_messages_tenant")
      .on(table.queue, table.tenant, table.visibleAt)
      .where(sql`dead_at is null`),
    // What each has in hand, apart from what waits with a delay.
    index("queue_messages_held")
      .on(table.queue, table.tenant, table.visibleAt)
      .where(sql`receipt is not null and dead_at is null`),
    index("queue_messages_receipt")
      .on(table.receipt)
      .where(sql`receipt is not null`),
    index("queue_messages_dead")
      .on(table.queue, table.deadAt)
      .where(sql`dead_at is not null`),
  ],
);
