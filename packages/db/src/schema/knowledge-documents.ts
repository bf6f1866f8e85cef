/**
 * Documents of knowledge bases. `version` is what was put last, `current_version` what is searched (null: nothing
 * yet); the call that brings the one to the other writes here only while the row still names it.
 */
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { documentStates } from "@toolyard/core/ports/knowledge";
import { nowMs, tenantColumn, time } from "../columns.ts";

export const knowledgeDocuments = sqliteTable(
  "knowledge_documents",
  {
    tenant: tenantColumn().notNull(),
    knowledgeBase: text("knowledge_base").notNull(),
    /** The client's own, or minted. */
    id: text("id").notNull(),
    name: text("name").notNull(),
    version: integer("version").notNull(),
    currentVersion: integer("current_version"),
    /** What the index that is being built has of it. */
    builtIndexVersion: integer("built_index_version"),
    builtVersion: integer("built_version"),
    builtChunkCount: integer("built_chunk_count").notNull().default(0),
    state: text("state", { enum: documentStates }).notNull(),
    /** Of what is being done: chunks. */
    progressDone: integer("progress_done").notNull().default(0),
    progressTotal: integer("progress_total").notNull().default(0),
    errorCode: text("error_code"),
    errorMessage: text("error_message"),
    /** Of the newest version. */
    callId: text("call_id").notNull(),
    attempt: integer("attempt").notNull().default(0),
    mediaType: text("media_type").notNull(),
    bytes: integer("bytes").notNull(),
    /** SHA-256 of the bytes and what is said of them; empty: they are fetched when it is ingested. */
    hash: text("hash").notNull(),
    /** Of `version`; its extracted text lies beside it. */
    blobKey: text("blob_key").notNull(),
    /** Of `current_version`. */
    currentBlobKey: text("current_blob_key"),
    /** Where people find it; hits cite it. */
    sourceUrl: text("source_url"),
    /** Where it is fetched from, where that is an address; null in rows of older programs, which fetched the other. */
    fetchUrl: text("fetch_url"),
    /** Characters of the extracted text. */
    characters: integer("characters").notNull().default(0),
    chunkCount: integer("chunk_count").notNull().default(0),
    /** JSON object of plain values. */
    metadata: text("metadata").notNull(),
    /** JSON of `KnowledgeAcl`; null: that of its base. */
    acl: text("acl"),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
    readyAt: time("ready_at"),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.knowledgeBase, table.id] }),
    index("knowledge_documents_call").on(table.tenant, table.callId),
  ],
);
