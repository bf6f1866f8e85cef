/** Persistence of group chats. Rules as in repos.ts. Contract: test/contract/group-chats-repo.ts. */
import type { GroupChat, GroupChatMember, GroupChatMessage, NewGroupChatMember } from "../group-chats/group-chat.ts";
import type { Page, PageRequest } from "./page.ts";

export type NewGroupChat = Pick<
  GroupChat,
  "id" | "name" | "mode" | "topic" | "moderator" | "access" | "limits" | "ownerId"
> & { readonly members: readonly NewGroupChatMember[] };

export type GroupChatChange = Partial<
  Pick<GroupChat, "name" | "mode" | "topic" | "moderator" | "access" | "limits" | "ownerId">
>;

/** Whose list it is. */
export interface GroupChatViewer {
  readonly callerId: string;
  /** As which it may be a member. */
  readonly person: string;
}

export interface GroupChatFilter {
  /** Those that it may see; absent: all of the tenant. */
  readonly viewer?: GroupChatViewer | undefined;
  readonly ownerId?: string;
}

export interface NewSaying {
  readonly id: string;
  readonly turn: string;
  readonly author: NewGroupChatMember;
  readonly content: string;
}

/** What a turn starts, or goes on, with. */
export interface BegunTurn {
  readonly groupChat: GroupChat;
  /** What was said before, oldest first, without what was superseded; the last that the room's limit allows. */
  readonly history: readonly GroupChatMessage[];
  /** What the turn answers. */
  readonly trigger: GroupChatMessage;
  /** Of the turn itself, where it was begun before by somebody who went silent. */
  readonly spoken: readonly GroupChatMessage[];
  /** Milliseconds since it was begun first. */
  readonly elapsedMs: number;
}

export interface OpenedMessage {
  readonly id: string;
  readonly turn: string;
  /** Of the turn's call; an older one may write nothing any more. */
  readonly attempt: number;
  /** What is answered. */
  readonly trigger: string;
  readonly position: number;
  readonly author: NewGroupChatMember;
  readonly reason: string | null;
}

export interface MessageNote {
  readonly id: string;
  readonly attempt: number;
  readonly callId: string | null;
  readonly content: string;
}

export interface MessageEnd extends MessageNote {
  readonly state: "completed" | "failed" | "stopped";
  readonly error: GroupChatMessage["error"];
  readonly readOutside: boolean;
}

export interface GroupChatRepo {
  create(tenant: string, groupChat: NewGroupChat): Promise<GroupChat>;
  get(tenant: string, id: string): Promise<GroupChat | undefined>;
  /** Rooms that have an agent of this name among their members, or as moderator. */
  namingAgent(
    tenant: string,
    agent: string,
  ): Promise<readonly { readonly id: string; readonly name: string; readonly field: "members" | "moderator" }[]>;
  list(tenant: string, filter: GroupChatFilter, page: PageRequest): Promise<Page<GroupChat>>;
  update(tenant: string, id: string, change: GroupChatChange): Promise<GroupChat | undefined>;
  /** With all that was said. */
  delete(tenant: string, id: string): Promise<boolean>;
  /** Who is a member already keeps its place. `full`: it has as many as it may. */
  join(tenant: string, id: string, member: NewGroupChatMember): Promise<GroupChat | "full" | undefined>;
  /** Connections of a person who leaves hear nothing more of the room. */
  leave(
    tenant: string,
    id: string,
    member: Pick<GroupChatMember, "kind" | "name">,
  ): Promise<{ readonly groupChat: GroupChat; readonly left: boolean } | undefined>;
  /** What a person says, once for each turn: `queued` until the turn begins. */
  say(tenant: string, id: string, saying: NewSaying): Promise<GroupChatMessage | undefined>;
  /**
   * Takes the room for a turn that has said something or, with `redo`, is to answer again what was said last; the
   * answers that it had are superseded then. `busy`: another turn is under way or was here first. Doing it again
   * finds it done.
   */
  begin(
    tenant: string,
    id: string,
    turn: { readonly id: string; readonly redo: boolean },
  ): Promise<BegunTurn | "busy" | "nothing_to_redo" | undefined>;
  /**
   * An agent begins to speak. One that was cut off at this position begins anew, with the id it had.
   * @returns the message and the room as it is now; undefined where the turn has lost the room
   */
  open(
    tenant: string,
    id: string,
    message: OpenedMessage,
  ): Promise<{ readonly message: GroupChatMessage; readonly groupChat: GroupChat } | undefined>;
  /** What an agent has said so far, for who reads the history meanwhile. */
  note(tenant: string, note: MessageNote): Promise<void>;
  /** @returns the message as it is kept, and the room as it is now; undefined where a newer attempt has it */
  close(
    tenant: string,
    id: string,
    message: MessageEnd,
  ): Promise<{ readonly message: GroupChatMessage; readonly groupChat: GroupChat } | undefined>;
  /** Lets go of the room, unless a newer attempt has it; what was not ended counts as stopped. @returns the turn that waits longest */
  end(tenant: string, id: string, turn: { readonly id: string; readonly attempt: number }): Promise<string | undefined>;
  messages(
    tenant: string,
    id: string,
    filter: { readonly superseded: boolean },
    page: PageRequest,
  ): Promise<Page<GroupChatMessage>>;
  message(tenant: string, id: string, message: string): Promise<GroupChatMessage | undefined>;
  /** All of one turn, in order. */
  turn(tenant: string, id: string, turn: string): Promise<readonly GroupChatMessage[]>;
}
