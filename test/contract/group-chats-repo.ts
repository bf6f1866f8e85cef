/** What every repository of group chats promises, with two instances at one database (VCP-14). */
import { newId } from "@toolyard/core/ids";
import type { BegunTurn, GroupChatFilter, NewGroupChat, OpenedMessage } from "@toolyard/core/ports/group-chats";
import { describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import { useCallFixture, type MakeInstances } from "./calls-fixture.ts";

export function describeGroupChatRepo(name: string, make: MakeInstances): void {
  describe(`group chats: ${name} ${verifies("VCP-14")}`, () => {
    const fixture = useCallFixture(make);
    const first = () => fixture.turn(0).groupChats;
    const second = () => fixture.turn(1).groupChats;

    const agent = (name: string) => ({ kind: "agent", name, displayName: null }) as const;
    const ann = { kind: "user", name: "ann", displayName: "Ann" } as const;
    const room = (change: Partial<NewGroupChat> = {}): NewGroupChat => ({
      id: newId("groupChat"),
      name: "harbour",
      mode: "sequential",
      topic: null,
      moderator: null,
      access: "tenant",
      limits: { messages: 12, wall_clock_ms: 1_000, history: 3 },
      ownerId: "key_owner",
      members: [agent("bob"), agent("ada"), ann],
      ...change,
    });
    const open = async (tenant: string, change: Partial<NewGroupChat> = {}): Promise<string> =>
      (await first().create(tenant, room(change))).id;
    /** A call that runs, and what it says. */
    const say = async (tenant: string, id: string, content: string): Promise<string> => {
      const turn = await fixture.rowIn(tenant, "running");
      await first().say(tenant, id, { id: newId("message"), turn, author: ann, content });
      return turn;
    };
    const begun = async (tenant: string, id: string, turn: string, redo = false): Promise<BegunTurn> => {
      const result = await second().begin(tenant, id, { id: turn, redo });
      if (typeof result !== "object") throw new Error(`begin: ${result}`);
      return result;
    };
    const message = (turn: string, trigger: string, change: Partial<OpenedMessage> = {}): OpenedMessage => ({
      id: newId("message"),
      turn,
      attempt: 1,
      trigger,
      position: 1,
      author: agent("bob"),
      reason: null,
      ...change,
    });
    const end = { attempt: 1, state: "completed", error: null, callId: "chat_1", readOutside: false } as const;
    const speak = async (tenant: string, id: string, opened: OpenedMessage, content: string): Promise<void> => {
      await first().open(tenant, id, opened);
      await second().close(tenant, id, { ...end, id: opened.id, attempt: opened.attempt, content });
    };

    test("are opened, read, changed and deleted, with members in their order", async () => {
      const tenant = await fixture.newTenant();
      const id = await open(tenant);
      const made = await second().get(tenant, id);
      expect(made).toMatchObject({ ...room({ id }), members: [agent("bob"), agent("ada"), ann], currentTurn: null });
      expect(await first().join(tenant, id, agent("cleo"))).toMatchObject({ members: { length: 4 } });
      expect(await second().join(tenant, id, { ...ann, displayName: "Anna" })).toMatchObject({
        members: { length: 4 },
      });
      expect(await first().leave(tenant, id, { kind: "agent", name: "ada" })).toMatchObject({ left: true });
      const left = await second().leave(tenant, id, { kind: "agent", name: "ada" });
      expect(left).toMatchObject({ left: false });
      expect(left?.groupChat.members.map((each) => each.displayName ?? each.name)).toEqual(["bob", "Anna", "cleo"]);
      const change = { mode: "invited", moderator: "ada", topic: "Ships" } as const;
      expect(await first().update(tenant, id, change)).toMatchObject({ ...change, name: "harbour" });
      expect(await second().update(tenant, id, { topic: null })).toMatchObject({ topic: null, moderator: "ada" });
      const stranger = await fixture.newTenant();
      expect(await first().get(stranger, id)).toBeUndefined();
      expect(await first().update(stranger, id, { name: "x" })).toBeUndefined();
      expect(await first().delete(stranger, id)).toBe(false);
      expect(await first().delete(tenant, id)).toBe(true);
      expect(await second().get(tenant, id)).toBeUndefined();
      expect(await second().join(tenant, id, agent("bob"))).toBeUndefined();
    });

    test("are listed for whoever may see them", async () => {
      const tenant = await fixture.newTenant();
      const all = await open(tenant);
      const closed = await open(tenant, { access: "members" });
      const page = { limit: 10, order: "asc" } as const;
      const seen = async (callerId: string, person: string): Promise<string[]> =>
        (await second().list(tenant, { viewer: { callerId, person } }, page)).data.map(({ id }) => id);
      expect(await seen("key_other", "eve")).toEqual([all]);
      expect(await seen("key_other", "ann")).toEqual([all, closed]);
      expect(await seen("key_owner", "eve")).toEqual([all, closed]);
      const paged = await first().list(tenant, {}, { limit: 1, order: "desc" });
      expect([paged.data.map(({ id }) => id), paged.hasMore]).toEqual([[closed], true]);
      expect(await first().update(tenant, all, { ownerId: "tenant" })).toMatchObject({ ownerId: "tenant" });
      const owned = async (filter: GroupChatFilter): Promise<string[]> =>
        (await second().list(tenant, filter, page)).data.map(({ id }) => id);
      expect(await owned({ ownerId: "tenant" })).toEqual([all]);
      expect(await owned({ ownerId: "tenant", viewer: { callerId: "key_owner", person: "eve" } })).toEqual([all]);
      expect(await owned({ ownerId: "key_owner" })).toEqual([closed]);
    });

    test("are one turn's at a time, in the order in which was spoken", async () => {
      const tenant = await fixture.newTenant();
      const id = await open(tenant);
      const [one, two, three] = [await say(tenant, id, "1"), await say(tenant, id, "2"), await say(tenant, id, "3")];
      expect(await second().begin(tenant, id, { id: two, redo: false })).toBe("busy");
      const got = await begun(tenant, id, one);
      expect(got).toMatchObject({ trigger: { content: "1", state: "completed" }, history: [], spoken: [] });
      expect(await begun(tenant, id, one)).toMatchObject({ trigger: { id: got.trigger.id } });
      expect(await first().begin(tenant, id, { id: two, redo: false })).toBe("busy");
      expect((await second().get(tenant, id))?.currentTurn).toBe(one);
      await speak(tenant, id, message(one, got.trigger.id), "one");
      expect(await first().end(tenant, id, { id: one, attempt: 1 })).toBe(two);
      expect(await first().begin(tenant, id, { id: three, redo: false })).toBe("busy");
      expect((await begun(tenant, id, two)).history.map(({ content }) => content)).toEqual(["1", "one"]);
      // Its process dies: the end of its call frees the room.
      await fixture.calls.finish(tenant, two, 1, { state: "failed" });
      expect((await begun(tenant, id, three)).history.map(({ content }) => content)).toEqual(["1", "one", "2"]);
    });

    test("keep what was said by whoever gave up waiting, before the next turn", async () => {
      const tenant = await fixture.newTenant();
      const id = await open(tenant);
      const [one, two] = [await say(tenant, id, "1"), await say(tenant, id, "2")];
      await fixture.calls.finish(tenant, one, 1, { state: "cancelled" });
      const got = await begun(tenant, id, two);
      expect([got.history.map(({ content }) => content), got.trigger.content]).toEqual([["1"], "2"]);
    });

    test("have one message for each place in a turn, which a newer attempt begins anew under its id", async () => {
      const tenant = await fixture.newTenant();
      const id = await open(tenant);
      const turn = await say(tenant, id, "1");
      const { trigger } = await begun(tenant, id, turn);
      const opened = message(turn, trigger.id);
      expect(await first().open(tenant, id, opened)).toMatchObject({ message: { id: opened.id, state: "streaming" } });
      await first().note(tenant, { id: opened.id, attempt: 1, content: "half", callId: "chat_1" });
      expect(await second().message(tenant, id, opened.id)).toMatchObject({ content: "half", callId: "chat_1" });
      const anew = message(turn, trigger.id, { attempt: 2 });
      expect(await second().open(tenant, id, anew)).toMatchObject({ message: { id: opened.id, content: "" } });
      // Who was cut off writes nothing any more.
      await first().note(tenant, { id: opened.id, attempt: 1, content: "late", callId: null });
      expect(await first().close(tenant, id, { ...end, id: opened.id, content: "late" })).toBeUndefined();
      expect(await second().message(tenant, id, opened.id)).toMatchObject({ content: "", state: "streaming" });
      await second().close(tenant, id, { ...end, id: opened.id, attempt: 2, content: "whole" });
      expect(await first().turn(tenant, id, turn)).toMatchObject([
        { content: "1", position: 0 },
        { content: "whole", position: 1, state: "completed" },
      ]);
      expect((await begun(tenant, id, turn)).spoken).toHaveLength(1);
      // Nor does it let go of what is not its own any more.
      await second().end(tenant, id, { id: turn, attempt: 0 });
      expect((await first().get(tenant, id))?.currentTurn).toBe(turn);
      await first().end(tenant, id, { id: turn, attempt: 1 });
      expect(await first().open(tenant, id, message(turn, trigger.id, { position: 2 }))).toBeUndefined();
    });

    test("take nothing more from an attempt whose call another one has, before that one has come to speak", async () => {
      const tenant = await fixture.newTenant();
      const id = await open(tenant);
      const turn = await say(tenant, id, "1");
      const { trigger } = await begun(tenant, id, turn);
      const opened = message(turn, trigger.id);
      await first().open(tenant, id, opened);
      await fixture.run("UPDATE calls SET attempt = 2 WHERE tenant = ? AND id = ?", tenant, turn);
      await begun(tenant, id, turn);
      await first().note(tenant, { id: opened.id, attempt: 1, content: "late", callId: null });
      expect(await first().close(tenant, id, { ...end, id: opened.id, content: "late" })).toBeUndefined();
      const anew = message(turn, trigger.id, { attempt: 2 });
      expect(await second().open(tenant, id, anew)).toMatchObject({ message: { id: opened.id, content: "" } });
      await second().close(tenant, id, { ...end, id: opened.id, attempt: 2, content: "whole" });
      expect((await first().turn(tenant, id, turn)).map(({ content }) => content)).toEqual(["1", "whole"]);
    });

    test("show what was not ended as stopped once nobody can end it", async () => {
      const tenant = await fixture.newTenant();
      const id = await open(tenant);
      const turn = await say(tenant, id, "1");
      const { trigger } = await begun(tenant, id, turn);
      await first().open(tenant, id, message(turn, trigger.id));
      await fixture.calls.finish(tenant, turn, 1, { state: "failed" });
      expect((await second().turn(tenant, id, turn)).map(({ state }) => state)).toEqual(["completed", "stopped"]);
      const next = await say(tenant, id, "2");
      await begun(tenant, id, next);
      const page = await second().messages(tenant, id, { superseded: true }, { limit: 10, order: "asc" });
      expect(page.data.map(({ state }) => state)).toEqual(["completed", "stopped", "completed"]);
    });

    test("supersede answers that are made anew, in their place", async () => {
      const tenant = await fixture.newTenant();
      const id = await open(tenant);
      expect(await first().begin(tenant, id, { id: await fixture.rowIn(tenant, "running"), redo: true })).toBe(
        "nothing_to_redo",
      );
      const free = await open(tenant);
      const one = await say(tenant, free, "1");
      const { trigger } = await begun(tenant, free, one);
      await speak(tenant, free, message(one, trigger.id), "old");
      await first().end(tenant, free, { id: one, attempt: 1 });
      const redo = await fixture.rowIn(tenant, "running");
      const again = await begun(tenant, free, redo, true);
      expect(again).toMatchObject({ trigger: { id: trigger.id }, history: [], spoken: [] });
      await speak(tenant, free, message(redo, trigger.id), "new");
      await first().end(tenant, free, { id: redo, attempt: 1 });
      const shown = await second().messages(tenant, free, { superseded: false }, { limit: 10, order: "asc" });
      expect(shown.data.map(({ content }) => content)).toEqual(["1", "new"]);
      const [, old] = await second().turn(tenant, free, one);
      expect(old).toMatchObject({ content: "old", supersededBy: redo });
      const two = await say(tenant, free, "2");
      expect((await begun(tenant, free, two)).history.map(({ content }) => content)).toEqual(["1", "new"]);
    });

    test("give no more history than their limit, and none of other tenants", async () => {
      const tenant = await fixture.newTenant();
      const id = await open(tenant);
      for (const content of ["1", "2", "3", "4"]) {
        const turn = await say(tenant, id, content);
        await begun(tenant, id, turn);
        await first().end(tenant, id, { id: turn, attempt: 1 });
      }
      const turn = await say(tenant, id, "5");
      expect((await begun(tenant, id, turn)).history.map(({ content }) => content)).toEqual(["2", "3", "4"]);
      const stranger = await fixture.newTenant();
      expect(await first().begin(stranger, id, { id: turn, redo: false })).toBeUndefined();
      expect(
        await first().say(stranger, id, { id: newId("message"), turn, author: ann, content: "x" }),
      ).toBeUndefined();
      expect((await first().messages(stranger, id, { superseded: true }, { limit: 9, order: "asc" })).data).toEqual([]);
      expect(await first().turn(stranger, id, turn)).toEqual([]);
    });
  });
}
