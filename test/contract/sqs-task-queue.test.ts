/** The task queue on SQS, by the real client, against a server that keeps SQS's rules; then with what goes wrong. */
import type { QueueMessage } from "@toolyard/core/ports/task-queue";
import { createSqsTaskQueue } from "@toolyard/platform/aws/sqs-task-queue";
import { startQueueWorkers } from "@toolyard/platform/local/poll-queue";
import { createSystemClock } from "@toolyard/platform/system-clock";
import { afterAll, describe, expect, test } from "vitest";
import type { AwsFault } from "../support/aws/aws-server.ts";
import { startSqsServer, type SqsServer } from "../support/aws/sqs-server.ts";
import { describeTaskQueue } from "./task-queue.ts";

const closing: SqsServer[] = [];
afterAll(() => Promise.all(closing.map((server) => server.close())));

async function start(waitSeconds = 0) {
  const server = await startSqsServer();
  closing.push(server);
  return { server, queue: createSqsTaskQueue({ urls: server.urls, client: server.client, waitSeconds }) };
}

for (const [name, latencyMs] of [
  ["SQS", 0],
  ["SQS that is 20 ms away", 20],
] as const) {
  describeTaskQueue(name, async () => {
    const { server, queue } = await start();
    server.latencyMs = latencyMs;
    return {
      queues: [queue, createSqsTaskQueue({ urls: server.urls, client: server.client, waitSeconds: 0 })],
      pass: async (ms) => server.pass(ms),
      close: () => server.close(),
    };
  });
}

const message = (callId: string, tenant = "ten_a"): QueueMessage => ({ tenant, callId });
const held = { limit: 10, visibilityMs: 60_000 };
const many = Array.from({ length: 25 }, (_none, at) => message(`call_${at}`, at % 2 === 0 ? "ten_a" : "ten_b"));
const busy = { Code: "ServiceUnavailable", SenderFault: false };

const failure = (status: number, type: string): AwsFault => ({
  kind: "reply",
  reply: { status, headers: { "content-type": "application/x-amz-json-1.0" }, body: JSON.stringify({ __type: type }) },
});

