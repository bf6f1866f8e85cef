/**
 * Sessions (CHAT-8). Ids are chosen by clients and unique over all tenants, so that another tenant's
 * session is recognised and refused (CHAT-20). A session that expired stays as a row without files,
 * so that its id answers "expired" instead of starting afresh.
 */
import { sql } from "drizzle-orm";
import { index, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenantColumn, time } from "../columns.ts";

export const sessions = sqliteTable(
  "sessions",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    callerId: text("caller_id").notNull(),
    /** The admission that created it: the same batch sent twice still reports a new session. */
    createdBy: text("created_by").notNull(),
    createdAt: time("created_at").notNull(),
    lastUsedAt: time("last_used_at").notNull(),
    expiredAt: time("expired_at"),
    /** Somebody removes the files until then; afterwards another instance may. */
    claimedUntil: time("claimed_until"),
    /** Its files are gone. */
    clearedAt: time("cleared_at"),
  },
  (table) => [
    index("sessions_tenant_created").on(table.tenant, table.createdAt, table.id),
    index("sessions_idle")
      .on(table.tenant, table.lastUsedAt)
      .where(sql`cleared_at is null`),
    index("sessions_cleared")
      .on(table.clearedAt)
      .where(sql`cleared_at is not null`),
  ],
);
