/**
 * Knowledge bases (KB-1). `config` is what serves; where a change of it needs every document to be cut and embedded
 * anew, the wanted one waits in `next_config` until all of that is there under `next_index_version`.
 */
import { integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { nowMs, tenantColumn, time } from "../columns.ts";

export const knowledgeBases = sqliteTable(
  "knowledge_bases",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    name: text("name").notNull(),
    /** JSON of `KnowledgeConfig`. */
    config: text("config").notNull(),
    /** Raised by every change. */
    configVersion: integer("config_version").notNull().default(1),
    /** Chunks of this index are searched. */
    indexVersion: integer("index_version").notNull().default(1),
    nextConfig: text("next_config"),
    nextIndexVersion: integer("next_index_version"),
    /** The last one that was given, whether it ever served or not. */
    lastIndexVersion: integer("last_index_version").notNull().default(1),
    /** Versions of documents are counted here, so that one that comes back does not take up those of the deleted one. */
    lastDocumentVersion: integer("last_document_version").notNull().default(0),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [uniqueIndex("knowledge_bases_tenant_name").on(table.tenant, table.name)],
);
