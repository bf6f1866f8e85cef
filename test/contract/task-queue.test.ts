import { createDatabaseTaskQueue } from "@toolyard/db/queue";
import { describe, expect, test } from "vitest";
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
