/**
 * Turns that the client has to continue (design "Mixed turns"): the whole assistant message and our
 * results, sealed, readable by the same caller on any instance until they expire.
 */
import { index, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenantColumn, time } from "../columns.ts";

export const keptTurns = sqliteTable(
  "kept_turns",
  {
    tenant: tenantColumn().notNull(),
    callerId: text("caller_id").notNull(),
    /** First tool_call id of the turn. */
    key: text("key").notNull(),
    sealed: text("sealed").notNull(),
    expiresAt: time("expires_at").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.callerId, table.key] }),
    index("kept_turns_expires").on(table.expiresAt),
  ],
);
