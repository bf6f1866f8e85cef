/** The life of a call: recorded, claimed, held, ended, decided about; each step of the state machine. */
import { callStates, type CallState } from "@toolyard/core/calls/call";
import { mostInterruptions } from "@toolyard/core/calls/interruptions";
import { newId } from "@toolyard/core/ids";
import type { CallFinish, NewCall, RecordResult } from "@toolyard/core/ports/calls";
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
const completed: CallFinish = { state: "completed", outcome: { text: "ok", mediaType: "text/plain", bytes: 2 } };

export function describeCallLife(make: MakeInstances): void {
  describe("life of a call", () => {
    const fixture = useCallFixture(make);
    describeRecording(fixture);
    describeSettling(fixture);
    describeClaims(fixture);
    describeStates(fixture);
    describeDecisions(fixture);
    describeLaterNews(fixture);
    describeLostReplies(fixture);
  });
}

function describeRecording(fixture: CallFixture): void {
  describe("recording", () => {
    test("keeps each row of a round as it was given, in whatever state", async () => {
      const tenant = await fixture.newTenant();
      const runAt = Date.now() + hour;
      const rows = [
        newTool({
          sessionId: "s",
          delivery: "due",
          deadlineMs: null,
          parentId: "chat_1",
          rootId: "chat_0",
          effectKey: "e",
        }),
        newTool({ state: "queued", async: true, runAt, effect: "read", repeat: "key", toolHash: null, input: null }),
        newTool({
          state: "input_required",
          callerChain: [
            { kind: "user", id: "ü" },
            { kind: "chat", id: "c" },
          ],
        }),
        newTool({
          state: "rejected",
          end: {
            state: "rejected",
            error: { code: "invalid_arguments", message: "city", details: { pointer: "/city" } },
          },
        }),
      ];
      const results = await fixture.calls.record(tenant, "key_1", rows);
      expect(results).toEqual(rows.map(({ id }) => ({ id, kind: "recorded" })));
      for (const { leaseMs: _lease, deadlineMs: _deadline, end, ...given } of rows) {
        const stored = await fixture.row(tenant, given.id);
        expect(stored).toMatchObject({ ...given, tenant, callerId: "key_1", error: end?.error ?? null, outcome: null });
        expect(stored.attempt).toBe(given.state === "running" ? 1 : 0);
        expect(stored.leaseUntil === null).toBe(given.state !== "running");
        expect(stored.finishedAt === null).toBe(given.state !== "rejected");
      }
      expect(await fixture.calls.record(tenant, "key_1", [])).toEqual([]);
    });

    test("of ten processes that record one effect at once, one does, and nine are given its call", async () => {
      const tenant = await fixture.newTenant();
      const results = await times(10, (index) =>
        fixture
          .turn(index)
          .calls.record(tenant, "key_1", [
            newTool({ rootId: "chat_root", effectKey: "write-1" }),
            newTool({ rootId: "chat_root" }),
          ]),
      );
      const firsts = results.flatMap(([first]) => (first === undefined ? [] : [first]));
      const winners = firsts.filter(({ kind }) => kind === "recorded").map(({ id }) => id);
      expect(winners).toHaveLength(1);
      const existing = firsts.flatMap((result) => (result.kind === "existing" ? [result.call.id] : []));
      expect(existing).toEqual(Array.from({ length: 9 }, () => winners[0]));
      // A row that meets another's effect takes nothing from its neighbours.
      expect(results.map(([, second]) => second?.kind)).toEqual(Array.from({ length: 10 }, () => "recorded"));
    });

    test("an effect is one under its root and its tenant only", async () => {
      const [tenant, other] = [await fixture.newTenant(), await fixture.newTenant()];
      const effect = (rootId: string): NewCall => newTool({ rootId, effectKey: "write-1" });
      const kind = async (of: string, rootId: string): Promise<RecordResult["kind"] | undefined> =>
        (await fixture.calls.record(of, "key_1", [effect(rootId)]))[0]?.kind;
      expect(await kind(tenant, "chat_a")).toBe("recorded");
      expect(await kind(tenant, "chat_b")).toBe("recorded");
      expect(await kind(other, "chat_a")).toBe("recorded");
      expect(await kind(tenant, "chat_a")).toBe("existing");
    });

    test("an idempotency key that is taken gives its call back, unless that is older than a day", async () => {
      const tenant = await fixture.newTenant();
      const keyed = (): NewCall => newTool({ idempotencyKey: "k" });
      const [first, second, third] = [keyed(), keyed(), keyed()];
      await fixture.calls.record(tenant, "key_1", [first]);
      expect(await fixture.calls.record(tenant, "key_1", [second])).toMatchObject([
        { id: second.id, kind: "existing", call: { id: first.id } },
      ]);
      await fixture.run("UPDATE calls SET created_at = created_at - 86400000 WHERE tenant = ?", tenant);
      expect(await fixture.calls.record(tenant, "key_1", [third])).toEqual([{ id: third.id, kind: "recorded" }]);
    });
  });
}

