import { createFakeClock } from "@toolyard/platform/memory/fake-clock";
import { describe, expect, test } from "vitest";
import { callRow } from "../../../../test/support/call-row.ts";
import { createFakeCore, unscripted, type FakeCore } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { CallRepo } from "../ports/calls.ts";
import type { QueueMessage, TaskQueue } from "../ports/task-queue.ts";
import { awaitCall } from "./await-call.ts";
import type { Call } from "./call.ts";

interface Scene {
  readonly core: FakeCore;
  readonly clock: ReturnType<typeof createFakeClock>;
  readonly sent: QueueMessage[];
  row: Call;
}

/** A running call whose lease lasts three seconds. */
function arrange(change: Partial<Call> = {}): Scene {
  const clock = createFakeClock();
  const sent: QueueMessage[] = [];
  const queue: TaskQueue = {
    ...unscripted<TaskQueue>("queue"),
    send: (_queue, messages) => Promise.resolve(void sent.push(...messages)),
  };
  const calls: CallRepo = { ...unscripted<CallRepo>("repos.calls"), get: () => Promise.resolve(scene.row) };
  const row = callRow({ state: "running", leaseUntil: clock.now() + 3_000, ...change });
  const scene: Scene = { core: createFakeCore({ core: { clock, queue }, repos: { calls } }), clock, sent, row };
  return scene;
}

describe(`waiting for a call of another process ${verifies("API-5")}`, () => {
  test("ends with the call", async () => {
    const scene = arrange();
    const waiting = awaitCall(scene.core, scene.row, new AbortController().signal);
    await scene.clock.advance(1_000);
    scene.row = callRow({ state: "completed" });
    await scene.clock.advance(1_000);
    expect((await waiting).state).toBe("completed");
    expect(scene.sent).toEqual([]);
  });

  test("asks nothing about one that has ended", async () => {
    const scene = arrange();
    const row = callRow({ state: "unknown" });
    expect(await awaitCall(scene.core, row, new AbortController().signal)).toBe(row);
  });

  test("sends a worker, once, when the process has gone silent", async () => {
    const scene = arrange();
    const waiting = awaitCall(scene.core, scene.row, new AbortController().signal);
    await scene.clock.advance(2_900);
    expect(scene.sent).toEqual([]);
    await scene.clock.advance(10_000);
    expect(scene.sent).toEqual([{ tenant: scene.row.tenant, callId: scene.row.id }]);
    scene.row = callRow({ state: "unknown" });
    await scene.clock.advance(1_000);
    expect((await waiting).state).toBe("unknown");
  });

  test("ends, with the call as it is, when nobody waits any more", async () => {
    const scene = arrange();
    const leaving = new AbortController();
    const waiting = awaitCall(scene.core, scene.row, leaving.signal);
    await scene.clock.advance(500);
    leaving.abort();
    expect((await waiting).state).toBe("running");
  });
});
