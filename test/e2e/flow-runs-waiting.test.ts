/** Runs that wait, are told something, meet what nobody knows, and are carried out by two instances at once. */
import { handleMessage } from "@toolyard/core/calls/worker";
import type { CallContext } from "@toolyard/core/context";
import { answerRun, replayRun, signalRun } from "@toolyard/core/flows/run/control";
import { readRunEvents, viewRun, type RunEvent } from "@toolyard/core/flows/run/follow";
import { startFlow } from "@toolyard/core/flows/run/start";
import { Redactor } from "@toolyard/core/secrets/redactor";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { callIn, childrenOf, invokeFlow, publishFlow } from "../support/flows.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { ageCalls } from "../support/old-calls.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let other: Gateway;
let stub: HttpStub;
let tenant: TestTenant;
/** By order, how often it was asked for. */
const asked = new Map<string, number>();
/** Orders that are answered once a test says so. */
const held = new Map<string, () => void>();

beforeAll(async () => {
  stub = await startHttpStub(async ({ target, body }, response) => {
    // They never say anything.
    if (target.endsWith("/chat/completions") || target.startsWith("/peek")) return new Promise(() => undefined);
    const { order } = JSON.parse(body.toString("utf8")) as { order: string };
    const times = (asked.get(order) ?? 0) + 1;
    asked.set(order, times);
    if (order === "flaky" && times < 3) return { status: 503, body: "busy" };
    if (order.startsWith("held")) await new Promise<void>((release) => held.set(order, release));
    if (order.startsWith("lost") && times === 1) {
      response.destroy();
      return undefined;
    }
    return { body: JSON.stringify({ receipt: `${order} ${times}` }), delayMs: order.startsWith("slow") ? 400 : 0 };
  });
  const timing = { cancelPollMs: 200 };
  gateway = await startGateway({ tickEveryMs: 500, timing });
  other = await startGateway({ sharedWith: gateway, tickEveryMs: 500, timing });
  tenant = await gateway.newTenant();
  await addOrders(tenant);
});
afterAll(async () => {
  await other.close();
  await gateway.close();
  await stub.close();
});

async function addOrders(of: TestTenant): Promise<void> {
  await of.addPlugin({
    schema_version: "v1",
    name: "place_order",
    description: "Orders something.",
    parameters: { type: "object", properties: { order: { type: "string" } }, required: ["order"] },
    execution: { method: "POST", base_url: `${stub.url}/orders`, param_placement: "body" },
  });
}

const order = (value: unknown, more: Record<string, unknown> = {}) => ({
  kind: "tool",
  name: "place_order",
  arguments: { order: value },
  ...more,
});

async function contextOf(of: TestTenant): Promise<CallContext> {
  const { core } = gateway;
  const row = await core.repos.tenants.get(of.id);
  const config = await core.configs.get(of.id, row?.configVersion ?? 0);
  return {
    tenant: of.id,
    caller: { kind: "operator", id: "operator", role: "operator", scopes: [], tools: null },
    config,
    requestId: "req_test",
    traceId: "0".repeat(32),
    redactor: new Redactor(),
  };
}

async function start(name: string, input: Record<string, string> = {}): Promise<string> {
  const context = await contextOf(tenant);
  const place = { route: "test", parentId: null, rootId: null };
  return (await startFlow(gateway.core, context, { name, input, place })).callId;
}

async function parked(run: string, atLeast = 1): Promise<void> {
  await expect
    .poll(
      async () => {
        const { state, steps } = await viewRun(gateway.core, await contextOf(tenant), run);
        return state === "waiting" && steps.length >= atLeast;
      },
      { timeout: 15_000 },
    )
    .toBe(true);
}

