import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { createFakeCore } from "../test/support/fake-core.ts";
import { createQueueHandler } from "./queue-handler.ts";

describe("a queue function", () => {
  const record = (messageId: string, body: unknown): object => ({
    messageId,
    body: JSON.stringify(body),
    attributes: {},
  });

  test("names only the messages that failed", async () => {
    const handled: string[] = [];
    const core = createFakeCore();
    const handler = createQueueHandler(async ({ tenant, callId }) => {
      await sleep(1);
      handled.push(`${tenant}/${callId}`);
      if (callId === "call_2") throw new Error("the database is away");
    }, core.log);
    const result = await handler({
      Records: [1, 2, 3].map((at) => record(`m${at}`, { tenant: "ten_a", callId: `call_${at}` })),
    });
    expect(handled.sort()).toEqual(["ten_a/call_1", "ten_a/call_2", "ten_a/call_3"]);
    expect(result).toEqual({ batchItemFailures: [{ itemIdentifier: "m2" }] });
    expect(core.lines).toHaveLength(1);
    expect(core.lines[0]?.fields).toMatchObject({ message_id: "m2" });
  });

  test("a message that is none of ours fails alone, and so reaches the dead-letter queue", async () => {
    const core = createFakeCore();
    const handler = createQueueHandler(() => Promise.resolve(), core.log);
    const result = await handler({
      Records: [
        { messageId: "m1", body: "not json" },
        record("m2", { tenant: 1 }),
        record("m3", { tenant: "ten_a", callId: "call_1" }),
      ],
    });
    expect(result).toEqual({ batchItemFailures: [{ itemIdentifier: "m1" }, { itemIdentifier: "m2" }] });
  });
});
