/** What every polled task queue promises: at least once, hidden while held, dead letters in the end. */
import { randomUUID } from "node:crypto";
import type { PolledTaskQueue, QueueMessage, ReceivedMessage } from "@toolyard/core/ports/task-queue";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

export interface QueuePeers {
  /** Two instances at one queue, with five receives before the dead letters. */
  readonly queues: readonly [PolledTaskQueue, PolledTaskQueue];
  /** Makes messages that are delayed or hidden for up to `ms` visible now. */
  pass(ms: number): Promise<void>;
  close(): Promise<void>;
}

const held = { limit: 10, visibilityMs: 60_000 };
const longest = 900_000;

export function describeTaskQueue(name: string, make: () => Promise<QueuePeers>): void {
  describe(`task queue: ${name}`, () => {
    let peers: QueuePeers;
    let queue: PolledTaskQueue;
    beforeAll(async () => {
      peers = await make();
      [queue] = peers.queues;
    });
    afterAll(() => peers.close());

    const message = (tenant = "ten_a"): QueueMessage => ({ tenant, callId: `call_${randomUUID()}` });
    const other = (): PolledTaskQueue => peers.queues[1];
    /** All that can be received now, held for a minute. */
    const drain = async (name: "short" | "long" = "short"): Promise<readonly ReceivedMessage[]> => {
      const all: ReceivedMessage[] = [];
      for (;;) {
        const some = await queue.receive(name, held);
        if (some.length === 0) return all;
        all.push(...some);
      }
    };
    const idsOf = (messages: readonly QueueMessage[]): readonly string[] => messages.map(({ callId }) => callId);

    /** Leaves nothing for the next test. */
    const clear = async (): Promise<void> => {
      for (const each of ["short", "long"] as const) {
        for (let round = 0; round < 8; round += 1) {
          const some = await drain(each);
          await queue.delete(
            each,
            some.map(({ receipt }) => receipt),
          );
          await peers.pass(longest);
        }
      }
    };

    test("hands over what was sent, on either instance, until it is deleted", async () => {
      await clear();
      const sent = [message("ten_a"), message("ten_b")];
      await queue.send("short", sent);
      const received = await other().receive("short", held);
      expect(received.map(({ tenant, callId }) => ({ tenant, callId })).toSorted(byId)).toEqual(sent.toSorted(byId));
      expect(received.map(({ receives }) => receives)).toEqual([1, 1]);
      await other().delete(
        "short",
        received.map(({ receipt }) => receipt),
      );
      await peers.pass(60_000);
      expect(await queue.receive("short", held)).toEqual([]);
      expect(await queue.deadLetters("short")).toEqual([]);
    });

    test("keeps its two queues apart", async () => {
      await clear();
      const [short, long] = [message(), message()];
      await queue.send("short", [short]);
      await queue.send("long", [long]);
      expect(idsOf(await drain("long"))).toEqual([long.callId]);
      expect(idsOf(await drain("short"))).toEqual([short.callId]);
    });

    test("hides a message while it is held, and hands it over again when its time is up", async () => {
      await clear();
      const sent = message();
      await queue.send("short", [sent]);
      expect(idsOf(await queue.receive("short", held))).toEqual([sent.callId]);
      expect(await other().receive("short", held)).toEqual([]);
      await peers.pass(59_000);
      expect(await other().receive("short", held)).toEqual([]);
      await peers.pass(1_001);
      expect(await other().receive("short", held)).toMatchObject([{ callId: sent.callId, receives: 2 }]);
    });

    test("takes no receipt of an earlier receive, nor one of another queue", async () => {
      await clear();
      const sent = message();
      await queue.send("short", [sent]);
      const [first] = await queue.receive("short", held);
      await peers.pass(60_001);
      const [second] = await other().receive("short", held);
      expect(second?.receipt).not.toBe(first?.receipt);
      await queue.delete("short", [first?.receipt ?? "", "", "none", "a.b"]);
      await queue.delete("long", [second?.receipt ?? ""]);
      await queue.delete("short", []);
      await peers.pass(60_001);
      const [third] = await queue.receive("short", held);
      expect(third).toMatchObject({ callId: sent.callId, receives: 3 });
      await queue.delete("short", [third?.receipt ?? ""]);
      await peers.pass(60_001);
      expect(await queue.receive("short", held)).toEqual([]);
    });

    test("delivers after a delay of up to 15 minutes, and refuses a longer one", async () => {
      await clear();
      const sent = message();
      await queue.send("short", [sent], { delayMs: longest });
      expect(await queue.receive("short", held)).toEqual([]);
      await peers.pass(longest - 5_000);
      expect(await queue.receive("short", held)).toEqual([]);
      await peers.pass(5_001);
      expect(idsOf(await queue.receive("short", held))).toEqual([sent.callId]);
      await expect(queue.send("short", [sent], { delayMs: longest + 1 })).rejects.toThrow(RangeError);
    });

    test("gives each message to one of many receivers, and no more at once than asked for", async () => {
      await clear();
      const sent = Array.from({ length: 60 }, () => message());
      await queue.send("short", sent);
      const batches = await Promise.all(
        Array.from({ length: 10 }, (_none, index) =>
          peers.queues[index % 2 === 0 ? 0 : 1].receive("short", { ...held, limit: 7 }),
        ),
      );
      expect(Math.max(...batches.map((batch) => batch.length))).toBeLessThanOrEqual(7);
      const received = batches.flat();
      expect(new Set(idsOf(received)).size).toBe(received.length);
      expect(idsOf([...received, ...(await drain())]).toSorted()).toEqual(idsOf(sent).toSorted());
    });

    test("lays aside what was received five times without success", async () => {
      await clear();
      const [poison, good] = [message("ten_p"), message("ten_g")];
      await queue.send("short", [poison]);
      for (let receives = 1; receives <= 5; receives += 1) {
        expect(await queue.receive("short", held)).toMatchObject([{ callId: poison.callId, receives }]);
        await peers.pass(60_001);
      }
      await queue.send("short", [good]);
      expect(idsOf(await drain())).toEqual([good.callId]);
      expect(await queue.deadLetters("short")).toEqual([poison]);
      expect(await queue.deadLetters("long")).toEqual([]);
      await peers.pass(longest);
      expect(idsOf(await drain())).toEqual([good.callId]);
    });

    test("takes nothing for an empty list, and keeps two messages about one call", async () => {
      await clear();
      await queue.send("short", []);
      expect(await drain()).toEqual([]);
      const sent = message();
      await queue.send("short", [sent]);
      await queue.send("short", [sent]);
      expect(idsOf(await drain())).toEqual([sent.callId, sent.callId]);
    });
  });
}

function byId(a: QueueMessage, b: QueueMessage): number {
  return a.callId < b.callId ? -1 : 1;
}
