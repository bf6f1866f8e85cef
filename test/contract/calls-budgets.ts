/** Budgets over two instances: what is reserved, what is charged, and what is left when a process dies. */
import { budgetPeriods, type Amount, type BudgetPeriod, type BudgetState } from "@toolyard/core/budgets/budget";
import { noCost, type CallCost } from "@toolyard/core/budgets/cost";
import { newId } from "@toolyard/core/ids";
import type { NewBudget, UsageGroup, UsageSum } from "@toolyard/core/ports/budgets";
import type { AdmitResult, CallFinish, NewCall } from "@toolyard/core/ports/calls";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import {
  newChat,
  newTool,
  tally,
  times,
  useCallFixture,
  withKey,
  type CallFixture,
  type MakeInstances,
  type TestKey,
} from "./calls-fixture.ts";

const dayMs = 86_400_000;
const wide = { requests_per_minute: 1_000_000, concurrent_requests: 10_000, concurrent_tool_calls: 1_000 };

const tokens = (count: number): Amount => ({ tokens: count, micros: 0 });
const micros = (count: number): Amount => ({ tokens: 0, micros: count });
const costOf = (change: Partial<CallCost>): CallCost => ({ ...noCost, ...change });
const done = (cost: Partial<CallCost>): CallFinish => ({ state: "completed", cost: costOf(cost) });

export function describeBudgets(make: MakeInstances): void {
  describe(`budgets ${verifies("CHAT-12")}`, () => {
    const bench = new Bench(useCallFixture(make));
    describeReserving(bench);
    describeGoingOn(bench);
    describeQueued(bench);
    describeCharging(bench);
    describeWindows(bench);
    describeUsage(bench);
  });
}

/** So many at once as a server still answers in time. */
const atOnce = 20;

async function allOf<T, R>(items: readonly T[], work: (item: T, at: number) => Promise<R>): Promise<readonly R[]> {
  const results: R[] = [];
  const queue = items.entries();
  const worker = async (): Promise<void> => {
    for (const [at, item] of queue) results[at] = await work(item, at);
  };
  await times(atOnce, worker);
  return results;
}

class Bench {
  readonly fixture: CallFixture;

  constructor(fixture: CallFixture) {
    this.fixture = fixture;
  }

  newTenant(): Promise<string> {
    return this.fixture.newTenant(wide);
  }

  async budget(tenant: string, change: Partial<NewBudget> = {}): Promise<string> {
    const limits = { limitTokens: null, limitMicros: null } as const;
    const budget = { name: "B", scope: "tenant", scopeId: "", period: "total", enabled: true, ...limits } as const;
    const { id } = await this.fixture.repos[0].budgets.create(tenant, newId("budget"), { ...budget, ...change });
    return id;
  }

  async state(tenant: string, id: string): Promise<BudgetState> {
    const state = await this.fixture.repos[1].budgets.get(tenant, id);
    if (state === undefined) throw new Error(`There is no budget '${id}'.`);
    return state;
  }

  admit(tenant: string, key: TestKey, call: NewCall, turn = 0): Promise<AdmitResult> {
    return this.fixture.turn(turn).calls.admit(withKey(tenant, key, { call }));
  }

  finish(tenant: string, id: string, finish: CallFinish, attempt = 1): Promise<boolean> {
    return this.fixture.calls.finish(tenant, id, attempt, finish);
  }

  async usage(tenant: string, groupBy: UsageGroup, callerId?: string): Promise<readonly UsageSum[]> {
    const span = { from: Date.now() - 2 * dayMs, to: Date.now() + 2 * dayMs };
    const query = { groupBy, ...span, ...(callerId === undefined ? {} : { callerId }) };
    return (await this.fixture.repos[0].usage.sum(tenant, query, { limit: 100, order: "asc" })).data;
  }
}

