/** Contract of `FlowRunRepo`: what a run writes counts while it holds its row, and whoever it waits for wakes it. */
import { newId } from "@toolyard/core/ids";
import type { FlowRunWrite, FlowStepWrite } from "@toolyard/core/ports/flow-runs";
import type { NewCall } from "@toolyard/core/ports/calls";
import { beforeEach, describe, expect, test } from "vitest";
import { verifies } from "../support/verifies.ts";
import { newTool, times, useCallFixture, type MakeInstances } from "./calls-fixture.ts";

const claiming = { leaseMs: 60_000, concurrency: 16 };
const outcome = { text: "{}", mediaType: "application/json", bytes: 2 };

function step(path: string, change: Partial<FlowStepWrite> = {}): FlowStepWrite {
  const nothing = {
    input: null,
    output: null,
    error: null,
    callId: null,
    questionId: null,
    progress: null,
    wakeAt: null,
  };
  return { path, node: path, kind: "tool", state: "running", attempt: 1, ...nothing, ...change };
}

export function describeFlowRunRepo(name: string, make: MakeInstances): void {
  describe(`runs of flows over a ${name} ${verifies("FLOW-1", "FLOW-2")}`, () => {
    const fixture = useCallFixture(make);
    let tenant: string;
    let run: string;

    beforeEach(async () => {
      tenant = await fixture.newTenant();
      run = await fixture.rowIn(tenant, "queued", { repeat: "resume", async: true, uri: "flow://f", tool: "f" });
      await fixture.calls.claim(tenant, run, claiming);
    });

    const write = (change: Partial<FlowRunWrite> = {}, index = 0) =>
      fixture.turn(index).flowRuns.write(tenant, {
        run,
        attempt: 1,
        steps: [],
        calls: [],
        concurrency: 16,
        ends: [],
        taken: [],
        ...change,
      });
    const child = (change: Partial<NewCall> = {}): NewCall =>
      newTool({ parentId: run, rootId: run, async: true, effectKey: newId("request"), ...change });
    const load = async () => {
      const loaded = await fixture.turn(1).flowRuns.load(tenant, run);
      if (loaded === undefined) throw new Error("the run is not there");
      return loaded;
    };

    test("keep their steps, numbered as they change, with the calls of those that are under way", async () => {
      const call = child();
      const written = await write({ steps: [step("a"), step("b", { callId: call.id })], calls: [call] });
      expect(written).toMatchObject({ held: true, cancelRequested: false, wakes: 0 });
      expect(written.states.get(call.id)).toBe("running");
      await write({ steps: [step("a", { state: "completed", output: { sealed: "x" } })] });
      const { steps, calls } = await load();
      expect(steps).toMatchObject([
        { path: "b", seq: 2, startedSeq: 2, finishedAt: null },
        {
          path: "a",
          seq: 3,
          startedSeq: 1,
          state: "completed",
          output: { sealed: "x" },
          finishedAt: expect.any(Number),
        },
      ]);
      expect(calls).toMatchObject([{ id: call.id, state: "running", callerId: "key_test", parentId: run }]);
      const changes = await fixture.turn(0).flowRuns.changes(tenant, run, 2, 10);
      expect(changes?.steps.map(({ path }) => path)).toEqual(["a"]);
    });

    test("tell what happened in pages, by when it happened first, with steps that go on long after the page", async () => {
      const paths = ["long", "a", "b", "c"];
      await write({ steps: paths.map((path) => step(path)) });
      await write({ steps: ["a", "b", "c"].map((path) => step(path, { state: "completed" })) });
      await write({ steps: [step("long", { state: "waiting" })] });
      const page = await fixture.turn(0).flowRuns.changes(tenant, run, 0, 2);
      expect(page?.steps).toMatchObject([
        { path: "long", startedSeq: 1, seq: 8 },
        { path: "a", startedSeq: 2, seq: 5 },
      ]);
      const rest = await fixture.turn(1).flowRuns.changes(tenant, run, 4, 10);
      expect(rest?.steps.map(({ path }) => path)).toEqual(["a", "b", "c", "long"]);
    });

    test("of an attempt that has lost its row write nothing but the ends of their calls", async () => {
      const call = child();
      await write({ steps: [step("a", { callId: call.id })], calls: [call] });
      await fixture.loseLease(tenant, run);
      await fixture.turn(1).calls.claim(tenant, run, claiming);
      const late = child();
      const written = await write({
        steps: [step("a", { state: "completed" }), step("b")],
        calls: [late],
        ends: [{ id: call.id, attempt: 1, finish: { state: "completed", outcome } }],
      });
      expect(written.held).toBe(false);
      expect((await load()).steps).toMatchObject([{ path: "a", state: "running" }]);
      expect(await fixture.calls.get(tenant, late.id)).toBeUndefined();
      expect(await fixture.row(tenant, call.id)).toMatchObject({ state: "completed" });
    });

    test("ask for nothing twice: one place and attempt has one call", async () => {
      const first = child({ effectKey: "place" });
      const second = child({ effectKey: "place" });
      await write({ calls: [first] });
      expect((await write({ calls: [second] })).states.has(second.id)).toBe(false);
    });

    test("queue the calls for which the tenant has no slot", async () => {
      const calls = [child(), child(), child()];
      const { states } = await write({ calls, concurrency: 3 });
      // One slot is the run's own.
      expect(calls.map(({ id }) => states.get(id))).toEqual(["running", "running", "queued"]);
    });

    test("are woken by the end of a call of theirs, whoever ends it, and miss no wake that comes while they look", async () => {
      const calls = [child(), child()];
      const ids = calls.map(({ id }) => id);
      await write({ calls });
      expect(await fixture.calls.park(tenant, run, 1, { inMs: null })).toBeGreaterThan(1e12);
      await fixture.turn(1).calls.finish(tenant, ids[0] ?? "", 1, { state: "completed", outcome });
      expect(await fixture.calls.claim(tenant, run, claiming)).toMatchObject({
        call: { interruptions: 0, attempt: 2 },
      });
      // The second one ends while the run is at work.
      await fixture.turn(1).calls.requestCancel(tenant, ids[1] ?? "");
      await fixture.turn(1).calls.finish(tenant, ids[1] ?? "", 1, { state: "cancelled" });
      expect((await load()).wakes).toBe(1);
      expect(await fixture.calls.park(tenant, run, 2, { inMs: null })).toBe(0);
      await fixture.calls.claim(tenant, run, claiming);
      expect(await fixture.calls.park(tenant, run, 3, { inMs: null, wakesSeen: 1 })).toBeGreaterThan(1e12);
    });

    test("that wait are claimed by nobody before their time, and messages about them do not go round", async () => {
      await fixture.calls.park(tenant, run, 1, { inMs: null });
      expect(await fixture.calls.claim(tenant, run, claiming)).toBe("busy");
      expect(await fixture.calls.wake(tenant, run)).toBe(true);
      const claims = await times(6, (index) => fixture.turn(index).calls.claim(tenant, run, claiming));
      expect(claims.filter((claim) => typeof claim === "object")).toHaveLength(1);
    });

    test("take a signal once for each token, in the order of arrival, and none after their end", async () => {
      const signal = (token: string) =>
        fixture.turn(1).flowRuns.signal(tenant, run, { token, name: "paid", payload: { sealed: token } });
      expect([await signal("t1"), await signal("t2")]).toEqual(["kept", "kept"]);
      expect(await signal("t1")).toMatchObject({ name: "paid", payload: { sealed: "t1" } });
      await write({ taken: [{ token: "t1", path: "wait" }] });
      expect((await load()).signals).toMatchObject([
        { token: "t1", path: "wait", number: 1 },
        { token: "t2", path: null, number: 2 },
      ]);
      await fixture.calls.finish(tenant, run, 1, { state: "completed", outcome });
      expect(await signal("t3")).toBe("ended");
      expect(
        await fixture.turn(0).flowRuns.signal(tenant, "call_none", { token: "t", name: "n", payload: { sealed: "" } }),
      ).toBe("unknown_run");
    });

    test("know about which of their calls a person has decided last, also when it is over", async () => {
      const { flowRuns } = fixture.turn(1);
      expect(await flowRuns.lastDecided(tenant, run)).toBeUndefined();
      const [first, second] = [child({ state: "input_required" }), child({ state: "input_required" })];
      const calls = [first, second, child({ state: "input_required" })];
      await write({ steps: calls.map(({ id }) => step(id, { callId: id })), calls });
      await fixture.calls.decide(tenant, second.id, { by: "ada", decision: "rejected" });
      expect(await flowRuns.lastDecided(tenant, run)).toBe(second.id);
      await fixture.run("UPDATE calls SET approval = json_set(approval, '$.at', 1) WHERE tenant = ?", tenant);
      await fixture.calls.decide(tenant, first.id, { by: "ada", decision: "approved" });
      expect(await flowRuns.lastDecided(tenant, run)).toBe(first.id);
      expect(await flowRuns.lastDecided(await fixture.newTenant(), run)).toBeUndefined();
    });

    test("begin with what another one has done, where that is wanted", async () => {
      const again = newTool({ state: "queued", repeat: "resume", idempotencyKey: "again", uri: "flow://f" });
      const { flowRuns } = fixture.turn(0);
      const done = [step("a", { state: "completed" })];
      expect(await flowRuns.recordWithSteps(tenant, "key_test", again, done)).toMatchObject({ kind: "recorded" });
      expect((await flowRuns.load(tenant, again.id))?.steps).toMatchObject([{ path: "a", state: "completed" }]);
      const other = newTool({ state: "queued", repeat: "resume", idempotencyKey: "again", uri: "flow://f" });
      expect(await flowRuns.recordWithSteps(tenant, "key_test", other, done)).toMatchObject({
        kind: "existing",
        call: { id: again.id },
      });
      expect(await flowRuns.load(tenant, other.id)).toBeUndefined();
    });

    test("of another tenant are not there", async () => {
      const other = await fixture.newTenant();
      const { flowRuns } = fixture.turn(0);
      expect(await flowRuns.load(other, run)).toBeUndefined();
      expect(await flowRuns.changes(other, run, 0, 10)).toBeUndefined();
      expect(await flowRuns.signal(other, run, { token: "t", name: "n", payload: { sealed: "" } })).toBe("unknown_run");
      const written = await flowRuns.write(other, {
        run,
        attempt: 1,
        steps: [step("a")],
        calls: [child()],
        concurrency: 16,
        ends: [],
        taken: [],
      });
      expect(written.held).toBe(false);
      expect((await load()).steps).toEqual([]);
    });
  });
}
