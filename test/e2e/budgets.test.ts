/**
 * Budgets, prices and usage through the public routes: every way to make a call meets the same meter, on two
 * instances at one database.
 */
import { setTimeout as pause } from "node:timers/promises";
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Client, Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { calls, chunk, startLlmStub, text, type LlmStub, type StreamRound } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let one: Gateway;
let two: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;

beforeAll(async () => {
  [one, llm, backEnd] = await Promise.all([startGateway(), startLlmStub(), startHttpStub()]);
  two = await startGateway({ sharedWith: one });
});

afterAll(async () => {
  await two.close();
  await Promise.all([one.close(), llm.close(), backEnd.close()]);
});

beforeEach(() => {
  backEnd.requests.length = 0;
  llm.requests.length = 0;
  llm.script(text("ok"));
  backEnd.answer = () => ({ body: '{"found":true}' });
});

const messages = [{ role: "user", content: "hello" }];
/** A unit for a prompt token, two for one that is written. */
const modelPrice = { kind: "model", pattern: "stub-*", prompt_per_mtok: 1_000_000, completion_per_mtok: 2_000_000 };
const toolPrice = (name: string, perCall: number) => ({ kind: "tool", pattern: name, per_call: perCall });

async function newTenant(settings: Readonly<Record<string, unknown>> = {}): Promise<TestTenant> {
  const tenant = await one.newTenant(settings);
  await tenant.addProvider(llm.url);
  return tenant;
}

function putPrices(client: Client, ...prices: readonly object[]): Promise<Json> {
  return client.expect("put", "/v1/prices", { prices });
}

async function addBudget({ client }: TestTenant, budget: object): Promise<string> {
  return (await client.post("/v1/budgets", { period: "total", ...budget })).id as string;
}

const budgetOf = (tenant: TestTenant, id: string): Promise<Json> => tenant.client.get(`/v1/budgets/${id}`);

/** The budget when nothing of the tenant runs any more. */
async function settled(tenant: TestTenant, id: string): Promise<Json> {
  await expect.poll(async () => (await tenant.client.get("/v1/calls?state=running")).data).toEqual([]);
  return budgetOf(tenant, id);
}

async function chatCall(tenant: TestTenant, reply: Reply): Promise<Json> {
  const id = reply.headers.get("x-toolyard-call-id");
  await expect.poll(async () => (await tenant.client.get(`/v1/calls/${id}`)).state).not.toBe("running");
  return tenant.client.get(`/v1/calls/${id}`);
}

const chat = (client: Client, body: object = {}): Promise<Reply> =>
  client.send("post", "/v1/chat/completions", { messages, ...body });