function describeReserving(bench: Bench): void {
  describe("reserving", () => {
    test("of 1,000 requests on two instances exactly as many are admitted as a budget holds", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      const id = await bench.budget(tenant, { limitTokens: 100, period: "month" });
      // Over a server each takes a trip; a part of them shows the same.
      const count = bench.fixture.instances.proxy === undefined ? 1_000 : 300;
      const chats = Array.from({ length: count }, () => newChat({ reserved: tokens(1) }));
      const results = await allOf(chats, (chat, at) => bench.admit(tenant, key, chat, at));
      expect(tally(results)).toEqual({ admitted: 100, over_budget: count - 100 });
      expect(await bench.state(tenant, id)).toMatchObject({ used: tokens(0), reserved: tokens(100) });

      const admitted = chats.filter((_chat, at) => results[at]?.outcome.kind === "admitted");
      await allOf(admitted, (chat, at) => bench.fixture.turn(at).calls.finish(tenant, chat.id, 1, done({ tokens: 1 })));
      expect(await bench.state(tenant, id)).toMatchObject({ used: tokens(100), reserved: tokens(0) });
      const { outcome } = await bench.admit(tenant, key, newChat({ reserved: tokens(1) }));
      expect(outcome).toMatchObject({
        kind: "over_budget",
        refusal: {
          budget: { id, scope: "tenant", scopeId: "", period: "month" },
          measure: "tokens",
          limit: 100,
          used: 100,
          reserved: 0,
          asked: 1,
        },
      });
    });

    test("counts money like tokens, and refuses by the budget that has no room", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      await bench.budget(tenant, { limitTokens: 1_000, limitMicros: 1_000 });
      const narrow = await bench.budget(tenant, { scope: "key", scopeId: key.id, period: "day", limitMicros: 30 });
      const results = await times(10, (at) =>
        bench.admit(tenant, key, newTool({ reserved: { tokens: 1, micros: 7 } }), at),
      );
      expect(tally(results)).toEqual({ admitted: 4, over_budget: 6 });
      const refusals = results.flatMap(({ outcome }) => (outcome.kind === "over_budget" ? [outcome.refusal] : []));
      for (const refusal of refusals) {
        expect(refusal).toMatchObject({ budget: { id: narrow }, measure: "micros", limit: 30, reserved: 28, asked: 7 });
      }
    });

    test("a budget is that of its tenant, its key or its user, and of nobody else", async () => {
      const tenant = await bench.newTenant();
      const [key, other] = [await bench.fixture.newKey(tenant), await bench.fixture.newKey(tenant)];
      const ofKey = await bench.budget(tenant, { scope: "key", scopeId: key.id, limitTokens: 10 });
      const ofUser = await bench.budget(tenant, { scope: "user", scopeId: "ada", limitTokens: 10 });
      const ask = (who: TestKey, userId: string | null): Promise<AdmitResult> =>
        bench.admit(tenant, who, newChat({ reserved: tokens(10), userId }));
      expect((await ask(key, null)).outcome.kind).toBe("admitted");
      expect((await ask(key, null)).outcome).toMatchObject({ refusal: { budget: { id: ofKey } } });
      expect((await ask(other, "ada")).outcome.kind).toBe("admitted");
      expect((await ask(other, "ada")).outcome).toMatchObject({ refusal: { budget: { id: ofUser, scopeId: "ada" } } });
      for (const userId of [null, "bob"]) expect((await ask(other, userId)).outcome.kind).toBe("admitted");
      const elsewhere = await bench.newTenant();
      const stranger = await bench.fixture.newKey(elsewhere);
      const foreign = newChat({ reserved: tokens(1_000), userId: "ada" });
      expect((await bench.admit(elsewhere, stranger, foreign)).outcome.kind).toBe("admitted");
    });

    test("what costs nothing passes a budget that is used up, and a disabled budget counts without refusing", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      const id = await bench.budget(tenant, { limitMicros: 0 });
      expect((await bench.admit(tenant, key, newTool({ reserved: tokens(50) }))).outcome.kind).toBe("admitted");
      expect((await bench.admit(tenant, key, newTool({ reserved: micros(1) }))).outcome.kind).toBe("over_budget");
      await bench.fixture.repos[1].budgets.update(tenant, id, { enabled: false });
      const call = newTool({ reserved: micros(1) });
      expect((await bench.admit(tenant, key, call)).outcome.kind).toBe("admitted");
      await bench.finish(tenant, call.id, done({ micros: 3 }));
      expect(await bench.state(tenant, id)).toMatchObject({ used: micros(3) });
    });

    test("a refused request leaves nothing behind: no row, no count, no reservation", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      const id = await bench.budget(tenant, { limitTokens: 5 });
      const before = await bench.admit(tenant, key, newChat({ reserved: tokens(5) }));
      const call = newChat({ reserved: tokens(1), idempotencyKey: "k" });
      const refused = await bench.admit(tenant, key, call);
      expect(refused.outcome.kind).toBe("over_budget");
      expect(refused.rate.remaining).toBeGreaterThanOrEqual(before.rate.remaining);
      expect(await bench.fixture.calls.get(tenant, call.id)).toBeUndefined();
      expect(await bench.state(tenant, id)).toMatchObject({ reserved: tokens(5) });
    });

    test("a lost reply reserves once", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      const id = await bench.budget(tenant, { limitTokens: 10 });
      const call = newChat({ reserved: tokens(10) });
      bench.fixture.instances.proxy?.faults.push({ kind: "lost-after" });
      expect((await bench.admit(tenant, key, call)).outcome.kind).toBe("admitted");
      expect(await bench.state(tenant, id)).toMatchObject({ reserved: tokens(10) });
    });

    test("a reservation lapses with the lease of a process that died, and the bill it left is charged once", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      const id = await bench.budget(tenant, { limitTokens: 100 });
      const chat = newChat({ reserved: tokens(100) });
      await bench.admit(tenant, key, chat);
      const spent = {
        usage: { prompt_tokens: 20, completion_tokens: 10, total_tokens: 30 },
        cost: costOf({ tokens: 30 }),
      };
      expect(await bench.fixture.calls.heartbeat(tenant, chat.id, 1, { leaseMs: 60_000, spent })).toBe("ok");
      expect((await bench.admit(tenant, key, newChat({ reserved: tokens(1) }))).outcome.kind).toBe("over_budget");
      await bench.fixture.loseLease(tenant, chat.id);
      expect(await bench.state(tenant, id)).toMatchObject({ used: tokens(0), reserved: tokens(0) });

      const claimed = await bench.fixture.repos[1].calls.claim(tenant, chat.id, { leaseMs: 60_000, concurrency: 1 });
      expect(claimed).toMatchObject({ call: { interruptions: 1, reserved: tokens(0), cost: spent.cost } });
      const interrupted: CallFinish = { state: "failed", error: { code: "chat_interrupted", message: "It died." } };
      expect(await bench.finish(tenant, chat.id, interrupted, 2)).toBe(true);
      expect(await bench.state(tenant, id)).toMatchObject({ used: tokens(30), reserved: tokens(0) });
      // The process was not dead, only slow: the row is not its any more.
      await bench.fixture.calls.settle(tenant, {
        callId: chat.id,
        attempt: 1,
        finish: done({ tokens: 40 }),
        calls: [],
        finished: [],
        delivered: [],
      });
      expect(await bench.state(tenant, id)).toMatchObject({ used: tokens(30) });
      expect(await bench.fixture.row(tenant, chat.id)).toMatchObject({ usage: spent.usage });
    });
  });
}

