/** Finding, listing and forgetting calls, and that no tenant reaches another's. */
import type { Call } from "@toolyard/core/calls/call";
import { newId } from "@toolyard/core/ids";
import type { CallFilter, CallPageRequest, SweepItem } from "@toolyard/core/ports/calls";
import { describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import {
  newChat,
  newTool,
  times,
  useCallFixture,
  withKey,
  type CallFixture,
  type MakeInstances,
} from "./calls-fixture.ts";

const hour = 3_600_000;
const day = 24 * hour;

export function describeCallUpkeep(make: MakeInstances): void {
  describe("finding, listing and forgetting", () => {
    const fixture = useCallFixture(make);
    describeSweep(fixture);
    describeExpiry(fixture);
    describeLists(fixture);
    describeIsolation(fixture);
  });
}

function describeSweep(fixture: CallFixture): void {
  describe("sweep", () => {
    const sweepOf = async (tenant: string, index = 0, queuedForMs = 0): Promise<readonly SweepItem[]> => {
      const items = await fixture.turn(index).calls.sweep({ limit: 1_000, queuedForMs });
      return items.filter((item) => item.tenant === tenant);
    };

    test("finds what nobody holds: expired leases of chats and calls, and queued calls that are due", async () => {
      const tenant = await fixture.newTenant();
      const chat = newChat();
      await fixture.calls.record(tenant, "key_1", [chat]);
      const call = await fixture.rowIn(tenant, "running", { async: true, effect: "read", repeat: "key" });
      const queued = await fixture.rowIn(tenant, "queued", { async: true });
      await fixture.rowIn(tenant, "running");
      await fixture.rowIn(tenant, "queued", { runAt: Date.now() + hour });
      for (const state of ["completed", "failed", "input_required", "unknown"] as const)
        await fixture.rowIn(tenant, state);
      for (const id of [chat.id, call]) await fixture.loseLease(tenant, id);
      const common = { tenant, effect: "write", repeat: "natural", async: false };
      expect((await sweepOf(tenant)).toSorted((a, b) => (a.id < b.id ? -1 : 1))).toEqual(
        [
          { ...common, id: chat.id, kind: "chat", state: "running" },
          { ...common, id: call, kind: "tool", state: "running", async: true, effect: "read", repeat: "key" },
          { ...common, id: queued, kind: "tool", state: "queued", async: true },
        ].toSorted((a, b) => (a.id < b.id ? -1 : 1)),
      );
    });

    test("finds the others beside a row that cannot be read", async () => {
      const tenant = await fixture.newTenant();
      const ids = [await fixture.rowIn(tenant, "queued"), await fixture.rowIn(tenant, "queued")];
      await fixture.run("UPDATE calls SET usage = '{' WHERE tenant = ? AND id = ?", tenant, ids[0] ?? "");
      expect((await sweepOf(tenant)).map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
    });

    test("leaves the calls of a suspended tenant until it is resumed, and nobody claims them meanwhile", async () => {
      const tenant = await fixture.newTenant();
      const ids = [await fixture.rowIn(tenant, "queued", { async: true }), await fixture.rowIn(tenant, "running")];
      const later = await fixture.rowIn(tenant, "queued", { runAt: Date.now() + hour });
      await fixture.loseLease(tenant, ids[1] ?? "");
      await fixture.repos[1].tenants.update(tenant, { status: "suspended" });
      const before = await Promise.all([...ids, later].map((id) => fixture.row(tenant, id)));
      expect(before.map(({ cancelRequested }) => cancelRequested)).toEqual([false, true, false]);
      expect(await sweepOf(tenant)).toEqual([]);
      const options = { leaseMs: 60_000, concurrency: 16 };
      const claims = await times(6, (index) =>
        fixture.turn(index).calls.claim(tenant, [...ids, later][index % 3] ?? "", options),
      );
      expect(claims).toEqual(claims.map(() => "gone"));
      expect(await Promise.all([...ids, later].map((id) => fixture.row(tenant, id)))).toEqual(before);
      await fixture.repos[0].tenants.update(tenant, { status: "active" });
      expect((await sweepOf(tenant)).map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
      expect(await fixture.calls.claim(tenant, ids[0] ?? "", options)).toMatchObject({ call: { attempt: 1 } });
    });

    test("offers a call to one of several instances, and again after a minute", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "queued", { async: true });
      const found = await times(6, (index) => sweepOf(tenant, index));
      expect(found.flat().map((item) => item.id)).toEqual([id]);
      expect(await sweepOf(tenant)).toEqual([]);
      await fixture.run("UPDATE calls SET sent_at = sent_at - 59000 WHERE tenant = ?", tenant);
      expect(await sweepOf(tenant)).toEqual([]);
      await fixture.run("UPDATE calls SET sent_at = sent_at - 1001 WHERE tenant = ?", tenant);
      expect(await sweepOf(tenant)).toMatchObject([{ id }]);
    });

    test("offers a call again sooner where it is told to: whoever got the message may have died", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "queued", { async: true });
      const offer = async (): Promise<readonly string[]> =>
        (await fixture.calls.sweep({ limit: 1_000, queuedForMs: 0, offerAgainMs: 2_000 }))
          .filter((item) => item.tenant === tenant)
          .map((item) => item.id);
      expect(await offer()).toEqual([id]);
      expect(await offer()).toEqual([]);
      await fixture.run("UPDATE calls SET sent_at = sent_at - 2001 WHERE tenant = ?", tenant);
      expect(await offer()).toEqual([id]);
    });

    test("leaves a queued call to the message that was sent for it", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "queued", { async: true });
      expect(await sweepOf(tenant, 0, 30_000)).toEqual([]);
      await fixture.run("UPDATE calls SET sent_at = sent_at - 30001 WHERE tenant = ?", tenant);
      expect(await sweepOf(tenant, 0, 30_000)).toMatchObject([{ id }]);
      expect(await sweepOf(tenant, 0, 30_000)).toEqual([]);
    });

    test("sends at its time a call that no queue could have delayed so long", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "queued", { async: true, runAt: Date.now() + 2 * hour });
      expect(await sweepOf(tenant, 0, 30_000)).toEqual([]);
      await fixture.run(
        "UPDATE calls SET run_at = run_at - ?1, sent_at = sent_at - ?1 WHERE tenant = ?2",
        2 * hour + 1,
        tenant,
      );
      expect(await sweepOf(tenant, 0, 30_000)).toMatchObject([{ id }]);
    });

    test("leaves a call given back with a delay to the delayed message", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "running", { async: true });
      await fixture.calls.park(tenant, id, 1, { inMs: 60_000 });
      await fixture.run("UPDATE calls SET run_at = 1 WHERE tenant = ?", tenant);
      expect(await sweepOf(tenant, 0, 30_000)).toEqual([]);
    });

    test("does not add a message for a call whose worker found no slot and sends one itself", async () => {
      const tenant = await fixture.newTenant();
      await fixture.rowIn(tenant, "running");
      const id = await fixture.rowIn(tenant, "queued", { async: true });
      await fixture.run("UPDATE calls SET sent_at = 1 WHERE tenant = ?", tenant);
      const claim = await fixture.calls.claim(tenant, id, { leaseMs: 60_000, concurrency: 1 });
      expect(claim).toMatchObject({ limit: "concurrency" });
      expect(await sweepOf(tenant, 0, 30_000)).toEqual([]);
      // Nor while that one may still have to wait.
      await fixture.run("UPDATE calls SET sent_at = sent_at - 31000 WHERE tenant = ?", tenant);
      expect(await sweepOf(tenant, 0, 30_000)).toEqual([]);
    });

    test("stays within its limit, abandoned work first", async () => {
      const tenant = await fixture.newTenant();
      await times(3, () => fixture.rowIn(tenant, "queued", { async: true }));
      const abandoned = await fixture.rowIn(tenant, "running");
      await fixture.loseLease(tenant, abandoned);
      // The oldest of all tenants, so that others' rows do not matter.
      await fixture.run("UPDATE calls SET sent_at = 1 WHERE tenant = ?", tenant);
      const items = await fixture.calls.sweep({ limit: 2, queuedForMs: 0 });
      expect(items.map(({ state }) => state).toSorted()).toEqual(["queued", "running"]);
    });
  });
}

