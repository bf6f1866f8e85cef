/** `ScheduleRepo`: who gets to fire what is due, and what becomes of firings. Runs over every kind of database. */
import { newId } from "@toolyard/core/ids";
import type { Call } from "@toolyard/core/calls/call";
import type { NewSchedule, Taking } from "@toolyard/core/ports/schedules";
import type { NewCall } from "@toolyard/core/ports/calls";
import type { Repos } from "@toolyard/core/ports/repos";
import { firingRoute, type Schedule } from "@toolyard/core/schedules/schedule";
import { beforeEach, describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import { newTool, useCallFixture, type MakeInstances } from "./calls-fixture.ts";

const minute = 60_000;
const caller = { kind: "key", id: "key_1", role: "member", scopes: ["tools"], tools: null } as const;

export function describeScheduleRepo(name: string, make: MakeInstances): void {
  describe(`schedules over a ${name} ${verifies("VCP-18")}`, () => {
    const fixture = useCallFixture(make);
    let tenant: string;
    let stranger: string;
    let now: number;
    beforeEach(async () => {
      tenant = await fixture.newTenant();
      stranger = await fixture.newTenant();
      ({ now } = await repos(0).schedules.due({ limit: 1, aheadMs: 0 }));
    });

    const repos = (instance: 0 | 1): Repos => fixture.turn(instance);

    const add = (change: Partial<NewSchedule> = {}, of = tenant): Promise<Schedule> =>
      repos(0).schedules.create(of, {
        id: newId("schedule"),
        name: null,
        taskId: null,
        given: { field: "rate", value: "1 minute" },
        timing: { kind: "rate", every_ms: minute, first: now },
        timeZone: "UTC",
        startAt: null,
        endAt: null,
        misfire: "once",
        target: "api://crm/ping",
        task: "sealed",
        deliver: {},
        caller,
        paused: false,
        nextAt: now,
        ...change,
      });

    const firing = ({ id }: Schedule, change: Partial<NewCall> = {}): NewCall =>
      newTool({ route: firingRoute, parentId: id, state: "queued", async: true, ...change });
    const taking = (schedule: Schedule, change: Partial<Taking> = {}): Taking => ({
      id: schedule.id,
      dueAt: now,
      nextAt: now + minute,
      takenAt: now,
      missedAt: null,
      callerId: caller.id,
      firings: [firing(schedule)],
      ...change,
    });
    const dueIds = async (instance: 0 | 1 = 1): Promise<readonly string[]> => {
      const { due } = await repos(instance).schedules.due({ limit: 100, aheadMs: 1_000 });
      return due.filter((each) => each.tenant === tenant).map(({ schedule }) => schedule.id);
    };
    const firingsOf = async ({ id }: Schedule): Promise<readonly Call[]> =>
      (await repos(1).calls.list(tenant, { parentId: id }, { limit: 100, order: "asc" })).data;

    test("comes back as it was made, to its tenant alone", async () => {
      const made = await add({ name: "Nightly", taskId: "t-1", deliver: { push: "desk" } });
      expect(await repos(1).schedules.get(tenant, made.id)).toEqual(made);
      expect(made).toMatchObject({ name: "Nightly", caller, fired: 0, lastCallId: null, takenAt: null, nextAt: now });
      expect(await repos(1).schedules.get(stranger, made.id)).toBeUndefined();
      const page = { limit: 10, order: "asc" } as const;
      expect((await repos(1).schedules.list(tenant, page)).data).toEqual([made]);
      expect((await repos(1).schedules.list(tenant, page, "key_2")).data).toEqual([]);
      expect((await repos(1).schedules.list(stranger, page)).data).toEqual([]);
      expect(await repos(1).schedules.targets(tenant)).toEqual([
        { id: made.id, name: "Nightly", target: "api://crm/ping" },
      ]);
      expect(await repos(1).schedules.delete(stranger, made.id)).toBe(false);
      expect(await repos(1).schedules.pause(stranger, made.id)).toBeUndefined();
    });

    test("names its tool as long as it may fire, paused or not", async () => {
      const paused = await add({ name: "Paused", paused: true });
      const ended = await add({ name: "Ended" });
      await repos(0).schedules.take(tenant, [taking(ended, { nextAt: null })]);
      expect(await repos(1).schedules.targets(tenant)).toEqual([
        { id: paused.id, name: "Paused", target: "api://crm/ping" },
      ]);
    });

    test("a task id is there once in a tenant", async () => {
      await add({ taskId: "t-1" });
      await expect(add({ taskId: "t-1" })).rejects.toMatchObject({ code: "conflict", details: { param: "task_id" } });
      await expect(add({ taskId: "t-2" })).resolves.toBeDefined();
    });

    test("a task id is free again once it has fired for the last time, and not before", async () => {
      const first = await add({ taskId: "t-1" });
      const last = { dueAt: now, nextAt: null, missedAt: null, callerId: caller.id, firings: [] };
      await repos(0).schedules.take(tenant, [{ ...last, id: first.id, takenAt: Date.now() + minute }]);
      await expect(add({ taskId: "t-1" })).rejects.toMatchObject({ code: "conflict" });
      const other = await add({ taskId: "t-2" });
      await repos(0).schedules.take(tenant, [{ ...last, id: other.id, takenAt: now - minute }]);
      expect(await add({ taskId: "t-2" })).toMatchObject({ taskId: "t-2", nextAt: now });
      expect(await repos(1).schedules.get(tenant, other.id)).toMatchObject({ taskId: null, fired: 0 });
    });

    test("is due when its time comes, and not while it is paused or its tenant suspended", async () => {
      const soon = await add();
      const later = await add({ nextAt: now + 10 * minute });
      const paused = await add({ paused: true });
      expect(await dueIds()).toEqual([soon.id]);
      await repos(0).schedules.resume(tenant, paused.id, now);
      expect((await dueIds()).toSorted()).toEqual([soon.id, paused.id].toSorted());
      await repos(0).tenants.update(tenant, { status: "suspended" });
      expect(await dueIds()).toEqual([]);
      expect(later.nextAt).toBe(now + 10 * minute);
    });

    test("each tenant's first comes before anybody's later ones, and some can be left out", async () => {
      const [first, second] = [await add(), await add({ nextAt: now + 1 })];
      const other = await add({ nextAt: now + 2 }, stranger);
      const read = async (limit: number, except: readonly string[] = []): Promise<readonly string[]> => {
        const { due } = await repos(1).schedules.due({ limit, aheadMs: 1_000, except: [...elsewhere, ...except] });
        return due.map(({ schedule }) => schedule.id);
      };
      // What other tests have left due.
      const { due } = await repos(0).schedules.due({ limit: 100, aheadMs: 1_000, except: [tenant, stranger] });
      const elsewhere = due.map((each) => each.tenant);
      expect(await read(2)).toEqual([first.id, other.id]);
      expect(await read(3)).toEqual([first.id, other.id, second.id]);
      expect(await read(3, [tenant])).toEqual([other.id]);
    });

    test("of all that take it at once, one has the firing on record, and it is due later", async () => {
      const schedule = await add();
      const takings = Array.from({ length: 8 }, () => taking(schedule));
      const taken = await Promise.all(
        takings.map((each, at) => repos(at % 2 === 0 ? 0 : 1).schedules.take(tenant, [each])),
      );
      expect(taken.flat()).toHaveLength(1);
      expect((await firingsOf(schedule)).map(({ id }) => id)).toEqual(taken.flat());
      expect(await repos(1).schedules.get(tenant, schedule.id)).toMatchObject({
        nextAt: now + minute,
        takenAt: now,
        fired: 1,
      });
      expect(await dueIds()).toEqual([]);
    });

    test("several are taken in one batch, each for itself", async () => {
      const [one, two, three] = [await add(), await add(), await add({ paused: true })] as const;
      const stale = taking(two, { dueAt: now - 1 });
      const fresh = taking(one);
      expect(await repos(1).schedules.take(tenant, [fresh, stale, taking(three)])).toEqual([fresh.firings[0]?.id]);
      expect(await repos(1).schedules.get(tenant, two.id)).toMatchObject({ nextAt: now, fired: 0 });
    });

    test("a pause calls off what has not begun, and its time comes again", async () => {
      const at = now + 10 * minute;
      const schedule = await add({ timing: { kind: "at", at }, nextAt: at });
      const once = taking(schedule, {
        dueAt: at,
        nextAt: null,
        takenAt: at,
        firings: [firing(schedule, { runAt: at })],
      });
      expect(await repos(0).schedules.take(tenant, [once])).toHaveLength(1);
      expect(await repos(1).schedules.pause(tenant, schedule.id)).toMatchObject({ paused: true, nextAt: at });
      expect(await firingsOf(schedule)).toMatchObject([{ state: "cancelled", error: { code: "call_cancelled" } }]);
      // What never began says nothing about the schedule.
      expect(await repos(1).schedules.get(tenant, schedule.id)).toMatchObject({ lastCallId: null, lastError: null });
      expect(await repos(0).schedules.resume(tenant, schedule.id, at)).toMatchObject({ paused: false, nextAt: at });
    });

    test("deletion leaves what runs alone", async () => {
      const schedule = await add();
      const [running, waiting] = [firing(schedule), firing(schedule, { state: "input_required" })] as const;
      await repos(0).schedules.take(tenant, [taking(schedule, { firings: [running, waiting] })]);
      await repos(0).calls.claim(tenant, running.id, { leaseMs: minute, concurrency: 10 });
      expect(await repos(1).schedules.delete(tenant, schedule.id, "key_stranger")).toBe(false);
      expect((await firingsOf(schedule)).map(({ state }) => state)).not.toContain("cancelled");
      expect(await repos(1).schedules.delete(tenant, schedule.id, schedule.caller.id)).toBe(true);
      const states = (await firingsOf(schedule)).map(({ id, state }) => [id, state]);
      expect(states).toEqual(
        expect.arrayContaining([
          [running.id, "running"],
          [waiting.id, "cancelled"],
        ]),
      );
      expect(await repos(1).schedules.delete(tenant, schedule.id)).toBe(false);
    });

    test("deletion of what is no schedule leaves the calls below it alone", async () => {
      const chat = { ...(await add()), id: newId("call") };
      await repos(0).calls.record(tenant, caller.id, [firing(chat), firing(chat, { state: "input_required" })]);
      expect(await repos(1).schedules.delete(tenant, chat.id)).toBe(false);
      expect((await firingsOf(chat)).map(({ state }) => state).toSorted()).toEqual(["input_required", "queued"]);
    });

    test("how the last firing ended is noted with its end, a refused one at once", async () => {
      const schedule = await add();
      const call = firing(schedule);
      await repos(0).schedules.take(tenant, [taking(schedule, { firings: [call] })]);
      await repos(0).calls.claim(tenant, call.id, { leaseMs: minute, concurrency: 10 });
      const error = { code: "tool_failed", message: "Down.", details: { secret: "no" } } as const;
      await repos(1).calls.finish(tenant, call.id, 1, { state: "failed", error });
      expect(await repos(1).schedules.get(tenant, schedule.id)).toMatchObject({
        lastCallId: call.id,
        lastState: "failed",
        lastError: { code: "tool_failed", message: "Down." },
      });
      const refused = firing(schedule, {
        state: "rejected",
        end: { state: "rejected", error: { code: "permission_denied", message: "No." } },
      });
      const next = taking(schedule, { dueAt: now + minute, nextAt: now + 2 * minute, firings: [refused] });
      expect(await repos(0).schedules.take(tenant, [next])).toEqual([]);
      expect(await repos(1).schedules.get(tenant, schedule.id)).toMatchObject({
        lastCallId: refused.id,
        lastState: "rejected",
        lastError: { code: "permission_denied", message: "No." },
        fired: 2,
      });
    });
  });
}
