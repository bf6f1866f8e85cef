/** Admission: who asks, limits over two instances, idempotency, retries, sessions, kept turns. */
import { newId } from "@toolyard/core/ids";
import type { AdmitResult, CallFinish } from "@toolyard/core/ports/calls";
import { tenantSettingsSchema } from "@toolyard/core/tenants/settings";
import { describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import {
  newChat,
  newTool,
  someUser,
  tally,
  times,
  useCallFixture,
  withKey,
  type CallFixture,
  type MakeInstances,
  withinOneMinute,
} from "./calls-fixture.ts";

export function describeAdmission(make: MakeInstances): void {
  describe("admission", () => {
    const fixture = useCallFixture(make);
    describeWhoAsks(fixture);
    describeRates(fixture);
    describeConcurrency(fixture);
    describeIdempotency(fixture);
    describeSessions(fixture);
    describeLostReplies(fixture);
  });
}

function describeWhoAsks(fixture: CallFixture): void {
  describe("who asks", () => {
    test(`a key is known by its hash, and its call is recorded under its id ${verifies("CHAT-13")}`, async () => {
      const tenant = await fixture.newTenant({ rounds: 3 });
      const key = await fixture.newKey(tenant, {
        role: "admin",
        scopes: ["chat", "approve"],
        tools: ["search_*"],
        userId: "u1",
        businessUnit: "sales",
      });
      const chat = newChat({ deadlineMs: 5_000, leaseMs: 2_000 });
      const result = await fixture.calls.admit(
        withKey(tenant, key, { call: chat, slots: { wanted: 4, required: false } }),
      );
      expect(result).toMatchObject({
        tenant: { id: tenant, status: "active", configVersion: expect.any(Number) },
        settings: { ...tenantSettingsSchema.parse({}), rounds: 3 },
        caller: {
          kind: "key",
          id: key.id,
          role: "admin",
          scopes: ["chat", "approve"],
          tools: ["search_*"],
          userId: "u1",
          businessUnit: "sales",
        },
        outcome: { kind: "admitted", slots: 4 },
        rate: { limit: 6_000, remaining: 5_999 },
        turns: [],
      });
      expect(result.rate.resetMs).toBeGreaterThanOrEqual(0);
      expect(result.rate.resetMs).toBeLessThanOrEqual(60_000);
      const row = await fixture.row(tenant, chat.id);
      const { leaseMs: _lease, deadlineMs: _deadline, ...stored } = chat;
      expect(row).toMatchObject({ ...stored, tenant, callerId: key.id, state: "running", attempt: 1, slots: 4 });
      expect(Math.abs(row.createdAt - Date.now())).toBeLessThan(60_000);
      expect(row.leaseUntil).toBe(row.createdAt + 2_000);
      expect(row.deadline).toBe(row.createdAt + 5_000);
      expect(row.startedAt).toBe(row.createdAt);
      expect(row.finishedAt).toBeNull();
    });

    test("a key that does not exist, was revoked, has expired or is another tenant's is refused without a trace", async () => {
      const tenant = await fixture.newTenant();
      const other = await fixture.newTenant();
      const keys = [
        { id: "key_none", hash: "0".repeat(64) },
        await fixture.newKey(tenant, { revokedAt: 1 }),
        await fixture.newKey(tenant, { expiresAt: 1 }),
        await fixture.newKey(other),
      ];
      for (const key of keys) {
        const refusal: unknown = await fixture.calls
          .admit(withKey(tenant, key, { call: newChat() }))
          .catch((error: unknown) => error);
        expect(refusal).toMatchObject({ code: "invalid_api_key", details: { param: "authorization" } });
        expect(JSON.stringify(refusal) + String(refusal)).not.toContain(key.hash);
      }
      expect(await fixture.run("SELECT * FROM calls WHERE tenant = ?", tenant)).toEqual([]);
      expect(await fixture.run("SELECT * FROM rate_windows WHERE tenant = ?", tenant)).toEqual([]);
    });

    test("a key that has expired is told when", async () => {
      const tenant = await fixture.newTenant();
      const expiresAt = Date.parse("2026-11-01T09:30:00Z");
      const key = await fixture.newKey(tenant, { expiresAt });
      await expect(fixture.calls.admit(withKey(tenant, key))).rejects.toMatchObject({
        code: "invalid_api_key",
        message: "This API key expired at 2026-11-01T09:30:00.000Z; make another one with POST /v1/api-keys.",
      });
      const revoked = await fixture.newKey(tenant, { expiresAt, revokedAt: 1 });
      await expect(fixture.calls.admit(withKey(tenant, revoked))).rejects.toMatchObject({
        message: expect.stringContaining("does not exist or was revoked"),
      });
    });

    test("a key that expires later is good, and one of a tenant that does not exist is not", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant, { expiresAt: Date.now() + 3_600_000 });
      expect((await fixture.calls.admit(withKey(tenant, key))).caller.id).toBe(key.id);
      await expect(fixture.calls.admit(withKey(newId("tenant"), key))).rejects.toMatchObject({
        code: "invalid_api_key",
      });
    });

    test("a caller who is known already passes through unchanged; an unknown tenant is named", async () => {
      const tenant = await fixture.newTenant();
      const chat = newChat();
      const principal = { kind: "known", caller: someUser } as const;
      const result = await fixture.calls.admit({ tenant, principal, call: chat, limits: { countRequest: true } });
      expect(result.caller).toBe(someUser);
      expect(await fixture.row(tenant, chat.id)).toMatchObject({ callerId: someUser.id });
      const nowhere = { tenant: "ten_none", principal, limits: { countRequest: true } };
      await expect(fixture.calls.admit(nowhere)).rejects.toMatchObject({ code: "not_found" });
    });

    test("a suspended tenant is told apart, and nothing is recorded or counted", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      await fixture.repos[0].tenants.update(tenant, { status: "suspended" });
      const result = await fixture.calls.admit(withKey(tenant, key, { call: newChat() }));
      expect(result).toMatchObject({ tenant: { status: "suspended" }, outcome: { kind: "refused", by: "tenant" } });
      expect(result.rate.remaining).toBe(result.rate.limit);
      expect((await fixture.calls.list(tenant, {}, { limit: 10, order: "desc" })).data).toEqual([]);
    });

    test("an outdated configuration is told apart, and nothing is recorded or counted", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const { tenant: current } = await fixture.calls.admit(withKey(tenant, key));
      const stale = await fixture.calls.admit(
        withKey(tenant, key, { call: newTool(), expectedConfigVersion: current.configVersion - 1 }),
      );
      expect(stale.outcome).toEqual({ kind: "stale_config" });
      expect(stale.tenant.configVersion).toBe(current.configVersion);
      const fresh = await fixture.calls.admit(
        withKey(tenant, key, { call: newTool(), expectedConfigVersion: current.configVersion }),
      );
      expect(fresh.outcome.kind).toBe("admitted");
      expect(fresh.rate.remaining).toBe(fresh.rate.limit - 2);
    });
  });
}

