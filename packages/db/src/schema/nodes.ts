/** Nodes that are, or were a short time ago, connected; their tools are part of the tenant's configuration. */
import { nodeToolsSchema } from "@toolyard/core/nodes/node";
import { index, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { json, nowMs, tenantColumn, time } from "../columns.ts";

export const nodes = sqliteTable(
  "nodes",
  {
    id: text("id").notNull(),
    tenant: tenantColumn().notNull(),
    name: text("name").notNull(),
    version: text("version").notNull(),
    instance: text("instance").notNull(),
    callerId: text("caller_id").notNull(),
    connectionId: text("connection_id").notNull(),
    tools: json("tools", nodeToolsSchema).notNull(),
    /** By tool name, the hash of its definition. */
    hashes: text("hashes").notNull(),
    since: time("since").notNull().default(nowMs),
    seenAt: time("seen_at").notNull().default(nowMs),
    expiresAt: time("expires_at").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.name] }),
    index("nodes_instance").on(table.tenant, table.instance),
    index("nodes_expiry").on(table.expiresAt),
  ],
);
