import { describe, expect, test } from "vitest";
import { callRow } from "../../../../test/support/call-row.ts";
import { createFakeCore, emptyConfig, unscripted } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { CallContext } from "../context.ts";
import type { CallRepo } from "../ports/calls.ts";
import type { TaskQueue } from "../ports/task-queue.ts";
import { Redactor } from "../secrets/redactor.ts";
import type { Call } from "./call.ts";
import { decideCall, type Decision } from "./decide.ts";

const context: CallContext = {
  tenant: "ten_1",
  caller: { kind: "key", id: "key_9", role: "member", scopes: ["approve"], tools: null },
  config: emptyConfig("ten_1"),
  requestId: "req_1",
  traceId: "1".repeat(32),
  redactor: new Redactor(),
};

interface Decided {
  readonly happened: string[];
  readonly call: Promise<Call>;
}

function decide(row: Call | undefined, decision: Decision["decision"]): Decided {
  const happened: string[] = [];
  const calls: Partial<CallRepo> = { get: () => Promise.resolve(row), decide: () => Promise.resolve(row) };
  const core = createFakeCore({
    repos: { calls: { ...unscripted<CallRepo>("calls"), ...calls } },
    core: {
      reach: (point) => void happened.push(point),
      queue: {
        ...unscripted<TaskQueue>("queue"),
        send: (queue, [message]) => Promise.resolve(void happened.push(`${queue}:${message?.callId}`)),
      },
    },
  });
  return { happened, call: decideCall(core, context, { callId: "call_1", decision }) };
}

const approval = (decision: "approved" | "rejected"): Call["approval"] => ({ by: "key_9", at: 0, decision });

describe(`deciding about a call that waits ${verifies("CHAT-11")}`, () => {
  test("queues an approved call after the decision is stored", async () => {
    const { happened, call } = decide(callRow({ state: "queued", approval: approval("approved") }), "approved");
    await expect(call).resolves.toMatchObject({ state: "queued" });
    expect(happened).toEqual(["approval.decided", "short:call_1"]);
  });

  test("sends nothing for a rejected call", async () => {
    const { happened, call } = decide(callRow({ state: "rejected", approval: approval("rejected") }), "rejected");
    await expect(call).resolves.toMatchObject({ state: "rejected" });
    expect(happened).toEqual(["approval.decided"]);
  });

  test("answers the same decision again with the call as it is now, and does not run it twice", async () => {
    const { happened, call } = decide(callRow({ state: "completed", approval: approval("approved") }), "approved");
    await expect(call).resolves.toMatchObject({ state: "completed" });
    expect(happened).toEqual(["approval.decided"]);
  });

  test("refuses to change a decision, or to decide about a call that does not wait", async () => {
    const changed = decide(callRow({ state: "rejected", approval: approval("rejected") }), "approved");
    await expect(changed.call).rejects.toMatchObject({ code: "conflict" });
    const running = decide(callRow({ state: "running" }), "approved");
    await expect(running.call).rejects.toMatchObject({ code: "conflict", details: { extra: { state: "running" } } });
    expect([...changed.happened, ...running.happened]).toEqual([]);
  });

  test("knows no call that is not the tenant's", async () => {
    await expect(decide(undefined, "approved").call).rejects.toMatchObject({ code: "not_found" });
  });
});
