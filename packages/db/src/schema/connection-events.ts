/**
 * What connections have to be told: one row, however many hear of it. Those about calls come from triggers
 * on `calls`, in the transaction that changes the call (migration `connection_events`).
 */
import { sql } from "drizzle-orm";
import { index, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { flag, nowMs, tenantColumn, time } from "../columns.ts";

export const connectionEvents = sqliteTable(
  "connection_events",
  {
    seq: integer("seq").primaryKey({ autoIncrement: true }),
    tenant: tenantColumn().notNull(),
    type: text("type").notNull(),
    audience: text("audience", {
      enum: ["calls", "logs", "tenant", "connection", "user", "session", "client_type", "group_chat"],
    }).notNull(),
    /** Which connection, user, session, client type or group chat. */
    audienceValue: text("audience_value"),
    callId: text("call_id"),
    callerId: text("caller_id"),
    sessionId: text("session_id"),
    decided: flag("decided").notNull().default(false),
    /** JSON of the frame's `data`; null: the call as it is when the row is written. */
    data: text("data"),
    /** The frame, made by the last trigger. */
    body: text("body").notNull().default(""),
    /** When it may be claimed to be sent to connections that no process holds; null: there are none, or it was sent. */
    nextAt: time("next_at"),
    attempt: integer("attempt").notNull().default(0),
    createdAt: time("created_at").notNull().default(nowMs),
  },
  (table) => [
    index("connection_events_tenant").on(table.tenant, table.seq),
    index("connection_events_due")
      .on(table.nextAt)
      .where(sql`next_at is not null`),
    // A tenant's own, in their order, so that nothing is walked that another has to be told.
    index("connection_events_pending")
      .on(table.tenant)
      .where(sql`next_at is not null`),
    index("connection_events_created").on(table.createdAt),
  ],
);
