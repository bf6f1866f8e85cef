/** Who is in a group chat. */
import { integer, primaryKey, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { nowMs, tenantColumn, time } from "../columns.ts";

export const groupChatMembers = sqliteTable(
  "group_chat_members",
  {
    tenant: tenantColumn().notNull(),
    groupChat: text("group_chat").notNull(),
    kind: text("kind", { enum: ["agent", "user"] }).notNull(),
    name: text("name").notNull(),
    displayName: text("display_name"),
    /** Agents speak in this order. */
    place: integer("place").notNull(),
    joinedAt: time("joined_at").notNull().default(nowMs),
  },
  (table) => [primaryKey({ columns: [table.tenant, table.groupChat, table.kind, table.name] })],
);
