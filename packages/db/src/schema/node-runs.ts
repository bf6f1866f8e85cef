/** Calls that nodes were given: offered, under way, or with a result that is still kept. */
import { sql } from "drizzle-orm";
import { index, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { flag, nowMs, tenantColumn, time } from "../columns.ts";

export const nodeRuns = sqliteTable(
  "node_runs",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    callId: text("call_id").notNull(),
    /** Of the call's row. */
    attempt: integer("attempt").notNull(),
    node: text("node").notNull(),
    instance: text("instance").notNull(),
    /** Through which its node is told of it; another one once it has come back. */
    connectionId: text("connection_id").notNull(),
    tool: text("tool").notNull(),
    state: text("state", { enum: ["offered", "accepted", "withdrawn", "ended"] })
      .notNull()
      .default("offered"),
    handedOver: flag("handed_over").notNull(),
    cancelled: flag("cancelled").notNull().default(false),
    /** The arguments, sealed; cleared with the end. */
    input: text("input"),
    result: text("result"),
    /** What came of it was used, as far as it can be. */
    settled: flag("settled").notNull().default(false),
    leaseUntil: time("lease_until").notNull(),
    createdAt: time("created_at").notNull().default(nowMs),
    /** Of withdrawn ones, too. */
    endedAt: time("ended_at"),
  },
  (table) => [
    index("node_runs_under_way")
      .on(table.tenant, table.node)
      .where(sql`state in ('offered', 'accepted')`),
    index("node_runs_call").on(table.tenant, table.callId),
    index("node_runs_late")
      .on(table.endedAt)
      .where(sql`settled = 0 and ended_at is not null`),
    index("node_runs_expiry").on(table.leaseUntil),
  ],
);