describe(`a run that waits for a signal ${verifies("FLOW-2")}`, () => {
  beforeAll(async () => {
    await publishFlow(tenant, {
      name: "paying",
      start: "paid",
      nodes: {
        paid: { kind: "wait", signal: "paid", timeout_ms: 60_000, on_error: "late", next: "done" },
        done: { kind: "end", output: { $: "steps.paid.output.amount" } },
        late: { kind: "end", output: "late" },
      },
    });
  });

  test("holds nothing: no lease, no slot, no reservation", async () => {
    const run = await start("paying");
    await parked(run);
    const row = await gateway.core.repos.calls.get(tenant.id, run);
    expect(row).toMatchObject({ state: "queued", leaseUntil: null });
    await signalRun(gateway.core, await contextOf(tenant), run, { name: "paid", token: "t", payload: { amount: 1 } });
    await callIn(tenant, run);
  });

  test("goes on with its payload, told once for each token, at any instance, before or while it waits", async () => {
    const run = await start("paying");
    const context = await contextOf(tenant);
    const signal = { name: "paid", token: "t1", payload: { amount: 7 } };
    const [first, second] = await Promise.all([
      signalRun(gateway.core, context, run, signal),
      signalRun(other.core, context, run, signal),
    ]);
    expect([first.replayed, second.replayed].filter((isAgain) => isAgain)).toHaveLength(1);
    expect(await callIn(tenant, run)).toMatchObject({ state: "completed", result: { preview: "7" } });
    await expect(signalRun(gateway.core, context, run, { ...signal, token: "t2" })).rejects.toMatchObject({
      code: "conflict",
    });
  });

  test("fails or goes where its node says when nothing comes in time", async () => {
    await publishFlow(tenant, {
      name: "impatient",
      start: "paid",
      nodes: { paid: { kind: "wait", signal: "paid", timeout_ms: 1_300 } },
    });
    const run = await start("impatient");
    expect(await callIn(tenant, run)).toMatchObject({
      state: "failed",
      error: { code: "flow_failed", details: { failure: { node: "paid", code: "flow_step_timeout" } } },
    });
  });
});

describe(`a run that waits for a time ${verifies("FLOW-2")}`, () => {
  beforeAll(async () => {
    await publishFlow(tenant, {
      name: "until",
      start: "wait",
      nodes: { wait: { kind: "wait", until: { $: "input.at" } } },
    });
    await publishFlow(tenant, {
      name: "for",
      start: "wait",
      nodes: { wait: { kind: "wait", duration_ms: { $: "$number(input.ms)" } } },
    });
  });

  test.each(["2020-02-29T23:59:00+08:00", "2020-02-29T23:59:00.5-0330", "2020-02-29"])(
    "goes on then: %s",
    async (at) => {
      expect(await callIn(tenant, await start("until", { at }))).toMatchObject({ state: "completed" });
    },
  );

  test.each(["2021-02-29T23:59:00", "2021-02-29", "5", "2021-02-29T23:59:00Z"])(
    "takes nothing for one that is none: %s",
    async (at) => {
      const { error } = await callIn(tenant, await start("until", { at }));
      expect(error.details.failure).toMatchObject({
        code: "flow_expression_failed",
        message: expect.stringContaining("RFC 3339"),
      });
    },
  );

  test.each(["-1", "31536000001"])("is told how long that may be: %s", async (ms) => {
    const { error } = await callIn(tenant, await start("for", { ms }));
    expect(error.details.failure.message).toBe(
      "'duration_ms' has to come to a number of milliseconds from 0 to 31536000000.",
    );
  });
});

describe(`a branch that waits while another one works ${verifies("FLOW-1")}`, () => {
  const branches = (name: string, waiting: Record<string, unknown>): Parameters<typeof publishFlow>[1] => ({
    name,
    start: "both",
    nodes: {
      both: {
        kind: "parallel",
        branches: {
          long: { start: "hold", nodes: { hold: order(`held ${name}`) } },
          told: { start: "paid", nodes: { paid: { ...waiting, next: "go" }, go: order(`after ${name}`) } },
        },
      },
    },
  });
  const waits = async (run: string): Promise<void> => {
    const states = async (): Promise<unknown> =>
      (await viewRun(gateway.core, await contextOf(tenant), run)).steps.find(({ node }) => node === "paid")?.state;
    await expect.poll(states, { timeout: 15_000 }).toBe("waiting");
  };

  test.each(["approval", "signal"])("goes on with its %s", async (kind) => {
    const name = `beside_${kind}`;
    const node = kind === "signal" ? { kind: "wait", signal: "paid" } : { kind: "approval", message: "Go on?" };
    await publishFlow(tenant, branches(name, node));
    const run = await start(name);
    await waits(run);
    const context = await contextOf(tenant);
    if (kind === "approval") await answerRun(gateway.core, context, run, { decision: "approved" });
    else await signalRun(gateway.core, context, run, { name: "paid", token: "t", payload: null });
    await expect.poll(() => asked.get(`after ${name}`), { timeout: 15_000 }).toBe(1);
    held.get(`held ${name}`)?.();
    expect(await callIn(tenant, run)).toMatchObject({ state: "completed" });
  });

  test("has its signal in time, whenever somebody looks", async () => {
    const seldom = await startGateway({ timing: { cancelPollMs: 600_000 } });
    try {
      const of = await seldom.newTenant();
      await addOrders(of);
      await publishFlow(of, branches("seldom", { kind: "wait", signal: "paid", timeout_ms: 4_000 }));
      const { json } = await invokeFlow(of, "flow://seldom?async=true");
      await expect.poll(() => held.has("held seldom"), { timeout: 15_000 }).toBe(true);
      await of.client.expect("post", `/v1/runs/${json.id}/signal`, { name: "paid", token: "t" });
      await expect.poll(() => asked.get("after seldom"), { timeout: 15_000 }).toBe(1);
      held.get("held seldom")?.();
      expect(await callIn(of, json.id)).toMatchObject({ state: "completed" });
    } finally {
      await seldom.close();
    }
  });
});