describe(`a budget ${verifies("CHAT-12")}`, () => {
  test("lets exactly as many of 1,000 requests at once through as it holds, on two instances", async () => {
    const limits = { requests_per_minute: 1_000_000, concurrent_requests: 10_000, concurrent_tool_calls: 1_000 };
    const tenant = await one.newTenant(limits);
    await tenant.addPlugin(readingTool(backEnd, "look"));
    await putPrices(tenant.client, toolPrice("look", 1));
    const id = await addBudget(tenant, { period: "month", limit_micros: 100 });
    const clients = [one.client(tenant.key), two.client(tenant.key)] as const;
    const replies = await Promise.all(
      Array.from({ length: 1_000 }, (_none, at) =>
        clients[at % 2 === 0 ? 0 : 1].send("post", "/v1/tools/invoke", { name: "look", arguments: { q: "x" } }),
      ),
    );
    const statuses = Map.groupBy(replies, ({ status }) => status);
    const counts = Object.fromEntries([...statuses].map(([status, list]) => [status, list.length]));
    expect(counts).toEqual({ 200: 100, 429: 900 });
    expect(backEnd.requests).toHaveLength(100);
    for (const { json } of statuses.get(429) ?? [])
      expect(json.error).toMatchObject({ code: "budget_exceeded", budget: id });
    expect(await settled(tenant, id)).toMatchObject({
      used: { micros: 100 },
      reserved: { micros: 0 },
      remaining: { tokens: null, micros: 0 },
    });
    expect(await tenant.client.get("/v1/usage?group_by=tool")).toMatchObject({
      data: [{ id: "tool:look", group: "look", calls: 100, micros: 100 }],
    });
  });

  test("refuses a chat with its own name, the knob and the time when the window ends", async () => {
    const tenant = await newTenant();
    const id = await addBudget(tenant, { name: "A day's work", period: "day", limit_tokens: 50 });
    const refused = await chat(tenant.client, { max_tokens: 40 });
    expect(refused.status).toBe(200);
    expect(await settled(tenant, id)).toMatchObject({ used: { tokens: 15 }, remaining: { tokens: 35 } });
    const { status, json, headers } = await chat(tenant.client, { max_tokens: 40 });
    expect(status).toBe(429);
    expect(json.error).toMatchObject({
      code: "budget_exceeded",
      type: "rate_limit_error",
      budget: id,
      scope: "tenant",
      period: "day",
      measure: "tokens",
      limit: 50,
      used: 15,
      reserved: 0,
    });
    expect(json.error.message).toContain(`PATCH /v1/budgets/${id}`);
    expect(json.error.message).toContain("'max_tokens'");
    const { window } = await budgetOf(tenant, id);
    const left = Date.parse(window.ends_at) - Date.now();
    expect(Math.abs(json.error.retry_after_ms - left)).toBeLessThan(60_000);
    expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
    // An SDK that repeats by itself would only meet the budget again.
    expect(headers.get("x-should-retry")).toBe("false");
    expect(llm.requests).toHaveLength(1);
    expect((await chat(tenant.client, { max_tokens: 5 })).status).toBe(200);
  });

  test("holds for every route that makes calls, and each of them is charged to it", async () => {
    const tenant = await newTenant();
    await tenant.addPlugin(readingTool(backEnd, "look"));
    await tenant.addPlugin({ ...writingTool(backEnd, "order"), sensitive: true });
    await putPrices(tenant.client, modelPrice, toolPrice("look", 100), toolPrice("order", 1_000));
    const id = await addBudget(tenant, { limit_micros: 1_000_000 });
    const { client } = tenant;
    const look = { name: "look", arguments: { q: "x" } };
    const order = { name: "order", arguments: { sku: "x" } };
    const ended = async (callId: string): Promise<Json> => {
      await expect.poll(async () => (await client.get(`/v1/calls/${callId}`)).finished_at).not.toBeNull();
      return client.get(`/v1/calls/${callId}`);
    };
    const used = async (): Promise<number> => (await settled(tenant, id)).used.micros as number;

    for (const path of ["/v1/chat/completions", "/api/chat/completions"]) {
      for (const stream of [false, true]) {
        const before = await used();
        expect((await client.send("post", path, { messages, stream })).status).toBe(200);
        expect((await used()) - before).toBe(20);
      }
    }
    const direct = await client.post("/v1/tools/invoke", look);
    expect(await used()).toBe(180);
    const later = await client.post("/v1/tools/invoke", { ...look, async: true });
    expect(await ended(later.id)).toMatchObject({ state: "completed", cost: { micros: 100, total_micros: 100 } });
    const waiting = await client.post("/v1/tools/invoke", order);
    await client.post(`/v1/calls/${waiting.id}/approve`);
    expect(await ended(waiting.id)).toMatchObject({ state: "completed", cost: { micros: 1_000 } });
    const again = await client.post(`/v1/calls/${direct.id}/replay`);
    expect(await ended(again.id)).toMatchObject({ state: "completed", cost: { micros: 100 } });
    expect(await used()).toBe(80 + 100 + 100 + 1_000 + 100);

    const undecided = await client.post("/v1/tools/invoke", order);
    await client.expect("patch", `/v1/budgets/${id}`, { limit_micros: 1_400 });
    backEnd.requests.length = 0;
    llm.requests.length = 0;
    for (const path of ["/v1/chat/completions", "/api/chat/completions"]) {
      for (const stream of [false, true]) {
        const refused = await client.send("post", path, { messages, stream });
        expect([refused.status, refused.json.error.code]).toEqual([429, "budget_exceeded"]);
      }
    }
    for (const body of [look, { ...look, async: true }]) {
      const refused = await client.send("post", "/v1/tools/invoke", body);
      expect([refused.status, refused.json.error.code]).toEqual([429, "budget_exceeded"]);
    }
    await client.post(`/v1/calls/${undecided.id}/approve`);
    const replayed = await client.post(`/v1/calls/${direct.id}/replay`);
    for (const call of [undecided, replayed]) {
      expect(await ended(call.id)).toMatchObject({
        state: "rejected",
        error: { code: "budget_exceeded", details: { budget: id } },
      });
    }
    expect(backEnd.requests).toHaveLength(0);
    expect(llm.requests).toHaveLength(0);
    expect(await used()).toBe(1_380);
  });

  test("lets a call that was queued wait where only what runs stands in its way, for as long as it does", async () => {
    const tenant = await newTenant();
    const { client } = tenant;
    await tenant.addPlugin({ ...writingTool(backEnd, "order"), sensitive: true });
    await putPrices(client, modelPrice, toolPrice("order", 100));
    await addBudget(tenant, { limit_micros: 1_200 });
    const waiting = await client.post("/v1/tools/invoke", { name: "order", arguments: { sku: "x" } });
    llm.script({ ...text("three words long"), gapMs: 600 });
    const running = chat(client, { max_tokens: 400, stream: true });
    await expect.poll(() => llm.requests.length).toBe(1);
    await client.post(`/v1/calls/${waiting.id}/approve`);
    const stateOf = async (): Promise<unknown> => (await client.get(`/v1/calls/${waiting.id}`)).state;
    await pause(1_000);
    expect(await stateOf()).toBe("queued");
    expect((await running).status).toBe(200);
    await expect.poll(stateOf).toBe("completed");
    expect(backEnd.requests).toHaveLength(1);
  });

  test("of a key or a user limits nobody else", async () => {
    const tenant = await newTenant();
    const [mine, other] = [await tenant.newKey({ user_id: "ada" }), await tenant.newKey({ user_id: "bob" })];
    await addBudget(tenant, { scope: "key", scope_id: mine.id, limit_tokens: 1 });
    expect((await chat(mine.client)).status).toBe(429);
    expect((await chat(other.client)).status).toBe(200);
    await addBudget(tenant, { scope: "user", scope_id: "bob", limit_tokens: 1 });
    const refused = await chat(other.client);
    expect(refused.json.error).toMatchObject({ code: "budget_exceeded", scope: "user" });
    expect(refused.json.error.message).toContain("user 'bob'");
    expect((await chat(tenant.client)).status).toBe(200);
  });

  test("ends a chat whose next round it has no room for, with the work so far", async () => {
    const tenant = await newTenant({ reserve_tokens: 50 });
    await tenant.addPlugin(readingTool(backEnd, "look"));
    const id = await addBudget(tenant, { limit_tokens: 1_000 });
    llm.respond((_body, at) => calls({ name: "look", arguments: { q: `${at} ${"x".repeat(400)}` } }));
    const reply = await chat(tenant.client);
    expect(reply.status).toBe(422);
    expect(reply.json.error).toMatchObject({ code: "cost_exceeded", budget: id, measure: "tokens" });
    expect(reply.json.partial.tool_execution.tools_called).toEqual(["look"]);
    const rounds = llm.requests.length;
    expect(rounds).toBeGreaterThan(1);
    const call = await chatCall(tenant, reply);
    expect(call).toMatchObject({
      state: "failed",
      usage: { total_tokens: 28 * rounds },
      cost: { tokens: 28 * rounds },
    });
    expect(await settled(tenant, id)).toMatchObject({ used: { tokens: 28 * rounds }, reserved: { tokens: 0 } });
  });

  test("has to hold what a chat is told besides its request: results that come late, and what is kept of a turn", async () => {
    const tenant = await newTenant({ reserve_tokens: 50 });
    await tenant.addPlugin({ ...writingTool(backEnd), sensitive: true });
    await tenant.addPlugin(readingTool(backEnd, "look"));
    backEnd.answer = () => ({ body: "x".repeat(8_000) });
    const session = newId("session");
    const mine = { type: "function", function: { name: "mine", parameters: { type: "object", properties: {} } } };
    const ask = (body: object = {}): Promise<Reply> => chat(tenant.client, { session_id: session, ...body });
    llm.script(calls({ name: "create_order", arguments: { sku: "S1" } }));
    const [{ call_id: called }] = (await ask()).json.tool_execution.pending;
    await tenant.client.post(`/v1/calls/${called}/approve`);
    await expect.poll(async () => (await tenant.client.get(`/v1/calls/${called}`)).state).toBe("completed");
    const id = await addBudget(tenant, { limit_tokens: 2_000 });
    llm.requests.length = 0;
    const refused = await ask();
    expect(refused.json.error).toMatchObject({ code: "cost_exceeded", budget: id, measure: "tokens" });
    expect(llm.requests).toHaveLength(0);
    expect(await settled(tenant, id)).toMatchObject({ reserved: { tokens: 0 } });
    await tenant.client.expect("patch", `/v1/budgets/${id}`, { limit_tokens: 20_000 });
    // Told again: it is in no answer.
    llm.script(calls({ name: "mine", arguments: {} }, { name: "look", arguments: { q: "x" } }));
    const { message } = (await ask({ tools: [mine] })).json.choices[0];
    expect(JSON.stringify(llm.requests[0])).toContain("x".repeat(8_000));
    await settled(tenant, id);
    await tenant.client.expect("patch", `/v1/budgets/${id}`, { limit_tokens: 2_500 });
    const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "ok" };
    const next = { tools: [mine], messages: [...messages, message, result] };
    expect((await ask(next)).json.error).toMatchObject({ code: "cost_exceeded", budget: id });
    expect(llm.requests).toHaveLength(1);
    await tenant.client.expect("patch", `/v1/budgets/${id}`, { limit_tokens: 20_000 });
    llm.script(text("ok"));
    expect((await ask(next)).status).toBe(200);
  });

  test("ends a chat before a tool that it cannot pay for", async () => {
    const tenant = await newTenant();
    await tenant.addPlugin(readingTool(backEnd, "look"));
    await putPrices(tenant.client, modelPrice, toolPrice("look", 50_000));
    const id = await addBudget(tenant, { limit_micros: 40_000 });
    llm.script(calls({ name: "look", arguments: { q: "x" } }), text("done"));
    const reply = await chat(tenant.client);
    expect(reply.json.error).toMatchObject({ code: "cost_exceeded", budget: id, measure: "cost_micros" });
    expect(backEnd.requests).toHaveLength(0);
    await tenant.client.expect("patch", `/v1/budgets/${id}`, { limit_micros: 90_000 });
    llm.script(calls({ name: "look", arguments: { q: "x" } }), text("done"));
    expect((await chat(tenant.client)).status).toBe(200);
  });

  test("needs a price where it limits money", async () => {
    const tenant = await newTenant();
    const id = await addBudget(tenant, { limit_micros: 1_000_000 });
    const refused = await chat(tenant.client);
    expect(refused.status).toBe(400);
    expect(refused.json.error).toMatchObject({ code: "price_missing", param: "model", budget: id });
    expect(llm.requests).toHaveLength(0);
    await putPrices(tenant.client, { ...modelPrice, pattern: "*", prompt_per_mtok: 0, completion_per_mtok: 0 });
    expect((await chat(tenant.client)).status).toBe(200);
    expect(await settled(tenant, id)).toMatchObject({ used: { tokens: 15, micros: 0 } });
  });

  test("is made, shown, changed and deleted, and needs a limit and a scope that fit", async () => {
    const tenant = await newTenant();
    const { client } = tenant;
    const made = await client.post("/v1/budgets", { name: "All", period: "hour", limit_tokens: 10, limit_micros: 20 });
    expect(made).toMatchObject({
      object: "budget",
      name: "All",
      scope: "tenant",
      scope_id: null,
      period: "hour",
      enabled: true,
      used: { tokens: 0, micros: 0 },
      reserved: { tokens: 0, micros: 0 },
      remaining: { tokens: 10, micros: 20 },
    });
    expect(Date.parse(made.window.ends_at) - Date.parse(made.window.starts_at)).toBe(3_600_000);
    expect(await client.get(`/v1/budgets/${made.id}`)).toEqual(made);
    const changed = await client.expect("patch", `/v1/budgets/${made.id}`, { limit_micros: null, enabled: false });
    expect(changed).toEqual({ ...made, limit_micros: null, enabled: false, remaining: { tokens: 10, micros: null } });
    const wrong: readonly (readonly [object, string])[] = [
      [{ period: "day" }, "limit_tokens"],
      [{ period: "week", limit_tokens: 1 }, "period"],
      [{ period: "day", limit_tokens: -1 }, "limit_tokens"],
      [{ period: "day", limit_tokens: 1.5 }, "limit_tokens"],
      [{ period: "day", limit_tokens: 1, scope: "key" }, "scope_id"],
      [{ period: "day", limit_tokens: 1, scope: "key", scope_id: "key_none" }, "scope_id"],
      [{ period: "day", limit_tokens: 1, scope_id: "x" }, "scope_id"],
    ];
    for (const [body, param] of wrong) {
      const { status, json } = await client.send("post", "/v1/budgets", body);
      expect({ body, status, param: json.error.param }).toEqual({ body, status: 400, param });
    }
    const none = await client.send("patch", `/v1/budgets/${made.id}`, { limit_tokens: null });
    expect(none.json.error).toMatchObject({ code: "invalid_request", param: "limit_tokens" });
    const twice = await client.send("post", "/v1/budgets", { period: "hour", limit_tokens: 1 });
    expect([twice.status, twice.json.error.param]).toEqual([409, "period"]);
    expect((await client.send("delete", `/v1/budgets/${made.id}`)).status).toBe(204);
    expect((await client.send("get", `/v1/budgets/${made.id}`)).status).toBe(404);
  });
});

