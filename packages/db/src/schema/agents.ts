/** Agents of a tenant. */
import { agentDefinitionSchema } from "@toolyard/core/agents/agent";
import { index, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { json, nowMs, tenantColumn, time } from "../columns.ts";

export const agents = sqliteTable(
  "agents",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    name: text("name").notNull(),
    definition: json("definition", agentDefinitionSchema).notNull(),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [
    uniqueIndex("agents_tenant_name").on(table.tenant, table.name),
    index("agents_tenant_id").on(table.tenant, table.id),
  ],
);