describe(`a step whose time is over ${verifies("FLOW-1")}`, () => {
  beforeAll(async () => {
    await tenant.addPlugin({
      schema_version: "v1",
      name: "peek",
      description: "Looks.",
      parameters: { type: "object", properties: {} },
      execution: { method: "GET", base_url: `${stub.url}/peek`, param_placement: "query" },
    });
    await tenant.addProvider(stub.url, { models: { slow: "slow" } });
    const ask = { kind: "approval", message: "Go on?" };
    const below = {
      a: { start: "look", nodes: { look: { kind: "tool", name: "peek" } } },
      b: { start: "ask", nodes: { ask } },
    };
    await publishFlow(tenant, {
      name: "late_below",
      start: "both",
      nodes: { both: { kind: "parallel", branches: below } },
    });
    await tenant.client.post("/v1/agents", { name: "slow", description: "Takes its time.", model: "slow" });
  });

  const late = { kind: "end", output: { $: "steps.one.error.code" } };
  const publishLate = async (name: string, one: Record<string, unknown>): Promise<void> => {
    const bounded = { ...one, timeout_ms: 400, on_error: "late", next: "done" };
    await publishFlow(tenant, { name, start: "one", nodes: { one: bounded, done: { kind: "end" }, late } });
  };

  test.each([
    ["read", { kind: "tool", name: "peek" }],
    ["write", order("held write"), "flow_step_unknown"],
    ["branches", { kind: "parallel", branches: { a: { start: "hold", nodes: { hold: order("held branch") } } } }],
    ["items", { kind: "map", items: [1], body: { start: "hold", nodes: { hold: order("held item") } } }],
    ["model", { kind: "model", model: "slow", messages: [{ role: "user", content: "Hello" }] }],
    ["agent", { kind: "agent", agent: "slow", prompt: "Hello" }],
    ["flow", { kind: "flow", name: "late_below" }],
    ["question", { kind: "parallel", branches: { a: { start: "lose", nodes: { lose: order("lost question") } } } }],
  ])("ends with what it has under way: %s", async (name, node: Record<string, unknown>, code = "flow_step_timeout") => {
    await publishLate(`late_${name}`, node);
    const run = await start(`late_${name}`);
    const ended = await callIn(tenant, run);
    expect(ended).toMatchObject({ state: "completed", result: { preview: JSON.stringify(code) } });
    const { nodes } = await tenant.client.get(`/v1/calls/${run}/tree`);
    const open = nodes.filter(({ state }: Json) => ["queued", "running", "input_required"].includes(state));
    expect(open).toEqual([]);
  });

  test("says of a write that it may have taken effect, and which call that was", async () => {
    await publishFlow(tenant, {
      name: "late_alone",
      start: "one",
      nodes: { one: order("held alone", { timeout_ms: 400 }) },
    });
    const run = await start("late_alone");
    const ended = await callIn(tenant, run);
    const [child] = await childrenOf(tenant, run);
    expect(child).toMatchObject({ state: "unknown" });
    const message = expect.stringMatching(/^'one' was not done in time .*took effect is not known/);
    expect(ended).toMatchObject({
      state: "failed",
      error: { details: { failure: { code: "flow_step_timeout", call_id: child.id, message } } },
    });
  });

  test("says of its tool that it did not answer in time, as a call by itself does", async () => {
    await publishLate("late_silent", { kind: "tool", name: "peek" });
    const run = await start("late_silent");
    await callIn(tenant, run);
    expect(await childrenOf(tenant, run)).toMatchObject([{ state: "failed", error: { code: "tool_timeout" } }]);
  });

  test("begins nothing more", async () => {
    const hold = order({ $: "'held one of ' & item" }, { on_error: "continue" });
    const body = { start: "hold", nodes: { hold } };
    await publishLate("late_lane", { kind: "map", items: [1, 2], concurrency: 1, body });
    const run = await start("late_lane");
    await callIn(tenant, run);
    expect(await childrenOf(tenant, run)).toHaveLength(1);
    expect(asked.has("held one of 2")).toBe(false);
  });
});

