/** Calls whose plugin may call back: a token each, and what the plugin has said of its task. */
import { index, integer, primaryKey, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { flag, nowMs, tenantColumn, time } from "../columns.ts";

export const vcpCallbacks = sqliteTable(
  "vcp_callbacks",
  {
    tenant: tenantColumn().notNull(),
    callId: text("call_id").notNull(),
    /** Of the call's row. */
    attempt: integer("attempt").notNull(),
    hash: text("hash").notNull(),
    plugin: text("plugin").notNull(),
    callerId: text("caller_id").notNull(),
    userId: text("user_id"),
    sessionId: text("session_id"),
    /** The plugin's first answer has been read. */
    answered: flag("answered").notNull().default(false),
    /** The task whose result ends the call. */
    taskId: text("task_id"),
    keptMs: integer("kept_ms").notNull(),
    createdAt: time("created_at").notNull().default(nowMs),
    expiresAt: time("expires_at").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.callId, table.attempt] }),
    uniqueIndex("vcp_callbacks_hash").on(table.tenant, table.hash),
    index("vcp_callbacks_expiry").on(table.expiresAt),
  ],
);