function describeRates(fixture: CallFixture): void {
  describe(`requests per minute ${verifies("CHAT-12")}`, () => {
    test("of 100 requests at once on two instances exactly as many pass as the tenant may make", async () => {
      const outcomes = await withinOneMinute(fixture, async () => {
        const tenant = await fixture.newTenant({ requests_per_minute: 37 });
        const key = await fixture.newKey(tenant);
        const results = await times(100, (index) =>
          fixture.turn(index).calls.admit(withKey(tenant, key, { call: newChat() })),
        );
        const { data } = await fixture.calls.list(tenant, {}, { limit: 100, order: "asc" });
        return { counts: tally(results), recorded: data.length, results };
      });
      expect(outcomes.counts).toEqual({ admitted: 37, "rate_limited:tenant": 63 });
      expect(outcomes.recorded).toBe(37);
      const remaining = outcomes.results
        .filter((one) => one.outcome.kind === "admitted")
        .map((one) => one.rate.remaining);
      expect(remaining.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 37 }, (_none, index) => index));
      const refused = outcomes.results.find((one) => one.outcome.kind === "rate_limited");
      expect(refused?.rate).toMatchObject({ limit: 37, remaining: 0 });
      expect(refused?.rate.resetMs).toBeGreaterThan(0);
    });

    test("a key's own limit is exact too, and what it refuses takes nothing from the tenant", async () => {
      const [limited, others] = await withinOneMinute(fixture, async () => {
        const tenant = await fixture.newTenant({ requests_per_minute: 30 });
        const narrow = await fixture.newKey(tenant, { requestsPerMinute: 9 });
        const wide = await fixture.newKey(tenant);
        const ofNarrow = await times(40, (index) =>
          fixture.turn(index).calls.admit(withKey(tenant, narrow, { call: newChat() })),
        );
        const ofWide = await times(40, (index) => fixture.turn(index).calls.admit(withKey(tenant, wide)));
        return [ofNarrow, ofWide];
      });
      expect(tally(limited ?? [])).toEqual({ admitted: 9, "rate_limited:key": 31 });
      expect(limited?.find((one) => one.outcome.kind === "rate_limited")?.rate).toMatchObject({
        limit: 9,
        remaining: 0,
      });
      expect(tally(others ?? [])).toEqual({ admitted: 21, "rate_limited:tenant": 19 });
    });

    test("what the tenant's limit refuses takes nothing from the key", async () => {
      const results = await withinOneMinute(fixture, async () => {
        const tenant = await fixture.newTenant({ requests_per_minute: 2 });
        const key = await fixture.newKey(tenant, { requestsPerMinute: 3 });
        await times(10, () => fixture.calls.admit(withKey(tenant, key)));
        await fixture.repos[0].tenants.update(tenant, { settings: { requests_per_minute: 100 } });
        return times(10, () => fixture.calls.admit(withKey(tenant, key)));
      });
      expect(tally(results)).toEqual({ admitted: 1, "rate_limited:key": 9 });
    });

    test("a new minute starts afresh", async () => {
      const remaining = await withinOneMinute(fixture, async () => {
        const tenant = await fixture.newTenant({ requests_per_minute: 9 });
        const key = await fixture.newKey(tenant, { requestsPerMinute: 3 });
        const admit = (): Promise<AdmitResult> => fixture.calls.admit(withKey(tenant, key));
        await times(4, admit);
        await fixture.run("UPDATE rate_windows SET window_start = window_start - 60000 WHERE tenant = ?", tenant);
        return [await admit(), await admit()].map(({ outcome, rate }) => ({ outcome, ...rate, resetMs: 0 }));
      });
      const admitted = { outcome: { kind: "admitted", slots: 0 }, limit: 3, resetMs: 0 };
      expect(remaining).toEqual([
        { ...admitted, remaining: 2 },
        { ...admitted, remaining: 1 },
      ]);
    });

    test("requests that are not counted neither use up the limit nor meet it", async () => {
      const tenant = await fixture.newTenant({ requests_per_minute: 1 });
      const principal = { kind: "known", caller: { ...someUser, kind: "operator", role: "operator" } } as const;
      const results = await times(5, () => fixture.calls.admit({ tenant, principal, limits: { countRequest: false } }));
      expect(tally(results)).toEqual({ admitted: 5 });
      expect(results.at(-1)?.rate).toMatchObject({ limit: 1, remaining: 1 });
    });

    test("a setting outside of its range counts as not set", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const broken = '{"requests_per_minute":0,"concurrent_requests":"none","concurrent_tool_calls":-3}';
      await fixture.run("UPDATE tenants SET settings = ? WHERE id = ?", broken, tenant);
      const result = await fixture.calls.admit(
        withKey(tenant, key, { call: newChat(), slots: { wanted: 4, required: true } }),
      );
      expect(result).toMatchObject({
        outcome: { kind: "admitted", slots: 4 },
        settings: { requests_per_minute: 6_000 },
      });
    });
  });
}