describe(`a step that fails ${verifies("FLOW-1")}`, () => {
  test("is tried again as its node says, as another call each time", async () => {
    await publishFlow(tenant, {
      name: "stubborn",
      start: "buy",
      nodes: { buy: order("flaky", { retry: { max_attempts: 4, backoff_ms: 50 } }) },
    });
    const { status, json, text } = await invokeFlow(tenant, "flow://stubborn");
    expect(status, text).toBe(200);
    expect(JSON.parse(json.content)).toEqual({ receipt: "flaky 3" });
    expect((await childrenOf(tenant, json.id)).map(({ state }) => state)).toEqual(["failed", "failed", "completed"]);
  });

  test.each([
    ["retry", { decision: "retry" }, { receipt: "lost retry 2" }],
    ["skip", { decision: "skip" }, null],
    ["skip_to_object", { decision: "skip", output: '{"receipt": "by phone"}' }, { receipt: "by phone" }],
    ["skip_to_text", { decision: "skip", output: "12 of them" }, "12 of them"],
  ])("and whose fate nobody knows waits for a person, who says %s", async (name, said, output) => {
    await publishFlow(tenant, { name: `losing_${name}`, start: "buy", nodes: { buy: order(`lost ${name}`) } });
    const run = await start(`losing_${name}`);
    await parked(run);
    const context = await contextOf(tenant);
    const { steps } = await viewRun(gateway.core, context, run);
    expect(steps).toMatchObject([{ path: "buy", state: "unknown", error: { code: "flow_step_unknown" } }]);
    expect(asked.get(`lost ${name}`)).toBe(1);
    await expect(answerRun(gateway.core, context, run, { decision: "approved", input: {} })).rejects.toMatchObject({
      code: "invalid_request",
    });
    await answerRun(gateway.core, context, run, { decision: "approved", input: said });
    const ended = await callIn(tenant, run);
    expect(ended).toMatchObject({ state: "completed" });
    expect(JSON.parse(ended.result.preview)).toEqual(output);
    const after = await viewRun(gateway.core, context, run);
    expect(after.steps).toMatchObject([{ path: "buy", state: "completed", error: null }]);
  });

  test("and whose fate nobody knows waits for longer than calls are kept", async () => {
    const buy = order("lost for long", { retry: { max_attempts: 3, backoff_ms: 1 } });
    await publishFlow(tenant, { name: "losing_long", start: "buy", nodes: { buy } });
    const run = await start("losing_long");
    await parked(run);
    await ageCalls(gateway, tenant.id, 40);
    const [lost, question] = await childrenOf(tenant, run);
    expect([lost?.state, question?.state]).toEqual(["unknown", "input_required"]);
    await answerRun(gateway.core, await contextOf(tenant), run, { decision: "approved", input: { decision: "skip" } });
    expect(await callIn(tenant, run)).toMatchObject({ state: "completed", error: null });
    expect(asked.get("lost for long")).toBe(1);
    await ageCalls(gateway, tenant.id, 40);
    for (const id of [run, lost?.id]) expect((await tenant.client.send("get", `/v1/calls/${id}`)).status).toBe(404);
  });

  test("and whose fate nobody knows goes where its node leads, and is not sent again", async () => {
    await publishFlow(tenant, {
      name: "losing_on",
      start: "buy",
      nodes: {
        buy: order("lost on", { retry: { max_attempts: 3 }, on_error: "say" }),
        say: { kind: "end", output: { $: "steps.buy.error.code" } },
      },
    });
    const { json } = await invokeFlow(tenant, "flow://losing_on");
    expect([json.content, asked.get("lost on")]).toEqual(['"flow_step_unknown"', 1]);
  });

  test("in one branch ends the others", async () => {
    await publishFlow(tenant, {
      name: "branches",
      start: "both",
      nodes: {
        both: {
          kind: "parallel",
          branches: {
            bad: { start: "no", nodes: { no: { kind: "fail", code: "out_of_stock", message: "None is left." } } },
            long: { start: "hour", nodes: { hour: { kind: "wait", duration_ms: 3_600_000 } } },
          },
        },
      },
    });
    const { status, json } = await invokeFlow(tenant, "flow://branches");
    expect(status).toBe(422);
    expect(json.error).toMatchObject({
      code: "flow_failed",
      flow_error: "out_of_stock",
      failure: { node: "both", failed_at: "both.bad/no" },
    });
  });
});

