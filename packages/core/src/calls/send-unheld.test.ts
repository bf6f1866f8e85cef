import { describe, expect, test } from "vitest";
import { createFakeCore, unscripted } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { CallRepo, SweepItem } from "../ports/calls.ts";
import type { QueueMessage, QueueName, TaskQueue } from "../ports/task-queue.ts";
import { sendUnheld } from "./send-unheld.ts";

const write: SweepItem = {
  tenant: "ten_1",
  id: "call_1",
  async: true,
  kind: "tool",
  effect: "write",
  repeat: "never",
  state: "running",
};

async function sentFor(item: SweepItem): Promise<readonly (readonly [QueueName, readonly QueueMessage[]])[]> {
  const sent: [QueueName, readonly QueueMessage[]][] = [];
  const calls: CallRepo = { ...unscripted<CallRepo>("repos.calls"), sweep: () => Promise.resolve([item]) };
  const queue: TaskQueue = {
    ...unscripted<TaskQueue>("queue"),
    send: (name, messages) => Promise.resolve(void sent.push([name, messages])),
  };
  expect(await sendUnheld(createFakeCore({ core: { queue }, repos: { calls } }), 200)).toBe(1);
  return sent;
}

describe(`calls that nobody holds ${verifies("API-5")}`, () => {
  test.each<[string, QueueName, Partial<SweepItem>]>([
    ["a run of a flow whose process has died", "long", { repeat: "resume" }],
    ["a read whose process has died", "long", { effect: "read", repeat: "natural" }],
    ["a write that may be sent again", "long", { repeat: "key" }],
    ["a write that may not, and is only ended", "short", {}],
    ["a chat, which is only ended", "short", { kind: "chat", effect: "read", repeat: "natural" }],
    ["a run that has waited", "short", { repeat: "resume", state: "queued" }],
  ])("%s goes to workers of the queue '%s'", async (_what, queue, change) => {
    expect(await sentFor({ ...write, ...change })).toEqual([[queue, [{ tenant: "ten_1", callId: "call_1" }]]]);
  });
});
