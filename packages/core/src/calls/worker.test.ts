import { describe, expect, test } from "vitest";
import { callRow } from "../../../../test/support/call-row.ts";
import { createFakeCore, unscripted } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { BudgetRefusal } from "../budgets/budget.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { CallFinish, CallRepo, TenantRepo } from "../ports/repos.ts";
import type { TaskQueue } from "../ports/task-queue.ts";
import type { Clock } from "../ports/clock.ts";
import type { KeyVault } from "../ports/key-vault.ts";
import { Sealer } from "../secrets/sealer.ts";
import type { Call } from "./call.ts";
import { enqueue } from "./enqueue.ts";
import { handleMessage } from "./worker.ts";

describe(`a call on record ${verifies("API-5")}`, () => {
  test("is left to the tick where its message cannot be sent", async () => {
    const queue = {
      ...unscripted<TaskQueue>("queue"),
      send: () => Promise.reject(new GatewayError("database_unavailable", "away")),
    };
    const core = createFakeCore({ core: { queue } });
    await enqueue(core, { tenant: "ten_1", callId: "call_1", expectedMs: 0 });
    expect(core.lines.map(({ fields }) => fields)).toEqual([
      { call_id: "call_1", queue: "short", code: "database_unavailable" },
    ]);
  });
});

const tenants: TenantRepo = {
  ...unscripted<TenantRepo>("repos.tenants"),
  get: (id) =>
    Promise.resolve({
      id,
      name: "t",
      status: "active",
      configVersion: 1,
      settings: {},
      wrappedKey: "",
      createdAt: 0,
    }),
};

describe(`a message that comes before its call is due ${verifies("MQ-2")}`, () => {
  test.each([
    ["the rest of the time", 700, 700],
    ["as long as a queue holds it, where there is more to wait", 86_400_000, 900_000],
  ])("is sent on for %s", async (_what, dueInMs, delayMs) => {
    const sent: unknown[] = [];
    const calls: CallRepo = { ...unscripted<CallRepo>("repos.calls"), claim: () => Promise.resolve({ dueInMs }) };
    const queue = {
      ...unscripted<TaskQueue>("queue"),
      send: (...message: Parameters<TaskQueue["send"]>) => Promise.resolve(void sent.push(message)),
    };
    const core = createFakeCore({ core: { queue }, repos: { calls, tenants } });
    await handleMessage(core, { tenant: "ten_1", callId: "call_1" });
    expect(sent).toEqual([["short", [{ tenant: "ten_1", callId: "call_1" }], { delayMs }]]);
  });
});

describe(`a call that finds no slot free ${verifies("CHAT-12")}`, () => {
  const momentary: BudgetRefusal = {
    budget: { id: "bud_1", scope: "tenant", scopeId: "ten_1", period: "day" },
    measure: "tokens",
    limit: 10,
    used: 0,
    reserved: 10,
    asked: 5,
    now: 0,
    windowEnd: null,
  };
  const soon = [1_000, 1_500] as const;
  const later = [20_000, 30_000] as const;
  test.for([
    ["comes back soon at the head of the line", { limit: "concurrency" }, { waitedMs: 3_600_000, ahead: 3 }, soon],
    ["comes back soon where it has just come", { limit: "concurrency" }, { waitedMs: 100, ahead: 900 }, soon],
    ["comes back later in a long line", { limit: "concurrency" }, { waitedMs: 3_600_000, ahead: 900 }, later],
    [
      "comes back alike where a budget has no room beside what runs",
      { refusal: momentary, attempt: 0, parentId: null },
      { waitedMs: 3_600_000, ahead: 900 },
      later,
    ],
  ] as const)("%s", async ([, refusal, waiting, [least, most]]) => {
    const delays: (number | undefined)[] = [];
    const calls: CallRepo = {
      ...unscripted<CallRepo>("repos.calls"),
      claim: () => Promise.resolve({ ...refusal, waiting }),
    };
    const queue: TaskQueue = {
      ...unscripted<TaskQueue>("queue"),
      send: (_queue, _messages, { delayMs } = {}) => Promise.resolve(void delays.push(delayMs)),
    };
    const core = createFakeCore({ core: { queue }, repos: { calls, tenants } });
    await handleMessage(core, { tenant: "ten_1", callId: "call_1" });
    const [delay = 0] = delays;
    expect(delay).toBeGreaterThanOrEqual(least);
    expect(delay).toBeLessThanOrEqual(most);
  });
});