describe(`a run and its record ${verifies("FLOW-1")}`, () => {
  test("tell what happened, from any place on, with its end", async () => {
    await publishFlow(tenant, {
      name: "told",
      start: "buy",
      nodes: { buy: order("told") },
    });
    const { json } = await invokeFlow(tenant, "flow://told");
    const context = await contextOf(tenant);
    const all = await readRunEvents(other.core, context, json.id, 0);
    expect(all.map(({ type }) => type)).toEqual(["step-started", "step-ended", "run-ended"]);
    expect(all[1]).toMatchObject({ path: "buy", state: "completed", output: { receipt: "told 1" } });
    const rest = await readRunEvents(gateway.core, context, json.id, (all[0] as RunEvent).id);
    expect(rest.map(({ id }) => id)).toEqual(all.slice(1).map(({ id }) => id));
  });

  test("are the base of a replay that does not do again what was done before a step", async () => {
    await publishFlow(tenant, {
      name: "twofold",
      start: "first",
      nodes: { first: order("replay first", { next: "second" }), second: order("replay second") },
    });
    const { json } = await invokeFlow(tenant, "flow://twofold");
    const { callId } = await replayRun(gateway.core, await contextOf(tenant), json.id, { from: "second" });
    expect(await callIn(tenant, callId)).toMatchObject({ state: "completed" });
    expect([asked.get("replay first"), asked.get("replay second")]).toEqual([1, 2]);
  });

  test("are one, however many messages come to however many instances", async () => {
    await publishFlow(tenant, {
      name: "once",
      start: "all",
      nodes: {
        all: {
          kind: "map",
          items: [1, 2, 3, 4],
          body: { start: "one", nodes: { one: order({ $: "'slow once ' & item" }) } },
        },
      },
    });
    const run = await start("once");
    const message = { tenant: tenant.id, callId: run };
    await Promise.all([gateway, other, gateway, other, gateway, other].map(({ core }) => handleMessage(core, message)));
    expect(await callIn(tenant, run)).toMatchObject({ state: "completed" });
    expect([1, 2, 3, 4].map((item) => asked.get(`slow once ${item}`))).toEqual([1, 1, 1, 1]);
  });

  test("do not lock each other out where the tenant may run one call at once", async () => {
    const narrow = await gateway.newTenant({ concurrent_tool_calls: 1 });
    await addOrders(narrow);
    await publishFlow(narrow, { name: "narrow", start: "buy", nodes: { buy: order("narrow") } });
    const runs = await Promise.all([1, 2, 3].map(() => invokeFlow(narrow, "flow://narrow?async=true")));
    for (const { json } of runs) expect(await callIn(narrow, json.id)).toMatchObject({ state: "completed" });
    expect(asked.get("narrow")).toBe(3);
  });

  test("are bounded by 'max_steps'", async () => {
    await publishFlow(tenant, {
      name: "endless",
      max_steps: 20,
      start: "again",
      nodes: { again: { kind: "wait", duration_ms: 1, next: "again" } },
    });
    const { status, json } = await invokeFlow(tenant, "flow://endless");
    expect([status, json.error.code]).toEqual([422, "flow_steps_exceeded"]);
  });
});