function describeSettling(fixture: CallFixture): void {
  describe(`settling ${verifies("CHAT-13")}`, () => {
    test("ends the chat, writes its reads with their times, and ends what else was running", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const chat = newChat();
      await fixture.calls.admit(withKey(tenant, key, { call: chat }));
      const write = newTool({ parentId: chat.id });
      await fixture.calls.record(tenant, key.id, [write]);
      const outcome = { text: "head", mediaType: "application/json", bytes: 90_000, blobKey: "ten/results/x" };
      const read = newTool({
        parentId: chat.id,
        effect: "read",
        end: { state: "completed", outcome },
        ran: { startedMsAgo: 900, finishedMsAgo: 400 },
      });
      const usage = {
        prompt_tokens: 3,
        completion_tokens: 4,
        total_tokens: 7,
        prompt_tokens_details: { cached_tokens: 1 },
      };
      await fixture.calls.settle(tenant, {
        callId: chat.id,
        attempt: 1,
        finish: { state: "completed", usage },
        calls: [read],
        finished: [
          { id: write.id, attempt: 1, finish: { state: "failed", error: { code: "tool_failed", message: "502" } } },
        ],
        delivered: [],
      });
      expect(await fixture.row(tenant, chat.id)).toMatchObject({ state: "completed", usage, leaseUntil: null });
      expect(await fixture.row(tenant, write.id)).toMatchObject({
        state: "failed",
        error: { code: "tool_failed", message: "502" },
      });
      const stored = await fixture.row(tenant, read.id);
      expect(stored).toMatchObject({ state: "completed", outcome, callerId: key.id, attempt: 1, leaseUntil: null });
      expect((stored.finishedAt ?? 0) - (stored.startedAt ?? 0)).toBe(500);
    });

    test("of an older attempt leaves the chat to its new owner, and still keeps what was done", async () => {
      const tenant = await fixture.newTenant();
      const key = await fixture.newKey(tenant);
      const chat = newChat();
      await fixture.calls.admit(withKey(tenant, key, { call: chat }));
      await fixture.loseLease(tenant, chat.id);
      await fixture.repos[1].calls.claim(tenant, chat.id, { leaseMs: 60_000, concurrency: 1 });
      const read = newTool({ parentId: chat.id, end: completed });
      const keepTurn = { key: newId("turn"), callerId: key.id, sealed: "s", expiresAt: Date.now() + hour };
      const late = {
        callId: chat.id,
        attempt: 1,
        finish: completed,
        calls: [read],
        finished: [],
        keepTurn,
        delivered: [],
      };
      await fixture.calls.settle(tenant, late);
      expect(await fixture.row(tenant, chat.id)).toMatchObject({ state: "running", attempt: 2 });
      expect(await fixture.row(tenant, read.id)).toMatchObject({ state: "completed" });
      const { turns } = await fixture.calls.admit(withKey(tenant, key, { turnKeys: [keepTurn.key] }));
      expect(turns).toEqual([keepTurn]);
    });

    test(`marks the credentials that were used: the user's where there is one ${verifies("BLIND-5")}`, async () => {
      const tenant = await fixture.newTenant();
      const { credentials } = fixture.repos[0];
      const put = (name: string, userId?: string) => {
        const level = userId === undefined ? ({ level: "tenant" } as const) : ({ level: "user", userId } as const);
        return credentials.put(tenant, { name, version: 1, sealed: "x", ...level });
      };
      await put("mail");
      await put("mail", "ada");
      await put("mail", "bob");
      await put("weather");
      await put("unused");
      const id = await fixture.rowIn(tenant, "running", { callerChain: [{ kind: "user", id: "ada" }] });
      await fixture.calls.finish(tenant, id, 1, { ...completed, credentialsUsed: ["mail", "weather"] });
      const { data } = await credentials.list(tenant, { limit: 10, order: "asc" });
      const used = data.filter(({ lastUsedAt }) => lastUsedAt !== null).map(({ name, userId }) => `${name}/${userId}`);
      expect(used.toSorted()).toEqual(["mail/ada", "weather/null"]);
    });
  });
}

