/** What runs of flows were told from outside: once for each token, kept until a step waits for it. */
import { storedValueSchema } from "@toolyard/core/ports/flow-runs";
import { integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { json, nowMs, tenantColumn, time } from "../columns.ts";

export const flowSignals = sqliteTable(
  "flow_signals",
  {
    tenant: tenantColumn().notNull(),
    run: text("run").notNull(),
    token: text("token").notNull(),
    name: text("name").notNull(),
    payload: json("payload", storedValueSchema).notNull(),
    /** In the order of their arrival. */
    number: integer("number").notNull(),
    /** The step that has taken it. */
    path: text("path"),
    createdAt: time("created_at").notNull().default(nowMs),
  },
  (table) => [primaryKey({ columns: [table.tenant, table.run, table.token] })],
);
