/** Writes that may be sent again: what came after them is never undone by that (API-5). */
import { setTimeout as sleep } from "node:timers/promises";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { writingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let shop: HttpStub;
let model: LlmStub;
let tenant: TestTenant;
let prices: unknown[] = [];
/** The end of the first write is not on record yet. */
let isOpen = false;

beforeAll(async () => {
  shop = await startHttpStub(({ body }) => {
    const { sku } = JSON.parse(String(body));
    prices.push(isOpen && sku !== "a" ? `${sku}, too early` : sku);
    return { body: "{}" };
  });
  model = await startLlmStub();
  gateway = await startGateway({ timing: { leaseMs: 1_000, heartbeatMs: 300 }, tickEveryMs: 50 });
});
afterAll(async () => {
  await gateway.close();
  await Promise.all([shop.close(), model.close()]);
});
beforeEach(async () => {
  prices = [];
  isOpen = false;
  tenant = await gateway.newTenant();
  await tenant.addProvider(model.url);
  for (const name of ["set_price", "fix_price"]) await tenant.addPlugin(writingTool(shop, name, { method: "PUT" }));
});

/** The end of the first write finds the database away so often, and the others do not. */
function loseFirstEnd(times: number): void {
  const { calls: repo } = gateway.core.repos;
  const { finish } = repo;
  const lost: string[] = [];
  vi.spyOn(repo, "finish").mockImplementation((...args) => {
    const [, id] = args;
    if (lost.length === times || (lost[0] ?? id) !== id)
      return finish(...args).finally(() => (isOpen &&= lost[0] !== id));
    lost.push(id);
    isOpen = true;
    return Promise.reject(new GatewayError("database_unavailable", "away"));
  });
}

const settled = async (): Promise<readonly Json[]> => {
  const open = async (): Promise<unknown> => (await tenant.client.get("/v1/calls?state=running")).data;
  await expect.poll(open, { timeout: 10_000 }).toEqual([]);
  return (await tenant.client.get("/v1/calls?kind=tool&order=asc")).data;
};

test.for([
  ["of two rounds", [["set_price"], ["fix_price"]]],
  ["of one round", [["set_price", "set_price"]]],
] as const)(`a chat's writes ${verifies("API-5", "CHAT-10")} %s keep their order`, async ([, rounds]) => {
  loseFirstEnd(1);
  const skus = ["a", "b"];
  const asked = rounds.map((names) => calls(...names.map((name) => ({ name, arguments: { sku: skus.shift() } }))));
  model.script(...asked, text("done"));
  await tenant.client.post("/v1/chat/completions", { messages: [{ role: "user", content: "x" }] });
  vi.restoreAllMocks();
  const rows = await settled();
  expect([prices, rows.map(({ state }) => state)]).toEqual([
    ["a", "b"],
    ["completed", "completed"],
  ]);
});

test(`a chat's answer ${verifies("API-5")} comes when its writes are on record: its caller may write, too`, async () => {
  loseFirstEnd(2);
  model.script(calls({ name: "set_price", arguments: { sku: "a" } }), text("done"));
  await tenant.client.post("/v1/chat/completions", { messages: [{ role: "user", content: "x" }] });
  expect(isOpen).toBe(false);
  vi.restoreAllMocks();
  await settled();
  expect(prices).toEqual(["a"]);
});

test.for([
  ["in another round", [["set_price"], ["set_price"]]],
  ["in the same round", [["set_price", "set_price"]]],
] as const)(
  `a chat writes nothing more ${verifies("API-5")} %s after a write whose end is lost`,
  async ([, rounds]) => {
    loseFirstEnd(100);
    const { clock, repos } = gateway.core;
    const now = clock.now.bind(clock);
    vi.spyOn(clock, "now").mockImplementation(() => now() + vi.mocked(repos.calls.finish).mock.calls.length * 40_000);
    const skus = ["a", "b"];
    const asked = rounds.map((names) => calls(...names.map((name) => ({ name, arguments: { sku: skus.shift() } }))));
    model.script(...asked, text("done"));
    await tenant.client.post("/v1/chat/completions", { messages: [{ role: "user", content: "x" }] });
    vi.restoreAllMocks();
    expect(JSON.stringify(model.requests.at(-1))).toContain("nothing is written after it");
    await settled();
    expect(new Set(prices)).toEqual(new Set(["a"]));
  },
);

test(`a caller's writes ${verifies("API-5")} keep their order`, async () => {
  loseFirstEnd(1);
  for (const sku of ["a", "b"]) await tenant.client.post("/v1/tools/invoke", { name: "set_price", arguments: { sku } });
  vi.restoreAllMocks();
  const rows = await settled();
  expect([prices, rows.map(({ state }) => state)]).toEqual([
    ["a", "b"],
    ["completed", "completed"],
  ]);
});

test(`a chat's next write ${verifies("API-5", "CHAT-10")} waits for whoever has sent the one before again`, async () => {
  const { calls: repo } = gateway.core.repos;
  const { finish } = repo;
  const underWay = new Set<unknown>();
  shop.answer = async (request) => {
    const { sku } = JSON.parse(String(request.body));
    prices.push(sku === "b" && underWay.size > 0 ? "b, too early" : sku);
    if (prices.length === 1) return { body: "{}" };
    underWay.add(request);
    await sleep(1_500);
    underWay.delete(request);
    return { body: "{}" };
  };
  // The process stands still after the first write until another attempt has been sent.
  vi.spyOn(repo, "finish").mockImplementationOnce(async (...args) => {
    await vi.waitUntil(() => prices.length > 1, { timeout: 10_000 });
    return finish(...args);
  });
  const [first, second] = ["a", "b"].map((sku) => calls({ name: "set_price", arguments: { sku } }));
  model.script(first ?? text(""), second ?? text(""), text("done"));
  await tenant.client.post("/v1/chat/completions", { messages: [{ role: "user", content: "x" }] });
  await settled();
  expect(prices.slice(1).join()).toMatch(/^(?:a,)+b$/);
});