function describeExpiry(fixture: CallFixture): void {
  describe("forgetting", () => {
    const age = (ms: number, tenant: string, id: string): Promise<unknown> =>
      fixture.run(
        "UPDATE calls SET created_at = created_at - ?1, finished_at = finished_at - ?1 WHERE tenant = ?2 AND id = ?3",
        ms,
        tenant,
        id,
      );

    test("idempotency keys go after a day", async () => {
      const tenant = await fixture.newTenant();
      const [old, young] = [
        await fixture.rowIn(tenant, "completed", { idempotencyKey: "k1" }),
        await fixture.rowIn(tenant, "completed", { idempotencyKey: "k2" }),
      ];
      await age(day, tenant, old);
      await age(day - 60_000, tenant, young);
      await fixture.calls.expire(1_000);
      expect(await fixture.row(tenant, old)).toMatchObject({ idempotencyKey: null, input: "sealed-input" });
      expect(await fixture.row(tenant, young)).toMatchObject({ idempotencyKey: "k2" });
    });

    test(`sealed arguments go a week after the end, the rest of the record stays ${verifies("CHAT-13")}`, async () => {
      const tenant = await fixture.newTenant();
      const [ended, running] = [await fixture.rowIn(tenant, "completed"), await fixture.rowIn(tenant, "running")];
      for (const id of [ended, running]) await age(7 * day, tenant, id);
      await fixture.calls.expire(1_000);
      expect(await fixture.row(tenant, ended)).toMatchObject({
        input: null,
        inputView: '{"city":"北京"}',
        state: "completed",
      });
      expect(await fixture.row(tenant, running)).toMatchObject({ input: "sealed-input" });
    });

    test("kept turns, old rate windows and the ids of cleared sessions go", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const sessionId = newId("session");
      await fixture.calls.admit(withKey(tenant, key, { call: newChat(), sessionId }));
      await fixture.run("INSERT INTO kept_turns VALUES (?, 'c', 'old', 's', 1)", tenant);
      await fixture.run("INSERT INTO kept_turns VALUES (?, 'c', 'new', 's', 9e15)", tenant);
      await fixture.run("UPDATE rate_windows SET window_start = 1 WHERE tenant = ?", tenant);
      await fixture.run("UPDATE sessions SET expired_at = 1, cleared_at = 1 WHERE id = ?", sessionId);
      await fixture.calls.expire(1_000);
      expect(await fixture.run("SELECT key FROM kept_turns WHERE tenant = ?", tenant)).toEqual([{ key: "new" }]);
      for (const table of ["rate_windows", "sessions"]) {
        expect(await fixture.run(`SELECT * FROM ${table} WHERE tenant = ?`, tenant)).toEqual([]);
      }
    });
  });
}