function describeGoingOn(bench: Bench): void {
  describe("a chat that needs more", () => {
    const spent = { cost: costOf({ tokens: 10 }) };

    test("takes it where there is room, beside what others hold, and is told where there is none", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      const id = await bench.budget(tenant, { limitTokens: 100 });
      const [chat, other] = [newChat({ reserved: tokens(40) }), newChat({ reserved: tokens(40) })];
      await bench.admit(tenant, key, chat);
      await bench.admit(tenant, key, other);
      const reserve = (amount: number) =>
        bench.fixture.calls.reserve(tenant, chat.id, 1, { amount: tokens(amount), spent });
      expect(await reserve(60)).toBeUndefined();
      expect(await bench.state(tenant, id)).toMatchObject({ reserved: tokens(100) });
      expect(await reserve(61)).toMatchObject({ budget: { id }, reserved: 40, asked: 61 });
      expect(await bench.state(tenant, id)).toMatchObject({ reserved: tokens(100) });
      expect(await bench.fixture.row(tenant, chat.id)).toMatchObject({ cost: spent.cost, reserved: tokens(60) });
      await bench.finish(tenant, other.id, done({ tokens: 5 }));
      expect(await reserve(95)).toBeUndefined();
      expect(await reserve(96)).toMatchObject({ used: 5, reserved: 0, asked: 96 });
    });

    test("two that want the last rest at once do not both get it", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      await bench.budget(tenant, { limitTokens: 30 });
      const chats = [newChat({ reserved: tokens(10) }), newChat({ reserved: tokens(10) })];
      for (const chat of chats) await bench.admit(tenant, key, chat);
      const answers = await Promise.all(
        chats.map(({ id }, at) => bench.fixture.turn(at).calls.reserve(tenant, id, 1, { amount: tokens(20), spent })),
      );
      expect(answers.filter((refusal) => refusal === undefined)).toHaveLength(1);
    });

    test("of which the row is somebody else's by now changes nothing", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      const id = await bench.budget(tenant, { limitTokens: 10 });
      const chat = newChat({ reserved: tokens(1) });
      await bench.admit(tenant, key, chat);
      await bench.fixture.loseLease(tenant, chat.id);
      await bench.fixture.repos[1].calls.claim(tenant, chat.id, { leaseMs: 60_000, concurrency: 1 });
      expect(await bench.fixture.calls.reserve(tenant, chat.id, 1, { amount: tokens(9), spent })).toBeUndefined();
      expect(await bench.state(tenant, id)).toMatchObject({ reserved: tokens(0) });
    });
  });
}