describe("the task queue on SQS", () => {
  test("sends ten at a time, each with its tenant as the group by which SQS is fair", async () => {
    const { server, queue } = await start();
    await queue.send("short", many);
    expect(server.requests).toHaveLength(3);
    expect(server.groups).toEqual(many.map(({ tenant }) => tenant));
    await queue.send("long", [message("call_x", "租户")]);
    expect(server.groups.at(-1)).toMatch(/^[0-9a-f]{64}$/);
  });

  test("splits what is larger together than a batch may be", async () => {
    const { server, queue } = await start();
    const large = Array.from({ length: 4 }, (_none, at) => message(`${at}${"x".repeat(400_000)}`));
    await queue.send("short", large);
    expect(server.requests).toHaveLength(2);
    expect(server.bodies("short")).toHaveLength(4);
  });

  test("sends again what SQS did not take of a batch, and only that", async () => {
    const { server, queue } = await start();
    server.refusals.push(busy, busy);
    await queue.send("short", many.slice(0, 5));
    expect(server.bodies("short")).toHaveLength(5);
    expect(server.requests).toHaveLength(2);
  });

  test("says so where SQS goes on refusing a message, or finds fault with it", async () => {
    const { server, queue } = await start();
    for (let times = 0; times < 5; times += 1) server.refusals.push(busy);
    await expect(queue.send("short", [message("call_1")])).rejects.toMatchObject({
      code: "queue_unavailable",
      message: expect.stringMatching(/ServiceUnavailable.*QUEUE_URL/),
    });
    server.refusals.push({ Code: "InvalidMessageContents", SenderFault: true });
    const before = server.requests.length;
    await expect(queue.send("long", [message("call_1")])).rejects.toThrow(/InvalidMessageContents.*QUEUE_LONG_URL/);
    expect(server.requests.length).toBe(before + 1);
  });

  test("deletes again what was not deleted", async () => {
    const { server, queue } = await start();
    await queue.send("short", many.slice(0, 3));
    const received = await queue.receive("short", held);
    server.refusals.push(busy);
    await queue.delete(
      "short",
      received.map(({ receipt }) => receipt),
    );
    expect(server.bodies("short")).toEqual([]);
  });

  test("leaves what is no message of ours to the dead letters", async () => {
    const { server, queue } = await start();
    for (const body of ["nonsense", "{}", '{"tenant":"ten_a"}']) server.plant("short", body);
    await queue.send("short", [message("call_1")]);
    for (let round = 0; round < 6; round += 1) {
      for (const { callId, receipt } of await queue.receive("short", held)) {
        expect(callId).toBe("call_1");
        await queue.delete("short", [receipt]);
      }
      server.pass(60_001);
    }
    expect(server.bodies("short-dead").toSorted()).toEqual(['{"tenant":"ten_a"}', "nonsense", "{}"].toSorted());
    expect(await queue.deadLetters("short")).toEqual([]);
  });

  test("shows dead letters again each time it is asked", async () => {
    const { server, queue } = await start();
    for (let at = 0; at < 12; at += 1) server.plant("long-dead", JSON.stringify(message(`call_${at}`)));
    expect(await queue.deadLetters("long")).toHaveLength(12);
    expect(await queue.deadLetters("long")).toHaveLength(12);
  });

  test("waits at SQS for a first message, which comes at once", async () => {
    const { queue } = await start(5);
    const receiving = queue.receive("short", held);
    const [sent] = many;
    await queue.send("short", sent === undefined ? [] : [sent]);
    expect(await receiving).toMatchObject([{ callId: "call_0", receives: 1 }]);
  });

  test.for([
    ["throttled", failure(400, "ThrottlingException")],
    ["busy", failure(503, "ServiceUnavailable")],
    ["cutting connections", { kind: "reset" } satisfies AwsFault],
  ] as const)("is asked again where it is %s for a moment", async ([, fault]) => {
    const { server, queue } = await start();
    server.faults.push(fault, fault);
    await queue.send("short", [message("call_1")]);
    server.faults.push(fault);
    const [received] = await queue.receive("short", held);
    server.faults.push(fault);
    await queue.delete("short", [received?.receipt ?? ""]);
    expect(server.bodies("short")).toEqual([]);
  });

  test("may send twice where an answer was lost, and never less than once", async () => {
    const { server, queue } = await start();
    server.faults.push({ kind: "lost" });
    await queue.send("short", [message("call_1")]);
    expect(new Set(server.bodies("short"))).toEqual(new Set([JSON.stringify(message("call_1"))]));
  });

  test("says which of its queues cannot be used", async () => {
    const { server } = await start();
    const urls = { short: server.urls.short, long: `${server.urls.long}-gone` };
    const queue = createSqsTaskQueue({ urls, client: server.client });
    await expect(queue.ping()).rejects.toMatchObject({
      code: "queue_unavailable",
      message: expect.stringContaining("QUEUE_LONG_URL"),
    });
    await expect(createSqsTaskQueue({ urls: server.urls, client: server.client }).ping()).resolves.toBeUndefined();
  });

  test("is worked off by processes that poll it, poison included", async () => {
    const { server } = await start();
    const handled: string[] = [];
    const workers = [1, 2].map(() =>
      startQueueWorkers({
        queue: createSqsTaskQueue({ urls: server.urls, client: server.client, waitSeconds: 1 }),
        handle: async ({ callId }) => {
          handled.push(callId);
          if (callId === "call_0") throw new Error("poison");
        },
        clock: createSystemClock(),
        log: { log: () => undefined },
      }),
    );
    const sender = createSqsTaskQueue({ urls: server.urls, client: server.client });
    await sender.send("short", many);
    await expect.poll(() => server.bodies("short")).toEqual([JSON.stringify(many[0])]);
    for (let times = many.length + 1; times <= many.length + 4; times += 1) {
      server.pass(2 * 60_000 + 1);
      await expect.poll(() => handled.length).toBe(times);
    }
    server.pass(2 * 60_000 + 1);
    await expect.poll(() => server.bodies("short-dead")).toEqual([JSON.stringify(many[0])]);
    expect(handled.filter((callId) => callId === "call_0")).toHaveLength(5);
    await Promise.all(workers.map((each) => each.stop()));
  });
});