describe(`what is settled ${verifies("CHAT-2", "CHAT-13")}`, () => {
  test("is the real use of all rounds, with the price of tools and their share in the prompts", async () => {
    const tenant = await newTenant();
    await tenant.addPlugin(readingTool(backEnd, "look"));
    await tenant.addPlugin(writingTool(backEnd, "order"));
    await putPrices(tenant.client, modelPrice, toolPrice("look", 100), toolPrice("order", 1_000));
    llm.script(
      calls({ name: "look", arguments: { q: "x" } }, { name: "order", arguments: { sku: "y" } }),
      calls({ name: "look", arguments: { q: "z" } }),
      text("done"),
    );
    const reply = await chat(tenant.client);
    const model = 2 * (20 + 2 * 8) + (10 + 2 * 5);
    expect(reply.headers.get("x-toolyard-cost-micros")).toBe(String(model + 100 + 1_000 + 100));
    const call = await chatCall(tenant, reply);
    expect(call).toMatchObject({
      tool: "stub-1",
      usage: { total_tokens: 2 * 28 + 15 },
      cost: { micros: model, tokens: 71, total_micros: model + 1_200, estimated: false },
    });
    const { data } = await tenant.client.get(`/v1/calls?parent_id=${call.id}&order=asc`);
    const costs = (name: string): Json =>
      data.filter(({ tool }: Json) => tool === name).map(({ cost }: Json) => [cost.micros, cost.total_micros]);
    expect(costs("look")).toEqual([
      [100, 100],
      [100, 100],
    ]);
    expect(costs("order")).toEqual([[1_000, 1_000]]);
    for (const { cost } of data) {
      // Its result is 14 bytes; the schema is some dozens of tokens.
      expect(cost.context_tokens).toBeGreaterThan(14);
      expect(cost.context_micros).toBe(cost.context_tokens);
      expect(cost.estimated).toBe(false);
    }
    expect((await tenant.client.get("/v1/usage")).data).toMatchObject([
      { calls: 4, prompt_tokens: 50, completion_tokens: 21, micros: model + 1_200, estimated_calls: 0 },
    ]);
  });

  test("is estimated, and says so, where the back end does not tell its use", async () => {
    const tenant = await newTenant();
    await putPrices(tenant.client, modelPrice);
    const silent: StreamRound = {
      writes: [chunk({ role: "assistant", content: "x".repeat(400) }), chunk({}, "stop"), "data: [DONE]\n\n"],
    };
    llm.script(silent);
    const reply = await chat(tenant.client, { stream: true });
    expect(reply.text).not.toContain('"usage"');
    const call = await chatCall(tenant, reply);
    expect(call.cost).toMatchObject({ estimated: true });
    expect(call.usage).toMatchObject({ completion_tokens: 100, estimated: true });
    expect(call.usage.prompt_tokens).toBeGreaterThan(4);
    expect(call.cost.micros).toBe(call.usage.prompt_tokens + 200);
    expect((await tenant.client.get("/v1/usage?group_by=model")).data).toMatchObject([
      { group: "stub-1", estimated_calls: 1, completion_tokens: 100 },
    ]);
  });

  test("is the part that was done, where the client leaves or the back end breaks off", async () => {
    const tenant = await newTenant();
    const id = await addBudget(tenant, { limit_tokens: 1_000_000 });
    const words = Array.from({ length: 40 }, () => "words ").join("");
    llm.respond(() => ({ writes: text(words).writes, gapMs: 25 }));
    const leaving = new AbortController();
    const left = one
      .client(tenant.key)
      .send("post", "/v1/chat/completions", { messages, stream: true }, { signal: leaving.signal });
    await expect.poll(() => llm.requests.length).toBe(1);
    await pause(300);
    leaving.abort();
    await expect(left).rejects.toThrow("abort");
    await settled(tenant, id);
    const [cancelled] = (await tenant.client.get("/v1/calls")).data;
    expect(cancelled).toMatchObject({ state: "cancelled", cost: { estimated: true } });
    expect(cancelled.usage.completion_tokens).toBeGreaterThan(1);
    expect(cancelled.usage.completion_tokens).toBeLessThan(60);

    llm.script({ writes: text(words).writes.slice(0, 11), cut: true });
    const broken = await chat(tenant.client, { stream: true });
    const failed = await chatCall(tenant, broken);
    expect(failed).toMatchObject({ state: "failed", cost: { estimated: true } });
    expect(failed.usage.completion_tokens).toBe(15);
    const both = cancelled.cost.tokens + failed.cost.tokens;
    expect(await settled(tenant, id)).toMatchObject({ used: { tokens: both }, reserved: { tokens: 0 } });
  });

  test("is nothing where the back end refused to answer, and tools are free that were not reached", async () => {
    const tenant = await newTenant();
    await tenant.addPlugin({
      ...readingTool(backEnd, "away"),
      execution: { method: "GET", base_url: "http://127.0.0.1:9/x", param_placement: "query" },
    });
    await tenant.addPlugin(readingTool(backEnd, "broken"));
    await putPrices(tenant.client, modelPrice, toolPrice("*", 7));
    llm.script({ status: 400, json: { error: { message: "no" } } });
    const refused = await chat(tenant.client);
    expect(await chatCall(tenant, refused)).toMatchObject({ state: "failed", cost: { micros: 0, tokens: 0 } });
    const away = await tenant.client.send("post", "/v1/tools/invoke", { name: "away", arguments: { q: "x" } });
    expect((await chatCall(tenant, away)).cost).toBeNull();
    backEnd.answer = () => ({ status: 500, body: "no" });
    const broken = await tenant.client.send("post", "/v1/tools/invoke", { name: "broken", arguments: { q: "x" } });
    expect((await chatCall(tenant, broken)).cost).toMatchObject({ micros: 7 });
  });

  test("is not charged again where an answer is replayed", async () => {
    const tenant = await newTenant();
    await tenant.addPlugin(readingTool(backEnd, "look"));
    await putPrices(tenant.client, modelPrice, toolPrice("look", 100));
    const id = await addBudget(tenant, { limit_micros: 1_000_000 });
    const key = { "idempotency-key": "one" };
    for (let count = 0; count < 3; count += 1) {
      await tenant.client.post("/v1/chat/completions", { messages }, key);
      await tenant.client.post("/v1/tools/invoke", { name: "look", arguments: { q: "x" } }, key);
    }
    expect(await settled(tenant, id)).toMatchObject({ used: { micros: 120 } });
  });
});

