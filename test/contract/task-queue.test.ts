import type { PolledTaskQueue, QueueMessage } from "@toolyard/core/ports/task-queue";
import { createDatabaseTaskQueue } from "@toolyard/db/queue";
import { startQueueWorkers } from "@toolyard/platform/local/poll-queue";
import { createSystemClock } from "@toolyard/platform/system-clock";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { twoInstancesOfFile, twoInstancesOfServer, type TwoInstances } from "../support/two-instances.ts";
import { describeTaskQueue } from "./task-queue.ts";

for (const [name, make] of [
  ["database in a file", twoInstancesOfFile],
  ["database behind a server", twoInstancesOfServer],
] as const) {
  describeTaskQueue(name, async () => {
    const instances = await make();
    return {
      queues: [createDatabaseTaskQueue(instances.first), createDatabaseTaskQueue(instances.second)],
      pass: (ms) => pass(instances, ms),
      close: () => instances.close(),
    };
  });
}

async function pass({ run }: TwoInstances, ms: number): Promise<void> {
  await run("UPDATE queue_messages SET visible_at = visible_at - ?", ms);
}

describe("task queue in a database behind a server", () => {
  test("sends and receives once where the reply was lost", async () => {
    const instances = await twoInstancesOfServer();
    const queue = createDatabaseTaskQueue(instances.first);
    const message = { tenant: "ten_a", callId: "call_1" };
    instances.proxy?.faults.push({ kind: "lost-after" });
    await queue.send("short", [message]);
    await queue.send("short", [{ ...message, callId: "call_2" }]);
    instances.proxy?.faults.push({ kind: "lost-after" });
    const received = await queue.receive("short", { limit: 1, visibilityMs: 60_000 });
    expect(received).toMatchObject([{ ...message, receives: 1 }]);
    instances.proxy?.faults.push({ kind: "lost-after" });
    await queue.delete(
      "short",
      received.map(({ receipt }) => receipt),
    );
    await pass(instances, 60_001);
    const rest = await queue.receive("short", { limit: 10, visibilityMs: 60_000 });
    expect(rest).toMatchObject([{ callId: "call_2", receives: 1 }]);
    await instances.close();
  });
});