function describeLists(fixture: CallFixture): void {
  describe(`lists ${verifies("CHAT-13")}`, () => {
    const idsOf = async (
      tenant: string,
      filter: CallFilter,
      page: Partial<CallPageRequest> = {},
    ): Promise<readonly string[]> =>
      (await fixture.calls.list(tenant, filter, { limit: 100, order: "asc", ...page })).data.map(({ id }) => id);

    test("chats and calls come in the order of their creation, page by page, both ways", async () => {
      const tenant = await fixture.newTenant();
      const rows = Array.from({ length: 7 }, (_none, index) => (index % 2 === 0 ? newTool() : newChat()));
      await fixture.calls.record(tenant, "key_1", rows);
      for (const [index, { id }] of rows.entries()) {
        // Two of each moment: then the id decides.
        const at = 1_000 + Math.floor(index / 2);
        await fixture.run("UPDATE calls SET created_at = ? WHERE tenant = ? AND id = ?", at, tenant, id);
      }
      const all = await idsOf(tenant, {});
      expect(all.toSorted()).toEqual(rows.map(({ id }) => id).toSorted());
      const moments = await Promise.all(all.map(async (id) => (await fixture.row(tenant, id)).createdAt));
      expect(moments).toEqual(moments.toSorted((a, b) => a - b));
      for (const order of ["asc", "desc"] as const) {
        const seen: string[] = [];
        const sizes: number[] = [];
        for (let after: string | undefined, hasMore = true; hasMore; after = seen.at(-1)) {
          const page = { limit: 3, order, ...(after === undefined ? {} : { after }) };
          const { data, hasMore: more } = await fixture.calls.list(tenant, {}, page);
          seen.push(...data.map(({ id }) => id));
          sizes.push(data.length);
          hasMore = more;
        }
        expect(seen).toEqual(order === "asc" ? all : all.toReversed());
        expect(sizes).toEqual([3, 3, 1]);
      }
      const nowhere = idsOf(tenant, {}, { after: "call_none" });
      await expect(nowhere).rejects.toMatchObject({ code: "invalid_request", details: { param: "after" } });
    });

    test("go on from a place whatever has become of the call there, as the archive takes calls meanwhile", async () => {
      const tenant = await fixture.newTenant();
      const rows = Array.from({ length: 5 }, () => newTool());
      await fixture.calls.record(tenant, "key_1", rows);
      // All of one moment: then the id decides.
      await fixture.run("UPDATE calls SET created_at = 1000 WHERE tenant = ?", tenant);
      const all = rows.map(({ id }) => id).toSorted();
      for (const order of ["asc", "desc"] as const) {
        const ordered = order === "asc" ? all : all.toReversed();
        const beyond = { createdAt: 1_000, id: ordered[2] ?? "" };
        const page = await fixture.calls.list(tenant, {}, { limit: 1, order, beyond });
        expect(page).toMatchObject({ data: [{ id: ordered[3] }], hasMore: true });
      }
      const gone = all[2] ?? "";
      await fixture.run("DELETE FROM calls WHERE tenant = ? AND id = ?", tenant, gone);
      const beyond = { createdAt: 1_000, id: gone };
      expect(await idsOf(tenant, {}, { beyond })).toEqual(all.slice(3));
      expect(await idsOf(tenant, {}, { beyond, order: "desc" })).toEqual(all.slice(0, 2).toReversed());
      await expect(idsOf(tenant, {}, { after: gone })).rejects.toMatchObject({ details: { param: "after" } });
    });

    test("every filter keeps what fits it, and filters add up", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const chat = newChat({ sessionId: "s1", requestId: "req_1" });
      await fixture.calls.admit(withKey(tenant, key, { call: chat }));
      const child = await fixture.rowIn(tenant, "completed", { parentId: chat.id, sessionId: "s1", tool: "mail" });
      const other = await fixture.rowIn(tenant, "failed", { tool: "mail" });
      await fixture.run("UPDATE calls SET created_at = 5000 WHERE tenant = ? AND id = ?", tenant, other);
      const cases: [CallFilter, readonly string[]][] = [
        [{ state: "failed" }, [other]],
        [{ kind: "chat" }, [chat.id]],
        [{ tool: "mail" }, [other, child]],
        [{ sessionId: "s1" }, [chat.id, child]],
        [{ parentId: chat.id }, [child]],
        [{ callerId: key.id }, [chat.id]],
        [{ requestId: "req_1" }, [chat.id]],
        [{ from: 5_000, to: 5_001 }, [other]],
        [{ from: 4_000, to: 5_000 }, []],
        [{ from: 5_001, tool: "mail" }, [child]],
        [{ state: "completed", sessionId: "s1", kind: "tool" }, [child]],
      ];
      for (const [filter, expected] of cases) {
        expect((await idsOf(tenant, filter)).toSorted(), JSON.stringify(filter)).toEqual(expected.toSorted());
      }
    });

    test("a filter's text is compared, never executed", async () => {
      const tenant = await fixture.newTenant();
      const odd = "x' OR 1=1 --";
      const id = await fixture.rowIn(tenant, "completed", { tool: odd });
      await fixture.rowIn(tenant, "completed");
      expect(await idsOf(tenant, { tool: odd })).toEqual([id]);
      expect(await idsOf(tenant, { tool: "%" })).toEqual([]);
    });
  });
}

