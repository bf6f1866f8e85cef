/** Addresses that start runs of flows. */
import { index, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { flag, nowMs, tenantColumn, time } from "../columns.ts";

export const flowHooks = sqliteTable(
  "flow_hooks",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    flowId: text("flow_id").notNull(),
    name: text("name").notNull(),
    enabled: flag("enabled").notNull(),
    role: text("role", { enum: ["admin", "member"] }).notNull(),
    /** SHA-256: whoever reads the table cannot call anything with it. */
    tokenHash: text("token_hash").notNull(),
    hint: text("hint").notNull(),
    /** Signing secret. */
    sealed: text("sealed"),
    lastUsedAt: time("last_used_at"),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [
    uniqueIndex("flow_hooks_token").on(table.tenant, table.tokenHash),
    index("flow_hooks_flow").on(table.tenant, table.flowId, table.id),
  ],
);
