/**
 * What webhooks have to be told, and what became of it. Rows come from triggers on `calls`, in the
 * transaction that changes the call (migration `webhook_events`).
 */
import { sql } from "drizzle-orm";
import { index, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { deliveryStates } from "@toolyard/core/webhooks/webhook";
import { nowMs, tenantColumn, time } from "../columns.ts";

export const webhookDeliveries = sqliteTable(
  "webhook_deliveries",
  {
    /** `evt_…`, made by the database, rising with time; the receiver's key against duplicates. */
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    webhookId: text("webhook_id").notNull(),
    type: text("type").notNull(),
    callId: text("call_id"),
    /** Sent as it is, every time. */
    body: text("body").notNull(),
    state: text("state", { enum: deliveryStates }).notNull().default("pending"),
    /** Claims so far; fences the writes of older claimants. */
    attempt: integer("attempt").notNull().default(0),
    /** Attempts since it was written, or last sent anew by hand. */
    tries: integer("tries").notNull().default(0),
    /** When it may be claimed; null: not at all, since it has ended or its webhook is disabled. */
    nextAt: time("next_at"),
    lastStatus: integer("last_status"),
    lastError: text("last_error"),
    attemptedAt: time("attempted_at"),
    createdAt: time("created_at").notNull().default(nowMs),
  },
  (table) => [
    index("webhook_deliveries_webhook").on(table.tenant, table.webhookId, table.id),
    index("webhook_deliveries_due")
      .on(table.nextAt)
      .where(sql`next_at is not null`),
    // A webhook's own, so that nothing is walked that is due to another.
    index("webhook_deliveries_pending")
      .on(table.webhookId, table.nextAt)
      .where(sql`next_at is not null`),
    index("webhook_deliveries_created").on(table.tenant, table.createdAt),
  ],
);