function describeClaims(fixture: CallFixture): void {
  describe("claims and leases", () => {
    const options = { leaseMs: 60_000, concurrency: 16 };

    test("of ten processes that claim one call at once, one wins", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "queued", { async: true });
      const claims = await times(10, (index) => fixture.turn(index).calls.claim(tenant, id, options));
      expect(claims.filter((claim) => claim === "busy")).toHaveLength(9);
      const [won] = claims.filter((claim) => typeof claim !== "string");
      expect(won).toMatchObject({ call: { interruptions: 0, id, state: "running", attempt: 1 } });
      expect(await fixture.row(tenant, id)).toMatchObject({ state: "running", attempt: 1 });
    });

    test("a call whose holder went silent is taken by one of ten others, who learn of it", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "queued", { async: true });
      await fixture.calls.claim(tenant, id, options);
      await fixture.loseLease(tenant, id);
      const claims = await times(10, (index) => fixture.turn(index).calls.claim(tenant, id, options));
      const won = claims.filter((claim) => typeof claim !== "string");
      expect(won).toMatchObject([{ call: { interruptions: 1, id, attempt: 2 } }]);
    });

    test("an older attempt can neither hold, end nor give back the call that another one took", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "queued", { async: true });
      await fixture.calls.claim(tenant, id, options);
      await fixture.loseLease(tenant, id);
      await fixture.repos[1].calls.claim(tenant, id, options);
      expect(await fixture.calls.heartbeat(tenant, id, 1, { leaseMs: 60_000 })).toBe("lost");
      expect(await fixture.calls.finish(tenant, id, 1, completed)).toBe(false);
      expect(await fixture.calls.park(tenant, id, 1, { inMs: 0 })).toBeUndefined();
      expect(await fixture.row(tenant, id)).toMatchObject({ state: "running", attempt: 2, outcome: null });
      expect(await fixture.repos[1].calls.finish(tenant, id, 2, completed)).toBe(true);
      expect(await fixture.row(tenant, id)).toMatchObject({ state: "completed", attempt: 2, outcome: { text: "ok" } });
    });

    test("a holder that was late but has not been replaced still holds the call", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "running", { async: true });
      await fixture.loseLease(tenant, id);
      expect(await fixture.calls.heartbeat(tenant, id, 1, { leaseMs: 60_000 })).toBe("ok");
      expect(await fixture.calls.claim(tenant, id, options)).toBe("busy");
      await fixture.loseLease(tenant, id);
      expect(await fixture.calls.finish(tenant, id, 1, completed)).toBe(true);
    });

    test("a call is not claimed before its time, and not where there is none or it has ended or waits", async () => {
      const tenant = await fixture.newTenant();
      const later = await fixture.rowIn(tenant, "queued", { async: true, runAt: Date.now() + hour });
      const early = await fixture.calls.claim(tenant, later, options);
      expect(early).toEqual({ dueInMs: expect.any(Number) });
      expect(typeof early === "object" && "dueInMs" in early && early.dueInMs).toBeLessThanOrEqual(hour);
      await fixture.run("UPDATE calls SET run_at = run_at - ? WHERE tenant = ?", 2 * hour, tenant);
      expect(await fixture.calls.claim(tenant, later, options)).toMatchObject({ call: { id: later } });
      expect(await fixture.calls.claim(tenant, "call_none", options)).toBe("gone");
      for (const state of ["completed", "failed", "cancelled", "unknown", "rejected", "input_required"] as const) {
        expect(await fixture.calls.claim(tenant, await fixture.rowIn(tenant, state), options)).toBe("gone");
      }
    });

    test(`a queued call waits for a free slot of its tenant ${verifies("CHAT-12")}`, async () => {
      const tenant = await fixture.newTenant();
      const two = { leaseMs: 60_000, concurrency: 2 };
      const ids = await times(5, () => fixture.rowIn(tenant, "queued", { async: true }));
      const claims = await times(5, (index) => fixture.turn(index).calls.claim(tenant, ids[index] ?? "", two));
      const waiting = { waitedMs: expect.any(Number), ahead: expect.any(Number) };
      const refused = claims.filter((claim) => typeof claim === "object" && "limit" in claim);
      expect(refused).toEqual(Array(3).fill({ limit: "concurrency", waiting }));
      const running = await fixture.calls.list(tenant, { state: "running" }, { limit: 10, order: "asc" });
      expect(running.data).toHaveLength(2);
      await fixture.calls.finish(tenant, running.data[0]?.id ?? "", 1, completed);
      const queued = await fixture.calls.list(tenant, { state: "queued" }, { limit: 10, order: "asc" });
      const next = queued.data[0]?.id ?? "";
      expect(await fixture.calls.claim(tenant, next, two)).toMatchObject({ call: { id: next } });
    });

    test("a call that waits hears for how long, and how many of its tenant have waited longer", async () => {
      const [tenant, other] = [await fixture.newTenant(), await fixture.newTenant()];
      await fixture.rowIn(tenant, "running", { slots: 1 });
      await times(3, () => fixture.rowIn(other, "queued", { async: true }));
      const ids = await times(60, () => fixture.rowIn(tenant, "queued", { async: true }));
      await fixture.rowIn(tenant, "queued", { async: true, runAt: Date.now() + hour });
      const began = Date.now() - hour;
      await Promise.all(
        ids.map((id, at) => fixture.run("UPDATE calls SET created_at = ?1 WHERE id = ?2", began + at * 1_000, id)),
      );
      const waitingAt = async (at: number) => {
        const claim = await fixture.calls.claim(tenant, ids[at] ?? "", { leaseMs: 60_000, concurrency: 1 });
        return typeof claim === "object" && "waiting" in claim ? claim.waiting : undefined;
      };
      expect(await waitingAt(0)).toEqual({ ahead: 0, waitedMs: expect.closeTo(hour, -5) });
      expect(await waitingAt(7)).toEqual({ ahead: 7, waitedMs: expect.closeTo(hour - 7_000, -5) });
      // No further than it makes a difference.
      expect((await waitingAt(59))?.ahead).toBe(30);
      // One that was postponed is in line since it was due.
      await fixture.run("UPDATE calls SET run_at = created_at + 30500 WHERE id = ?", ids[0] ?? "");
      expect((await waitingAt(0))?.ahead).toBe(30);
      expect((await waitingAt(7))?.ahead).toBe(6);
    });

    test.for([
      ["a chat", { kind: "chat", slots: 5 }],
      ["a write that must not be repeated", { repeat: "never" }],
      ["a read that somebody waited for", { effect: "read", async: false }],
    ] as const)("%s whose holder went silent is claimed without a slot, to be ended", async ([, change]) => {
      const tenant = await fixture.newTenant();
      await fixture.rowIn(tenant, "running", { slots: 1 });
      const id = await fixture.rowIn(tenant, "running", change);
      await fixture.loseLease(tenant, id);
      expect(await fixture.calls.claim(tenant, id, { leaseMs: 60_000, concurrency: 1 })).toMatchObject({
        call: { interruptions: 1, attempt: 2, slots: 0 },
      });
    });

    test("a read that one holder after the other went silent over is claimed without a slot, to be ended", async () => {
      const tenant = await fixture.newTenant();
      await fixture.rowIn(tenant, "running", { slots: 1 });
      const id = await fixture.rowIn(tenant, "running", { effect: "read", async: true });
      for (let times = 1; times < mostInterruptions; times += 1) {
        await fixture.loseLease(tenant, id);
        await fixture.calls.claim(tenant, id, options);
      }
      await fixture.loseLease(tenant, id);
      expect(await fixture.calls.claim(tenant, id, { leaseMs: 60_000, concurrency: 1 })).toMatchObject({
        call: { interruptions: mostInterruptions, slots: 0 },
      });
    });

    test("an asynchronous read whose holder went silent needs a slot to run again", async () => {
      const tenant = await fixture.newTenant();
      await fixture.rowIn(tenant, "running", { slots: 1 });
      const id = await fixture.rowIn(tenant, "running", { effect: "read", async: true });
      await fixture.loseLease(tenant, id);
      const claim = await fixture.calls.claim(tenant, id, { leaseMs: 60_000, concurrency: 1 });
      expect(claim).toMatchObject({ limit: "concurrency" });
    });

    test("how many holders in a row went silent is counted, and a return begins anew", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "queued", { effect: "read", async: true });
      const seen: unknown[] = [];
      const claim = async (): Promise<void> => {
        const claimed = await fixture.repos[1].calls.claim(tenant, id, options);
        seen.push(typeof claimed === "object" && "call" in claimed ? claimed.call.interruptions : claimed);
      };
      await claim();
      for (let times = 1; times <= 2; times += 1) {
        await fixture.loseLease(tenant, id);
        await claim();
      }
      expect(await fixture.row(tenant, id)).toMatchObject({ interruptions: 2, attempt: 3 });
      await fixture.calls.park(tenant, id, 3, { inMs: 0 });
      await claim();
      expect(seen).toEqual([0, 1, 2, 0]);
    });

    test("a call that is let go stays running, comes back later, and counts as though it had not been claimed", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "running", { effect: "read", async: true });
      await fixture.loseLease(tenant, id);
      await fixture.calls.claim(tenant, id, options);
      expect(await fixture.calls.letGo(tenant, id, 1, hour)).toBe(false);
      expect(await fixture.calls.letGo(tenant, id, 2, hour)).toBe(true);
      expect(await fixture.row(tenant, id)).toMatchObject({ state: "running", interruptions: 0 });
      expect(await fixture.calls.claim(tenant, id, options)).toBe("busy");
      await fixture.loseLease(tenant, id);
      expect(await fixture.calls.claim(tenant, id, options)).toMatchObject({ call: { interruptions: 1, attempt: 3 } });
      const queued = await fixture.rowIn(tenant, "queued", { async: true });
      expect(await fixture.calls.letGo(tenant, queued, 0, hour)).toBe(false);
    });

    test("a row that cannot be read is claimed, counted and ended like any other", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "running", { effect: "read", async: true, parentId: "call_above" });
      await fixture.run("UPDATE calls SET usage = '{', caller_chain = '7' WHERE tenant = ? AND id = ?", tenant, id);
      await fixture.loseLease(tenant, id);
      expect(await fixture.calls.claim(tenant, id, options)).toEqual({
        unreadable: {
          attempt: 2,
          interruptions: 1,
          effect: "read",
          parentId: "call_above",
          cause: expect.any(Error),
        },
      });
      expect(await fixture.calls.claim(tenant, id, options)).toBe("busy");
      expect(await fixture.calls.finish(tenant, id, 2, { state: "failed" })).toBe(true);
      const [row] = await fixture.run("SELECT state FROM calls WHERE tenant = ? AND id = ?", tenant, id);
      expect(row?.["state"]).toBe("failed");
    });

    test("whose session it works in is told, and one that there is not is not begun", async () => {
      const [tenant, elsewhere] = [await fixture.newTenant(), await fixture.newTenant()];
      const { sessions } = fixture.repos[0];
      const [own, others] = [newId("session"), newId("session")];
      const [foreign, none] = [newId("session"), newId("session")];
      await sessions.touch(tenant, own, "key_test", hour);
      await sessions.touch(tenant, others, "key_other", hour);
      await sessions.touch(elsewhere, foreign, "key_test", hour);
      const ownerOf = async (sessionId: string | null): Promise<unknown> => {
        const id = await fixture.rowIn(tenant, "queued", { sessionId });
        const claim = await fixture.repos[1].calls.claim(tenant, id, options);
        return typeof claim === "object" && "call" in claim ? claim.sessionOwner : claim;
      };
      expect(await ownerOf(own)).toBe("key_test");
      expect(await ownerOf(others)).toBe("key_other");
      expect(await ownerOf(foreign)).toBe("");
      expect(await sessions.get(tenant, foreign)).toBeUndefined();
      expect(await ownerOf(null)).toBeUndefined();
      expect(await ownerOf(none)).toBeUndefined();
      expect(await sessions.get(tenant, none)).toBeUndefined();
    });

    test("a call given back runs again later, under the next attempt", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "queued", { async: true });
      await fixture.calls.claim(tenant, id, options);
      expect(await fixture.calls.park(tenant, id, 1, { inMs: hour })).toBe(hour);
      expect(await fixture.row(tenant, id)).toMatchObject({ state: "queued", leaseUntil: null, attempt: 1 });
      expect(await fixture.calls.claim(tenant, id, options)).toEqual({ dueInMs: expect.any(Number) });
      await fixture.run("UPDATE calls SET run_at = 1 WHERE tenant = ?", tenant);
      expect(await fixture.calls.claim(tenant, id, options)).toMatchObject({ call: { interruptions: 0, attempt: 2 } });
    });
  });
}