function describeIsolation(fixture: CallFixture): void {
  test(`another tenant's call is as one that does not exist, and stays as it is ${verifies("CHAT-11")}`, async () => {
    const [owner, intruder] = [await fixture.newTenant(), await fixture.newTenant()];
    const key = await fixture.newKey(intruder);
    const { calls } = fixture;
    const running = newChat({ idempotencyKey: "k", inputHash: "h", sessionId: newId("session"), delivery: "due" });
    await calls.record(owner, "key_owner", [running]);
    const ids = {
      running: running.id,
      queued: await fixture.rowIn(owner, "queued"),
      unknown: await fixture.rowIn(owner, "unknown", { sessionId: running.sessionId, delivery: "due" }),
      waiting: await fixture.rowIn(owner, "input_required"),
    };
    const rows = (): Promise<Call[]> => Promise.all(Object.values(ids).map((id) => fixture.row(owner, id)));
    const before = await rows();
    const finish = { state: "completed" } as const;
    expect(await calls.get(intruder, ids.running)).toBeUndefined();
    expect(
      (await calls.list(intruder, { sessionId: running.sessionId ?? "" }, { limit: 10, order: "asc" })).data,
    ).toEqual([]);
    await expect(calls.list(intruder, {}, { limit: 10, order: "asc", after: ids.queued })).rejects.toMatchObject({
      details: { param: "after" },
    });
    expect(await calls.finish(intruder, ids.running, 1, finish)).toBe(false);
    expect(await calls.resolveUnknown(intruder, ids.unknown, finish)).toBe(false);
    expect(await calls.claim(intruder, ids.queued, { leaseMs: 1_000, concurrency: 16 })).toBe("gone");
    expect(await calls.heartbeat(intruder, ids.running, 1, { leaseMs: 1_000 })).toBe("lost");
    expect(await calls.letGo(intruder, ids.running, 1, 0)).toBe(false);
    expect(await calls.park(intruder, ids.running, 1, { inMs: 0 })).toBeUndefined();
    expect(await calls.wake(intruder, ids.queued)).toBe(false);
    expect(await calls.takeSlots(intruder, ids.running, 1, 16)).toBe(0);
    expect(await calls.requestCancel(intruder, ids.running)).toBeUndefined();
    expect(await calls.isCancelRequested(intruder, ids.running)).toBe(false);
    expect(await calls.decide(intruder, ids.waiting, { by: "x", decision: "approved" })).toBeUndefined();
    await calls.settle(intruder, {
      callId: ids.running,
      attempt: 1,
      finish,
      calls: [newTool({ parentId: ids.running, end: finish })],
      finished: [{ id: ids.queued, attempt: 0, finish: { state: "rejected" } }],
      delivered: [ids.unknown],
    });
    const same = newChat({ id: ids.running, idempotencyKey: "k", inputHash: "h" });
    const admitted = await calls.admit(
      withKey(intruder, key, { call: same, attach: { withinMs: hour, to: "any" }, supersedes: ids.unknown }),
    );
    expect(admitted.outcome.kind).toBe("admitted");
    expect((await fixture.row(intruder, ids.running)).tenant).toBe(intruder);
    expect(await rows()).toEqual(before);
    expect((await calls.list(owner, {}, { limit: 10, order: "asc" })).data).toHaveLength(4);
  });
}