describe("prices", () => {
  test("are replaced as a whole, and each name has one price at a time", async () => {
    const { client } = await newTenant();
    expect(await client.get("/v1/prices")).toMatchObject({ object: "price_table", prices: [] });
    const from = "2026-01-01T00:00:00.000Z";
    const table = [modelPrice, { ...modelPrice, effective_from: from }, toolPrice("look", 1)];
    const stored = (await putPrices(client, ...table)).prices;
    expect(stored).toEqual([
      { ...modelPrice, effective_from: null, cached_prompt_per_mtok: null, per_request: 0 },
      { ...modelPrice, effective_from: from, cached_prompt_per_mtok: null, per_request: 0 },
      { ...toolPrice("look", 1), effective_from: null },
    ]);
    expect((await client.get("/v1/prices")).prices).toEqual(stored);
    const wrong: readonly (readonly [readonly object[], string])[] = [
      [[toolPrice("look", 1), toolPrice("look", 2)], "prices.1"],
      [[toolPrice("look", -1)], "prices.0.per_call"],
      [[toolPrice("", 1)], "prices.0.pattern"],
      [[{ ...modelPrice, effective_from: "soon" }], "prices.0.effective_from"],
      [[{ ...modelPrice, prompt_per_mtok: 0.5 }], "prices.0.prompt_per_mtok"],
    ];
    for (const [prices, param] of wrong) {
      const { status, json } = await client.send("put", "/v1/prices", { prices });
      expect({ prices, status, param: json.error.param }).toEqual({ prices, status: 400, param });
    }
    expect((await client.get("/v1/prices")).prices).toEqual(stored);
    expect((await putPrices(client)).prices).toEqual([]);
  });

  test("of tools are not for calls that have asked nothing of them: a fallback, and what a message waits for", async () => {
    const { client } = await newTenant();
    await putPrices(client, toolPrice("*", 5));
    const nobody = { host: "127.0.0.1", port: 9 };
    const services: Json[] = [
      {
        scheme: "svc",
        service_id: "shop",
        config: {
          protocol: "http",
          endpoints: [nobody],
          breaker: { failures: 1, open_ms: 60_000, fallback: { open: false } },
          tools: { hours: { description: "When it is open.", endpoint: "/hours" } },
        },
      },
      {
        scheme: "mq",
        service_id: "bus",
        config: {
          broker: "redis",
          servers: [`${nobody.host}:${nobody.port}`],
          security: "none",
          allow_unencrypted: true,
          topics: { orders: {} },
        },
      },
    ];
    for (const service of services) await client.post("/v1/tool-services", service);
    const invoke = (uri: string, args: Json = {}): Promise<Reply> =>
      client.send("post", "/v1/tools/invoke", { uri, arguments: args });
    await invoke("svc://shop/hours");
    const { json: fallback } = await invoke("svc://shop/hours");
    expect(JSON.parse(fallback.content)).toEqual({ open: false, degraded: true });
    const { json: delayed } = await invoke("mq://bus/orders", { message: 1, delay: 60_000 });
    expect(JSON.parse(delayed.content).status).toBe("delayed");
    for (const { id } of [fallback, delayed]) {
      expect(await client.get(`/v1/calls/${id}`)).toMatchObject({ state: "completed", cost: null });
    }
  });

  test("of the operator hold for every tenant that has none of its own, from the next request on", async () => {
    const tenant = await newTenant();
    const operator = (prices: readonly object[]): Promise<Json> =>
      one.operator.expect("put", "/v1/prices/operator", { prices });
    const cost = async (): Promise<string | null> => (await chat(tenant.client)).headers.get("x-toolyard-cost-micros");
    expect(await cost()).toBe("0");
    try {
      await operator([modelPrice]);
      expect(await cost()).toBe("20");
      expect(await one.operator.get("/v1/prices/operator")).toMatchObject({ prices: [modelPrice] });
      expect(await tenant.client.get("/v1/prices")).toMatchObject({ prices: [], operator_prices: [modelPrice] });
      await putPrices(tenant.client, { ...modelPrice, pattern: "*", per_request: 100 });
      expect(await two.client(tenant.key).send("post", "/v1/chat/completions", { messages })).toMatchObject({
        status: 200,
      });
      expect(await cost()).toBe("120");
    } finally {
      await operator([]);
    }
  });
});