function describeConcurrency(fixture: CallFixture): void {
  describe(`concurrency ${verifies("CHAT-12")}`, () => {
    test("of 100 chats at once on two instances exactly as many run as the tenant may have", async () => {
      const tenant = await fixture.newTenant({ concurrent_requests: 23 });
      const key = await fixture.newKey(tenant);
      const results = await times(100, (index) =>
        fixture.turn(index).calls.admit(withKey(tenant, key, { call: newChat() })),
      );
      expect(tally(results)).toEqual({ admitted: 23, "concurrency_limited:tenant": 77 });
      const running = await fixture.calls.list(tenant, { state: "running" }, { limit: 100, order: "asc" });
      expect(running.data).toHaveLength(23);
    });

    test("a key's own limit holds beside the tenant's", async () => {
      const tenant = await fixture.newTenant({ concurrent_requests: 10 });
      const narrow = await fixture.newKey(tenant, { concurrentRequests: 3 });
      const wide = await fixture.newKey(tenant);
      const admit = (key: typeof wide) => (index: number) =>
        fixture.turn(index).calls.admit(withKey(tenant, key, { call: newChat() }));
      expect(tally(await times(20, admit(narrow)))).toEqual({ admitted: 3, "concurrency_limited:key": 17 });
      expect(tally(await times(20, admit(wide)))).toEqual({ admitted: 7, "concurrency_limited:tenant": 13 });
    });

    test("a refused request is not recorded and not counted", async () => {
      const tenant = await fixture.newTenant({ concurrent_requests: 1 });
      const key = await fixture.newKey(tenant);
      await fixture.calls.admit(withKey(tenant, key, { call: newChat() }));
      const refused = newChat({ idempotencyKey: "k1" });
      const result = await fixture.calls.admit(withKey(tenant, key, { call: refused, sessionId: newId("session") }));
      expect(result.outcome).toEqual({ kind: "concurrency_limited", scope: "tenant" });
      expect(await fixture.calls.get(tenant, refused.id)).toBeUndefined();
      expect(result.rate.remaining).toBe(result.rate.limit - 1);
      expect(await fixture.run("SELECT id FROM sessions WHERE tenant = ?", tenant)).toEqual([]);
    });

    test("a chat that ended, or whose lease has run out, no longer counts; other tenants never do", async () => {
      const tenant = await fixture.newTenant({ concurrent_requests: 2 });
      const key = await fixture.newKey(tenant);
      const chats = [newChat(), newChat(), newChat(), newChat()] as const;
      const admit = async (index: 0 | 1 | 2 | 3): Promise<string> =>
        (await fixture.calls.admit(withKey(tenant, key, { call: chats[index] }))).outcome.kind;
      expect([await admit(0), await admit(1), await admit(2)]).toEqual(["admitted", "admitted", "concurrency_limited"]);
      await fixture.calls.finish(tenant, chats[0].id, 1, { state: "completed" });
      expect([await admit(2), await admit(3)]).toEqual(["admitted", "concurrency_limited"]);
      await fixture.loseLease(tenant, chats[1].id);
      expect(await admit(3)).toBe("admitted");
      const other = await fixture.newTenant({ concurrent_requests: 1 });
      const otherKey = await fixture.newKey(other);
      const elsewhere = await fixture.calls.admit(withKey(other, otherKey, { call: newChat() }));
      expect(elsewhere.outcome.kind).toBe("admitted");
    });

    test("100 direct calls at once on two instances take exactly the tenant's slots", async () => {
      const tenant = await fixture.newTenant({ concurrent_tool_calls: 16 });
      const key = await fixture.newKey(tenant);
      const results = await times(100, (index) =>
        fixture
          .turn(index)
          .calls.admit(withKey(tenant, key, { call: newTool(), slots: { wanted: 1, required: true } })),
      );
      expect(tally(results)).toEqual({ admitted: 16, "concurrency_limited:tools": 84 });
    });

    test("a chat takes the slots that are free, and is admitted without any", async () => {
      const tenant = await fixture.newTenant({ concurrent_tool_calls: 10 });
      const key = await fixture.newKey(tenant);
      const admit = async (wanted: number): Promise<AdmitResult["outcome"]> =>
        (await fixture.calls.admit(withKey(tenant, key, { call: newChat(), slots: { wanted, required: false } })))
          .outcome;
      expect([await admit(4), await admit(4), await admit(4), await admit(4)]).toEqual(
        [4, 4, 2, 0].map((slots) => ({ kind: "admitted", slots })),
      );
    });

    test("slots are given out exactly while chats start, ask for more and workers claim, on two instances", async () => {
      const tenant = await fixture.newTenant({ concurrent_tool_calls: 16 });
      const key = await fixture.newKey(tenant);
      const chats = await times(4, async () => {
        const chat = newChat();
        await fixture.calls.admit(withKey(tenant, key, { call: chat, slots: { wanted: 1, required: false } }));
        return chat.id;
      });
      const queued = await times(10, () => fixture.rowIn(tenant, "queued", { async: true }));
      await times(60, async (index) => {
        const { calls } = fixture.turn(index);
        if (index % 3 === 0) return calls.takeSlots(tenant, chats[index % 4] ?? "", 2, 16);
        if (index % 3 === 1) return calls.claim(tenant, queued[index % 10] ?? "", { leaseMs: 60_000, concurrency: 16 });
        return calls.admit(withKey(tenant, key, { call: newChat(), slots: { wanted: 2, required: false } }));
      });
      const sql = "SELECT SUM(slots) AS held FROM calls WHERE tenant = ? AND state = 'running'";
      expect(await fixture.run(sql, tenant)).toEqual([{ held: 16 }]);
    });

    test("what a chat takes later is what was free, and a call that does not run takes none", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const chat = newChat();
      await fixture.calls.admit(withKey(tenant, key, { call: chat, slots: { wanted: 4, required: false } }));
      expect(await fixture.calls.takeSlots(tenant, chat.id, 3, 6)).toBe(2);
      expect(await fixture.calls.takeSlots(tenant, chat.id, 3, 6)).toBe(0);
      expect(await fixture.calls.takeSlots(tenant, chat.id, 3, 1)).toBe(0);
      expect(await fixture.row(tenant, chat.id)).toMatchObject({ slots: 6 });
      await fixture.calls.finish(tenant, chat.id, 1, { state: "completed" });
      expect(await fixture.calls.takeSlots(tenant, chat.id, 3, 6)).toBe(0);
      expect(await fixture.calls.takeSlots(tenant, "chat_none", 3, 6)).toBe(0);
    });
  });
}

