import { expect, test } from "vitest";
import type { JsonObject } from "@toolyard/core/json";
import { verifies } from "../../test/support/verifies.ts";
import { createDesk } from "./subscriptions.ts";

const fail = (message: string): never => {
  throw new Error(message);
};

test(`long ids of messages that differ at their ends are told as different ones ${verifies("MQ-3")}`, async () => {
  const asked: JsonObject[] = [];
  const ask = <T>(message: JsonObject, read: (answer: JsonObject) => T): Promise<T> => {
    asked.push(message);
    return Promise.resolve(read({ outcome: "accepted", call_id: "call_1" }));
  };
  const link = { run: () => Promise.resolve(), close: () => undefined, ask, askNow: ask };
  const desk = createDesk({ link, node: "lab", instance: "i", upload: () => Promise.resolve(), onRefused: fail });
  for (const id of [`${"x".repeat(2_000)}1`, `${"x".repeat(2_000)}2`, "short", ""]) {
    await desk.bring({
      subscription: "sub_1",
      fingerprint: "fp",
      message: { id, body: Buffer.from("{}"), headers: {}, place: {}, isRedelivered: false },
      delivery: "a-delivery-of-a-test",
      inOrder: false,
      maxMessageBytes: 1_000,
      signal: new AbortController().signal,
    });
  }
  const ids = asked.map(({ message }) => (message as JsonObject)["message_id"]);
  expect(ids).toEqual([expect.stringMatching(/^sha256:/), expect.stringMatching(/^sha256:/), "short", undefined]);
  expect(new Set(ids).size).toBe(4);
});
