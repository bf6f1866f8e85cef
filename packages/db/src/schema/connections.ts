/** Clients connected through `/ws`. Read by the triggers on `calls` (migration `connection_events`). */
import { sql } from "drizzle-orm";
import { index, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { callerSchema, subscriptionSchema } from "@toolyard/core/realtime/connection";
import * as z from "zod";
import { json, nowMs, tenantColumn, time } from "../columns.ts";

export const connections = sqliteTable(
  "connections",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    /** The process that holds the socket; empty: the WebSocket API of AWS. */
    holder: text("holder").notNull(),
    caller: json("caller", callerSchema).notNull(),
    clientType: text("client_type"),
    subscriptions: json("subscriptions", z.record(z.string(), subscriptionSchema)).notNull().default({}),
    /** Bits: 1 events of calls, 2 logs, which follow from the subscriptions; 4 what clients of the type `VCPLog` hear. */
    hears: integer("hears").notNull().default(0),
    expiresAt: time("expires_at").notNull(),
    closesAt: time("closes_at").notNull(),
    createdAt: time("created_at").notNull().default(nowMs),
  },
  (table) => [
    index("connections_tenant").on(table.tenant),
    // All that a change of a call looks into while nobody listens.
    index("connections_hearing")
      .on(table.tenant, table.hears)
      .where(sql`hears > 0`),
    index("connections_holder").on(table.holder),
    index("connections_expiry").on(table.expiresAt),
  ],
);
