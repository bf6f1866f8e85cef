/** Contract of `VcpCallbackRepo`: whose a task id is, and which of the results ends the call. */
import { randomUUID } from "node:crypto";
import type { CallAttempt, NewCallback, TaskName } from "@toolyard/core/ports/vcp-callbacks";
import type { NewEvent } from "@toolyard/core/realtime/connection";
import { beforeEach, describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import { times, useCallFixture, type MakeInstances } from "./calls-fixture.ts";

const minute = 60_000;

export function describeVcpCallbackRepo(name: string, make: MakeInstances): void {
  describe(`callbacks of plugins over a ${name} ${verifies("VCP-5", "VCP-11")}`, () => {
    const fixture = useCallFixture(make);
    let tenant: string;

    beforeEach(async () => {
      // Late results go over all tenants.
      await fixture.run("DELETE FROM vcp_tasks");
      tenant = await fixture.newTenant();
    });

    const callbacks = (index = 0) => fixture.turn(index).vcpCallbacks;
    const open = async (change: Partial<NewCallback> = {}): Promise<NewCallback> => {
      const callback = {
        callId: await fixture.rowIn(tenant, "running"),
        attempt: 1,
        hash: randomUUID(),
        plugin: "VideoMaker",
        callerId: "key_a",
        userId: null,
        sessionId: "sess_a",
        lifetimeMs: minute,
        keptMs: minute,
        ...change,
      };
      await callbacks().open(tenant, callback);
      return callback;
    };
    const task = (taskId: string, plugin = "VideoMaker"): TaskName => ({ plugin, taskId });
    const bound = async (call: CallAttempt, ...ids: readonly string[]): Promise<void> => {
      for (const id of ids) expect(await callbacks(1).bind(tenant, call, task(id))).toBe("bound");
    };
    const late = async (): Promise<readonly string[]> => {
      await fixture.run("UPDATE vcp_tasks SET done_at = done_at - 60000 WHERE tenant = ?", tenant);
      return (await callbacks(1).late(100)).map(({ task: { taskId } }) => taskId);
    };

    test("are found by their token while it lasts, by every instance and no other tenant", async () => {
      const { callId, hash } = await open();
      expect(await callbacks(1).find(tenant, hash)).toEqual({ callId, attempt: 1, plugin: "VideoMaker" });
      expect(await callbacks().find(await fixture.newTenant(), hash)).toBeUndefined();
      expect(await callbacks().find(tenant, randomUUID())).toBeUndefined();
      const old = await open({ lifetimeMs: -1 });
      expect(await callbacks().find(tenant, old.hash)).toBeUndefined();
    });

    test("bind a task id to one call for good, whoever comes first", async () => {
      const [first, second] = [await open(), await open()];
      const calls = [first, second, first, second];
      const bindings = await Promise.all(calls.map((call, at) => callbacks(at).bind(tenant, call, task("t1"))));
      expect(bindings.toSorted()).toEqual(["bound", "bound", "foreign", "foreign"]);
      const owner = bindings[0] === "bound" ? first : second;
      expect(await callbacks().task(tenant, task("t1"))).toEqual({
        ...task("t1"),
        callId: owner.callId,
        attempt: 1,
        callerId: "key_a",
        userId: null,
        sessionId: "sess_a",
        done: false,
      });
      expect(await callbacks().task(await fixture.newTenant(), task("t1"))).toBeUndefined();
    });

    test("keep names apart that would be one file", async () => {
      const [short, long] = [await open({ plugin: "a" }), await open({ plugin: "a-b" })];
      expect(await callbacks().bind(tenant, short, task("b-c", "a"))).toBe("bound");
      expect(await callbacks().bind(tenant, long, task("c", "a-b"))).toBe("foreign");
      expect(await callbacks().task(tenant, task("c", "a-b"))).toBeUndefined();
    });

    test("bind at most 32 task ids to a call, and none for another plugin's name", async () => {
      const call = await open();
      const bindings = await times(40, (at) => callbacks(at).bind(tenant, call, task(`t${at}`)));
      expect(bindings.filter((binding) => binding === "bound")).toHaveLength(32);
      expect(bindings.filter((binding) => binding === "full")).toHaveLength(8);
      expect(await callbacks().bind(tenant, await open(), task("x", "Other"))).toBe("full");
    });

    test("end the call by the task that the plugin names, and by no other", async () => {
      const call = await open();
      expect(await callbacks().answer(tenant, call, task("main"))).toEqual({ binding: "bound", done: undefined });
      await bound(call, "side");
      expect(await callbacks(1).complete(tenant, task("side"))).toMatchObject({ ends: false });
      expect(await late()).toEqual([]);
      expect(await callbacks().complete(tenant, task("main"))).toMatchObject({ ends: true, task: { done: true } });
      expect(await callbacks(1).complete(tenant, task("main"))).toMatchObject({ ends: true });
      expect(await late()).toEqual(["main"]);
      await callbacks().settle(tenant, task("main"));
      expect(await late()).toEqual([]);
    });

    test("end the call by the first result where the plugin names no task", async () => {
      const call = await open();
      expect(await callbacks().answer(tenant, call, null)).toEqual({ binding: "bound", done: undefined });
      await bound(call, "one", "two");
      expect(await callbacks().complete(tenant, task("one"))).toMatchObject({ ends: true });
      expect(await callbacks().complete(tenant, task("two"))).toMatchObject({ ends: false });
    });

    test("that come before the plugin's answer end the call with it", async () => {
      const [named, unnamed] = [await open(), await open()];
      await bound(named, "early", "other");
      await bound(unnamed, "any");
      for (const id of ["other", "early", "any"]) {
        expect(await callbacks().complete(tenant, task(id))).toMatchObject({ ends: false });
      }
      // Its call still waits for the process that reads the answer.
      expect(await late()).toEqual([]);
      expect(await callbacks(1).answer(tenant, named, task("early"))).toMatchObject({ done: { taskId: "early" } });
      expect(await callbacks(1).answer(tenant, unnamed, null)).toMatchObject({ done: { taskId: "any" } });
      expect((await late()).toSorted()).toEqual(["any", "early"]);
      expect(await callbacks().isAnswered(tenant, named.callId)).toBe(true);
      expect(await callbacks().isAnswered(await fixture.newTenant(), named.callId)).toBe(false);
    });

    test("whose answer nobody has read are late once their call has ended without them", async () => {
      const call = await open();
      await bound(call, "t1");
      await callbacks().complete(tenant, task("t1"));
      expect(await late()).toEqual([]);
      const error = { code: "outcome_unknown", message: "gone" } as const;
      await fixture.calls.finish(tenant, call.callId, 1, { state: "unknown", error });
      expect(await late()).toEqual(["t1"]);
    });

    test("that came, and of whose result nothing is known, are found until they are passed over", async () => {
      const call = await open();
      const waited = async (ms: number): Promise<readonly string[]> => {
        await fixture.run("UPDATE vcp_tasks SET called_at = called_at - ? WHERE tenant = ?", ms, tenant);
        return (await callbacks(1).stranded(100)).map(({ task: { taskId } }) => taskId);
      };
      await callbacks().answer(tenant, call, task("named"));
      await bound(call, "stored", "lost");
      expect(await waited(0), "its taker may still be at work").toEqual([]);
      expect((await waited(10_000)).toSorted(), "one that was only named has none").toEqual(["lost", "stored"]);
      await callbacks().complete(tenant, task("stored"));
      await callbacks().passOver(tenant, task("lost"));
      expect(await waited(0), "its taker may be slow").toEqual(["lost"]);
      await waited(600_000);
      await callbacks().passOver(tenant, task("lost"));
      expect(await waited(0)).toEqual([]);
      await bound(call, "lost");
      expect(await waited(10_000), "the plugin tries again").toEqual(["lost"]);
    });

    test("are told to who is connected with the first word of their results, and only then", async () => {
      const event: NewEvent = {
        type: "note",
        audience: { kind: "tenant" },
        data: "{}",
        frame: '{"type":"note"}',
        callId: null,
        callerId: null,
        sessionId: null,
      };
      const call = await open();
      await bound(call, "unheard", "heard");
      expect(await callbacks().complete(tenant, task("unheard"), event), "nobody is there").toMatchObject({
        told: false,
      });
      const caller = { kind: "user", id: "usr_a", role: "member", scopes: [], tools: null } as const;
      const connection = { id: randomUUID(), holder: null, clientType: "Console", lifetimeMs: minute, until: null };
      await fixture.turn(0).connections.connect(tenant, { ...connection, caller });
      expect(await callbacks(1).complete(tenant, task("heard"), event)).toMatchObject({ told: true });
      expect(await callbacks().complete(tenant, task("heard"), event)).toMatchObject({ told: false });
      expect(await callbacks().complete(tenant, task("never"), event)).toBeUndefined();
      const written = await fixture.run("SELECT body FROM connection_events WHERE tenant = ?", tenant);
      expect(written).toEqual([{ body: '{"type":"note"}' }]);
    });

    test("say whose the task is that an answer names where it is another call's", async () => {
      const [first, second] = [await open(), await open()];
      await bound(first, "t1");
      expect(await callbacks().answer(tenant, second, task("t1"))).toEqual({ binding: "foreign", done: undefined });
      await bound(second, "own");
      expect(await callbacks().complete(tenant, task("own"))).toMatchObject({ ends: true });
    });

    test("go when their time is over, each result to one claimant", async () => {
      const call = await open({ keptMs: -1, lifetimeMs: -1 });
      await bound(call, "t1", "t2");
      const taken = await Promise.all([callbacks(0).takeExpired(10), callbacks(1).takeExpired(10)]);
      expect(taken.flat().map(({ task: { taskId } }) => taskId)).toHaveLength(2);
      expect(await fixture.run("SELECT * FROM vcp_callbacks WHERE tenant = ?", tenant)).toEqual([]);
      await callbacks().remove(tenant, task("t1"));
      expect(await callbacks().task(tenant, task("t1"))).toBeUndefined();
      expect(await callbacks().task(tenant, task("t2"))).toBeDefined();
    });

    test("keep a task for as long as its result may come, and a result for its time from when it came", async () => {
      const call = await open({ keptMs: minute, lifetimeMs: 60 * minute });
      await bound(call, "t1");
      const age = (ms: number) =>
        fixture.run("UPDATE vcp_tasks SET expires_at = expires_at - ?1 WHERE tenant = ?2", ms, tenant);
      await age(59 * minute);
      expect(await callbacks().takeExpired(10)).toEqual([]);
      expect(await callbacks().complete(tenant, task("t1"))).toMatchObject({ task: { done: true } });
      await age(minute / 2);
      expect(await callbacks().takeExpired(10)).toEqual([]);
      // Told again it is no newer.
      await callbacks().complete(tenant, task("t1"));
      await age(minute / 2);
      expect(await callbacks().takeExpired(10)).toMatchObject([{ tenant, task: { taskId: "t1" } }]);
    });

    test("take a newer token for the same attempt", async () => {
      const first = await open();
      const again = await open({ callId: first.callId });
      expect(await callbacks().find(tenant, first.hash)).toBeUndefined();
      expect(await callbacks().find(tenant, again.hash)).toMatchObject({ callId: first.callId });
    });
  });
}
