/** Group chats: rooms of agents and people, and which turn is under way there (VCP-14). */
import { groupChatAccesses, groupChatLimitsSchema, groupChatModes } from "@toolyard/core/group-chats/group-chat";
import { index, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { json, nowMs, tenantColumn, time } from "../columns.ts";

export const groupChats = sqliteTable(
  "group_chats",
  {
    id: text("id").primaryKey(),
    tenant: tenantColumn().notNull(),
    name: text("name").notNull(),
    mode: text("mode", { enum: groupChatModes }).notNull(),
    topic: text("topic"),
    moderator: text("moderator"),
    access: text("access", { enum: groupChatAccesses }).notNull(),
    limits: json("limits", groupChatLimitsSchema).notNull(),
    ownerId: text("owner_id").notNull(),
    /** Call of the turn that has the room, or had it last where its process died: it counts while the call has not ended. */
    currentTurn: text("current_turn"),
    turnStartedAt: time("turn_started_at"),
    /** Turns begun so far; the number of the newest. */
    turns: integer("turns").notNull().default(0),
    createdAt: time("created_at").notNull().default(nowMs),
    updatedAt: time("updated_at").notNull().default(nowMs),
  },
  (table) => [index("group_chats_tenant_id").on(table.tenant, table.id)],
);
