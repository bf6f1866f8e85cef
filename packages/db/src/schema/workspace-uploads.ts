/**
 * Uploads that clients were given a link for (CHAT-19). One holds its bytes against the workspace until it is
 * settled, and stays until nothing can arrive any more, so that what arrived for nobody is found and deleted.
 */
import { sql } from "drizzle-orm";
import { index, integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { tenantColumn, time } from "../columns.ts";

export const workspaceUploads = sqliteTable(
  "workspace_uploads",
  {
    tenant: tenantColumn().notNull(),
    id: text("id").notNull(),
    sessionId: text("session_id").notNull(),
    /** Normalised, without leading slash. */
    path: text("path").notNull(),
    bytes: integer("bytes").notNull(),
    mediaType: text("media_type").notNull(),
    blobKey: text("blob_key").notNull(),
    /** What was at the path when the upload was announced; null: nothing. */
    replacesBlobKey: text("replaces_blob_key"),
    createdAt: time("created_at").notNull(),
    /** Until when the link can be followed. */
    expiresAt: time("expires_at").notNull(),
    /** It is a file now, or was given up, or its session is gone. */
    settledAt: time("settled_at"),
    /** Somebody clears it away until then; afterwards another instance may. */
    claimedUntil: time("claimed_until"),
  },
  (table) => [
    primaryKey({ columns: [table.tenant, table.id] }),
    index("workspace_uploads_open")
      .on(table.tenant, table.sessionId, table.bytes)
      .where(sql`settled_at is null`),
    index("workspace_uploads_expiring").on(table.expiresAt),
  ],
);
