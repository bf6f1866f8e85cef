/** Tickets with which browsers connect, which cannot send a header there; each is good for one connection. */
import { index, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { callerSchema } from "@toolyard/core/realtime/connection";
import { json, tenantColumn, time } from "../columns.ts";

export const connectionTickets = sqliteTable(
  "connection_tickets",
  {
    hash: text("hash").primaryKey(),
    tenant: tenantColumn().notNull(),
    caller: json("caller", callerSchema).notNull(),
    /** When the credentials run out with which it was asked for. */
    until: time("until"),
    expiresAt: time("expires_at").notNull(),
    /** The connection that used it, so that a batch sent twice knows its own work. */
    takenBy: text("taken_by"),
  },
  (table) => [index("connection_tickets_expiry").on(table.expiresAt)],
);
