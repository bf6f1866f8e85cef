/** Group chats that are the tenant's own, with the agents in them: people come and go, and what was said is no configuration. */
import { isSame } from "@toolyard/core/configuration/compare";
import { firstEffect, rehearsing } from "@toolyard/core/configuration/rehearse";
import type { Kind, Work } from "@toolyard/core/configuration/kind";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { readEveryPage } from "@toolyard/core/every-page";
import { tenantsOwn, type NewGroupChatMember } from "@toolyard/core/group-chats/group-chat";
import { agentsOf } from "@toolyard/core/group-chats/members";
import { isJsonObject, type JsonObject, type JsonValue } from "@toolyard/core/json";
import { parseToolUri } from "@toolyard/core/tools/uri";
import { ask, idIn, liveAt, objectOf, parseBody, textIn, type RouteOf } from "./part.ts";

/** As who brings it in says it. */
const memberItem = ({ name, displayName }: Pick<NewGroupChatMember, "name" | "displayName">): JsonObject => ({
  kind: "agent",
  name,
  ...(displayName === null ? {} : { display_name: displayName }),
});

const membersIn = (item: JsonValue): readonly JsonObject[] => {
  const { members } = objectOf(item);
  return Array.isArray(members) ? members.map(objectOf) : [];
};

export const groupChats = (
  route: RouteOf<"createGroupChat" | "joinGroupChat" | "updateGroupChat" | "leaveGroupChat" | "deleteGroupChat">,
): Kind => ({
  repeats: true,
  identify: (item) => textIn(item, "name"),
  async read({ core, context }) {
    const filter = { ownerId: tenantsOwn };
    const all = await readEveryPage((page) => core.repos.groupChats.list(context.tenant, filter, page));
    return all.map((room) => {
      const { id, name, mode, topic, moderator, access, limits } = room;
      const members = agentsOf(room).map(memberItem);
      return liveAt(id, { name, mode, topic, moderator, access, limits, members });
    });
  },
  parse(_work, item) {
    const owned: unknown = isJsonObject(item) ? { owner: tenantsOwn, ...item } : item;
    const { owner, ...parsed } = parseBody(route("createGroupChat"), owned);
    if (owner !== tenantsOwn) {
      const message = "A room of a document is the tenant's own; leave 'owner' out.";
      throw new GatewayError("invalid_request", message, { param: "owner" });
    }
    const members = new Map<string, JsonObject>();
    for (const [at, { kind, name, displayName }] of membersIn(parsed).entries()) {
      if (kind === "user") {
        const message =
          "People stand in no document: they join by themselves, or are brought in by the room's own route.";
        throw new GatewayError("invalid_request", message, { param: `members.${at}.kind` });
      }
      // Once, at its first place, as the route takes it.
      const known = textIn({ name: name ?? null }, "name");
      const called = typeof displayName === "string" ? displayName : null;
      if (!members.has(known)) members.set(known, memberItem({ name: known, displayName: called }));
    }
    return { ...parsed, members: [...members.values()] };
  },
  async write(work, { item, before, changed: { members: _members, ...changed } }) {
    if (before === undefined) {
      return idIn(await ask(work, route("createGroupChat"), { body: { ...objectOf(item), owner: tenantsOwn } }));
    }
    const { id } = before;
    const { leave, come } = seats(membersIn(before.item), membersIn(item));
    const join = (by: Work, body: JsonObject): Promise<JsonObject> =>
      ask(by, route("joinGroupChat"), { params: { id }, body });
    // What refuses one of them does so before anything is changed.
    for (const member of come) await firstEffect(() => join({ ...work, core: rehearsing(work.core) }, member));
    if (Object.keys(changed).length > 0) await ask(work, route("updateGroupChat"), { params: { id }, body: changed });
    for (const member of leave) {
      await ask(work, route("leaveGroupChat"), { params: { id, kind: "agent", name: textIn(member, "name") } });
    }
    for (const member of come) await join(work, member);
    return id;
  },
  async remove(work, { id }) {
    await ask(work, route("deleteGroupChat"), { params: { id } });
  },
  names(item, value) {
    const agent = parseToolUri(value).service;
    return textIn(item, "moderator") === agent || membersIn(item).some((member) => textIn(member, "name") === agent);
  },
});

/** They speak in the order in which they came: from the first that is not at its place, all leave and come in anew. */
function seats(
  there: readonly JsonObject[],
  wanted: readonly JsonObject[],
): { readonly leave: readonly JsonObject[]; readonly come: readonly JsonObject[] } {
  const other = wanted.findIndex((member, at) => !isSame(member, there[at] ?? null));
  const kept = other < 0 ? wanted.length : other;
  return { leave: there.slice(kept), come: wanted.slice(kept) };
}
