/** Replies on their way from the instance that received them to the one that waits, see replies.ts beside this folder. */
import { index, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenantColumn, time } from "../columns.ts";

export const replies = sqliteTable(
  "replies",
  {
    tenant: tenantColumn().notNull(),
    key: text("key").notNull(),
    payload: text("payload").notNull(),
    /** Names the delivery, so that one sent twice still knows that it was the first. */
    deliveredBy: text("delivered_by").notNull(),
    /** Names the wait that took it. Kept after that, so that a late duplicate is refused. */
    takenBy: text("taken_by"),
    createdAt: time("created_at").notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenant, table.key] }), index("replies_created").on(table.createdAt)],
);
