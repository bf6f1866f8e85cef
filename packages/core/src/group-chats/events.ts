/**
 * What happens in a group chat, as its clients are told (VCP specification 6.1). The id of a message is the same
 * from the first that is heard of it to the message itself.
 */
import * as z from "zod";
import { groupChatModes } from "./group-chat.ts";
import { memberViewSchema, messageViewSchema } from "./view.ts";

/** Why a turn came to its end. */
export const turnReasons = [
  /** Nobody is left to speak. */
  "completed",
  /** The moderator has ended it. */
  "ended_by_moderator",
  /** `limits.messages`. */
  "max_messages",
  /** `limits.wall_clock_ms`. */
  "wall_clock",
  /** `limits.tokens` or `limits.cost_micros`, or a budget of the tenant's. */
  "budget",
  "stopped",
  "failed",
] as const;
export type TurnReason = (typeof turnReasons)[number];

const speaker = z.strictObject({ name: z.string(), displayName: z.string() });
const inRoom = { chatId: z.string() };
const inTurn = { ...inRoom, turnId: z.string() };
const ofMessage = { ...inTurn, agent: speaker, messageId: z.string() };
const errorBody = z.looseObject({ message: z.string(), type: z.string(), code: z.string() });

export const groupChatEventSchema = z.discriminatedUnion("type", [
  z.strictObject({
    type: z.literal("chat:start"),
    ...inTurn,
    mode: z.enum(groupChatModes),
    members: z.array(memberViewSchema),
    message: messageViewSchema.describe("What is answered."),
  }),
  z.strictObject({ type: z.literal("agent:join"), ...inRoom, agent: speaker }),
  z.strictObject({ type: z.literal("agent:leave"), ...inRoom, agent: speaker }),
  z.strictObject({
    type: z.literal("agent:thinking"),
    ...ofMessage,
    reason: z.string().optional().describe("Why the moderator invites the agent."),
  }),
  z.strictObject({
    type: z.literal("agent:stream"),
    ...ofMessage,
    chunk: z.string(),
    accumulatedContent: z.string(),
  }),
  z.strictObject({ type: z.literal("agent:speak"), ...ofMessage, message: messageViewSchema }),
  z.strictObject({
    type: z.literal("chat:end"),
    ...inTurn,
    reason: z.enum(turnReasons),
    messages: z.int().describe("Messages of agents in this turn."),
    error: errorBody.optional(),
  }),
  z.strictObject({
    type: z.literal("error"),
    ...inTurn,
    agent: speaker.optional(),
    messageId: z.string().optional(),
    error: errorBody,
  }),
]);
export type GroupChatEvent = z.output<typeof groupChatEventSchema>;

/** Two chunks of one message are one that is longer; undefined: they are not. */
export function mergeChunks(before: GroupChatEvent | undefined, event: GroupChatEvent): GroupChatEvent | undefined {
  if (before?.type !== "agent:stream" || event.type !== "agent:stream") return undefined;
  return before.messageId === event.messageId ? { ...event, chunk: before.chunk + event.chunk } : undefined;
}
