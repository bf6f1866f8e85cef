/** Files of sessions' workspaces (CHAT-8, CHAT-9); their bytes are in the blob store. */
import { integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenantColumn, time } from "../columns.ts";

export const workspaceFiles = sqliteTable(
  "workspace_files",
  {
    tenant: tenantColumn().notNull(),
    sessionId: text("session_id").notNull(),
    /** Normalised, without leading slash. */
    path: text("path").notNull(),
    bytes: integer("bytes").notNull(),
    mediaType: text("media_type").notNull(),
    blobKey: text("blob_key").notNull(),
    /** What `blob_key` replaced, so that a write sent twice still knows which blob to delete. */
    previousBlobKey: text("previous_blob_key"),
    updatedAt: time("updated_at").notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenant, table.sessionId, table.path] })],
);
