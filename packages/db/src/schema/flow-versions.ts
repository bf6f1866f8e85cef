/** Published definitions of flows; a row is never changed. */
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { nowMs, tenantColumn, time } from "../columns.ts";

export const flowVersions = sqliteTable(
  "flow_versions",
  {
    tenant: tenantColumn().notNull(),
    flowId: text("flow_id").notNull(),
    number: integer("number").notNull(),
    /** SHA-256 of the definition, by which instances know what they have read. */
    hash: text("hash").notNull(),
    /** JSON, read by `flowDefinitionSchema`. */
    definition: text("definition").notNull(),
    description: text("description").notNull(),
    /** JSON Schema. */
    input: text("input").notNull(),
    effect: text("effect", { enum: ["read", "write"] }).notNull(),
    refs: text("refs").notNull(),
    publishedBy: text("published_by").notNull(),
    publishedAt: time("published_at").notNull().default(nowMs),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.flowId, table.number] }),
    index("flow_versions_tenant_hash").on(table.tenant, table.hash),
  ],
);