function describeQueued(bench: Bench): void {
  describe("a call that is run later", () => {
    const options = { leaseMs: 60_000, concurrency: 100 };
    const queued = (): NewCall => newTool({ state: "queued", async: true, reserved: micros(6) });

    test("reserves as it begins: of those that wait, as many run as the budget holds", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      const id = await bench.budget(tenant, { limitMicros: 20 });
      const calls = Array.from({ length: 8 }, queued);
      for (const call of calls) expect((await bench.admit(tenant, key, call)).outcome.kind).toBe("admitted");
      expect(await bench.state(tenant, id)).toMatchObject({ reserved: micros(0) });
      const claims = await Promise.all(
        calls.map((call, at) => bench.fixture.turn(at).calls.claim(tenant, call.id, options)),
      );
      const refused = claims.flatMap((claim) => (typeof claim === "object" && "refusal" in claim ? [claim] : []));
      expect(refused).toHaveLength(5);
      for (const { refusal, attempt } of refused) {
        expect(refusal).toMatchObject({ budget: { id }, reserved: 18, asked: 6 });
        expect(attempt).toBe(0);
      }
      expect(await bench.state(tenant, id)).toMatchObject({ reserved: micros(18) });
    });

    test("and is refused stays queued, until it is ended as rejected or there is room", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      await bench.budget(tenant, { limitMicros: 6 });
      const [first, second, third] = [queued(), queued(), queued()];
      for (const call of [first, second, third]) await bench.admit(tenant, key, call);
      expect(await bench.fixture.calls.claim(tenant, first.id, options)).toMatchObject({ call: { id: first.id } });
      for (const call of [second, third]) {
        expect(await bench.fixture.calls.claim(tenant, call.id, options)).toMatchObject({ refusal: { asked: 6 } });
        expect(await bench.fixture.row(tenant, call.id)).toMatchObject({ state: "queued", attempt: 0 });
      }
      const error = { code: "budget_exceeded", message: "no" } as const;
      expect(await bench.finish(tenant, third.id, { state: "rejected", error }, 0)).toBe(true);
      await bench.finish(tenant, first.id, { state: "completed" });
      expect(await bench.fixture.calls.claim(tenant, second.id, options)).toMatchObject({ call: { id: second.id } });
    });

    test("and was begun goes on after its process died, whatever is left by then", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      await bench.budget(tenant, { limitMicros: 6 });
      const [first, second] = [queued(), queued()];
      for (const call of [first, second]) await bench.admit(tenant, key, call);
      await bench.fixture.calls.claim(tenant, first.id, options);
      await bench.fixture.loseLease(tenant, first.id);
      expect(await bench.fixture.calls.claim(tenant, second.id, options)).toMatchObject({ call: { id: second.id } });
      expect(await bench.fixture.calls.claim(tenant, first.id, options)).toMatchObject({ call: { interruptions: 1 } });
    });

    test("and waits for a person is not refused before anybody has said yes", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      await bench.budget(tenant, { limitMicros: 0 });
      const call = newTool({ state: "input_required", reserved: micros(1) });
      expect((await bench.admit(tenant, key, call)).outcome.kind).toBe("admitted");
      await bench.fixture.calls.decide(tenant, call.id, { by: "boss", decision: "approved" });
      expect(await bench.fixture.calls.claim(tenant, call.id, options)).toMatchObject({ refusal: { asked: 1 } });
    });
  });
}