function describeIdempotency(fixture: CallFixture): void {
  describe("idempotency", () => {
    test("of 20 requests at once with one key on two instances one is admitted, and 19 are given its call", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const results = await times(20, (index) =>
        fixture.turn(index).calls.admit(withKey(tenant, key, { call: newTool({ idempotencyKey: "order-1" }) })),
      );
      expect(tally(results)).toEqual({ admitted: 1, existing: 19 });
      const { data } = await fixture.calls.list(tenant, {}, { limit: 10, order: "asc" });
      expect(data).toHaveLength(1);
      const existing = results.map(({ outcome }) => outcome).filter(({ kind }) => kind === "existing");
      for (const outcome of existing) expect(outcome).toEqual({ kind: "existing", by: "key", call: data[0] });
    });

    test("a key is the caller's own, for one route", async () => {
      const tenant = await fixture.newTenant();
      const [mine, yours] = [await fixture.newKey(tenant), await fixture.newKey(tenant)];
      const admit = async (key: typeof mine, route: string): Promise<string> =>
        (await fixture.calls.admit(withKey(tenant, key, { call: newTool({ idempotencyKey: "k", route }) }))).outcome
          .kind;
      expect(await admit(mine, "tools.invoke")).toBe("admitted");
      expect(await admit(yours, "tools.invoke")).toBe("admitted");
      expect(await admit(mine, "chat")).toBe("admitted");
      expect(await admit(mine, "tools.invoke")).toBe("existing");
    });

    test("a replay meets no limit of concurrency", async () => {
      const tenant = await fixture.newTenant({ concurrent_requests: 1, concurrent_tool_calls: 1 });
      const key = await fixture.newKey(tenant);
      const slots = { wanted: 1, required: true };
      const first = newChat({ idempotencyKey: "k" });
      await fixture.calls.admit(withKey(tenant, key, { call: first, slots }));
      const again = await fixture.calls.admit(withKey(tenant, key, { call: newChat({ idempotencyKey: "k" }), slots }));
      expect(again.outcome).toMatchObject({ kind: "existing", call: { id: first.id } });
    });

    test("a call gives its key up after a day", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const [old, next] = [newTool({ idempotencyKey: "k" }), newTool({ idempotencyKey: "k" })];
      await fixture.calls.admit(withKey(tenant, key, { call: old }));
      const age = "UPDATE calls SET created_at = created_at - ? WHERE tenant = ? AND id = ?";
      await fixture.run(age, 86_390_000, tenant, old.id);
      expect((await fixture.calls.admit(withKey(tenant, key, { call: next }))).outcome.kind).toBe("existing");
      await fixture.run(age, 20_000, tenant, old.id);
      expect((await fixture.calls.admit(withKey(tenant, key, { call: next }))).outcome.kind).toBe("admitted");
      expect(await fixture.row(tenant, old.id)).toMatchObject({ idempotencyKey: null });
      expect(await fixture.row(tenant, next.id)).toMatchObject({ idempotencyKey: "k" });
    });

    test("a key moves to the call that replaces an ended one, and stays where nothing is admitted", async () => {
      const tenant = await fixture.newTenant({ concurrent_requests: 1 });
      const key = await fixture.newKey(tenant);
      const keyed = (): ReturnType<typeof newChat> => newChat({ idempotencyKey: "k" });
      const first = keyed();
      await fixture.calls.admit(withKey(tenant, key, { call: first }));
      const early = await fixture.calls.admit(withKey(tenant, key, { call: keyed(), supersedes: first.id }));
      expect(early.outcome).toMatchObject({ kind: "existing", call: { id: first.id, state: "running" } });
      await fixture.calls.finish(tenant, first.id, 1, { state: "failed" });
      const blocker = newChat();
      await fixture.calls.admit(withKey(tenant, key, { call: blocker }));
      const refused = await fixture.calls.admit(withKey(tenant, key, { call: keyed(), supersedes: first.id }));
      expect(refused.outcome.kind).toBe("concurrency_limited");
      expect(await fixture.row(tenant, first.id)).toMatchObject({ idempotencyKey: "k" });
      await fixture.calls.finish(tenant, blocker.id, 1, { state: "completed" });
      const results = await times(4, (index) =>
        fixture.turn(index).calls.admit(withKey(tenant, key, { call: keyed(), supersedes: first.id })),
      );
      expect(tally(results)).toEqual({ admitted: 1, existing: 3 });
      expect(await fixture.row(tenant, first.id)).toMatchObject({ idempotencyKey: null, state: "failed" });
    });

    test("an SDK's retry attaches to the newest call of the same caller, route and content", async () => {
      const tenant = await fixture.newTenant();
      const [key, other] = [await fixture.newKey(tenant), await fixture.newKey(tenant)];
      const same = { inputHash: "hash-1" };
      const [older, newest] = [newChat(same), newChat(same)];
      await fixture.calls.admit(withKey(tenant, key, { call: older }));
      await fixture.run("UPDATE calls SET created_at = created_at - 5000 WHERE tenant = ?", tenant);
      await fixture.calls.admit(withKey(tenant, key, { call: newest }));
      const retry = async (change: object, by = key, supersedes?: string): Promise<AdmitResult["outcome"]> => {
        const call = newChat({ ...same, ...change });
        const options = {
          call,
          attach: { withinMs: 900_000, to: "any" as const },
          ...(supersedes === undefined ? {} : { supersedes }),
        };
        return (await fixture.turn(1).calls.admit(withKey(tenant, by, options))).outcome;
      };
      expect(await retry({})).toMatchObject({ kind: "existing", by: "retry", call: { id: newest.id } });
      expect(await retry({}, key, newest.id)).toMatchObject({ kind: "existing", call: { id: older.id } });
      await fixture.run("UPDATE calls SET created_at = created_at - 900001 WHERE tenant = ?", tenant);
      for (const change of [{ inputHash: "hash-2" }, { route: "api.chat" }, { idempotencyKey: "k" }, {}]) {
        expect(await retry(change)).toMatchObject({ kind: "admitted" });
      }
      expect(await retry({}, other)).toMatchObject({ kind: "admitted" });
    });

    test("a request that does not call itself a retry attaches only to what broke off after a write", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const ask = async (): Promise<{ readonly id: string; readonly outcome: AdmitResult["outcome"] }> => {
        const call = newChat({ inputHash: "hash-1" });
        const attach = { withinMs: 900_000, to: "broken_off" as const };
        const { outcome } = await fixture.turn(1).calls.admit(withKey(tenant, key, { call, attach }));
        return { id: call.id, outcome };
      };
      const broke = { code: "provider_unavailable", message: "busy" } as const;
      const ends: readonly (readonly [CallFinish, string])[] = [
        [{ state: "completed" }, "admitted"],
        [{ state: "failed", error: broke }, "admitted"],
        [{ state: "failed", error: { ...broke, details: { write_started: false } } }, "admitted"],
        [{ state: "failed", error: { ...broke, details: { write_started: true } } }, "existing"],
        [{ state: "cancelled", error: { ...broke, details: { write_started: true } } }, "existing"],
        [{ state: "failed", error: { ...broke, code: "chat_interrupted" } }, "existing"],
      ];
      for (const [finish, next] of ends) {
        await fixture.run("DELETE FROM calls WHERE tenant = ?", tenant);
        const first = await ask();
        expect((await ask()).outcome.kind).toBe("admitted");
        await fixture.run("DELETE FROM calls WHERE tenant = ? AND id <> ?", tenant, first.id);
        await fixture.calls.finish(tenant, first.id, 1, finish);
        const second = await ask();
        expect(second.outcome).toMatchObject(
          next === "admitted" ? { kind: next } : { kind: next, call: { id: first.id } },
        );
      }
      // A newer one that ended well is the one that counts.
      const call = newChat({ inputHash: "hash-1" });
      await fixture.calls.admit(withKey(tenant, key, { call }));
      await fixture.run("UPDATE calls SET created_at = created_at + 1 WHERE id = ?", call.id);
      await fixture.calls.finish(tenant, call.id, 1, { state: "completed" });
      expect((await ask()).outcome.kind).toBe("admitted");
    });
  });
}

