import { describe, expect, test } from "vitest";
import { callRow } from "../../../../test/support/call-row.ts";
import { createFakeCore, unscripted } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { BudgetRefusal } from "../budgets/budget.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { CallFinish, CallRepo } from "../ports/calls.ts";
import type { TenantRepo } from "../ports/tenants.ts";
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
async function endOf(change: Partial<Call>, interruptions: number): Promise<CallFinish | undefined> {
  let finish: CallFinish | undefined;
  const call = callRow({
    state: "running",
    effect: "write",
    repeat: "key",
    async: true,
    callerChain: [{ kind: "runtime_config", id: "inline" }],
    interruptions,
    ...change,
  });
  const calls: CallRepo = {
    ...unscripted<CallRepo>("repos.calls"),
    claim: () => Promise.resolve({ call }),
    finish: (_tenant, _id, _attempt, end) => Promise.resolve((finish = end) === end),
  };
  await handleMessage(createFakeCore({ repos: { calls, tenants } }), { tenant: call.tenant, callId: call.id });
  return finish;
}

/** What becomes of a queued call whose arguments cannot be opened, since the key of keys is away. */
async function withoutKey(interruptions: number): Promise<readonly unknown[]> {
  const seen: unknown[] = [];
  const call = callRow({
    state: "running",
    effect: "write",
    repeat: "key",
    async: true,
    input: "sealed",
    interruptions,
  });
  const calls: CallRepo = {
    ...unscripted<CallRepo>("repos.calls"),
    claim: () => Promise.resolve({ call }),
    letGo: (_tenant, id, attempt, inMs) => {
      seen.push(["let go", id, attempt, inMs > 0]);
      return Promise.resolve(true);
    },
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
    expect(await withoutKey(0)).toEqual([
      ["parked", id, attempt, true],
      ["short", [{ tenant, callId: id }], { delayMs: 5_000 }],
    ]);
  });

  test("stays as it is where an earlier attempt may have sent it", async () => {
    const { tenant, id, attempt } = callRow({});
    expect(await withoutKey(1)).toEqual([
      ["let go", id, attempt, true],
      ["short", [{ tenant, callId: id }], { delayMs: 5_000 }],
    ]);
  });
});

describe(`a call that cannot be run any more ${verifies("API-5")}`, () => {
  test("has failed where nobody has run it before", async () => {
    expect(await endOf({}, 0)).toMatchObject({ state: "failed", error: { code: "runtime_config_required" } });
  });

  test("is unknown where the process that ran it may have sent it", async () => {
    const end = await endOf({}, 1);
    expect(end).toMatchObject({ state: "unknown", error: { code: "outcome_unknown" } });
    expect(end?.error?.message).toContain("runtime_config");
  });

  test("is not run again where it was cancelled meanwhile, and is unknown", async () => {
    const end = await endOf({ cancelRequested: true, callerChain: [] }, 1);
    expect(end).toMatchObject({ state: "unknown", error: { code: "outcome_unknown" } });
    expect(end?.error?.message).toContain("was cancelled");
  });

  test("is cancelled where it only reads and was cancelled meanwhile", async () => {
    expect(await endOf({ effect: "read", cancelRequested: true }, 1)).toMatchObject({ state: "cancelled" });
  });

  test("has failed where it only reads", async () => {
    expect(await endOf({ effect: "read" }, 1)).toMatchObject({ state: "failed" });
  });
});

describe(`a call that one process after the other has ended over ${verifies("API-5", "CHAT-13")}`, () => {
  const read = { effect: "read", callerChain: [] } as const;

  test("has failed after the third, with what is known of it and what to do", async () => {
    const end = await endOf({ ...read, id: "call_7" }, 3);
    expect(end).toMatchObject({ state: "failed", error: { code: "call_abandoned", details: { interruptions: 3 } } });
    expect(end?.error?.message).toContain("3 times in a row");
    expect(end?.error?.message).toContain("POST /v1/calls/call_7/replay");
  });

  test("has failed as well where it had answered first, and says so", async () => {
    const outcome = { text: "begun", mediaType: "text/plain", bytes: 5 };
    const end = await endOf({ ...read, outcome }, 3);
    expect(end?.error?.message).toContain("has answered first and has not said in time what came of it, 3 times");
  });

  test.each(["natural", "key"] as const)("is unknown where it writes, repeatable by %s", async (repeat) => {
    const end = await endOf({ repeat, callerChain: [] }, 3);
    expect(end).toMatchObject({ state: "unknown", error: { code: "outcome_unknown", details: { interruptions: 3 } } });
    expect(end?.error?.message).toMatch(
      /3 times in a row\. .* not known, and it is not sent again by itself; .*replay/,
    );
  });

  test("of a run takes with it what that has asked for", async () => {
    const run = callRow({ state: "running", repeat: "resume", async: true, interruptions: 3 });
    const child = callRow({ id: "call_2", parentId: run.id, state: "queued" });
    const grandchild = callRow({ id: "call_3", parentId: child.id, state: "queued" });
    const seen: unknown[] = [];
    const calls: CallRepo = {
      ...unscripted<CallRepo>("repos.calls"),
      claim: () => Promise.resolve({ call: run }),
      family: (_tenant, id) => Promise.resolve(id === run.id ? [run, child, grandchild] : [child, grandchild]),
      requestCancel: (_tenant, id) => {
        seen.push(["cancel", id]);
        return Promise.resolve(child);
      },
      finish: (_tenant, id, _attempt, { state, error }) => Promise.resolve(seen.push([state, id, error?.code]) > 0),
    };
    await handleMessage(createFakeCore({ repos: { calls, tenants } }), { tenant: run.tenant, callId: run.id });
    expect(seen).toEqual([
      ["cancel", child.id],
      ["failed", run.id, "call_abandoned"],
    ]);
  });
});

describe(`a call whose row cannot be read ${verifies("API-5", "CHAT-13")}`, () => {
  const handle = async (effect: Call["effect"], interruptions: number): Promise<unknown> => {
    const seen: unknown[] = [];
    const cause = new SyntaxError("no JSON");
    const calls: CallRepo = {
      ...unscripted<CallRepo>("repos.calls"),
      claim: () => Promise.resolve({ unreadable: { attempt: 4, interruptions, effect, parentId: "call_2", cause } }),
      finish: (_tenant, id, attempt, { state, error }) =>
        Promise.resolve(seen.push([state, id, attempt, error?.code]) > 0),
    };
    const queue: TaskQueue = {
      ...unscripted<TaskQueue>("queue"),
      send: (_queue, messages) => Promise.resolve(void seen.push(...messages)),
    };
    const core = createFakeCore({ core: { queue }, repos: { calls, tenants } });
    await handleMessage(core, { tenant: "ten_1", callId: "call_1" }).catch((error: unknown) => seen.push(error));
    return seen;
  };

  test("has its message come again, as long as newer code may have written it", async () => {
    expect(await handle("read", 2)).toEqual([
      expect.objectContaining({ code: "internal_error", cause: expect.any(SyntaxError) }),
    ]);
  });

  test.each([
    ["failed", "internal_error", "read"],
    ["unknown", "outcome_unknown", "write"],
  ] as const)("ends %s after the third time, and whoever waits for it looks", async (state, code, effect) => {
    expect(await handle(effect, 3)).toEqual([[state, "call_1", 4, code], { tenant: "ten_1", callId: "call_2" }]);
  });
});