function describeCharging(bench: Bench): void {
  describe("charging", () => {
    test("is done once, however often an end is written and by whomever", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      const id = await bench.budget(tenant, { limitMicros: 1_000 });
      const lose = (): void => void bench.fixture.instances.proxy?.faults.push({ kind: "lost-after" });
      const chat = newChat();
      await bench.admit(tenant, key, chat);
      const write = newTool({ parentId: chat.id });
      await bench.fixture.calls.record(tenant, key.id, [write]);
      lose();
      await bench.finish(tenant, write.id, done({ micros: 3 }));
      expect(await bench.finish(tenant, write.id, done({ micros: 3 }))).toBe(false);
      const settlement = {
        callId: chat.id,
        attempt: 1,
        finish: done({ micros: 50 }),
        calls: [newTool({ parentId: chat.id, end: done({ micros: 4 }), ran: { startedMsAgo: 9, finishedMsAgo: 3 } })],
        finished: [{ id: write.id, attempt: 1, finish: done({ micros: 3 }) }],
        delivered: [],
      };
      lose();
      await bench.fixture.calls.settle(tenant, settlement);
      await bench.fixture.repos[1].calls.settle(tenant, settlement);
      expect(await bench.state(tenant, id)).toMatchObject({ used: micros(57) });
      expect(await bench.usage(tenant, "key")).toMatchObject([{ group: key.id, calls: 3, micros: 57 }]);
    });

    test("late evidence is charged for what it adds, and only for that", async () => {
      const tenant = await bench.newTenant();
      const id = await bench.budget(tenant, { limitMicros: 1_000 });
      const sent = await bench.fixture.rowIn(tenant, "running", { repeat: "never" });
      await bench.finish(tenant, sent, { state: "unknown", cost: costOf({ micros: 5 }) });
      const lost = await bench.fixture.rowIn(tenant, "running", { repeat: "never" });
      await bench.finish(tenant, lost, { state: "unknown" });
      expect(await bench.state(tenant, id)).toMatchObject({ used: micros(5) });
      for (const call of [sent, lost]) await bench.fixture.calls.resolveUnknown(tenant, call, done({ micros: 5 }));
      expect(await bench.state(tenant, id)).toMatchObject({ used: micros(10) });
      const dearer = await bench.fixture.rowIn(tenant, "running", { repeat: "never" });
      await bench.finish(tenant, dearer, { state: "unknown", cost: costOf({ micros: 5 }) });
      await bench.fixture.calls.resolveUnknown(tenant, dearer, done({ micros: 8 }));
      expect(await bench.state(tenant, id)).toMatchObject({ used: micros(18) });
      expect(await bench.usage(tenant, "tool")).toMatchObject([{ group: "weather", calls: 3, micros: 18 }]);
    });

    test("passes over calls that never ran", async () => {
      const tenant = await bench.newTenant();
      const refused = newTool({
        state: "rejected",
        end: { state: "rejected", error: { code: "invalid_arguments", message: "no" } },
      });
      await bench.fixture.calls.record(tenant, "key_1", [refused]);
      const cancelled = await bench.fixture.rowIn(tenant, "queued");
      await bench.fixture.calls.requestCancel(tenant, cancelled);
      const denied = await bench.fixture.rowIn(tenant, "input_required");
      await bench.fixture.calls.decide(tenant, denied, { by: "boss", decision: "rejected" });
      expect(await bench.usage(tenant, "day")).toEqual([]);
    });

    test("counts what ran until it was cancelled, failed or lost", async () => {
      const tenant = await bench.newTenant();
      const id = await bench.budget(tenant, { limitTokens: 1_000 });
      for (const state of ["cancelled", "failed", "unknown"] as const) {
        const call = await bench.fixture.rowIn(tenant, "running");
        await bench.finish(tenant, call, { state, cost: costOf({ tokens: 7 }) });
      }
      expect(await bench.state(tenant, id)).toMatchObject({ used: tokens(21) });
    });

    test("agrees with the rows, whatever becomes of them", async () => {
      const ends = ["completed", "failed", "cancelled", "unknown"] as const;
      const anEnd = fc.record({
        state: fc.constantFrom(...ends),
        scope: fc.constantFrom("chat", "tool"),
        user: fc.constantFrom(null, "ada", "bob"),
        tokens: fc.nat(1_000),
        micros: fc.nat(1_000),
        again: fc.boolean(),
      });
      await fc.assert(
        fc.asyncProperty(fc.array(anEnd, { minLength: 1, maxLength: 12 }), async (all) => {
          const tenant = await bench.newTenant();
          const total = await bench.budget(tenant, { limitMicros: 1 });
          const ofAda = await bench.budget(tenant, { scope: "user", scopeId: "ada", period: "month", limitTokens: 1 });
          await Promise.all(
            all.map(async ({ state, scope, user, again, ...amount }, at) => {
              const call = (scope === "chat" ? newChat : newTool)({ userId: user });
              await bench.fixture.calls.record(tenant, "key_1", [call]);
              const finish = { state, cost: costOf(amount) };
              for (const turn of again ? [at, at + 1] : [at]) {
                await bench.fixture.turn(turn).calls.finish(tenant, call.id, 1, finish);
              }
            }),
          );
          const sum = (of: typeof all, measure: "tokens" | "micros"): number =>
            of.reduce((rest, one) => rest + one[measure], 0);
          const adas = all.filter(({ user }) => user === "ada");
          expect((await bench.state(tenant, total)).used).toEqual({
            tokens: sum(all, "tokens"),
            micros: sum(all, "micros"),
          });
          expect((await bench.state(tenant, ofAda)).used).toEqual({
            tokens: sum(adas, "tokens"),
            micros: sum(adas, "micros"),
          });
          const rows = await bench.fixture.run(
            "SELECT SUM(cost ->> 'micros') AS micros FROM calls WHERE tenant = ? AND state NOT IN ('running', 'queued')",
            tenant,
          );
          expect(rows).toEqual([{ micros: sum(all, "micros") }]);
          const [day] = await bench.usage(tenant, "day");
          expect(day).toMatchObject({ calls: all.length, micros: sum(all, "micros") });
        }),
        { numRuns: 15 },
      );
    });
  });
}

