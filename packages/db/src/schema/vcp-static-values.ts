/** Values that static VCP plugins and nodes give to placeholders, and who is about to refresh them. */
import { sql } from "drizzle-orm";
import { index, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenantColumn, time } from "../columns.ts";

export const vcpStaticValues = sqliteTable(
  "vcp_static_values",
  {
    tenant: tenantColumn().notNull(),
    /** `plugin:{name}` or `node:{name}`. */
    source: text("source").notNull(),
    key: text("key").notNull(),
    value: text("value"),
    blobKey: text("blob_key"),
    version: text("version").notNull(),
    error: text("error"),
    refreshedAt: time("refreshed_at"),
    leaseUntil: time("lease_until"),
    /** When it is refreshed without being asked for. */
    nextAt: time("next_at"),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.source, table.key] }),
    index("vcp_static_values_due")
      .on(table.nextAt)
      .where(sql`next_at is not null`),
  ],
);