describe("usage", () => {
  test("is one's own, or with the scope 'calls' the tenant's, by whatever it is asked for", async () => {
    const tenant = await newTenant();
    const [ada, bob] = [await tenant.newKey({ user_id: "ada" }), await tenant.newKey()];
    for (const { client } of [ada, ada, bob]) await client.post("/v1/chat/completions", { messages });
    const groups = async (client: Client, query: string): Promise<unknown> =>
      (await client.get(`/v1/usage?${query}`)).data.map(({ group, calls: count }: Json) => [group, count]);
    await expect.poll(() => groups(tenant.client, "group_by=model")).toEqual([["stub-1", 3]]);
    // Ids of keys sort by when they were made.
    expect(await groups(tenant.client, "group_by=key&order=asc")).toEqual([
      [ada.id, 2],
      [bob.id, 1],
    ]);
    expect(await groups(tenant.client, "group_by=user&order=asc")).toEqual([
      [null, 1],
      ["ada", 2],
    ]);
    expect(await groups(tenant.client, "")).toEqual([[new Date().toISOString().slice(0, 10), 3]]);
    expect(await groups(bob.client, "group_by=key")).toEqual([[bob.id, 1]]);
    expect(await groups(bob.client, "group_by=user")).toEqual([[null, 1]]);
    expect(await groups(tenant.client, "from=2026-01-01&to=2026-02-01")).toEqual([]);
    for (const [query, param] of [
      ["from=2026-02-01&to=2026-02-01", "to"],
      ["from=yesterday", "from"],
      ["group_by=country", "group_by"],
    ]) {
      const { status, json } = await tenant.client.send("get", `/v1/usage?${query}`);
      expect({ query, status, param: json.error.param }).toEqual({ query, status: 400, param });
    }
  });
});