function describeWindows(bench: Bench): void {
  describe("windows", () => {
    const starts: Readonly<Record<BudgetPeriod, (now: number) => number>> = {
      minute: (now) => now - (now % 60_000),
      hour: (now) => now - (now % 3_600_000),
      day: (now) => now - (now % dayMs),
      month: (now) => Date.UTC(new Date(now).getUTCFullYear(), new Date(now).getUTCMonth()),
      total: () => 0,
    };

    test.for(budgetPeriods)(
      "a %s begins and ends where it should, and what was used before it is over with it",
      async (period) => {
        const tenant = await bench.newTenant();
        const key = await bench.fixture.newKey(tenant);
        const id = await bench.budget(tenant, { period, limitTokens: 10 });
        const call = newChat({ reserved: tokens(10) });
        await bench.admit(tenant, key, call);
        const before = Date.now();
        await bench.finish(tenant, call.id, done({ tokens: 10 }));
        const state = await bench.state(tenant, id);
        expect([starts[period](before), starts[period](Date.now())]).toContain(state.windowStart);
        expect(state.windowEnd === null ? period : state.windowEnd > state.windowStart).toBe(
          state.windowEnd === null ? "total" : true,
        );
        expect(state.windowEnd === null ? null : starts[period](state.windowEnd)).toBe(state.windowEnd);

        await bench.fixture.run(
          "UPDATE budget_windows SET window_start = window_start - 1 WHERE budget_id = ? AND window_start > 0",
          id,
        );
        const isOver = period !== "total";
        const later = newChat({ reserved: tokens(10) });
        expect((await bench.admit(tenant, key, later)).outcome.kind).toBe(isOver ? "admitted" : "over_budget");
        await bench.finish(tenant, later.id, done({ tokens: 4 }));
        expect((await bench.state(tenant, id)).used).toEqual(tokens(isOver ? 4 : 10));
      },
    );

    test("a budget made in the middle of a day, a month or a life begins with what was used in it", async () => {
      const tenant = await bench.newTenant();
      const key = await bench.fixture.newKey(tenant);
      const chats = [newChat({ userId: "ada" }), newChat({ userId: "bob" })];
      for (const chat of chats) {
        await bench.admit(tenant, key, chat);
        await bench.finish(tenant, chat.id, done({ tokens: 8, micros: 2 }));
      }
      await bench.fixture.run(
        `INSERT INTO usage_days SELECT tenant, day - 40 * ${dayMs}, caller_id, user_id, model, tool, calls, tokens,
          prompt_tokens, completion_tokens, cached_tokens, micros, context_tokens, context_micros, estimated_calls
          FROM usage_days WHERE tenant = ?`,
        tenant,
      );
      const usedBy = async (change: Partial<NewBudget>): Promise<Amount> =>
        (await bench.state(tenant, await bench.budget(tenant, { limitTokens: 1, ...change }))).used;
      for (const period of ["day", "month"] as const)
        expect(await usedBy({ period })).toEqual({ tokens: 16, micros: 4 });
      expect(await usedBy({ period: "total" })).toEqual({ tokens: 32, micros: 8 });
      expect(await usedBy({ period: "day", scope: "user", scopeId: "ada" })).toEqual({ tokens: 8, micros: 2 });
      expect(await usedBy({ period: "total", scope: "key", scopeId: key.id })).toEqual({ tokens: 32, micros: 8 });
      for (const period of ["minute", "hour"] as const) expect(await usedBy({ period })).toEqual(tokens(0));
    });

    test("one scope has one budget for a period; to make it again is a conflict, and to delete it makes room", async () => {
      const tenant = await bench.newTenant();
      const id = await bench.budget(tenant, { period: "day", limitTokens: 1 });
      const again = bench.budget(tenant, { period: "day", limitTokens: 9 });
      await expect(again).rejects.toMatchObject({ code: "conflict", details: { param: "period" } });
      expect(await bench.fixture.repos[0].budgets.delete(tenant, id)).toBe(true);
      expect(await bench.fixture.run("SELECT * FROM budget_windows WHERE budget_id = ?", id)).toEqual([]);
      await bench.budget(tenant, { period: "day", limitTokens: 9 });
    });
  });
}

