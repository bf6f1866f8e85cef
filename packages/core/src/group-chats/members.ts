/** Who may see a room and speak there, and under which names its members are known. */
import * as z from "zod";
import { hasScope, type Caller } from "../callers/caller.ts";
import type { CallContext } from "../context.ts";
import type { AdapterDeps } from "../deps.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { GroupChatViewer } from "../ports/group-chats.ts";
import type { GroupChat, NewGroupChatMember } from "./group-chat.ts";

/**
 * Stands before what somebody says, and behind an `@`: it must not look like either. `\uff1a` is the full-width colon;
 * `\x5b\x5d` are `[]`, which engines read differently within brackets.
 */
export const displayNameSchema = z
  .string()
  .trim()
  .regex(
    /^[^\p{Cc}\x5b\x5d@:\uff1a]{1,64}$/u,
    "has 1 to 64 characters, none of them '[', ']', '@', ':' or a control character",
  );

/** As whom a caller is in rooms: its user, or itself where it acts for none. */
export function personOf(caller: Caller): string {
  return caller.userId ?? caller.id;
}

/** Undefined: it may see every room of the tenant. */
export function viewerOf(caller: Caller): GroupChatViewer | undefined {
  return mayManage(caller) ? undefined : { callerId: caller.id, person: personOf(caller) };
}

/** @throws GatewayError `not_found`, the same for a missing, a foreign and a hidden room */
export async function findGroupChat(
  { repos }: Pick<AdapterDeps, "repos">,
  { tenant, caller }: Pick<CallContext, "tenant" | "caller">,
  id: string,
): Promise<GroupChat> {
  const room = await repos.groupChats.get(tenant, id);
  if (room !== undefined && maySee(room, caller)) return room;
  throw noSuchGroupChat(id);
}

export function noSuchGroupChat(id: string): GatewayError {
  return new GatewayError("not_found", `There is no group chat '${id}'.`, { param: "id" });
}

function maySee(room: GroupChat, caller: Caller): boolean {
  if (room.access === "tenant" || room.ownerId === caller.id || mayManage(caller)) return true;
  const person = personOf(caller);
  return room.members.some(({ kind, name }) => kind === "user" && name === person);
}

/** @throws GatewayError `permission_denied`: changing a room is for who made it and for administrators */
export function requireOwner(room: GroupChat, caller: Caller): void {
  if (room.ownerId === caller.id || mayManage(caller)) return;
  throw new GatewayError(
    "permission_denied",
    "Only who made a group chat, or a key with the scope 'manage', may change it.",
    { param: "manage" },
  );
}

function mayManage(caller: Caller): boolean {
  return hasScope(caller, "manage");
}

/** How the others call a member. */
export function shownName({ name, displayName }: NewGroupChatMember): string {
  return displayName ?? name;
}

/** As events name it. */
export function toSpeaker(agent: NewGroupChatMember): { readonly name: string; readonly displayName: string } {
  return { name: agent.name, displayName: shownName(agent) };
}

export function agentsOf({ members }: Pick<GroupChat, "members">): readonly NewGroupChatMember[] {
  return members.filter(({ kind }) => kind === "agent");
}

/** The person who speaks, by the name it is known by in the room. */
export function authorOf({ members }: GroupChat, caller: Caller, called: string | undefined): NewGroupChatMember {
  const name = personOf(caller);
  const known = members.find((member) => member.kind === "user" && member.name === name);
  return { kind: "user", name, displayName: called ?? known?.displayName ?? null };
}