/** What may be done to a call, and the state in which each leaves it; a state that is not named stays. */
const steps: Readonly<
  Record<
    string,
    { readonly to: Partial<Record<CallState, CallState>>; run(fixture: CallFixture, row: Row): Promise<unknown> }
  >
> = {
  "finish: completed": { to: { running: "completed", unknown: "completed" }, run: finishing("completed") },
  "finish: failed": { to: { running: "failed", unknown: "failed" }, run: finishing("failed") },
  "finish: unknown": { to: { running: "unknown" }, run: finishing("unknown") },
  "finish: cancelled": {
    to: { running: "cancelled", queued: "cancelled", input_required: "cancelled" },
    run: finishing("cancelled"),
  },
  "finish: rejected": {
    to: { running: "rejected", queued: "rejected", input_required: "rejected" },
    run: finishing("rejected"),
  },
  "finish of another attempt": {
    to: {},
    run: ({ calls }, { tenant, id, attempt }) => calls.finish(tenant, id, attempt + 1, completed),
  },
  "settlement of another attempt": {
    to: {},
    run: ({ calls }, { tenant, id, attempt }) =>
      calls.settle(tenant, {
        callId: id,
        attempt: attempt + 1,
        finish: completed,
        calls: [],
        finished: [],
        delivered: [],
      }),
  },
  "evidence of success": { to: { unknown: "completed" }, run: evidence("completed") },
  "evidence of failure": { to: { unknown: "failed" }, run: evidence("failed") },
  "evidence of nothing": { to: {}, run: evidence("cancelled") },
  claim: {
    to: { queued: "running" },
    run: ({ calls }, { tenant, id }) => calls.claim(tenant, id, { leaseMs: 60_000, concurrency: 16 }),
  },
  heartbeat: {
    to: {},
    run: ({ calls }, { tenant, id, attempt }) => calls.heartbeat(tenant, id, attempt, { leaseMs: 60_000 }),
  },
  "let go": {
    to: {},
    run: ({ calls }, { tenant, id, attempt }) => calls.letGo(tenant, id, attempt, 0).then(() => undefined),
  },
  park: {
    to: { running: "queued" },
    run: ({ calls }, { tenant, id, attempt }) => calls.park(tenant, id, attempt, { inMs: 0 }),
  },
  cancel: {
    to: { queued: "cancelled", input_required: "cancelled" },
    run: ({ calls }, { tenant, id }) => calls.requestCancel(tenant, id),
  },
  approve: {
    to: { input_required: "queued" },
    run: ({ calls }, { tenant, id }) => calls.decide(tenant, id, { by: "ada", decision: "approved" }),
  },
  reject: {
    to: { input_required: "rejected" },
    run: ({ calls }, { tenant, id }) => calls.decide(tenant, id, { by: "ada", decision: "rejected" }),
  },
  "recording it again": {
    to: {},
    run: ({ calls }, { tenant, id }) => calls.record(tenant, "key_test", [newTool({ id, state: "queued" })]),
  },
};