function describeUsage(bench: Bench): void {
  describe("usage", () => {
    test("is summed by day, key, user, model and tool, and is read by page", async () => {
      const tenant = await bench.newTenant();
      const keys = [await bench.fixture.newKey(tenant), await bench.fixture.newKey(tenant)];
      const tokenCost = { tokens: 15, micros: 7, prompt_tokens: 10, completion_tokens: 5, cached_tokens: 2 };
      for (const [at, key] of keys.entries()) {
        const chat = newChat({ tool: `model-${at}`, userId: at === 0 ? "ada" : null });
        await bench.admit(tenant, key, chat);
        const end = done({ micros: 3, context_tokens: 4, context_micros: 2 });
        await bench.fixture.calls.settle(tenant, {
          callId: chat.id,
          attempt: 1,
          finish: done({ ...tokenCost, estimated: at === 1 }),
          calls: [newTool({ parentId: chat.id, end, ran: { startedMsAgo: 2, finishedMsAgo: 1 }, userId: chat.userId })],
          finished: [],
          delivered: [],
        });
      }
      const both = { calls: 4, promptTokens: 20, completionTokens: 10, cachedTokens: 4, micros: 20, estimatedCalls: 1 };
      const today = new Date().toISOString().slice(0, 10);
      expect(await bench.usage(tenant, "day")).toMatchObject([
        { group: today, ...both, contextTokens: 8, contextMicros: 4 },
      ]);
      expect(await bench.usage(tenant, "key")).toMatchObject(
        keys.map(({ id }) => ({ group: id, calls: 2, micros: 10 })).toSorted((a, b) => (a.group < b.group ? -1 : 1)),
      );
      expect(await bench.usage(tenant, "user")).toMatchObject([
        { group: "", calls: 2 },
        { group: "ada", calls: 2 },
      ]);
      expect(await bench.usage(tenant, "model")).toMatchObject([
        { group: "model-0", calls: 1, micros: 7, contextMicros: 0 },
        { group: "model-1", calls: 1, micros: 7, estimatedCalls: 1 },
      ]);
      expect(await bench.usage(tenant, "tool")).toMatchObject([
        { group: "weather", calls: 2, micros: 6, contextMicros: 4 },
      ]);
      expect(await bench.usage(tenant, "model", keys[0]?.id)).toMatchObject([{ group: "model-0" }]);
      const span = { groupBy: "model", from: 0, to: Date.now() + dayMs } as const;
      const first = await bench.fixture.repos[1].usage.sum(tenant, span, { limit: 1, order: "desc" });
      expect(first).toMatchObject({ hasMore: true, data: [{ group: "model-1" }] });
      const next = await bench.fixture.repos[1].usage.sum(tenant, span, { limit: 1, order: "desc", after: "model-1" });
      expect(next).toMatchObject({ hasMore: false, data: [{ group: "model-0" }] });
      expect(await bench.usage(await bench.newTenant(), "day")).toEqual([]);
    });

    test("is asked of the days in between", async () => {
      const tenant = await bench.newTenant();
      await bench.finish(tenant, await bench.fixture.rowIn(tenant, "running"), done({ micros: 1 }));
      const start = Date.now() - (Date.now() % dayMs);
      const of = async (from: number, to: number): Promise<number> =>
        (await bench.fixture.repos[0].usage.sum(tenant, { groupBy: "day", from, to }, { limit: 9, order: "asc" })).data
          .length;
      expect(await of(start - dayMs, start)).toBe(0);
      expect(await of(start, start + 2 * dayMs)).toBe(1);
    });

    test("of a call holds what the calls below it cost, as far as they have ended", async () => {
      const tenant = await bench.newTenant();
      const { calls } = bench.fixture;
      const chat = newChat();
      const child = newTool({ parentId: chat.id });
      const grandchild = newTool({ parentId: child.id });
      const running = newTool({ parentId: chat.id });
      await calls.record(tenant, "key_1", [chat, child, grandchild, running]);
      await bench.finish(tenant, child.id, done({ micros: 10 }));
      await bench.finish(tenant, grandchild.id, done({ micros: 3 }));
      const below = await bench.fixture.repos[1].calls.costsBelow(tenant, [chat.id, child.id, running.id]);
      expect(below).toEqual(
        new Map([
          [chat.id, 13],
          [child.id, 3],
        ]),
      );
      expect(await calls.costsBelow(await bench.newTenant(), [chat.id])).toEqual(new Map());
    });

    test("shows a call with all that are below it, and nothing of another tenant", async () => {
      const tenant = await bench.newTenant();
      const { calls } = bench.fixture;
      const chat = newChat();
      const child = newTool({ parentId: chat.id });
      const grandchild = newTool({ parentId: child.id });
      await calls.record(tenant, "key_1", [chat, child, grandchild, newChat()]);
      const idsOf = async (id: string, limit: number): Promise<readonly string[]> =>
        (await bench.fixture.repos[1].calls.family(tenant, id, { limit })).map((call) => call.id);
      expect(new Set(await idsOf(chat.id, 10))).toEqual(new Set([chat.id, child.id, grandchild.id]));
      expect(await idsOf(chat.id, 2)).toHaveLength(2);
      expect(await idsOf(grandchild.id, 10)).toEqual([grandchild.id]);
      expect(await calls.family(await bench.newTenant(), chat.id, { limit: 10 })).toEqual([]);
      await bench.finish(tenant, child.id, done({ micros: 1 }));
      const open = await calls.family(tenant, chat.id, { limit: 2, isOpen: true });
      expect(new Set(open.map((call) => call.id))).toEqual(new Set([chat.id, grandchild.id]));
    });

    test("outlives the calls, for more than a year", async () => {
      const tenant = await bench.newTenant();
      await bench.finish(tenant, await bench.fixture.rowIn(tenant, "running"), done({ micros: 1 }));
      const daysOf = async (): Promise<unknown> =>
        bench.fixture.run("SELECT day FROM usage_days WHERE tenant = ?", tenant).then((rows) => rows.length);
      const age = (days: number) =>
        bench.fixture.run(`UPDATE usage_days SET day = day - ? WHERE tenant = ?`, days * dayMs, tenant);
      await age(390);
      await bench.fixture.calls.expire(1_000);
      expect(await daysOf()).toBe(1);
      await age(20);
      await bench.fixture.calls.expire(1_000);
      expect(await daysOf()).toBe(0);
    });
  });
}