function describeSessions(fixture: CallFixture): void {
  describe(`sessions and kept turns ${verifies("CHAT-8", "CHAT-20")}`, () => {
    test("a session is new once, then live, and used by every admitted request", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const manager = await fixture.newKey(tenant, { scopes: ["chat", "manage"] });
      const sessionId = newId("session");
      const first = await fixture.calls.admit(withKey(tenant, key, { call: newChat({ sessionId }), sessionId }));
      expect(first.session).toEqual({ state: "new", due: [] });
      for (const who of [key, manager]) {
        await fixture.run("UPDATE sessions SET last_used_at = last_used_at - 5000 WHERE id = ?", sessionId);
        const before = await fixture.repos[0].sessions.get(tenant, sessionId);
        const again = await fixture.calls.admit(withKey(tenant, who, { call: newChat({ sessionId }), sessionId }));
        expect(again.session?.state).toBe("live");
        const after = await fixture.repos[0].sessions.get(tenant, sessionId);
        expect(after?.lastUsedAt).toBeGreaterThan(before?.lastUsedAt ?? Number.NaN);
        expect(after?.callerId).toBe(key.id);
      }
    });

    test("another caller's session is foreign, expired or not, and what is due in it stays there", async () => {
      const tenant = await fixture.newTenant();
      const [key, other] = [await fixture.newKey(tenant), await fixture.newKey(tenant)];
      const sessionId = newId("session");
      await fixture.calls.admit(withKey(tenant, key, { call: newChat({ sessionId }), sessionId }));
      await fixture.rowIn(tenant, "completed", { sessionId, delivery: "due", async: true });
      const others = [
        withKey(tenant, other, { call: newChat({ sessionId }), sessionId }),
        { ...withKey(tenant, other, { sessionId }), principal: { kind: "known", caller: someUser } },
      ] as const;
      for (const idleMs of [0, 86_400_001]) {
        await fixture.run("UPDATE sessions SET last_used_at = last_used_at - ? WHERE id = ?", idleMs, sessionId);
        const before = await fixture.repos[0].sessions.get(tenant, sessionId);
        for (const input of others) {
          expect(await fixture.calls.admit(input)).toMatchObject({
            outcome: { kind: "refused", by: "session" },
            session: { state: "foreign", due: [] },
          });
        }
        expect(await fixture.repos[0].sessions.get(tenant, sessionId)).toEqual(before);
      }
    });

    test("a session that was idle too long is expired, for good, and nothing is recorded", async () => {
      const tenant = await fixture.newTenant({ session_idle_ms: 60_000 });
      const key = await fixture.newKey(tenant);
      const sessionId = newId("session");
      await fixture.repos[0].sessions.touch(tenant, sessionId, key.id, 60_000);
      await fixture.run("UPDATE sessions SET last_used_at = last_used_at - 60001 WHERE id = ?", sessionId);
      for (let attempt = 0; attempt < 2; attempt += 1) {
        const chat = newChat({ sessionId });
        const result = await fixture.calls.admit(withKey(tenant, key, { call: chat, sessionId }));
        expect(result).toMatchObject({ outcome: { kind: "refused", by: "session" }, session: { state: "expired" } });
        expect(await fixture.calls.get(tenant, chat.id)).toBeUndefined();
        await fixture.repos[0].sessions.takeExpired(1_000);
      }
    });

    test("another tenant's session is foreign; it is neither used nor taken over", async () => {
      const [tenant, other] = [await fixture.newTenant(), await fixture.newTenant()];
      const key = await fixture.newKey(tenant);
      const sessionId = newId("session");
      await fixture.repos[0].sessions.touch(other, sessionId, "key_other", 60_000);
      const before = await fixture.repos[0].sessions.get(other, sessionId);
      const chat = newChat({ sessionId });
      const result = await fixture.calls.admit(withKey(tenant, key, { call: chat, sessionId }));
      expect(result).toMatchObject({
        outcome: { kind: "refused", by: "session" },
        session: { state: "foreign", due: [] },
      });
      expect(await fixture.calls.get(tenant, chat.id)).toBeUndefined();
      expect(await fixture.repos[0].sessions.get(other, sessionId)).toEqual(before);
      expect(await fixture.repos[0].sessions.get(tenant, sessionId)).toBeUndefined();
    });

    test("results that are due come with their session's next request until they were handed over", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const sessionId = newId("session");
      const due = { sessionId, delivery: "due", async: true } as const;
      const older = await fixture.rowIn(tenant, "completed", due);
      await fixture.run("UPDATE calls SET created_at = created_at - 1 WHERE id = ?", older);
      await fixture.repos[0].sessions.touch(tenant, sessionId, key.id, 60_000);
      const done = await fixture.rowIn(tenant, "queued", due);
      const rejected = await fixture.rowIn(tenant, "rejected", due);
      await fixture.rowIn(tenant, "queued", due);
      const unasked = await fixture.rowIn(tenant, "completed", { sessionId });
      await fixture.rowIn(tenant, "completed", { ...due, sessionId: newId("session") });
      await fixture.calls.claim(tenant, done, { leaseMs: 60_000, concurrency: 16 });
      const outcome = { text: "42", mediaType: "text/plain", bytes: 2 };
      await fixture.calls.finish(tenant, done, 1, { state: "completed", outcome });
      const chat = newChat({ sessionId });
      const first = await fixture.calls.admit(withKey(tenant, key, { call: chat, sessionId }));
      expect(first.session?.due.map(({ id }) => id).toSorted()).toEqual([done, rejected].toSorted());
      expect(first.session?.due.find(({ id }) => id === done)).toMatchObject({ outcome, state: "completed" });
      const delivered = [done, rejected, unasked];
      const settled = { callId: chat.id, attempt: 1, finish: { state: "completed" }, delivered, sessionId } as const;
      await fixture.calls.settle(tenant, { ...settled, calls: [], finished: [] });
      const next = await fixture.calls.admit(withKey(tenant, key, { call: newChat({ sessionId }), sessionId }));
      expect(next.session).toEqual({ state: "live", due: [] });
      expect(await fixture.row(tenant, done)).toMatchObject({ delivery: "delivered" });
      expect(await fixture.row(tenant, unasked)).toMatchObject({ delivery: "none" });
    });

    test("a result that is due and cannot be read keeps no other from its session", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const sessionId = newId("session");
      await fixture.repos[0].sessions.touch(tenant, sessionId, key.id, 60_000);
      const due = { sessionId, delivery: "due", async: true } as const;
      const [broken, whole] = [
        await fixture.rowIn(tenant, "rejected", due),
        await fixture.rowIn(tenant, "rejected", due),
      ];
      await fixture.run("UPDATE calls SET caller_chain = '{' WHERE id = ?", broken);
      const asked = withKey(tenant, key, { call: newChat({ sessionId }), sessionId });
      expect((await fixture.calls.admit(asked)).session?.due.map(({ id }) => id)).toEqual([whole]);
    });

    test("a session that nobody had named begins with the call that leaves something to come, for its caller", async () => {
      const tenant = await fixture.newTenant();
      const [key, other] = [await fixture.newKey(tenant), await fixture.newKey(tenant)];
      const sessionId = newId("session");
      const chat = newChat({ sessionId });
      await fixture.calls.admit(withKey(tenant, key, { call: chat }));
      const done = await fixture.rowIn(tenant, "rejected", { sessionId, delivery: "due", async: true });
      const settled = { callId: chat.id, attempt: 1, finish: { state: "completed" }, beginsSession: true } as const;
      for (const sending of [0, 1]) {
        await fixture.turn(sending).calls.settle(tenant, {
          ...settled,
          sessionId,
          calls: [],
          finished: [],
          delivered: [],
        });
      }
      const next = withKey(tenant, key, { call: newChat({ sessionId }), sessionId });
      expect((await fixture.calls.admit(next)).session?.due.map(({ id }) => id)).toEqual([done]);
      const theirs = await fixture.calls.admit(withKey(tenant, other, { call: newChat({ sessionId }), sessionId }));
      expect(theirs.session).toMatchObject({ state: "foreign", due: [] });
    });

    test("a kept turn is read by its caller on any instance, as often as asked, until it expires", async () => {
      const [tenant, elsewhere] = [await fixture.newTenant(), await fixture.newTenant()];
      const [key, other] = [await fixture.newKey(tenant), await fixture.newKey(tenant)];
      const foreign = await fixture.newKey(elsewhere);
      const chat = newChat();
      await fixture.calls.admit(withKey(tenant, key, { call: chat }));
      const keepTurn = {
        key: newId("turn"),
        callerId: key.id,
        sealed: "sealed-turn",
        expiresAt: Date.now() + 86_400_000,
      };
      const settled = { callId: chat.id, attempt: 1, finish: { state: "completed" }, keepTurn } as const;
      await fixture.calls.settle(tenant, { ...settled, calls: [], finished: [], delivered: [] });
      const read = async (index: number, of = tenant, by = key): Promise<AdmitResult["turns"]> =>
        (await fixture.turn(index).calls.admit(withKey(of, by, { turnKeys: [keepTurn.key, "turn_none"] }))).turns;
      expect(await read(0)).toEqual([keepTurn]);
      expect(await read(1)).toEqual([keepTurn]);
      expect(await read(0, tenant, other)).toEqual([]);
      expect(await read(0, elsewhere, foreign)).toEqual([]);
      await fixture.run("UPDATE kept_turns SET expires_at = 1 WHERE tenant = ?", tenant);
      expect(await read(0)).toEqual([]);
    });
  });
}