for (const [name, make] of [
  ["file", twoInstancesOfFile],
  ["server", twoInstancesOfServer],
] as const) {
  describe(`task queue in a database of many tenants: ${name}`, () => {
    const hour = { visibilityMs: 3_600_000 };
    let instances: TwoInstances;
    let queues: readonly [PolledTaskQueue, PolledTaskQueue];
    beforeEach(async () => {
      instances = await make();
      queues = [createDatabaseTaskQueue(instances.first), createDatabaseTaskQueue(instances.second)];
    });
    afterEach(() => instances.close());

    /** The later are visible later, as if sent one by one. */
    const send = async (tenant: string, count: number, agoMs: number): Promise<void> => {
      const messages = Array.from({ length: count }, (_none, at) => ({ tenant, callId: `call_${tenant}_${at}` }));
      await queues[0].send("short", messages);
      await instances.run(
        "UPDATE queue_messages SET visible_at = visible_at - ?1 + rowid WHERE tenant = ?2",
        agoMs,
        tenant,
      );
    };
    const take = async (limit: number, instance: 0 | 1 = 0): Promise<readonly string[]> =>
      (await queues[instance].receive("short", { ...hour, limit })).map(({ tenant }) => tenant).toSorted();

    test("a single message is before what others have more of, however much and however old that is", async () => {
      await send("ten_a", 500, 600_000);
      await send("ten_b", 1, 60_000);
      await send("ten_c", 2, 120_000);
      expect(await take(4)).toEqual(["ten_a", "ten_a", "ten_b", "ten_c"]);
      expect(await take(3)).toEqual(["ten_a", "ten_a", "ten_c"]);
    });

    test("what a tenant has in hand, on whichever instance, counts as its first turns", async () => {
      await send("ten_a", 500, 600_000);
      expect(await take(4, 0)).toEqual(["ten_a", "ten_a", "ten_a", "ten_a"]);
      await send("ten_b", 5, 60_000);
      expect(await take(4, 1)).toEqual(["ten_b", "ten_b", "ten_b", "ten_b"]);
      expect(await take(2, 0)).toEqual(["ten_a", "ten_b"]);
    });

    test("of one tenant the oldest go first, and what waits with a delay is not in hand", async () => {
      await send("ten_a", 6, 600_000);
      await queues[0].send(
        "short",
        Array.from({ length: 20 }, (_none, at) => ({ tenant: "ten_a", callId: `later_${at}` })),
        {
          delayMs: 30_000,
        },
      );
      await send("ten_b", 6, 60_000);
      const received = await queues[0].receive("short", { ...hour, limit: 4 });
      expect(received.map(({ callId }) => callId).toSorted()).toEqual([
        "call_ten_a_0",
        "call_ten_a_1",
        "call_ten_b_0",
        "call_ten_b_1",
      ]);
    });

    test("of one tenant no more than its share is taken, along with what the receiver has in hand", async () => {
      await send("ten_a", 20, 600_000);
      await send("ten_b", 3, 60_000);
      const receive = async (most: number, inHand: readonly string[]): Promise<readonly string[]> =>
        (await queues[0].receive("short", { ...hour, limit: 10, share: { most, inHand } }))
          .map(({ tenant }) => tenant)
          .toSorted();
      expect(await receive(2, [])).toEqual(["ten_a", "ten_a", "ten_b", "ten_b"]);
      expect(await receive(2, ["ten_a", "ten_a", "ten_b"])).toEqual(["ten_b"]);
      expect(await receive(2, ["ten_a", "ten_a", "ten_a"])).toEqual([]);
      // What others have in hand, or somebody who died, takes nothing from a receiver's share.
      expect(await receive(3, ["ten_a"])).toEqual(["ten_a", "ten_a"]);
    });

    test("the hands of a server are never all one tenant's", async () => {
      const held: (() => void)[] = [];
      const begun: QueueMessage[] = [];
      const workers = startQueueWorkers({
        queue: queues[0],
        clock: createSystemClock(),
        log: { log: () => undefined },
        handle: (message) => {
          begun.push(message);
          return new Promise((done) => held.push(done));
        },
      });
      const begunOf = (wanted: string): number => begun.filter(({ tenant }) => tenant === wanted).length;
      const names = ["short", "long"] as const;
      try {
        const many = Array.from({ length: 200 }, (_none, at) => ({ tenant: "ten_a", callId: `call_${at}` }));
        for (const name of names) await queues[0].send(name, many);
        workers.wake();
        await expect.poll(() => begunOf("ten_a")).toBeGreaterThan(1);
        for (const name of names) await queues[0].send(name, [{ tenant: "ten_b", callId: name }]);
        workers.wake();
        await expect.poll(() => begunOf("ten_b")).toBe(names.length);
      } finally {
        const stopping = workers.stop();
        held.forEach((done) => done());
        await stopping;
      }
    });

    test("tenants whose messages all wait with a delay take nobody's turn, however many they are", async () => {
      await instances.run(
        `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
        INSERT INTO queue_messages (id, tenant, queue, call_id, visible_at)
          SELECT 'msg_' || i, 'ten_' || (10000 + i), 'short', 'call_' || i, ?1 FROM n`,
        Date.now() + 600_000,
      );
      await send("ten_20000", 20, 600_000);
      await send("ten_30000", 1, 60_000);
      expect(await take(2)).toEqual(["ten_20000", "ten_30000"]);
    });

    test("those with the oldest messages have their turn where more tenants have work than are looked through", async () => {
      await instances.run(
        `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
        INSERT INTO queue_messages (id, tenant, queue, call_id, visible_at)
          SELECT 'msg_' || i, 'ten_' || (10000 + i), 'short', 'call_' || i, i FROM n ORDER BY i DESC`,
      );
      await instances.run("UPDATE queue_messages SET visible_at = -1 WHERE tenant = 'ten_11500'");
      expect(await take(3)).toEqual(["ten_10000", "ten_10001", "ten_11500"]);
    });
  });
}
