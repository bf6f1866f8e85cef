/** Contract of `NodeRepo`: who is a node, what it was given, and what of it is still to be told or used. */
import type { Caller } from "@toolyard/core/callers/caller";
import { newId } from "@toolyard/core/ids";
import type { NewNodeRun, NodeRegistration, NodeRun } from "@toolyard/core/nodes/node";
import { beforeEach, describe, expect, test } from "vitest";
import { nodeTool, registrationOf, runOf } from "../support/registered-node.ts";
import { useCallFixture, type MakeInstances } from "./calls-fixture.ts";

const minute = 60_000;

export function describeNodeRepo(name: string, make: MakeInstances): void {
  describe(`nodes over a ${name}`, () => {
    const fixture = useCallFixture(make);
    let tenant: string;
    let caller: Caller;

    beforeEach(async () => {
      // Late results go over all tenants.
      await fixture.run("DELETE FROM node_runs");
      tenant = await fixture.newTenant();
      const { id } = await fixture.newKey(tenant);
      caller = { kind: "key", id, role: "member", scopes: ["node"], tools: null };
    });

    const nodes = (index = 0) => fixture.turn(index).nodes;
    const connect = async (): Promise<string> => {
      const id = newId("socket");
      const opening = { id, holder: "process-1", caller, clientType: "node", lifetimeMs: minute, until: null };
      await fixture.turn(0).connections.connect(tenant, opening);
      return id;
    };
    const register = async (node: string, change: Partial<NodeRegistration> = {}): Promise<NodeRegistration> => {
      const registration = registrationOf(node, { connectionId: await connect(), ...change });
      expect(await nodes().register(tenant, registration)).toMatchObject({ kind: "registered", node: { name: node } });
      return registration;
    };
    const offer = async (change: Partial<NewNodeRun> = {}): Promise<NodeRun> => {
      const run = await nodes(1).offer(tenant, runOf("measure", change));
      if (run === undefined) throw new Error("nobody took it");
      return run;
    };
    const told = async (connection: string): Promise<readonly string[]> => {
      const { events } = await allEvents();
      return events
        .filter(({ audience }) => "value" in audience && audience.value === connection)
        .map(({ type }) => type);
    };
    const allEvents = () => fixture.turn(1).connections.heldEvents("process-1", new Map([[tenant, 0]]), 100);
    const version = async (): Promise<number> => (await fixture.turn(1).config.load(tenant))?.version ?? 0;

    test("are part of the configuration, whose version rises only where tools change", async () => {
      const before = await version();
      const first = await register("lab");
      expect(await version()).toBe(before + 1);
      expect((await fixture.turn(1).config.load(tenant))?.nodes).toEqual([{ name: "lab", tools: first.tools }]);
      // It comes back, the same.
      await nodes(1).register(tenant, { ...first, connectionId: await connect() });
      expect(await version()).toBe(before + 1);
      await register("lab", { instance: first.instance, tools: [nodeTool("measure"), nodeTool("other")] });
      expect(await version()).toBe(before + 2);
      expect(await nodes().remove(tenant, "lab", "another-instance")).toBe(false);
      expect(await version()).toBe(before + 2);
      expect(await nodes().remove(tenant, "lab", first.instance)).toBe(true);
      expect(await version()).toBe(before + 3);
      expect(await nodes().get(tenant, "lab")).toBeUndefined();
    });

    test("share a tool of one definition, and are refused another one of the name while its node is connected", async () => {
      const first = await register("lab");
      await register("lab-2");
      const other = registrationOf("lab-3", {
        connectionId: await connect(),
        tools: [nodeTool("measure", { description: "Another." })],
      });
      expect(await nodes().register(tenant, other)).toEqual({ kind: "collision", tool: "measure", node: "lab" });
      expect(await nodes().get(tenant, "lab-3")).toBeUndefined();
      for (const { connectionId } of [first, await register("lab-2")]) {
        await fixture.turn(0).connections.remove(tenant, connectionId);
      }
      expect(await nodes().register(tenant, other)).toMatchObject({ kind: "registered" });
      // What was away and offered something else has made room.
      expect(await nodes().get(tenant, "lab")).toBeUndefined();
    });

    test("are told that another process took their name, once it did", async () => {
      const older = await register("lab");
      expect(await told(older.connectionId)).toEqual([]);
      await register("lab");
      expect(await told(older.connectionId)).toEqual(["node.replaced"]);
    });

    test("are given a call each in turn of the room that they have, and none that is not connected", async () => {
      const first = await register("lab", { tools: [nodeTool("measure", { concurrency: 2 })] });
      const second = await register("lab-2");
      const given = [await offer(), await offer(), await offer()].map(({ node }) => node);
      expect(given.toSorted()).toEqual(["lab", "lab", "lab-2"]);
      expect((await offer({ node: "lab-2" })).node).toBe("lab-2");
      expect(await told(second.connectionId)).toEqual(["node.call", "node.call"]);
      expect(await nodes().offer(tenant, runOf("measure", { toolHash: "of another definition" }))).toBeUndefined();
      expect(await nodes().offer(tenant, runOf("measure", { node: "lab-9" }))).toBeUndefined();
      for (const { connectionId } of [first, second]) await fixture.turn(0).connections.remove(tenant, connectionId);
      expect(await nodes().offer(tenant, runOf("measure"))).toBeUndefined();
    });

    test("begin a call only while it is wanted, however often they ask, and nobody else does", async () => {
      const { instance } = await register("lab");
      const { id } = await offer();
      expect(await nodes().accept(tenant, id, "another-instance", minute)).toBeUndefined();
      expect(await nodes().accept("ten_other", id, instance, minute)).toBeUndefined();
      expect(await nodes().accept(tenant, id, instance, minute)).toMatchObject({ state: "accepted", input: "sealed" });
      expect(await nodes(1).accept(tenant, id, instance, minute)).toMatchObject({ state: "accepted" });
      const taken = await offer();
      expect(await nodes().withdraw(tenant, taken.id)).toMatchObject({ state: "withdrawn", input: null });
      expect(await nodes().accept(tenant, taken.id, instance, minute)).toBeUndefined();
    });

    test("are told to stop what they have begun", async () => {
      const { instance, connectionId } = await register("lab");
      const { id, callId } = await offer();
      await nodes().accept(tenant, id, instance, minute);
      expect(await nodes(1).cancelCall(tenant, callId)).toMatchObject([{ id, state: "accepted" }]);
      expect(await told(connectionId)).toEqual(["node.call", "node.cancel"]);
      expect(await nodes().extend(tenant, instance, [id], minute)).toEqual({ known: [id], cancelled: [id] });
      expect(await nodes().run(tenant, id)).toMatchObject({ state: "accepted", cancelled: true });
    });

    test("keep the first result of a run, and theirs alone", async () => {
      const { instance } = await register("lab");
      const { id } = await offer();
      await nodes().accept(tenant, id, instance, minute);
      expect(await nodes().end(tenant, id, "another-instance", "forged")).toBeUndefined();
      expect(await nodes().end(tenant, id, instance, "first")).toMatchObject({ state: "ended", result: "first" });
      expect(await nodes(1).end(tenant, id, instance, "second")).toMatchObject({ state: "ended", result: "first" });
      expect(await nodes().withdraw(tenant, id)).toMatchObject({ state: "ended", result: "first" });
    });

    test("are offered anew what they had not taken, once they come back", async () => {
      const first = await register("lab");
      const { id } = await offer();
      const again = await register("lab", { instance: first.instance });
      expect(await told(again.connectionId)).toEqual(["node.call"]);
      const other = await register("lab");
      expect(await told(other.connectionId)).toEqual(["node.call"]);
      expect(await nodes().accept(tenant, id, other.instance, minute)).toMatchObject({ state: "accepted" });
    });

    test("hold the lease of a row for which nobody waits, and let go of one that is cancelled", async () => {
      const { instance } = await register("lab");
      const callId = await fixture.rowIn(tenant, "running");
      const { id } = await offer({ callId, handedOver: true });
      await nodes().accept(tenant, id, instance, minute);
      const before = (await fixture.turn(0).calls.get(tenant, callId))?.leaseUntil ?? 0;
      expect(await nodes().extend(tenant, instance, [id], 10 * minute)).toEqual({ known: [id], cancelled: [] });
      expect((await fixture.turn(1).calls.get(tenant, callId))?.leaseUntil).toBeGreaterThan(before + minute);
      await fixture.turn(0).calls.requestCancel(tenant, callId);
      expect(await nodes().extend(tenant, instance, [id], minute)).toEqual({ known: [id], cancelled: [id] });
    });

    test("go on with what was given up while they were away, and not with what another attempt has begun", async () => {
      const { instance } = await register("lab");
      const callId = await fixture.rowIn(tenant, "running");
      const { id } = await offer({ callId, handedOver: true });
      await nodes().accept(tenant, id, instance, minute);
      // As whoever finds its lease run out ends it.
      await fixture.run("UPDATE calls SET state = 'unknown', attempt = attempt + 1 WHERE id = ?", callId);
      expect(await nodes().extend(tenant, instance, [id], minute)).toEqual({ known: [id], cancelled: [] });
      await offer({ callId, handedOver: true, attempt: 9 });
      expect(await nodes().extend(tenant, instance, [id], minute)).toEqual({ known: [id], cancelled: [id] });
    });

    test("leave what came too late, or for nobody, to whoever comes by, until it is settled", async () => {
      const { instance } = await register("lab");
      const { id } = await offer({ handedOver: true });
      await nodes().end(tenant, id, instance, "late");
      expect(await nodes(1).late(10)).toEqual([]);
      await fixture.run("UPDATE node_runs SET ended_at = ended_at - 10000");
      expect(await nodes(1).late(10)).toMatchObject([{ tenant, run: { id, result: "late" } }]);
      await nodes().settle(tenant, id);
      expect(await nodes(1).late(10)).toEqual([]);
    });

    test("are forgotten with their tools when they stay away", async () => {
      await register("lab");
      const before = await version();
      await nodes().expire(10);
      expect(await version()).toBe(before);
      await fixture.run("UPDATE nodes SET expires_at = 1");
      await nodes().expire(10);
      expect(await version()).toBe(before + 1);
      expect(await nodes().get(tenant, "lab")).toBeUndefined();
    });

    test("take what they gave to prompts along when they are removed, replaced or forgotten for another one", async () => {
      const values = fixture.turn(1).vcpStaticValues;
      const give = async (...names: readonly string[]): Promise<void> => {
        for (const name of names) await values.replace(tenant, `node:${name}`, new Map([["Weather", "sunny"]]));
      };
      const givers = async (): Promise<readonly string[]> =>
        (await values.list(tenant)).values.map(({ source }) => source);

      const { instance } = await register("lab");
      await register("other", { tools: [] });
      await give("lab", "other");
      await register("lab", { instance });
      expect(await givers()).toEqual(["node:lab", "node:other"]);
      const { connectionId } = await register("lab");
      expect(await givers()).toEqual(["node:other"]);
      await give("lab");
      await fixture.turn(0).connections.remove(tenant, connectionId);
      await register("third", { tools: [{ ...nodeTool("measure"), description: "otherwise" }] });
      expect(await givers()).toEqual(["node:other"]);
      expect(await nodes().remove(tenant, "other", "another process")).toBe(false);
      expect(await givers()).toEqual(["node:other"]);
      expect(await nodes().remove(tenant, "other")).toBe(true);
      expect(await givers()).toEqual([]);
    });

    test("are another tenant's business in nothing", async () => {
      const other = await fixture.newTenant();
      const { instance } = await register("lab");
      const { id, callId } = await offer();
      expect(await nodes().get(other, "lab")).toBeUndefined();
      expect((await nodes().list(other, { limit: 10, order: "asc" })).data).toEqual([]);
      expect(await nodes().remove(other, "lab")).toBe(false);
      expect(await nodes().offer(other, runOf("measure"))).toBeUndefined();
      expect(await nodes().run(other, id)).toBeUndefined();
      expect(await nodes().end(other, id, instance, "forged")).toBeUndefined();
      expect(await nodes().withdraw(other, id)).toBeUndefined();
      expect(await nodes().cancelCall(other, callId)).toEqual([]);
      expect(await nodes().extend(other, instance, [id], minute)).toEqual({ known: [], cancelled: [] });
      expect(await nodes().run(tenant, id)).toMatchObject({ state: "offered" });
    });
  });
}
