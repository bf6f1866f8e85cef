/** What the Tavern puts into conversations: presets, world books, characters (VCP specification 4.5; VCP-9). */
import { sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { tavernKinds } from "@toolyard/core/ports/tavern";
import { nowMs, tenantColumn, time } from "../columns.ts";

export const tavernItems = sqliteTable(
  "tavern_items",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    kind: text("kind", { enum: tavernKinds }).notNull(),
    name: text("name").notNull(),
    /** SHA-256 of the content, by which instances know what they have read. */
    hash: text("hash").notNull(),
    /** JSON, read by the schema of its kind. */
    content: text("content").notNull(),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [uniqueIndex("tavern_items_tenant_kind_name").on(table.tenant, table.kind, table.name)],
);