interface Row {
  readonly tenant: string;
  readonly id: string;
  readonly attempt: number;
}

function finishing(state: CallFinish["state"]) {
  return ({ calls }: CallFixture, { tenant, id, attempt }: Row): Promise<boolean> =>
    calls.finish(tenant, id, attempt, { state });
}

function evidence(state: CallFinish["state"]) {
  return ({ calls }: CallFixture, { tenant, id }: Row): Promise<boolean> => calls.resolveUnknown(tenant, id, { state });
}

function describeStates(fixture: CallFixture): void {
  describe("state machine", () => {
    const cases = callStates.flatMap((from) =>
      Object.entries(steps).map(([step, { to }]) => ({ from, step, to: to[from] ?? from })),
    );
    test.for(cases)("$from, $step: $to", async ({ from, step, to }) => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, from);
      const before = await fixture.row(tenant, id);
      const answer = await steps[step]?.run(fixture, { tenant, id, attempt: before.attempt });
      const after = await fixture.row(tenant, id);
      expect(after.state).toBe(to);
      expect(typeof answer === "boolean" ? answer : from !== to).toBe(from !== to);
      // A running call may be held longer or asked to stop; any other that stays where it is stays as it is.
      expect(after).toMatchObject(to === from && from !== "running" ? { ...before } : { id });
      expect(after.leaseUntil === null).toBe(to !== "running");
      expect(after.finishedAt === null).toBe(["queued", "running", "input_required"].includes(to));
    });
  });
}

