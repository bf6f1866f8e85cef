/** Contract of `ConnectionRepo`: the rows decide who listens, and events are written with the change of the call. */
import { randomUUID } from "node:crypto";
import type { Caller } from "@toolyard/core/callers/caller";
import { newId } from "@toolyard/core/ids";
import type { HeldEvents } from "@toolyard/core/ports/connections";
import {
  callEventSchema,
  type Audience,
  type ClaimedEvent,
  type Connection,
  type NewConnection,
  type NewEvent,
  type Subscription,
} from "@toolyard/core/realtime/connection";
import { beforeEach, describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import { newTool, useCallFixture, withKey, type MakeInstances } from "./calls-fixture.ts";

const minute = 60_000;
const callsOnly: Subscription = { topic: "calls" };

export function describeConnectionRepo(name: string, make: MakeInstances): void {
  describe(`connections over a ${name} ${verifies("CHAT-13")}`, () => {
    const fixture = useCallFixture(make);
    let tenant: string;
    let caller: Caller;

    beforeEach(async () => {
      // Claims go over all tenants.
      await fixture.run("DELETE FROM connection_events");
      await fixture.run("DELETE FROM connections");
      tenant = await fixture.newTenant();
      caller = await callerOf(tenant);
    });

    const connections = (index = 0) => fixture.turn(index).connections;
    const callerOf = async (of: string): Promise<Caller> => {
      const { id } = await fixture.newKey(of);
      return { kind: "key", id, role: "admin", scopes: ["calls"], tools: null };
    };
    const opening = (change: Partial<NewConnection> = {}): NewConnection => ({
      id: newId("socket"),
      holder: "process-1",
      caller,
      clientType: null,
      lifetimeMs: minute,
      until: null,
      ...change,
    });
    const connect = async (change: Partial<NewConnection> = {}, of = tenant): Promise<Connection> => {
      const connected = await connections().connect(of, opening(change));
      if (connected === undefined || connected === "full") throw new Error("not connected");
      return connected.connection;
    };
    const listen = async (
      change: Partial<NewConnection> = {},
      subscription = callsOnly,
      of = tenant,
    ): Promise<Connection & { readonly seq: number }> => {
      const { id } = await connect(change, of);
      const subscribed = await connections(1).subscribe(of, id, "s", subscription);
      if (subscribed === undefined || subscribed === "full") throw new Error("not subscribed");
      return { ...subscribed.connection, seq: subscribed.seq };
    };
    const held = (after = 0, holder = "process-1", of = tenant): Promise<HeldEvents> =>
      connections(1).heldEvents(holder, new Map([[of, after]]), 100);
    const typesOf = ({ events }: HeldEvents): readonly string[] => events.map(({ type }) => type);
    const note = (audience: Audience, change: Partial<NewEvent> = {}): NewEvent => ({
      type: "note",
      audience,
      data: '{"text":"hello"}',
      callId: null,
      callerId: null,
      sessionId: null,
      ...change,
    });
    const claim = (index = 0) => connections(index).claim({ limit: 100, leaseMs: minute });
    const written = async (): Promise<number> =>
      (await fixture.run("SELECT seq FROM connection_events WHERE tenant = ?", tenant)).length;
    const expire = (id: string): Promise<unknown> =>
      fixture.run("UPDATE connections SET expires_at = 1 WHERE id = ?", id);

    test("are found by their id, as they were opened, until they end", async () => {
      const { id, closesAt } = await connect({ clientType: "Console", holder: null });
      expect(await connections(1).find(id)).toEqual({
        id,
        tenant,
        holder: null,
        caller,
        clientType: "Console",
        subscriptions: {},
        closesAt,
      });
      await connections().remove(await fixture.newTenant(), id);
      expect(await connections(1).find(id)).toBeDefined();
      await connections().remove(tenant, id);
      expect(await connections(1).find(id)).toBeUndefined();
    });

    test("end when their credentials do, and after two hours at the latest", async () => {
      const now = Date.now();
      expect((await connect({ until: now + 5_000 })).closesAt).toBe(now + 5_000);
      const { closesAt } = await connect();
      expect(closesAt).toBeGreaterThan(now + 119 * minute);
      expect(closesAt).toBeLessThan(now + 121 * minute);
      const late = opening({ until: now - 1 });
      expect(await connections().connect(tenant, late)).toBeUndefined();
      expect(await connections().find(late.id)).toBeUndefined();
    });

    test("count what they say as requests of their tenant and of a key that has its own limit", async () => {
      const { id: limited } = await fixture.newKey(tenant, { requestsPerMinute: 3 });
      const admit = (key: string) =>
        fixture.run(
          "INSERT INTO rate_windows (tenant, scope, window_start, count) VALUES (?, ?, 0, 99) ON CONFLICT DO NOTHING",
          tenant,
          key,
        );
      await admit("tenant");
      await admit(`key:${limited}`);
      await fixture.turn(0).tenants.update(tenant, { settings: { requests_per_minute: 5 } });
      const own = await connect({ caller: { ...caller, id: limited } });
      const other = await connect();
      const speak = async ({ id }: Connection, times: number): Promise<void> => {
        for (let count = 0; count < times; count += 1) {
          await connections(count % 2).touch(tenant, id, { lifetimeMs: minute, counts: true });
        }
      };
      // The counts of another minute are none.
      expect(await connections().findSpeaker(own.id)).toEqual({ connection: own });
      await speak(own, 2);
      await connections().touch(tenant, own.id, { lifetimeMs: minute, counts: false });
      expect((await connections().findSpeaker(own.id))?.reached).toBeUndefined();
      await speak(own, 1);
      expect((await connections().findSpeaker(own.id))?.reached).toMatchObject({ scope: "key", limit: 3 });
      expect((await connections().findSpeaker(other.id))?.reached).toBeUndefined();
      await speak(other, 2);
      const reached = (await connections(1).findSpeaker(other.id))?.reached;
      expect(reached).toMatchObject({ scope: "tenant", limit: 5 });
      expect(reached?.resetMs).toBeGreaterThan(0);
      expect(reached?.resetMs).toBeLessThanOrEqual(minute);
      const operator = await connect({ caller: { ...caller, kind: "operator", id: "operator" } });
      expect(await connections().findSpeaker(operator.id)).toEqual({ connection: operator });
      const elsewhere = await fixture.newTenant();
      const foreign = await connect({ caller: await callerOf(elsewhere) }, elsewhere);
      expect((await connections().findSpeaker(foreign.id))?.reached).toBeUndefined();
    });

    test("of nodes are counted apart from requests, and have a limit of their own", async () => {
      const { id: limited } = await fixture.newKey(tenant, { requestsPerMinute: 1 });
      const node = await connect({ caller: { ...caller, id: limited, scopes: ["node"] } });
      const page = await connect();
      /** In the minute that is. */
      const count = (scope: string, number: number): Promise<unknown> =>
        fixture.run(
          `INSERT INTO rate_windows (tenant, scope, window_start, count)
          SELECT ?1, ?2, at - at % 60000, ?3 FROM (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS at)
          WHERE true ON CONFLICT DO UPDATE SET window_start = excluded.window_start, count = excluded.count`,
          tenant,
          scope,
          number,
        );
      await count("tenant", 6_000);
      await count(`key:${limited}`, 1);
      expect((await connections().findSpeaker(page.id))?.reached).toMatchObject({ scope: "tenant" });
      expect(await connections().findSpeaker(node.id)).toEqual({ connection: node });
      await connections().touch(tenant, node.id, { lifetimeMs: minute, counts: true });
      expect(
        await fixture.run("SELECT scope, count FROM rate_windows WHERE tenant = ?1 ORDER BY scope", tenant),
      ).toEqual([
        { scope: `key:${limited}`, count: 1 },
        { scope: "nodes", count: 1 },
        { scope: "tenant", count: 6_000 },
      ]);
      await count("nodes", 59_999);
      expect(await connections().findSpeaker(node.id)).toEqual({ connection: node });
      await connections(1).touch(tenant, node.id, { lifetimeMs: minute, counts: true });
      expect((await connections().findSpeaker(node.id))?.reached).toMatchObject({ scope: "nodes", limit: 60_000 });
    });

    test("count as gone without a sign of life, and where their key or tenant does not count any more", async () => {
      const [silent, ofKey, ofUser] = [
        await connect(),
        await connect(),
        await connect({ caller: { ...caller, kind: "user", id: "user:x:ada" } }),
      ];
      await expire(silent.id);
      const quiet = { lifetimeMs: minute, counts: false };
      expect(await connections().touch(tenant, silent.id, quiet)).toBe(false);
      expect(await connections().touch(tenant, ofKey.id, quiet)).toBe(true);
      expect((await connections().renew("process-1", minute)).toSorted()).toEqual([ofKey.id, ofUser.id].toSorted());
      await fixture.turn(0).apiKeys.revoke(tenant, caller.id);
      expect(await connections().renew("process-1", minute)).toEqual([ofUser.id]);
      expect(await connections().find(ofKey.id)).toBeUndefined();
      await fixture.turn(0).tenants.update(tenant, { status: "suspended" });
      expect(await connections(1).renew("process-1", minute)).toEqual([]);
    });

    test("of a process go with it, and what is silent goes with the tick", async () => {
      const [own, other, gateway] = [
        await connect(),
        await connect({ holder: "process-2" }),
        await connect({ holder: null }),
      ];
      await connections().removeHeldBy("process-1");
      expect(await connections().find(own.id)).toBeUndefined();
      expect(await connections().find(other.id)).toBeDefined();
      await expire(other.id);
      await fixture.calls.expire(100);
      const left = await fixture.run("SELECT id FROM connections WHERE tenant = ?", tenant);
      expect(left).toEqual([{ id: gateway.id }]);
    });

    test("are at most a thousand of a tenant", async () => {
      const { id } = await connect();
      await fixture.run(
        `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
        INSERT INTO connections (id, tenant, holder, caller, expires_at, closes_at)
        SELECT 'many_' || i, tenant, holder, caller, expires_at, closes_at FROM n, connections WHERE id = ?`,
        id,
      );
      expect(await connections().connect(tenant, opening())).toBe("full");
      await connections().remove(tenant, "many_1");
      expect(await connections().connect(tenant, opening())).not.toBe("full");
    });

    describe("a ticket", () => {
      const issue = async (lifetimeMs = minute, until: number | null = null): Promise<string> => {
        const hash = randomUUID();
        await connections().issueTicket(tenant, { hash, caller, until, lifetimeMs });
        return hash;
      };
      const use = (hash: string, index = 0, of = tenant) => {
        const { caller: _caller, until: _until, ...rest } = opening();
        return connections(index).connectWithTicket(of, hash, rest);
      };

      test("connects its caller once, whoever uses it first", async () => {
        const hash = await issue();
        const used = await Promise.all([use(hash, 0), use(hash, 1), use(hash, 0), use(hash, 1)]);
        const connected = used.filter((each) => each !== undefined);
        expect(connected).toHaveLength(1);
        expect(connected).toMatchObject([{ connection: { tenant, caller } }]);
        expect(await use(hash)).toBeUndefined();
      });

      test("is worth nothing where it has run out, is unknown, another tenant's or of a revoked key", async () => {
        expect(await use(await issue(-1))).toBeUndefined();
        expect(await use(randomUUID())).toBeUndefined();
        expect(await use(await issue(), 0, await fixture.newTenant())).toBeUndefined();
        const hash = await issue();
        await fixture.turn(0).apiKeys.revoke(tenant, caller.id);
        expect(await use(hash)).toBeUndefined();
      });

      test("lives no longer than the credentials with which it was asked for, nor does what it opens", async () => {
        const until = Date.now() + 10_000;
        expect(await use(await issue(minute, until))).toMatchObject({ connection: { closesAt: until } });
        const early = randomUUID();
        const given = { hash: early, caller, until, lifetimeMs: minute };
        expect(await connections().issueTicket(tenant, given)).toBe(until);
      });
    });

    test("while nobody listens, nothing is written, and no admission says otherwise", async () => {
      const key = await fixture.newKey(tenant);
      await connect({ clientType: "Node" });
      const other = await fixture.newTenant();
      await listen({ caller: await callerOf(other) }, callsOnly, other);
      await fixture.rowIn(tenant, "completed");
      expect(await connections().publish(tenant, [note({ kind: "client_type", value: "Console" })])).toBe(0);
      expect(await written()).toBe(0);
      expect(await fixture.calls.admit(withKey(tenant, key))).not.toHaveProperty("listeners");
    });

    test("an admission and a claim say who listens", async () => {
      const key = await fixture.newKey(tenant);
      const { id } = await listen();
      const admitted = await fixture.calls.admit(withKey(tenant, key));
      expect(admitted.listeners).toEqual({ calls: true, logs: false, vcp: false });
      await connections().subscribe(tenant, id, "t", { topic: "logs" });
      const call = await fixture.rowIn(tenant, "queued");
      const claimed = await fixture.turn(1).calls.claim(tenant, call, { leaseMs: minute, concurrency: 10 });
      expect(claimed).toMatchObject({ listeners: { calls: true, logs: true, vcp: false } });
      await connections().unsubscribe(tenant, id, "s");
      expect((await fixture.calls.admit(withKey(tenant, key))).listeners).toEqual({
        calls: false,
        logs: true,
        vcp: false,
      });
      await connections().unsubscribe(tenant, id, "t");
      expect(await fixture.calls.admit(withKey(tenant, key))).not.toHaveProperty("listeners");
    });

    test("hear every change of a call, with what it is but not what is in it", async () => {
      const { seq } = await listen();
      const call = await fixture.rowIn(tenant, "queued");
      await fixture.calls.claim(tenant, call, { leaseMs: minute, concurrency: 10 });
      await fixture.calls.finish(tenant, call, 1, {
        state: "completed",
        outcome: { text: "done", mediaType: "text/plain", bytes: 4 },
      });
      const heard = await held(seq);
      expect(typesOf(heard)).toEqual(["call.queued", "call.running", "call.completed"]);
      expect(heard.connections).toMatchObject([{ caller, subscriptions: { s: callsOnly } }]);
      const [first, , last] = heard.events.map(({ body }) => JSON.parse(body) as Record<string, unknown>);
      expect(first).toMatchObject({ type: "call.queued", data: { id: call, object: "call", state: "queued" } });
      expect(last).toMatchObject({ data: { id: call, state: "completed", attempt: 1, async: false } });
      expect(last?.["id"]).toMatch(/^evt_[0-9a-f]+$/);
      expect(last?.["seq"]).toBe(heard.events[2]?.seq);
      expect(heard.events.map(({ body }) => body).join()).not.toMatch(/北京|sealed|done/);
      expect(typesOf(await held(Number(first?.["seq"])))).toEqual(["call.running", "call.completed"]);
    });

    test.each([
      "completed",
      "failed",
      "cancelled",
      "unknown",
      "rejected",
      "input_required",
      "queued",
      "running",
    ] as const)("hear of a call that is %s from the start", async (state) => {
      const { seq } = await listen();
      await fixture.rowIn(tenant, state);
      const type = (await held(seq)).events.at(-1)?.type ?? "";
      expect(type).toBe(state === "input_required" ? "call.approval_required" : `call.${state}`);
      expect(callEventSchema.safeParse(type).success).toBe(true);
    });

    test("events say whose call it is, and whether a person decides about it", async () => {
      const { seq } = await listen();
      const call = await fixture.rowIn(tenant, "input_required", { sessionId: "sess-1" });
      await fixture.calls.decide(tenant, call, { by: "key_1", decision: "rejected" });
      const plain = await fixture.rowIn(tenant, "failed");
      const { events } = await held(seq);
      expect(events.filter(({ callId }) => callId === call)).toMatchObject([
        { callerId: "key_test", sessionId: "sess-1", decided: true },
        { callerId: "key_test", sessionId: "sess-1", decided: true },
      ]);
      expect(events.find(({ callId }) => callId === plain)).toMatchObject({ decided: false, sessionId: null });
    });

    test("an end that is written twice is told once", async () => {
      const { seq } = await listen();
      const call = await fixture.rowIn(tenant, "running");
      const end = { state: "failed", error: { code: "tool_failed", message: "no" } } as const;
      await fixture.calls.finish(tenant, call, 0, end);
      await fixture.calls.finish(tenant, call, 0, end);
      await fixture.run("UPDATE calls SET state = 'failed' WHERE tenant = ? AND id = ?", tenant, call);
      expect(typesOf(await held(seq)).filter((type) => type === "call.failed")).toHaveLength(1);
    });

    test("one transaction tells who listens and what happened: no change after a subscription is missed", async () => {
      const { id } = await connect();
      await Promise.all(
        Array.from({ length: 20 }, async (_none, index) => {
          await fixture.turn(index).calls.record(tenant, "key_test", [newTool({ state: "queued" })]);
        }),
      );
      const subscribed = await connections().subscribe(tenant, id, "s", callsOnly);
      const seq = typeof subscribed === "object" ? subscribed.seq : 0;
      const call = await fixture.rowIn(tenant, "queued");
      expect((await held(seq)).events.map(({ callId }) => callId)).toEqual([call]);
    });

    test("are told by their holder only, and not where their key has been revoked", async () => {
      const own = await listen();
      const other = await listen({ holder: "process-2" });
      await fixture.rowIn(tenant, "failed");
      expect((await held(own.seq)).connections.map(({ id }) => id)).toEqual([own.id]);
      expect((await held(own.seq, "process-2")).connections.map(({ id }) => id)).toEqual([other.id]);
      expect((await held(own.seq, "process-2", await fixture.newTenant())).events).toEqual([]);
      await fixture.turn(0).apiKeys.revoke(tenant, caller.id);
      expect((await held(own.seq)).connections).toEqual([]);
    });

    test("subscriptions are replaced by name, end by name, and are at most fifty", async () => {
      const { id } = await listen();
      const change = (at: string, subscription: Subscription, of = tenant) =>
        connections().subscribe(of, id, at, subscription);
      expect(await change("s", { topic: "logs", call_id: "c\"'" })).toMatchObject({
        connection: { subscriptions: { s: { topic: "logs", call_id: "c\"'" } } },
      });
      for (let index = 1; index < 50; index += 1) await change(`more.${index}`, callsOnly);
      expect(await change("one-more", callsOnly)).toBe("full");
      expect(await change("s", callsOnly)).toMatchObject({ connection: { id } });
      expect(await connections().unsubscribe(tenant, id, "more.1")).toMatchObject({ connection: { id } });
      expect(await change("one-more", callsOnly)).toMatchObject({ connection: { id } });
      const other = await fixture.newTenant();
      expect(await change("s", callsOnly, other)).toBeUndefined();
      expect(await connections().unsubscribe(other, id, "s")).toBeUndefined();
      expect(Object.keys((await connections().find(id))?.subscriptions ?? {})).toContain("s");
    });

    test.each([
      ["connection", { kind: "connection", value: "sock_named" }],
      ["user", { kind: "user", value: "ada" }],
      ["session", { kind: "session", value: "sess-1" }],
      ["client type", { kind: "client_type", value: "Console" }],
      ["tenant", { kind: "tenant" }],
    ] as const)("what is published for a %s is written where there is one", async (_what, audience) => {
      expect(await connections().publish(tenant, [note(audience)])).toBe(0);
      const other = await fixture.newTenant();
      const there = { id: "sock_named", clientType: "Console", caller: { ...caller, userId: "ada" } };
      const { seq } = await listen(there, { topic: "calls", session_id: "sess-1" });
      expect(await connections().publish(other, [note(audience)])).toBe(0);
      expect(await connections().publish(tenant, [note(audience), note(audience)])).toBe(2);
      const { events } = await held(seq);
      expect(events.map(({ body }) => JSON.parse(body) as unknown)).toMatchObject([
        { type: "note", data: { text: "hello" } },
        { type: "note", data: { text: "hello" } },
      ]);
      expect(events[0]?.audience).toEqual(audience);
    });

    test("logs are written where somebody listens to logs, and know whose call it is", async () => {
      const call = await fixture.rowIn(tenant, "running");
      const line = note({ kind: "logs" }, { callId: call });
      const { id, seq } = await listen();
      expect(await connections().publish(tenant, [line])).toBe(0);
      await connections().subscribe(tenant, id, "l", { topic: "logs" });
      const early = note({ kind: "logs" }, { callId: "call_not_there", callerId: "key_own" });
      expect(await connections().publish(tenant, [line, early])).toBe(2);
      expect((await held(seq)).events).toMatchObject([{ callerId: "key_test" }, { callerId: "key_own" }]);
    });

    test("events for connections that no process holds are claimed by one, and again after it died", async () => {
      const there = await listen({ holder: null });
      await listen({ holder: "process-1" });
      for (let count = 0; count < 6; count += 1) await fixture.rowIn(tenant, "queued");
      const claims = (await Promise.all([claim(0), claim(1), claim(0), claim(1)])).flat();
      expect(new Set(claims.map(({ event }) => event.seq)).size).toBe(6);
      expect(claims).toHaveLength(6);
      expect(claims[0]?.connections).toMatchObject([{ id: there.id, tenant, caller, subscriptions: { s: callsOnly } }]);
      await fixture.run("UPDATE connection_events SET next_at = 1 WHERE next_at IS NOT NULL");
      const again = await claim(1);
      expect(again.map(({ attempt }) => attempt)).toEqual([2, 2, 2, 2, 2, 2]);
      // The first claimant comes too late; the second has told them.
      const told = again.map(({ event, attempt }) => ({ seq: event.seq, attempt }));
      await connections().settle(
        tenant,
        told.map(({ seq }) => ({ seq, attempt: 1 })),
      );
      const pending = "SELECT seq FROM connection_events WHERE tenant = ? AND next_at IS NOT NULL";
      expect(await fixture.run(pending, tenant)).toHaveLength(6);
      await connections(1).settle(tenant, told);
      expect(await fixture.run(pending, tenant)).toEqual([]);
    });

    test("an event says who may still be connecting: who has said nothing, for as long as that may take", async () => {
      const [quiet, earlier] = [await connect({ holder: null }), await connect({ holder: null })];
      const speaking = await listen({ holder: null });
      await fixture.run("UPDATE connections SET created_at = created_at - 30000 WHERE id = ?", earlier.id);
      await connections().publish(tenant, [note({ kind: "tenant" })]);
      const [found] = await claim();
      expect(Object.fromEntries((found?.connections ?? []).map(({ id, isConnecting }) => [id, isConnecting]))).toEqual({
        [quiet.id]: true,
        [earlier.id]: false,
        [speaking.id]: false,
      });
    });

    test("whom one tenant has much to tell keeps no other's waiting", async () => {
      const other = await fixture.newTenant();
      const heard: Audience[] = [];
      for (const owner of [tenant, other]) {
        const { id } = await connect({ holder: null, caller: await callerOf(owner) }, owner);
        heard.push({ kind: "connection", value: id });
      }
      const [much, little] = heard.map((audience) => note(audience));
      if (much === undefined || little === undefined) throw new Error("nobody listens");
      for (let count = 0; count < 5; count += 1) await connections().publish(tenant, [much]);
      await connections().publish(other, [little]);
      const claims = await connections(1).claim({ limit: 3, leaseMs: minute });
      expect(claims.map(({ event }) => event.tenant)).toEqual([tenant, tenant, other]);
      expect(claims[0]?.event.seq).toBeLessThan(claims[1]?.event.seq ?? 0);
    });

    // Claims that went through all that is due would take twenty seconds; over a network it is its time that would be seen.
    test.runIf(name === "file")(
      "what one tenant has to be told costs no claim anything, however much it is",
      async () => {
        const other = await fixture.newTenant();
        for (const [owner, count] of [
          [tenant, 40_000],
          [other, 1],
        ] as const) {
          await fixture.run(
            `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
          INSERT INTO connection_events (tenant, type, audience, next_at) SELECT ?1, 'x', 'tenant', 1000 FROM n`,
            owner,
            count,
          );
        }
        const claims: ClaimedEvent[] = [];
        for (let count = 0; count < 300; count += 1) {
          claims.push(...(await connections(count % 2).claim({ limit: 2, leaseMs: 10 * minute })));
        }
        expect(claims.map(({ event }) => event.tenant).slice(0, 4)).toEqual([tenant, other, tenant, tenant]);
        const seqs = claims.map(({ event }) => event.seq);
        expect(new Set(seqs).size).toBe(600);
      },
      12_000,
    );

    test("what processes hold is claimed by nobody", async () => {
      await listen({ holder: "process-1" });
      await fixture.rowIn(tenant, "failed");
      expect(await claim()).toEqual([]);
    });

    test("what cannot be sent is given up after some attempts", async () => {
      await listen({ holder: null });
      await fixture.rowIn(tenant, "queued");
      for (let count = 0; count < 5; count += 1) {
        expect(await claim()).toHaveLength(1);
        await fixture.run("UPDATE connection_events SET next_at = 1 WHERE next_at IS NOT NULL");
      }
      expect(await claim()).toEqual([]);
      expect(await fixture.run("SELECT next_at FROM connection_events WHERE tenant = ?", tenant)).toEqual([
        { next_at: null },
      ]);
    });

    test("events and tickets go after a while", async () => {
      await listen();
      await fixture.rowIn(tenant, "queued");
      await connections().issueTicket(tenant, { hash: "old", caller, until: null, lifetimeMs: -1 });
      await fixture.calls.expire(100);
      expect(await written()).toBe(1);
      await fixture.run("UPDATE connection_events SET created_at = 1");
      await fixture.calls.expire(100);
      expect(await written()).toBe(0);
      expect(await fixture.run("SELECT hash FROM connection_tickets WHERE hash = 'old'")).toEqual([]);
    });

    describe("with a device that is away", () => {
      const device: Subscription = { topic: "vcp_log", device: "desk" };
      const log = { kind: "client_type", value: "VCPLog" } as const;
      const arrive = async (change: Partial<NewConnection> = {}): Promise<string> => {
        const { id } = await connect({ clientType: "VCPLog", ...change });
        await connections().subscribe(tenant, id, "device", device);
        return id;
      };
      const say = (text: string): Promise<number> =>
        connections(1).publish(tenant, [note(log, { data: JSON.stringify({ text }) })]);
      const missedBy = async (id: string): Promise<string[]> =>
        (await connections(1).missed(tenant, id, 100)).map(({ body }) => JSON.parse(body).data.text);
      /** As if it had happened so long ago. */
      const age = async (ms: number): Promise<void> => {
        await fixture.run(`UPDATE connections SET created_at = created_at - ${ms}`);
        await fixture.run(`UPDATE connection_events SET created_at = created_at - ${ms}`);
      };

      test("frames are written, and told once, to the device of the same caller", async () => {
        const gone = await arrive();
        await say("before");
        await age(10_000);
        await connections().remove(tenant, gone);
        expect(await connections().find(gone)).toBeDefined();
        expect(await say("missed")).toBe(1);
        const key = withKey(tenant, await fixture.newKey(tenant));
        expect((await fixture.calls.admit(key)).listeners).toMatchObject({ vcp: true });
        await age(10_000);
        const stranger = await arrive({ caller: await callerOf(tenant) });
        expect(await missedBy(stranger)).toEqual([]);
        const back = await arrive();
        expect(await missedBy(back)).toEqual(["missed"]);
        expect(await missedBy(back)).toEqual([]);
        expect(await connections().ofType(tenant, "VCPLog")).toHaveLength(2);
      });

      test("the first absence counts, a process that stops leaves its devices, and other clients just go", async () => {
        await arrive({ holder: "process-9" });
        await connect({ holder: "process-9", clientType: "VCPLog" });
        await connections().removeHeldBy("process-9");
        expect(await fixture.run("SELECT holder FROM connections")).toEqual([{ holder: "away" }]);
        await say("first");
        const again = await arrive();
        await connections().remove(tenant, again);
        expect(await fixture.run("SELECT holder FROM connections")).toEqual([{ holder: "away" }]);
        await age(5_000);
        expect(await missedBy(await arrive())).toEqual(["first"]);
      });

      test("what all clients of the tenant are told is told it as well, and nothing that is for others", async () => {
        await connections().remove(tenant, await arrive());
        await connect({ clientType: "VCPInfo" });
        for (const [text, audience] of [
          ["all", { kind: "tenant" }],
          ["others", { kind: "client_type", value: "VCPInfo" }],
          ["log", log],
        ] as const) {
          await connections(1).publish(tenant, [note(audience, { data: JSON.stringify({ text }) })]);
        }
        await age(600_000);
        await fixture.calls.expire(1_000);
        expect(await missedBy(await arrive())).toEqual(["all", "log"]);
      });

      test("the newest hundred frames are kept for a day", async () => {
        await connections().remove(tenant, await arrive());
        for (let count = 0; count < 103; count += 1) await say(`${count}`);
        await age(600_000);
        await fixture.calls.expire(1_000);
        expect(await written()).toBe(100);
        await age(90_000_000);
        await fixture.calls.expire(1_000);
        expect(await written()).toBe(0);
      });
    });
  });
}
