/**
 * Group chats: rooms in which agents of the tenant and people talk (VCP specification 6.1; VCP-14). What a
 * person says begins a turn, in which agents answer one after the other; a turn is a call.
 */
import * as z from "zod";

/**
 * `sequential`: every agent speaks once, in order. `mentioned`: those speak whose @name is said, by the person or
 * by an agent before them. `invited`: a moderator decides who speaks next, and when it is enough.
 */
export const groupChatModes = ["sequential", "mentioned", "invited"] as const;
export type GroupChatMode = (typeof groupChatModes)[number];

/** `tenant`: every caller that may chat. `members`: people among the members, the owner and administrators. */
export const groupChatAccesses = ["tenant", "members"] as const;
export type GroupChatAccess = (typeof groupChatAccesses)[number];

/** As owner of a room: it is a part of the tenant's configuration, and nobody's conversation. No caller is called so. */
export const tenantsOwn = "tenant";

/** What ends a turn that does not end by itself. */
export const groupChatLimitsSchema = z.strictObject({
  messages: z.int().min(1).max(100).default(12).describe("Messages of agents in one turn."),
  wall_clock_ms: z.int().min(1_000).max(600_000).default(300_000).describe("Of one turn, in milliseconds."),
  tokens: z.int().min(1).optional().describe("Tokens of the models in one turn."),
  cost_micros: z.int().min(1).optional().describe("Cost of one turn in micro-units."),
  history: z.int().min(1).max(500).default(50).describe("Messages that an agent is given of what was said before."),
});
export type GroupChatLimits = z.infer<typeof groupChatLimitsSchema>;

export interface GroupChatMember {
  readonly kind: "agent" | "user";
  /** Of the agent; a person's user id, or the id of its key. */
  readonly name: string;
  /** As the others know it; null: `name`. */
  readonly displayName: string | null;
  readonly joinedAt: number;
}
export type NewGroupChatMember = Omit<GroupChatMember, "joinedAt">;

export interface GroupChat {
  /** `grp_…` */
  readonly id: string;
  readonly name: string;
  readonly mode: GroupChatMode;
  readonly topic: string | null;
  /** Agent that invites; only of the mode `invited`. */
  readonly moderator: string | null;
  readonly access: GroupChatAccess;
  readonly limits: GroupChatLimits;
  /** Caller who made it; `tenantsOwn`: the tenant. */
  readonly ownerId: string;
  /** Agents in the order in which they speak. */
  readonly members: readonly GroupChatMember[];
  /** Turn under way: the id of its call. */
  readonly currentTurn: string | null;
  readonly createdAt: number;
  readonly updatedAt: number;
}

export const messageStates = [
  /** Said while another turn was under way; nobody has answered yet. */
  "queued",
  "streaming",
  "completed",
  "failed",
  /** Cut off with its turn, or where it was full (`error` says so); the content is what had been said by then. */
  "stopped",
] as const;
export type MessageState = (typeof messageStates)[number];

export interface GroupChatMessage {
  /** `msg_…`, known before the first word of it. */
  readonly id: string;
  readonly groupChat: string;
  /** The call that it belongs to. */
  readonly turn: string;
  /** In its turn; 0: what a person said. */
  readonly position: number;
  readonly author: NewGroupChatMember;
  readonly content: string;
  readonly state: MessageState;
  /** Why the moderator wanted it. */
  readonly reason: string | null;
  readonly error: { readonly code: string; readonly message: string } | null;
  /** The agent's run. */
  readonly callId: string | null;
  /** Tools have brought in content from outside. */
  readonly readOutside: boolean;
  /** The turn that was made instead of its own. */
  readonly supersededBy: string | null;
  readonly createdAt: number;
  readonly finishedAt: number | null;
}
