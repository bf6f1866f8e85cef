/** The database is 20 ms away: how often a chat goes there, and when (design "Round-trip budget"). */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startDatabaseProxy, type DatabaseProxy } from "../support/database-proxy.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { TestTenant } from "../support/gateway-client.ts";
import { startHranaServer, type HranaServer } from "../support/hrana-server.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { calls, startLlmStub, text, type LlmStub, type Round } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let directory: string;
let database: HranaServer;
let proxy: DatabaseProxy;
/** Looks into the database beside the counted client. */
let beside: Database;
let gateway: Gateway;
let llm: LlmStub;
let backEnd: HttpStub;
let tenant: TestTenant;
/** Trips so far at each thing that happened. */
let seen: { readonly what: string; readonly trips: number }[] = [];

const note = (what: string): void => void seen.push({ what, trips: proxy.trips() });

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-trips-"));
  database = await startHranaServer({ file: join(directory, "remote.db") });
  beside = await openDatabase({ url: database.url });
  proxy = await startDatabaseProxy({ target: database.url });
  // No workers: their polling of the queue would be counted.
  gateway = await startGateway({ env: { DATABASE_URL: proxy.url }, requestsOnly: true });
  llm = await startLlmStub();
  backEnd = await startHttpStub();
  tenant = await gateway.newTenant();
  await tenant.addProvider(llm.url);
  await tenant.putCredential("KEY", "a-secret-value");
  const execution = { base_url: `${backEnd.url}/x`, content_type: "application/json" };
  const auth_config = { type: "api_key", mapping: [{ source: "KEY", target: "x-key", location: "header" }] };
  const parameters = { type: "object", properties: { q: { type: "string" } } };
  await tenant.addPlugin({
    name: "look",
    parameters,
    execution: { ...execution, method: "GET", param_placement: "query" },
    auth_config,
  });
  await tenant.addPlugin({
    name: "order",
    parameters,
    execution: { ...execution, method: "POST", param_placement: "body" },
    auth_config,
  });
  llm.script(text("warm"));
  await tenant.client.post("/v1/chat/completions", { messages: [{ role: "user", content: "x" }] });
  while ((await running(tenant.id)) !== 0) await new Promise((next) => setTimeout(next, 5));
  proxy.latencyMs = 20;
});

afterAll(async () => {
  await Promise.all([gateway.close(), llm.close(), backEnd.close()]);
  await beside.close();
  await proxy.close();
  await database.close();
  await rm(directory, { recursive: true, force: true });
});

/** Trips between the things that happen in one chat, from its start on. */
async function measure(...rounds: Round[]): Promise<Record<string, number>> {
  seen = [];
  let turn = 0;
  llm.respond(() => {
    note(`model ${turn + 1}`);
    turn += 1;
    return rounds[turn - 1] ?? text("end");
  });
  backEnd.answer = () => {
    note("back end");
    return { body: "{}" };
  };
  const start = proxy.trips();
  const answer = await tenant.client.post("/v1/chat/completions", { messages: [{ role: "user", content: "x" }] });
  note("answer");
  expect(answer.choices[0].finish_reason).toBe("stop");
  await expect.poll(() => running(tenant.id)).toBe(0);
  note("settled");
  const trips: Record<string, number> = {};
  let before = start;
  for (const { what, trips: at } of seen) {
    trips[what] = (trips[what] ?? 0) + at - before;
    before = at;
  }
  return trips;
}

/** Chats that are not settled. */
async function running(id: string): Promise<unknown> {
  return first("SELECT COUNT(*) AS value FROM calls WHERE tenant = ? AND kind = 'chat' AND state = 'running'", id);
}

async function newestState(tool: string): Promise<unknown> {
  return first("SELECT state AS value FROM calls WHERE tool = ? ORDER BY id DESC LIMIT 1", tool);
}

async function first(sql: string, argument: string): Promise<unknown> {
  const [result] = await beside.batch([{ sql, args: [argument] }], { readonly: true });
  return result?.rows[0]?.["value"];
}