function describeDecisions(fixture: CallFixture): void {
  describe("cancelling and approving", () => {
    test("what has not been sent is cancelled at once, what runs is asked to stop, children too", async () => {
      const tenant = await fixture.newTenant();
      const chat = newChat();
      await fixture.calls.record(tenant, "key_1", [chat]);
      const running = await fixture.rowIn(tenant, "running", { parentId: chat.id });
      const queued = await fixture.rowIn(tenant, "queued", { parentId: running, async: true });
      const waiting = await fixture.rowIn(tenant, "input_required", { parentId: chat.id });
      const done = await fixture.rowIn(tenant, "completed", { parentId: chat.id });
      const stranger = await fixture.rowIn(tenant, "running");
      expect(await fixture.calls.isCancelRequested(tenant, running)).toBe(false);
      expect(await fixture.calls.heartbeat(tenant, running, 1, { leaseMs: 60_000 })).toBe("ok");
      expect(await fixture.calls.requestCancel(tenant, chat.id)).toMatchObject({
        id: chat.id,
        state: "running",
        cancelRequested: true,
      });
      expect(await fixture.repos[1].calls.isCancelRequested(tenant, running)).toBe(true);
      expect(await fixture.calls.heartbeat(tenant, running, 1, { leaseMs: 60_000 })).toBe("cancel");
      for (const id of [queued, waiting]) {
        expect(await fixture.row(tenant, id)).toMatchObject({ state: "cancelled", error: { code: "call_cancelled" } });
      }
      expect(await fixture.row(tenant, done)).toMatchObject({ state: "completed", cancelRequested: false });
      expect(await fixture.row(tenant, stranger)).toMatchObject({ cancelRequested: false });
      expect(await fixture.calls.requestCancel(tenant, "call_none")).toBeUndefined();
      expect(await fixture.calls.isCancelRequested(tenant, "call_none")).toBe(false);
    });

    test("of people who approve and reject at once, one decides, and all see the same", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "input_required");
      const decided = await times(10, (index) =>
        fixture.turn(index).calls.decide(tenant, id, {
          by: `person-${index}`,
          decision: index % 2 === 0 ? "approved" : "rejected",
          ...(index % 3 === 0 ? {} : { reason: `because ${index}` }),
        }),
      );
      const stored = await fixture.row(tenant, id);
      expect(stored.state).toBe(stored.approval?.decision === "approved" ? "queued" : "rejected");
      for (const call of decided) expect(call).toEqual(stored);
    });

    test(`an approval names who, when and why, and hands the call to the workers ${verifies("CHAT-11")}`, async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "input_required");
      const decision = { by: "key_boss", decision: "approved", reason: 'fine, "really"' } as const;
      const approved = await fixture.calls.decide(tenant, id, decision);
      expect(approved).toMatchObject({ state: "queued", async: true, approval: decision, error: null });
      expect(Math.abs((approved?.approval?.at ?? 0) - Date.now())).toBeLessThan(60_000);
      const claim = await fixture.calls.claim(tenant, id, { leaseMs: 60_000, concurrency: 1 });
      expect(claim).toMatchObject({ call: { interruptions: 0, approval: decision } });
    });

    test("a call whose back end asks gives its lease up, and goes on with the answer to that very question", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "running");
      const error = { code: "input_required", message: "asks", details: { input_requests: { a: {} } } } as const;
      const asked = { state: "input_required", error, continued: { input: "asked", delivery: "due" } } as const;
      expect(await fixture.calls.finish(tenant, id, 2, asked)).toBe(false);
      expect(await fixture.calls.finish(tenant, id, 1, asked)).toBe(true);
      const waiting = { state: "input_required", error, input: "asked", leaseUntil: null, finishedAt: null };
      expect(await fixture.row(tenant, id)).toMatchObject({ ...waiting, delivery: "due", slots: 1, cost: null });
      const answer = { by: "key_1", decision: "approved" } as const;
      const late = { ...answer, answered: { input: "late", attempt: 2 } };
      expect(await fixture.calls.decide(tenant, id, late)).toMatchObject({ state: "input_required", input: "asked" });
      const fitting = { ...answer, answered: { input: "answered", attempt: 1 } };
      expect(await fixture.calls.decide(tenant, id, fitting)).toMatchObject({ state: "queued", error: null });
      const claim = await fixture.calls.claim(tenant, id, { leaseMs: 60_000, concurrency: 1 });
      expect(claim).toMatchObject({ call: { interruptions: 0, input: "answered", attempt: 2 } });
      expect(await fixture.calls.finish(tenant, id, 1, { state: "completed" })).toBe(false);
      expect(await fixture.calls.finish(tenant, id, 2, { state: "completed" })).toBe(true);
      expect(await fixture.row(tenant, id)).toMatchObject({ state: "completed", delivery: "due" });
    });

    test(`a call whose back end works on is nobody's to hold, keeps its first words, and ends later ${verifies("VCP-5")}`, async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "running", { reserved: { tokens: 5, micros: 7 } });
      const outcome = { text: "submitted", mediaType: "text/plain", bytes: 9 };
      const goesOn: CallFinish = { state: "running", outcome, worksOn: { withinMs: hour, delivery: "due" } };
      expect(await fixture.calls.finish(tenant, id, 2, goesOn)).toBe(false);
      expect(await fixture.calls.finish(tenant, id, 1, goesOn)).toBe(true);
      // A beat of its holder that was under way.
      await fixture.turn(1).calls.heartbeat(tenant, id, 1, { leaseMs: 1_000 });
      const row = await fixture.row(tenant, id);
      expect(row).toMatchObject({
        state: "running",
        async: true,
        outcome,
        slots: 0,
        reserved: { tokens: 0, micros: 0 },
        delivery: "due",
        finishedAt: null,
      });
      expect(row.leaseUntil ?? 0).toBeGreaterThan(Date.now() + hour / 2);
      expect(await fixture.turn(1).calls.finish(tenant, id, 1, completed)).toBe(true);
      expect(await fixture.row(tenant, id)).toMatchObject({
        state: "completed",
        outcome: completed.outcome,
        leaseUntil: null,
      });
      expect(await fixture.calls.finish(tenant, id, 1, goesOn)).toBe(false);
    });

    test(`a rejection ends the call with its reason ${verifies("CHAT-11")}`, async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "input_required");
      expect(
        await fixture.calls.decide(tenant, id, { by: "key_boss", decision: "rejected", reason: "too dear" }),
      ).toMatchObject({
        state: "rejected",
        error: { code: "call_rejected", message: "The call was rejected by 'key_boss': too dear." },
      });
      expect(await fixture.calls.decide(tenant, "call_none", { by: "x", decision: "approved" })).toBeUndefined();
    });
  });
}

