/** Runs of flows through the whole gateway: what they come to, what they wait for, what is on record. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { callIn, childrenOf, condition, invokeFlow, publishFlow } from "../support/flows.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let stub: HttpStub;
let tenant: TestTenant;

const bodies = (): Record<string, unknown>[] =>
  stub.requests.map(({ body }) => JSON.parse(body.toString("utf8")) as Record<string, unknown>);

beforeAll(async () => {
  stub = await startHttpStub(({ body }) => {
    const given = JSON.parse(body.toString("utf8")) as { order: string };
    if (given.order.startsWith("bad")) return { status: 422, body: JSON.stringify({ error: "no such goods" }) };
    return { body: JSON.stringify({ receipt: `receipt of ${given.order}` }) };
  });
  gateway = await startGateway({ tickEveryMs: 500 });
  tenant = await gateway.newTenant();
  await tenant.addPlugin({
    schema_version: "v1",
    name: "place_order",
    description: "Orders something.",
    parameters: { type: "object", properties: { order: { type: "string" } }, required: ["order"] },
    execution: { method: "POST", base_url: `${stub.url}/orders`, param_placement: "body" },
  });
});
afterAll(async () => {
  await gateway.close();
  await stub.close();
});

const order = (value: unknown, more: Record<string, unknown> = {}) => ({
  kind: "tool",
  name: "place_order",
  arguments: { order: value },
  ...more,
});

describe(`a flow that is called ${verifies("FLOW-1")}`, () => {
  test("runs its nodes and gives its output to whoever waits", async () => {
    await publishFlow(tenant, {
      name: "intake",
      input: { type: "object", properties: { goods: { type: "array" }, rush: { type: "boolean", default: false } } },
      start: "all",
      nodes: {
        all: {
          kind: "map",
          items: { $: "input.goods" },
          concurrency: 2,
          body: { start: "one", nodes: { one: order({ $: "item" }) }, output: { $: "steps.one.output.receipt" } },
          next: "rush",
        },
        rush: condition("input.rush", "both", "done"),
        both: {
          kind: "parallel",
          branches: {
            a: { start: "x", nodes: { x: { kind: "transform", expression: "1 + 1" } } },
            b: { start: "y", nodes: { y: order("courier") } },
          },
          next: "done",
        },
        done: { kind: "end", output: { receipts: { $: "steps.all.output" }, both: { $: "steps.both.output" } } },
      },
    });
    const { status, json, text } = await invokeFlow(tenant, "flow://intake", {
      goods: ["tea", "rice", "salt"],
      rush: true,
    });
    expect(status, text).toBe(200);
    expect(JSON.parse(json.content)).toEqual({
      receipts: ["receipt of tea", "receipt of rice", "receipt of salt"],
      both: { a: 2, b: { receipt: "receipt of courier" } },
    });
    const children = await childrenOf(tenant, json.id);
    expect(children).toHaveLength(4);
    expect(children.every(({ state, root_id: root }) => state === "completed" && root === json.id)).toBe(true);
    expect(children[0].caller.chain).toContainEqual({ kind: "flow", id: "intake" });
  });

  test("waits for the flow within it, and passes its failure on with code and node", async () => {
    await publishFlow(tenant, {
      name: "inner",
      input: { type: "object", properties: { what: { type: "string" } } },
      start: "buy",
      nodes: { buy: order({ $: "input.what" }) },
    });
    await publishFlow(tenant, {
      name: "outer",
      start: "sub",
      nodes: { sub: { kind: "flow", name: "inner", input: { what: { $: "input.what" } } } },
    });
    const good = await invokeFlow(tenant, "flow://outer", { what: "tea" });
    expect(good.status, good.text).toBe(200);
    expect(JSON.parse(good.json.content)).toEqual({ receipt: "receipt of tea" });
    const bad = await invokeFlow(tenant, "flow://outer", { what: "bad tea" });
    expect(bad.status, bad.text).toBe(422);
    expect(bad.json.error).toMatchObject({
      code: "flow_failed",
      flow: "outer",
      failure: { node: "sub", code: "flow_failed" },
    });
  });

  test("goes where 'on_error' says, with the error at hand", async () => {
    await publishFlow(tenant, {
      name: "careful",
      start: "buy",
      nodes: {
        buy: order("bad goods", { on_error: "sorry" }),
        sorry: { kind: "end", output: { code: { $: "steps.buy.error.code" } } },
      },
    });
    const { json, text } = await invokeFlow(tenant, "flow://careful");
    expect(JSON.parse(json.content), text).toEqual({ code: "tool_failed" });
  });

  test("is not allowed to call itself without an end", async () => {
    await publishFlow(tenant, { name: "mirror", start: "again", nodes: { again: { kind: "flow", name: "mirror" } } });
    const { status, json } = await invokeFlow(tenant, "flow://mirror");
    expect(status).toBe(422);
    expect(json.error).toMatchObject({ code: "flow_depth_exceeded", flow: "mirror" });
    expect(json.error.message).toMatch(/^Flow 'mirror' failed at '\w+': 'flow:\/\/mirror' would be flow number/);
    expect(json.error.message).toContain("flow_depth_max");
  });
});

describe(`a flow that is called asynchronously ${verifies("FLOW-2")}`, () => {
  test("answers with the run's id at once", async () => {
    await publishFlow(tenant, { name: "later", start: "buy", nodes: { buy: order("later tea") } });
    const { status, json } = await invokeFlow(tenant, "flow://later?async=true");
    expect(status).toBe(202);
    expect(json.id).toMatch(/^call_/);
    expect(await callIn(tenant, json.id)).toMatchObject({ state: "completed" });
  });

  test("does not hold up the flow that calls it", async () => {
    await publishFlow(tenant, {
      name: "starter",
      start: "go",
      nodes: { go: { kind: "flow", name: "later", async: true } },
    });
    const { json, text } = await invokeFlow(tenant, "flow://starter");
    const { run_id: run } = JSON.parse(json.content ?? text);
    expect(await callIn(tenant, run)).toMatchObject({ state: "completed", parent_id: json.id });
  });
});

describe(`for whom a flow runs ${verifies("FLOW-3")}`, () => {
  beforeAll(async () => {
    await publishFlow(tenant, {
      name: "who",
      context: { region: "north" },
      input: { type: "object", properties: { region: { type: "string" } } },
      start: "say",
      nodes: { say: { kind: "transform", expression: "context" } },
    });
    await publishFlow(tenant, {
      name: "whose",
      start: "sub",
      nodes: { sub: { kind: "flow", name: "who", input: { region: "south" } } },
    });
  });

  test("tenant and unit pass on, and explicit arguments beat variables", async () => {
    const { json, text } = await invokeFlow(tenant, "flow://whose", { buCode: "unit-7" });
    expect(JSON.parse(json.content ?? text)).toEqual({ tenantId: tenant.id, buCode: "unit-7", region: "south" });
  });

  test("another tenant's id is refused, and that is on record", async () => {
    const { status, json } = await invokeFlow(tenant, "flow://who", { tenantId: "ten_other" });
    expect(status).toBe(403);
    expect(json.error.code).toBe("permission_denied");
    expect(await tenant.client.get(`/v1/calls/${json.error.call_id}`)).toMatchObject({
      state: "rejected",
      error: { code: "permission_denied" },
    });
  });
});

describe(`versions of a flow ${verifies("FLOW-4")}`, () => {
  test("the latest published one is the default, and any can be named", async () => {
    const nodes = (say: number) => ({ say: { kind: "end", output: say } });
    const id = await publishFlow(tenant, { name: "versioned", start: "say", nodes: nodes(1) });
    const definition = {
      schema_version: 1,
      name: "versioned",
      description: "Said otherwise.",
      start: "say",
      nodes: nodes(2),
    };
    const edited = await tenant.client.send("patch", `/v1/flows/${id}`, { definition });
    expect(edited.status, edited.text).toBe(200);
    await tenant.client.expect("post", `/v1/flows/${id}/publish`, {});
    expect((await invokeFlow(tenant, "flow://versioned")).json.content).toBe("2");
    expect((await invokeFlow(tenant, "flow://versioned?version=1")).json.content).toBe("1");
    const missing = await invokeFlow(tenant, "flow://versioned?version=9");
    expect(missing.status).toBe(404);
    expect(missing.json.error).toMatchObject({ code: "flow_not_found" });
  });
});

describe(`a run that waits ${verifies("FLOW-1")}`, () => {
  test("holds nothing meanwhile, and whoever called it still gets its output", async () => {
    await publishFlow(tenant, {
      name: "patient",
      start: "wait",
      nodes: { wait: { kind: "wait", duration_ms: 1_500, next: "done" }, done: { kind: "end", output: "done" } },
    });
    const asked = await invokeFlow(tenant, "flow://patient", {}, { async: true });
    const parked = await callIn(tenant, asked.json.id, ["queued"]);
    expect(parked).toMatchObject({ state: "queued" });
    const { status, json } = await invokeFlow(tenant, "flow://patient");
    expect([status, json.content]).toEqual([200, '"done"']);
    expect(await callIn(tenant, asked.json.id)).toMatchObject({ state: "completed", attempt: 2 });
  });

  test("for a person goes on with what that one has filled in", async () => {
    await publishFlow(tenant, {
      name: "asking",
      start: "ask",
      nodes: {
        ask: {
          kind: "approval",
          message: "May it be ordered?",
          form: { type: "object", properties: { amount: { type: "integer" } }, required: ["amount"] },
          next: "buy",
        },
        buy: order({ $: "'tea for ' & steps.ask.output.input.amount" }),
      },
    });
    const { json } = await invokeFlow(tenant, "flow://asking?async=true");
    const question = await questionOf(json.id);
    await tenant.client.expect("post", `/v1/calls/${question.id}/approve`, {
      input: { form: { action: "accept", content: { amount: 3 } } },
    });
    expect(await callIn(tenant, json.id)).toMatchObject({ state: "completed" });
    expect(bodies()).toContainEqual({ order: "tea for 3" });
  });

  test("is cancelled with all that it waits for", async () => {
    const { json } = await invokeFlow(tenant, "flow://asking?async=true");
    const question = await questionOf(json.id);
    await tenant.client.expect("post", `/v1/calls/${json.id}/cancel`, {});
    const error = { code: "call_cancelled", message: "The call was cancelled while it waited." };
    expect(await callIn(tenant, json.id)).toMatchObject({ state: "cancelled", error });
    expect(await callIn(tenant, question.id)).toMatchObject({ state: "cancelled" });
  });
});

async function questionOf(run: string): Promise<{ readonly id: string }> {
  for (let tries = 0; tries < 200; tries += 1) {
    const waiting = (await childrenOf(tenant, run)).find(({ state }) => state === "input_required");
    if (waiting !== undefined) return waiting;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error("nobody was asked");
}
