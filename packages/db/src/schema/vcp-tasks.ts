/**
 * Task ids of asynchronous plugins, each of one call. Their results are blobs, named by plugin and task id
 * together: `name` is unique, so that plugin `a-b` with task `c` cannot meet plugin `a` with task `b-c`.
 */
import { sql } from "drizzle-orm";
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { flag, nowMs, tenantColumn, time } from "../columns.ts";

export const vcpTasks = sqliteTable(
  "vcp_tasks",
  {
    tenant: tenantColumn().notNull(),
    name: text("name").notNull(),
    plugin: text("plugin").notNull(),
    taskId: text("task_id").notNull(),
    callId: text("call_id").notNull(),
    attempt: integer("attempt").notNull(),
    callerId: text("caller_id").notNull(),
    userId: text("user_id"),
    sessionId: text("session_id"),
    /** When a callback came whose result may have been stored since; null: none has, or nothing came of it. */
    calledAt: time("called_at"),
    /** When the result was stored. */
    doneAt: time("done_at"),
    /** The call has what the result can give it. */
    settled: flag("settled").notNull().default(false),
    createdAt: time("created_at").notNull().default(nowMs),
    expiresAt: time("expires_at").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.name] }),
    index("vcp_tasks_call").on(table.tenant, table.callId),
    index("vcp_tasks_late")
      .on(table.doneAt)
      .where(sql`settled = 0 and done_at is not null`),
    index("vcp_tasks_called")
      .on(table.calledAt)
      .where(sql`called_at is not null and done_at is null`),
    index("vcp_tasks_expiry").on(table.expiresAt),
  ],
);