function describeLostReplies(fixture: CallFixture): void {
  describe("a reply that was lost", () => {
    /** The next batch is carried out, and its answer never arrives (where there is a server). */
    const lose = (): void => void fixture.instances.proxy?.faults.push({ kind: "lost-after" });
    const options = { leaseMs: 60_000, concurrency: 16 };

    test("does not record a round twice or take it for another's", async () => {
      const tenant = await fixture.newTenant();
      const rows = [newTool({ rootId: "chat_r", effectKey: "e" }), newTool({ idempotencyKey: "k" }), newTool()];
      lose();
      expect(await fixture.calls.record(tenant, "key_1", rows)).toEqual(
        rows.map(({ id }) => ({ id, kind: "recorded" })),
      );
      expect((await fixture.calls.list(tenant, {}, { limit: 10, order: "asc" })).data).toHaveLength(3);
    });

    test("does not claim a call twice, nor take a fresh call for an abandoned one", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "queued", { async: true, repeat: "never" });
      lose();
      expect(await fixture.calls.claim(tenant, id, options)).toMatchObject({
        call: { interruptions: 0, attempt: 1, slots: 1 },
      });
      await fixture.loseLease(tenant, id);
      lose();
      expect(await fixture.calls.claim(tenant, id, options)).toMatchObject({
        call: { interruptions: 1, attempt: 2, slots: 0 },
      });
    });

    test("does not count one interruption twice, nor take one back twice", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "running", { effect: "read", async: true });
      await fixture.loseLease(tenant, id);
      lose();
      expect(await fixture.calls.claim(tenant, id, options)).toMatchObject({ call: { interruptions: 1 } });
      await fixture.loseLease(tenant, id);
      expect(await fixture.calls.claim(tenant, id, options)).toMatchObject({ call: { interruptions: 2 } });
      lose();
      expect(await fixture.calls.letGo(tenant, id, 3, 0)).toBe(true);
      expect(await fixture.row(tenant, id)).toMatchObject({ interruptions: 1 });
    });

    test("does not make an end, a return or evidence look like somebody else's", async () => {
      const tenant = await fixture.newTenant();
      const [ended, returned] = [await fixture.rowIn(tenant, "running"), await fixture.rowIn(tenant, "running")];
      const unknown = await fixture.rowIn(tenant, "unknown");
      lose();
      expect(await fixture.calls.finish(tenant, ended, 1, completed)).toBe(true);
      expect(await fixture.calls.finish(tenant, ended, 1, completed)).toBe(false);
      lose();
      expect(await fixture.calls.park(tenant, returned, 1, { inMs: 0 })).toBe(0);
      lose();
      expect(await fixture.calls.resolveUnknown(tenant, unknown, completed)).toBe(true);
      expect(await fixture.calls.resolveUnknown(tenant, unknown, completed)).toBe(false);
    });

    test("does not settle, decide or cancel twice", async () => {
      const tenant = await fixture.newTenant();
      const chat = newChat();
      await fixture.calls.record(tenant, "key_1", [chat]);
      const waiting = await fixture.rowIn(tenant, "input_required");
      const queued = await fixture.rowIn(tenant, "queued");
      const read = newTool({ parentId: chat.id, end: completed });
      lose();
      await fixture.calls.settle(tenant, {
        callId: chat.id,
        attempt: 1,
        finish: completed,
        calls: [read],
        finished: [],
        delivered: [],
      });
      expect(await fixture.row(tenant, chat.id)).toMatchObject({ state: "completed" });
      expect((await fixture.calls.list(tenant, { parentId: chat.id }, { limit: 10, order: "asc" })).data).toHaveLength(
        1,
      );
      lose();
      expect(await fixture.calls.decide(tenant, waiting, { by: "a", decision: "approved" })).toMatchObject({
        state: "queued",
      });
      lose();
      expect(await fixture.calls.requestCancel(tenant, queued)).toMatchObject({ state: "cancelled" });
    });

    test("sent again after somebody else has moved the call on, finds nothing to do", async () => {
      const tenant = await fixture.newTenant();
      const id = await fixture.rowIn(tenant, "running");
      await fixture.calls.park(tenant, id, 1, { inMs: 0 });
      const tokenOf = async (): Promise<unknown> =>
        (await fixture.run("SELECT write_token FROM calls WHERE tenant = ? AND id = ?", tenant, id))[0]?.[
          "write_token"
        ];
      const token = await tokenOf();
      expect(token).toEqual(expect.any(String));
      await fixture.calls.requestCancel(tenant, id);
      // A sending is known by its token; one that fits would put the call back on the queue.
      expect(await tokenOf()).not.toBe(token);
    });
  });
}

