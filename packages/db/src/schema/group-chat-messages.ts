/** What was said in group chats: one row for each place in a turn, however often it was begun. */
import { messageStates } from "@toolyard/core/group-chats/group-chat";
import { index, integer, sqliteTable, text, uniqueIndex } from "drizzle-orm/sqlite-core";
import * as z from "zod";
import { flag, json, nowMs, tenantColumn, time } from "../columns.ts";

const errorSchema = z.object({ code: z.string(), message: z.string() });

export const groupChatMessages = sqliteTable(
  "group_chat_messages",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    groupChat: text("group_chat").notNull(),
    turn: text("turn").notNull(),
    /** 0: what the person said. */
    position: integer("position").notNull(),
    /** Number of its turn in the room, which one that is made again keeps; null: its turn has not begun. */
    turnNumber: integer("turn_number"),
    authorKind: text("author_kind", { enum: ["agent", "user"] }).notNull(),
    authorName: text("author_name").notNull(),
    authorDisplayName: text("author_display_name"),
    content: text("content").notNull(),
    state: text("state", { enum: messageStates }).notNull(),
    reason: text("reason"),
    error: json("error", errorSchema),
    callId: text("call_id"),
    /** Attempt of the turn's call that writes it; fences older ones. */
    attempt: integer("attempt").notNull().default(1),
    readOutside: flag("read_outside").notNull().default(false),
    supersededBy: text("superseded_by"),
    createdAt: time("created_at").notNull().default(nowMs),
    finishedAt: time("finished_at"),
  },
  (table) => [
    uniqueIndex("group_chat_messages_turn").on(table.tenant, table.groupChat, table.turn, table.position),
    index("group_chat_messages_number").on(table.tenant, table.groupChat, table.turnNumber),
    index("group_chat_messages_id").on(table.tenant, table.groupChat, table.id),
  ],
);
