/** Processes that stood still longer than their lease, and go on beside the one that has their work by then. */
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { callIn, childrenOf, publishFlow } from "../support/flows.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { calls, startLlmStub, type LlmStub } from "../support/llm-stub.ts";
import { verifies } from "../support/verifies.ts";

let frozen: Gateway;
let heir: Gateway;
let database: Database;
let shop: HttpStub;
let model: LlmStub;
let tenant: TestTenant;
let keys: unknown[] = [];
let isUnderWay = Promise.withResolvers<void>();

beforeAll(async () => {
  // The first request for an order is never answered in time.
  shop = await startHttpStub(({ headers }) => {
    keys.push(headers["idempotency-key"]);
    isUnderWay.resolve();
    return { body: JSON.stringify({ receipt: `receipt ${keys.length}` }), delayMs: keys.length === 1 ? 20_000 : 0 };
  });
  model = await startLlmStub();
  model.respond(() => calls({ name: "place_order", arguments: {} }));
  frozen = await startGateway({ timing: { leaseMs: 1_000, heartbeatMs: 100 }, requestsOnly: true });
  heir = await startGateway({ sharedWith: frozen, timing: { leaseMs: 1_000, heartbeatMs: 200 }, tickEveryMs: 50 });
  database = await openDatabase({ url: frozen.databaseUrl });
});
afterAll(async () => {
  await database.close();
  await heir.close();
  await frozen.close();
  await Promise.all([shop.close(), model.close()]);
});

beforeEach(async () => {
  keys = [];
  isUnderWay = Promise.withResolvers<void>();
  tenant = await frozen.newTenant();
  await tenant.addProvider(model.url);
  await tenant.addPlugin({
    schema_version: "v1",
    name: "place_order",
    description: "Orders something.",
    parameters: { type: "object", properties: {} },
    execution: {
      method: "POST",
      base_url: `${shop.url}/orders`,
      param_placement: "body",
      idempotency_header: "Idempotency-Key",
    },
  });
});

/** The call whose order is under way is another process's by now, and the order still the first one's. */
async function takeOver(isMeant: (call: Json) => boolean): Promise<string> {
  await isUnderWay.promise;
  const all: Json[] = (await tenant.client.get("/v1/calls")).data;
  const { id } = all.find(isMeant);
  const sql = "UPDATE calls SET attempt = attempt + 1, lease_until = 0, sent_at = 0 WHERE id = ?1";
  await database.batch([{ sql, args: [id] }]);
  return id;
}

const askedAgain = [{ tool: "place_order", state: "completed", attempt: 2 }];

test(`what a run had under way is asked for again where keys are honoured ${verifies("FLOW-1", "API-5")}`, async () => {
  await publishFlow(tenant, {
    name: "shopping",
    start: "order",
    nodes: {
      order: { kind: "tool", name: "place_order", arguments: {}, next: "done" },
      done: { kind: "end", output: { $: "steps.order.output.receipt" } },
    },
  });
  const asked = tenant.client.send("post", "/v1/tools/invoke", { uri: "flow://shopping" });
  const id = await takeOver(({ uri }) => uri === "flow://shopping");
  expect(await callIn(tenant, id)).toMatchObject({ state: "completed" });
  expect(await childrenOf(tenant, id)).toMatchObject(askedAgain);
  expect([keys.length, new Set(keys).size]).toEqual([2, 1]);
  expect((await asked).json).toMatchObject({ status: "completed", content: '"receipt 2"' });
});

test(`what a chat had under way is asked for again where keys are honoured ${verifies("API-5")}`, async () => {
  const messages = [{ role: "user", content: "Order something." }];
  const asked = tenant.client.send("post", "/v1/chat/completions", { model: "stub-1", messages });
  const id = await takeOver(({ kind }) => kind === "chat");
  expect((await asked).json.error).toMatchObject({ code: "chat_interrupted" });
  const [order] = await childrenOf(tenant, id);
  await callIn(tenant, order.id);
  expect(await childrenOf(tenant, id)).toMatchObject(askedAgain);
  expect([keys.length, new Set(keys).size]).toEqual([2, 1]);
});
