/** `SubscriptionRepo`: who holds what, and what decides about a message. Runs over every kind of database. */
import type { Repos } from "@toolyard/core/ports/repos";
import type { Holding } from "@toolyard/core/ports/subscriptions";
import { newId } from "@toolyard/core/ids";
import {
  noCounts,
  subscriptionRoute,
  type HolderReport,
  type NewSubscription,
} from "@toolyard/core/subscriptions/subscription";
import { beforeEach, describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import { newTool, useCallFixture, type MakeInstances } from "./calls-fixture.ts";

const minute = 60_000;

export function describeSubscriptionRepo(name: string, make: MakeInstances): void {
  describe(`subscriptions over a ${name} ${verifies("MQ-3", "CFG-3")}`, () => {
    const fixture = useCallFixture(make);
    let tenant: string;
    let stranger: string;
    beforeEach(async () => {
      tenant = await fixture.newTenant();
      stranger = await fixture.newTenant();
    });

    const repos = (): Repos => fixture.turn(0);
    const subscriptions = (): Repos["subscriptions"] => fixture.turn(1).subscriptions;

    async function add(change: Partial<NewSubscription> = {}): Promise<string> {
      return (await subscriptions().create(tenant, draft(change))).id;
    }

    /** The connection of a node that is there. */
    async function connect(): Promise<string> {
      const id = newId("socket");
      const caller = { kind: "user", id: "user:x:y", role: "member", scopes: ["consume"], tools: null } as const;
      const opening = { id, holder: "process-1", caller, clientType: "node", lifetimeMs: minute, until: null };
      await repos().connections.connect(tenant, opening);
      return id;
    }

    async function holding(instance: string, ids: readonly string[], change: Partial<Holding> = {}): Promise<Holding> {
      const wanted = ids.map((id) => ({ id, exclusive: false }));
      const connectionId = change.connectionId ?? (await connect());
      return { instance, node: instance, connectionId, leaseMs: minute, wanted, reports: [], ...change };
    }

    const begin = (subscription: string, key: string, change: { instance?: string; lane?: string } = {}) =>
      subscriptions().begin(tenant, {
        subscription,
        key,
        instance: change.instance ?? "one",
        lane: change.lane ?? null,
      });

    async function record(subscription: string, key: string, state: "queued" | "completed"): Promise<string> {
      const call = newTool({ route: subscriptionRoute, idempotencyKey: key, state: "queued", async: true });
      await repos().calls.record(tenant, subscription, [call]);
      if (state === "completed") await end(call.id);
      return call.id;
    }

    async function end(id: string): Promise<void> {
      const claimed = await repos().calls.claim(tenant, id, { leaseMs: minute, concurrency: 100 });
      if (typeof claimed === "string" || !("call" in claimed)) throw new Error("It was not claimed.");
      await repos().calls.finish(tenant, id, claimed.call.attempt, { state: "completed" });
    }

    test("keeps one of each name, and raises the version with every change", async () => {
      const created = await subscriptions().create(tenant, draft({ name: "orders" }));
      expect(created).toMatchObject({ name: "orders", version: 1, totals: noCounts, lastMessageAt: null });
      await expect(subscriptions().create(tenant, draft({ name: "orders" }))).rejects.toMatchObject({
        code: "conflict",
        details: { param: "name" },
      });
      const changed = await subscriptions().update(tenant, created.id, { enabled: false }, 1);
      expect(changed).toMatchObject({ enabled: false, version: 2 });
      await expect(subscriptions().update(tenant, created.id, { enabled: true }, 1)).rejects.toMatchObject({
        code: "version_conflict",
      });
      expect(await subscriptions().update(stranger, created.id, { enabled: true })).toBeUndefined();
      expect((await subscriptions().all(tenant))?.subscriptions).toEqual([changed]);
    });

    test("is another tenant's in no function", async () => {
      const id = await add();
      await subscriptions().hold(tenant, await holding("one", [id]));
      expect(await subscriptions().get(stranger, id)).toBeUndefined();
      expect((await subscriptions().all(stranger))?.subscriptions).toEqual([]);
      expect(await subscriptions().hold(stranger, await holding("two", [id]))).toEqual([]);
      expect(await subscriptions().holders(stranger, id)).toEqual([]);
      const message = { subscription: id, key: "k", instance: "one", lane: "l" };
      expect(await subscriptions().begin(stranger, message)).toBeUndefined();
      await expect(subscriptions().fail(stranger, failure(id, "k"))).rejects.toMatchObject({ code: "not_found" });
      await subscriptions().release(stranger, "one");
      expect(await subscriptions().delete(stranger, id)).toBe(false);
      expect(await begin(id, "k")).toMatchObject({ isHolder: true });
    });

    test("is held by all who want it, and by one where it is exclusive, until that one is away", async () => {
      const [shared, exclusive] = [await add(), await add()];
      const wanted = [
        { id: shared, exclusive: false },
        { id: exclusive, exclusive: true },
      ];
      const one = await holding("one", [], { wanted });
      const two = await holding("two", [], { wanted });
      expect((await subscriptions().hold(tenant, one)).toSorted()).toEqual([shared, exclusive].toSorted());
      expect(await subscriptions().hold(tenant, two)).toEqual([shared]);
      // Its connection has ended, its lease has not.
      await repos().connections.remove(tenant, one.connectionId);
      expect((await subscriptions().hold(tenant, two)).toSorted()).toEqual([shared, exclusive].toSorted());
      expect(await begin(exclusive, "k", { instance: "one" })).toMatchObject({ isHolder: false });
      const back = { ...one, connectionId: await connect() };
      expect(await subscriptions().hold(tenant, back)).toEqual([shared]);
      await subscriptions().release(tenant, "two");
      expect((await subscriptions().hold(tenant, back)).toSorted()).toEqual([shared, exclusive].toSorted());
    });

    test("lets go of what is not wanted, and of what has run out", async () => {
      const [first, second] = [await add(), await add()];
      const one = await holding("one", [first, second], { leaseMs: minute });
      await subscriptions().hold(tenant, one);
      expect(await subscriptions().hold(tenant, { ...one, wanted: [{ id: second, exclusive: false }] })).toEqual([
        second,
      ]);
      expect(await begin(first, "k")).toMatchObject({ isHolder: false });
      await subscriptions().hold(tenant, { ...one, leaseMs: -1 });
      expect(await begin(second, "k")).toMatchObject({ isHolder: false });
    });

    test("adds up what is reported, and shows how each one stands", async () => {
      const id = await add();
      const one = await holding("one", [id]);
      await subscriptions().hold(tenant, one);
      const error = { code: "tool_unreachable", message: "The broker is gone." };
      const reports = [reportOf(id, { state: "failing", error, waiting: 7 })];
      await subscriptions().hold(tenant, { ...one, reports });
      await subscriptions().hold(tenant, { ...one, reports });
      expect(await subscriptions().get(tenant, id)).toMatchObject({
        totals: { accepted: 2, duplicates: 4, refused: 6, dead: 8, dropped: 10 },
        lastMessageAt: 1_000,
      });
      expect(await subscriptions().holders(tenant, id)).toMatchObject([
        { node: "one", connected: true, state: "failing", error, waiting: 7, inHand: 1 },
      ]);
    });

    test("knows a message that is a call already, and how many calls have not ended", async () => {
      const id = await add();
      expect(await begin(id, "k")).toMatchObject({ callId: null, openCalls: 0, isNext: true, failed: null });
      const call = await record(id, "k", "queued");
      expect(await begin(id, "k")).toMatchObject({ callId: call, openCalls: 1 });
      expect(await begin(id, "other")).toMatchObject({ callId: null, openCalls: 1 });
      await end(call);
      expect(await begin(id, "k")).toMatchObject({ callId: call, openCalls: 0 });
    });

    test("lets a lane's messages begin one after the other", async () => {
      const id = await add();
      expect(await begin(id, "1", { lane: "a" })).toMatchObject({ isNext: true });
      const call = await record(id, "1", "queued");
      expect(await begin(id, "2", { lane: "a" })).toMatchObject({ isNext: false });
      expect(await begin(id, "3", { lane: "b" })).toMatchObject({ isNext: true });
      expect(await begin(id, "1", { lane: "a" })).toMatchObject({ isNext: true, callId: call });
      await end(call);
      expect(await begin(id, "2", { lane: "a" })).toMatchObject({ isNext: true });
      await record(id, "2", "queued");
      expect(await begin(id, "4", { lane: "a" })).toMatchObject({ isNext: false });
    });

    test("counts attempts until a message is dead, and forgets them where it became a call", async () => {
      const id = await add();
      expect(await subscriptions().fail(tenant, failure(id, "k"))).toMatchObject({ attempts: 1, isDead: false });
      expect(await begin(id, "k")).toMatchObject({ failed: { attempts: 1 } });
      expect(await subscriptions().fail(tenant, failure(id, "k"))).toMatchObject({ attempts: 2, isDead: true });
      const page = { limit: 10, order: "asc" } as const;
      expect((await subscriptions().failed(tenant, id, page)).data).toMatchObject([{ messageId: "m-k", isDead: true }]);
      await subscriptions().recover(tenant, id, "k");
      expect((await subscriptions().failed(tenant, id, page)).data).toEqual([]);
    });

    test("goes with all that is known of its messages", async () => {
      const id = await add();
      await subscriptions().hold(tenant, await holding("one", [id]));
      await subscriptions().fail(tenant, failure(id, "k"));
      expect(await subscriptions().delete(tenant, id)).toBe(true);
      expect(await begin(id, "k")).toBeUndefined();
      expect(await subscriptions().holders(tenant, id)).toEqual([]);
      await subscriptions().expire(10);
    });
  });
}

function draft(change: Partial<NewSubscription> = {}): NewSubscription {
  return {
    id: newId("subscription"),
    name: newId("request"),
    description: null,
    serviceId: "shop",
    topic: "orders",
    target: { uri: "plugin://create_order", arguments: {} },
    options: { format: "json", prefetch: 8, max_open_calls: 100, max_attempts: 3 },
    enabled: true,
    role: "admin",
    ...change,
  };
}

function failure(subscription: string, key: string): Parameters<Repos["subscriptions"]["fail"]>[1] {
  return {
    id: newId("failedMessage"),
    subscription,
    key,
    messageId: `m-${key}`,
    code: "invalid_json",
    message: "The message is not JSON.",
    maxAttempts: 2,
  };
}

function reportOf(id: string, change: Partial<HolderReport> = {}): HolderReport {
  return {
    id,
    state: "consuming",
    error: null,
    waiting: null,
    inHand: 1,
    counts: { accepted: 1, duplicates: 2, refused: 3, dead: 4, dropped: 5 },
    lastMessageAt: 1_000,
    ...change,
  };
}
