/**
 * What nobody can see any more and is still there: written with the change that made it so, gone once its chunks and
 * blobs are. A key that is about to be written stands here first, so that none is left by a process that stops.
 */
import { index, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenantColumn, time } from "../columns.ts";

export const knowledgeGarbage = sqliteTable(
  "knowledge_garbage",
  {
    id: integer("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    knowledgeBase: text("knowledge_base").notNull(),
    /** Null: of all documents. */
    document: text("document"),
    /** Chunks up to this version of their documents; null: up to any. */
    upToVersion: integer("up_to_version"),
    /** Chunks of this index; null: of any. */
    indexVersion: integer("index_version"),
    /** False: only a blob. */
    hasChunks: integer("has_chunks", { mode: "boolean" }).notNull(),
    blobKey: text("blob_key"),
    /** Not before; pushed on by whoever takes it. */
    dueAt: time("due_at").notNull(),
  },
  (table) => [
    index("knowledge_garbage_due").on(table.dueAt),
    index("knowledge_garbage_blob").on(table.tenant, table.blobKey),
  ],
);
