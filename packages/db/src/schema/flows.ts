/** Flows: what is worked on, and what was published (FLOW-1, FLOW-4). */
import { index, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { flag, nowMs, tenantColumn, time } from "../columns.ts";

export const flows = sqliteTable(
  "flows",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    name: text("name").notNull(),
    enabled: flag("enabled").notNull(),
    /** JSON as it was given: a draft may have faults. */
    draft: text("draft").notNull(),
    draftHash: text("draft_hash").notNull(),
    draftRefs: text("draft_refs").notNull(),
    latest: integer("latest"),
    latestHash: text("latest_hash"),
    revision: integer("revision").notNull().default(1),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [
    uniqueIndex("flows_tenant_name").on(table.tenant, table.name),
    index("flows_tenant_id").on(table.tenant, table.id),
  ],
);