/** How a worker ends a call that it can no longer run: its inline configuration went with the request. */
async function endOf(change: Partial<Call>, wasRunning: boolean): Promise<CallFinish | undefined> {
  let finish: CallFinish | undefined;
  const call = callRow({
    state: "running",
    effect: "write",
    repeat: "key",
    async: true,
    callerChain: [{ kind: "runtime_config", id: "inline" }],
    ...change,
  });
  const calls: CallRepo = {
    ...unscripted<CallRepo>("repos.calls"),
    claim: () => Promise.resolve({ call, wasRunning }),
    finish: (_tenant, _id, _attempt, end) => Promise.resolve((finish = end) === end),
  };
  await handleMessage(createFakeCore({ repos: { calls, tenants } }), { tenant: call.tenant, callId: call.id });
  return finish;
}

/** What becomes of a queued call whose arguments cannot be opened, since the key of keys is away. */
async function withoutKey(wasRunning: boolean): Promise<readonly unknown[]> {
  const seen: unknown[] = [];
  const call = callRow({ state: "running", effect: "write", repeat: "key", async: true, input: "sealed" });
  const calls: CallRepo = {
    ...unscripted<CallRepo>("repos.calls"),
    claim: () => Promise.resolve({ call, wasRunning }),
    park: (_tenant, id, attempt, { inMs }) => {
      seen.push(["parked", id, attempt, Number(inMs) > 0]);
      return Promise.resolve(5_000);
    },
  };
  const queue = {
    ...unscripted<TaskQueue>("queue"),
    send: (...message: Parameters<TaskQueue["send"]>) => Promise.resolve(void seen.push(message)),
  };
  const vault: KeyVault = {
    ...unscripted<KeyVault>("keyVault"),
    unwrap: () => Promise.reject(new GatewayError("master_key_unavailable", "KMS is away.")),
  };
  const sealer = new Sealer(vault, { ...unscripted<Clock>("clock"), now: () => Date.now() });
  const core = createFakeCore({ core: { queue, sealer }, repos: { calls, tenants } });
  await handleMessage(core, { tenant: call.tenant, callId: call.id }).catch((error: unknown) => seen.push(error));
  return seen;
}

describe(`a queued call while the key is away ${verifies("API-5")}`, () => {
  test("waits, and is looked at again soon", async () => {
    const { tenant, id, attempt } = callRow({});
    expect(await withoutKey(false)).toEqual([
      ["parked", id, attempt, true],
      ["short", [{ tenant, callId: id }], { delayMs: 5_000 }],
    ]);
  });

  test("stays as it is where an earlier attempt may have sent it", async () => {
    expect(await withoutKey(true)).toEqual([expect.objectContaining({ code: "master_key_unavailable" })]);
  });
});

describe(`a call that cannot be run any more ${verifies("API-5")}`, () => {
  test("has failed where nobody has run it before", async () => {
    expect(await endOf({}, false)).toMatchObject({ state: "failed", error: { code: "runtime_config_required" } });
  });

  test("is unknown where the process that ran it may have sent it", async () => {
    const end = await endOf({}, true);
    expect(end).toMatchObject({ state: "unknown", error: { code: "outcome_unknown" } });
    expect(end?.error?.message).toContain("runtime_config");
  });

  test("is not run again where it was cancelled meanwhile, and is unknown", async () => {
    const end = await endOf({ cancelRequested: true, callerChain: [] }, true);
    expect(end).toMatchObject({ state: "unknown", error: { code: "outcome_unknown" } });
    expect(end?.error?.message).toContain("was cancelled");
  });

  test("is cancelled where it only reads and was cancelled meanwhile", async () => {
    expect(await endOf({ effect: "read", cancelRequested: true }, true)).toMatchObject({ state: "cancelled" });
  });

  test("has failed where it only reads", async () => {
    expect(await endOf({ effect: "read" }, true)).toMatchObject({ state: "failed" });
  });
});