function describeLaterNews(fixture: CallFixture): void {
  describe("what is heard later of what a call did", () => {
    const finish = async (
      tenant: string,
      text: string,
      change: Parameters<typeof newTool>[0] = {},
    ): Promise<string> => {
      const id = await fixture.rowIn(tenant, "running", change);
      const outcome = { text, mediaType: "application/json", bytes: text.length };
      await fixture.calls.finish(tenant, id, 1, { state: "completed", outcome });
      return id;
    };

    test("replaces the text that was read, and no other", async () => {
      const tenant = await fixture.newTenant();
      const id = await finish(tenant, "one");
      const [mine, theirs] = [fixture.calls, fixture.repos[1].calls];
      expect(await theirs.amendOutcome(tenant, id, { before: "one", after: "zwei ü" })).toBe(true);
      expect(await mine.amendOutcome(tenant, id, { before: "one", after: "three" })).toBe(false);
      expect(await fixture.row(tenant, id)).toMatchObject({
        state: "completed",
        outcome: { text: "zwei ü", bytes: 7 },
      });
      const stranger = await fixture.newTenant();
      expect(await mine.amendOutcome(stranger, id, { before: "zwei ü", after: "x" })).toBe(false);
      for (const state of ["running", "failed", "unknown"] as const) {
        const other = await fixture.rowIn(tenant, state);
        expect(await mine.amendOutcome(tenant, other, { before: "", after: "x" })).toBe(false);
      }
    });

    test("is found by what stands in the outcome, within an address and a time", async () => {
      const tenant = await fixture.newTenant();
      const id = await finish(tenant, '{"message_id":"a%_1"}', { uri: "sms://crm/code" });
      const wanted = { uriPrefix: "sms://crm/", text: '"message_id":"a%_1"', withinMs: hour };
      expect(await fixture.calls.findByOutcome(tenant, wanted)).toMatchObject({ id });
      const misses = [{ uriPrefix: "sms://cr%/" }, { uriPrefix: "sms://other/" }, { text: '"message_id":"a%"' }];
      for (const other of misses)
        expect(await fixture.calls.findByOutcome(tenant, { ...wanted, ...other })).toBeUndefined();
      expect(await fixture.calls.findByOutcome(await fixture.newTenant(), wanted)).toBeUndefined();
      await fixture.run("UPDATE calls SET created_at = created_at - ? WHERE tenant = ?", 2 * hour, tenant);
      expect(await fixture.calls.findByOutcome(tenant, wanted)).toBeUndefined();
    });
  });
}