function describeLostReplies(fixture: CallFixture): void {
  describe("a reply that was lost", () => {
    const lose = (): boolean => {
      fixture.instances.proxy?.faults.push({ kind: "lost-after" });
      return fixture.instances.proxy !== undefined;
    };

    test("does not record, count or reserve an admission twice, nor call its session old", async () => {
      const sent = await withinOneMinute(fixture, async () => {
        const tenant = await fixture.newTenant();
        const key = await fixture.newKey(tenant, { requestsPerMinute: 50 });
        const sessionId = newId("session");
        const chat = newChat({ idempotencyKey: "k", inputHash: "h", sessionId });
        const input = {
          call: chat,
          sessionId,
          slots: { wanted: 5, required: true },
          attach: { withinMs: 900_000, to: "any" as const },
        };
        lose();
        const result = await fixture.calls.admit(withKey(tenant, key, input));
        const counts = await fixture.run("SELECT count FROM rate_windows WHERE tenant = ? ORDER BY scope", tenant);
        const { data } = await fixture.calls.list(tenant, {}, { limit: 10, order: "asc" });
        return { result, counts, data, chat };
      });
      expect(sent.result).toMatchObject({
        outcome: { kind: "admitted", slots: 5 },
        session: { state: "new" },
        rate: { limit: 50, remaining: 49 },
      });
      expect(sent.counts).toEqual([{ count: 1 }, { count: 1 }]);
      expect(sent.data.map(({ id, slots, attempt }) => ({ id, slots, attempt }))).toEqual([
        { id: sent.chat.id, slots: 5, attempt: 1 },
      ]);
    });

    test("ends a counted request without a row, which could not be told from a second one", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const sent = async (): Promise<unknown> =>
        fixture.calls.admit(withKey(tenant, key)).then(
          ({ outcome }) => outcome.kind,
          (error: unknown) => (error instanceof Error && "code" in error ? error.code : error),
        );
      const isRemote = lose();
      expect(await sent()).toBe(isRemote ? "database_unavailable" : "admitted");
    });

    test(`costs nothing but the trip: an admission is one, a settlement is one ${verifies("CHAT-12")}`, async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const sessionId = newId("session");
      const chat = newChat({ idempotencyKey: "k", sessionId });
      const trips = (): number => fixture.instances.proxy?.trips() ?? 0;
      const before = trips();
      await fixture.calls.admit(
        withKey(tenant, key, { call: chat, sessionId, turnKeys: ["t"], attach: { withinMs: 1, to: "any" as const } }),
      );
      const between = trips();
      await fixture.calls.settle(tenant, {
        callId: chat.id,
        attempt: 1,
        finish: { state: "completed" },
        calls: [newTool({ parentId: chat.id, state: "completed", end: { state: "completed" } })],
        finished: [],
        keepTurn: { key: "t", callerId: key.id, sealed: "s", expiresAt: 1 },
        delivered: [chat.id],
        sessionId,
      });
      const expected = fixture.instances.proxy === undefined ? 0 : 1;
      expect([between - before, trips() - between]).toEqual([expected, expected]);
    });
  });
}
