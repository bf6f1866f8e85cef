/**
 * Objects into which calls past their retention were written, one tenant and one day each (design "Retention").
 * A row of `calls` names its archive before anything is written, and keeps to it.
 */
import { sql } from "drizzle-orm";
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenantColumn, time } from "../columns.ts";

export const callArchives = sqliteTable(
  "call_archives",
  {
    tenant: tenantColumn().notNull(),
    id: text("id").notNull(),
    /** Start of the day on which its calls were made, UTC. */
    day: time("day").notNull(),
    calls: integer("calls").notNull().default(0),
    bytes: integer("bytes").notNull().default(0),
    createdAt: time("created_at").notNull(),
    /** Null: its calls are still rows. */
    writtenAt: time("written_at"),
    /** Names the claim in force. */
    claimedBy: text("claimed_by"),
    claimedUntil: time("claimed_until"),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.id] }),
    index("call_archives_unwritten")
      .on(table.claimedUntil)
      .where(sql`written_at is null`),
    index("call_archives_day").on(table.tenant, table.day),
  ],
);