describe(`round trips ${verifies("CHAT-2", "CHAT-12")}`, () => {
  test("plain chat: one before the model, one after the last byte", async () => {
    expect(await measure(text("hello"))).toEqual({ "model 1": 1, answer: 0, settled: 1 });
  });

  test("a round of reads, credentials and all: none on the path", async () => {
    const round = calls({ name: "look", arguments: { q: "a" } }, { name: "look", arguments: { q: "b" } });
    expect(await measure(round, text("done"))).toEqual({
      "model 1": 1,
      "back end": 0,
      "model 2": 0,
      answer: 0,
      settled: 1,
    });
  });

  test("a round of writes: one, before anything is sent; the finish overlaps the next model call", async () => {
    let atSecondTurn: unknown;
    const round = calls({ name: "order", arguments: { q: "a" } }, { name: "order", arguments: { q: "b" } });
    const answer = llm.http.answer;
    llm.http.answer = async (request, response) => {
      if (seen.some(({ what }) => what === "back end")) atSecondTurn ??= await newestState("order");
      return answer(request, response);
    };
    const trips = await measure(round, text("done"));
    expect([trips["model 1"], trips["back end"]]).toEqual([1, 1 + 1]);
    // When the model was asked again, the outcome of the last write was still on its way.
    expect(atSecondTurn).toBe("running");
    expect(await newestState("order")).toBe("completed");
  });

  const byItself = async (name: string): Promise<string> =>
    (await tenant.client.post("/v1/tools/invoke", { name, arguments: { q: "a" } })).id;
  const overMcp =
    (headers: Readonly<Record<string, string>>) =>
    async (name: string): Promise<string> => {
      const message = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: { q: "a" } } };
      const reply = await tenant.client.send("post", "/mcp", message, {
        headers: { "mcp-protocol-version": "2025-06-18", ...headers },
      });
      expect(reply.text).toContain('"result":{"content":[');
      return reply.headers.get("x-toolyard-call-id") ?? "";
    };

  test.for([
    ["by itself", byItself],
    ["of an MCP client", overMcp({ accept: "application/json" })],
    ["of an MCP client that takes streams", overMcp({ accept: "application/json, text/event-stream" })],
  ] as const)("a call %s: one before it is sent, one after its result is told", async ([, call]) => {
    for (const name of ["look", "order"]) {
      seen = [];
      backEnd.answer = () => {
        note("back end");
        return { body: "{}" };
      };
      const start = proxy.trips();
      const id = await call(name);
      note("answer");
      expect(await newestState(name)).toBe("running");
      await expect.poll(() => newestState(name)).toBe("completed");
      note("settled");
      expect(seen.map(({ what, trips }) => [what, trips - start])).toEqual([
        ["back end", 1],
        ["answer", 1],
        ["settled", 2],
      ]);
      expect(await tenant.client.get(`/v1/calls/${id}/result`)).toEqual({});
    }
  });

  test("a batch of an MCP client: each call is on record before the next one, and the last after it is told", async () => {
    backEnd.answer = () => {
      // The next trip is the settlement, which so would come behind the next call's admission.
      proxy.faults.push({ kind: "busy" });
      return { body: "{}" };
    };
    const call = (id: number): object => ({
      jsonrpc: "2.0",
      id,
      method: "tools/call",
      params: { name: "look", arguments: { q: "a" } },
    });
    const headers = { accept: "application/json" };
    await tenant.client.expect("patch", "/v1/settings", { concurrent_tool_calls: 1 });
    const reply = await tenant.client.send("post", "/mcp", [call(1), call(2), call(3)], { headers });
    expect(reply.json).toMatchObject([1, 2, 3].map((id) => ({ id, result: { content: [{ text: "{}" }] } })));
    expect(await newestState("look")).toBe("running");
    await expect.poll(() => newestState("look")).toBe("completed");
    await tenant.client.expect("patch", "/v1/settings", { concurrent_tool_calls: null });
  });

  test("a write that would be sent again is on record before its result is told", async () => {
    const put = {
      method: "PUT",
      base_url: `${backEnd.url}/x`,
      content_type: "application/json",
      param_placement: "body",
    };
    await tenant.addPlugin({ name: "put", parameters: { type: "object", properties: {} }, execution: put });
    backEnd.answer = () => ({ body: "{}" });
    await tenant.client.post("/v1/tools/invoke", { name: "put", arguments: {} });
    expect(await newestState("put")).toBe("completed");
  });

  test("a call with a key is on record before its result is told, for whoever sends it again at once", async () => {
    backEnd.answer = () => ({ body: "{}" });
    const headers = { "idempotency-key": "at-once" };
    const body = { name: "order", arguments: { q: "a" } };
    const first = await tenant.client.send("post", "/v1/tools/invoke", body, { headers });
    expect(await newestState("order")).toBe("completed");
    const again = await tenant.client.send("post", "/v1/tools/invoke", body, { headers });
    expect([again.status, again.json]).toEqual([200, first.json]);
  });

  test("under a budget: a plain chat as many, a further round one, to reserve what it may use", async () => {
    const { id } = await tenant.client.post("/v1/budgets", { period: "day", limit_tokens: 1_000_000 });
    await measure(text("with the new configuration"));
    expect(await measure(text("hello"))).toEqual({ "model 1": 1, answer: 0, settled: 1 });
    const round = calls({ name: "look", arguments: { q: "a" } });
    expect(await measure(round, round, text("done"))).toEqual({
      "model 1": 1,
      "back end": 0,
      "model 2": 1,
      "model 3": 1,
      answer: 0,
      settled: 1,
    });
    await tenant.client.expect("delete", `/v1/budgets/${id}`);
  });
});
