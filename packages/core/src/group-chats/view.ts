/** Rooms and messages as clients read them. */
import * as z from "zod";
import { toRfc3339 } from "../time.ts";
import {
  groupChatAccesses,
  groupChatLimitsSchema,
  groupChatModes,
  messageStates,
  type GroupChat,
  type GroupChatMember,
  type GroupChatMessage,
} from "./group-chat.ts";
import { shownName } from "./members.ts";

const timeField = z.iso.datetime();

export const memberViewSchema = z.strictObject({
  kind: z.enum(["agent", "user"]),
  name: z.string().describe("Of the agent, or the user's id."),
  display_name: z.string().describe("As the others know it."),
  joined_at: timeField,
});

export const groupChatViewSchema = z.strictObject({
  id: z.string().meta({ example: "grp_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("group_chat"),
  name: z.string(),
  mode: z.enum(groupChatModes),
  topic: z.string().nullable(),
  moderator: z.string().nullable(),
  access: z.enum(groupChatAccesses),
  limits: groupChatLimitsSchema,
  members: z.array(memberViewSchema),
  owner: z.string().describe("Caller who made it, or `tenant`."),
  current_turn: z.string().nullable().describe("Call of the turn under way."),
  created_at: timeField,
  updated_at: timeField,
});
export type GroupChatView = z.output<typeof groupChatViewSchema>;

export const messageViewSchema = z.strictObject({
  id: z.string().meta({ example: "msg_01jdnhz2v4x8mfkq3w7c5r9gta" }),
  object: z.literal("group_chat.message"),
  group_chat_id: z.string(),
  turn_id: z.string().describe("Call of the turn that it belongs to."),
  position: z.int().describe("In its turn; 0: what a person said."),
  author: z.strictObject({ kind: z.enum(["agent", "user"]), name: z.string(), display_name: z.string() }),
  content: z.string(),
  state: z.enum([...messageStates, "superseded"]),
  reason: z.string().nullable().describe("Why the moderator invited the agent."),
  error: z.strictObject({ code: z.string(), message: z.string() }).nullable(),
  call_id: z.string().nullable().describe("The agent's run."),
  superseded_by: z.string().nullable().describe("The turn that answered anew."),
  created_at: timeField,
  finished_at: timeField.nullable(),
});
export type MessageView = z.output<typeof messageViewSchema>;

export function viewMember(member: GroupChatMember): z.output<typeof memberViewSchema> {
  const { kind, name, joinedAt } = member;
  return { kind, name, display_name: shownName(member), joined_at: toRfc3339(joinedAt) };
}

export function viewGroupChat(room: GroupChat): GroupChatView {
  const { id, name, mode, topic, moderator, access, limits } = room;
  return {
    id,
    object: "group_chat",
    name,
    mode,
    topic,
    moderator,
    access,
    limits,
    members: room.members.map(viewMember),
    owner: room.ownerId,
    current_turn: room.currentTurn,
    created_at: toRfc3339(room.createdAt),
    updated_at: toRfc3339(room.updatedAt),
  };
}

export function viewMessage(message: GroupChatMessage): MessageView {
  const { id, author, content, state, reason, error, position } = message;
  return {
    id,
    object: "group_chat.message",
    group_chat_id: message.groupChat,
    turn_id: message.turn,
    position,
    author: { kind: author.kind, name: author.name, display_name: shownName(author) },
    content,
    state: message.supersededBy === null ? state : "superseded",
    reason,
    error,
    call_id: message.callId,
    superseded_by: message.supersededBy,
    created_at: toRfc3339(message.createdAt),
    finished_at: message.finishedAt === null ? null : toRfc3339(message.finishedAt),
  };
}
