/**
 * Pieces of documents, as they are searched. Each is of one version of its document and of one index; it is visible
 * where that is the document's `current_version` and the base's `index_version`, which is how both change at once.
 * `knowledge_fts` (migration `knowledge`) has a row for each under the same number, which goes with it by a trigger.
 */
import { blob, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import { tenantColumn } from "../columns.ts";

export const knowledgeChunks = sqliteTable(
  "knowledge_chunks",
  {
    id: integer("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    knowledgeBase: text("knowledge_base").notNull(),
    document: text("document").notNull(),
    documentVersion: integer("document_version").notNull(),
    indexVersion: integer("index_version").notNull(),
    ordinal: integer("ordinal").notNull(),
    /** UTF-16 offsets in the extracted text. */
    spanStart: integer("span_start").notNull(),
    spanEnd: integer("span_end").notNull(),
    /** 32 bit floats, little endian; before the text, so that reading vectors does not read texts. */
    embedding: blob("embedding", { mode: "buffer" }),
    /** Headings above it, outermost first, joined by ` › `; empty: none. */
    heading: text("heading").notNull(),
    text: text("text").notNull(),
  },
  (table) => [
    uniqueIndex("knowledge_chunks_place").on(
      table.tenant,
      table.knowledgeBase,
      table.document,
      table.documentVersion,
      table.indexVersion,
      table.ordinal,
    ),
  ],
);
