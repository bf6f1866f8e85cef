/** A run whose process stood still longer than its lease, and goes on beside the one that has it by then. */
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import { afterAll, beforeAll, expect, test } from "vitest";
import { callIn, childrenOf, publishFlow } from "../support/flows.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import type { Json } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { verifies } from "../support/verifies.ts";

let frozen: Gateway;
let heir: Gateway;
let database: Database;
let shop: HttpStub;
const keys: unknown[] = [];
let onFirst: () => void = () => undefined;
const isUnderWay = new Promise<void>((resolve) => {
  onFirst = resolve;
});

beforeAll(async () => {
  shop = await startHttpStub(({ headers }) => {
    keys.push(headers["idempotency-key"]);
    onFirst();
    return { body: JSON.stringify({ receipt: `receipt ${keys.length}` }), delayMs: keys.length === 1 ? 20_000 : 0 };
  });
  frozen = await startGateway({ timing: { leaseMs: 1_000, heartbeatMs: 100 }, requestsOnly: true });
  heir = await startGateway({ sharedWith: frozen, timing: { leaseMs: 1_000, heartbeatMs: 200 }, tickEveryMs: 50 });
  database = await openDatabase({ url: frozen.databaseUrl });
});
afterAll(async () => {
  await database.close();
  await heir.close();
  await frozen.close();
  await shop.close();
});

const change = async (sql: string, args: readonly string[]): Promise<void> => {
  await database.batch([{ sql, args: [...args] }]);
};

test(`what it had under way is asked for again where keys are honoured ${verifies("FLOW-1", "API-5")}`, async () => {
  const tenant = await frozen.newTenant();
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
  await publishFlow(tenant, {
    name: "shopping",
    start: "order",
    nodes: {
      order: { kind: "tool", name: "place_order", arguments: {}, next: "done" },
      done: { kind: "end", output: { $: "steps.order.output.receipt" } },
    },
  });
  const asked = tenant.client.send("post", "/v1/tools/invoke", { uri: "flow://shopping" });
  await isUnderWay;
  const calls: Json[] = (await tenant.client.get("/v1/calls")).data;
  const { id } = calls.find(({ uri }) => uri === "flow://shopping");
  // As when the other one takes it: the order itself is still the first one's.
  const taken = "UPDATE calls SET attempt = attempt + 1, lease_until = 0, sent_at = 0 WHERE id = ?1";
  await change(taken, [id]);
  await change("UPDATE calls SET lease_until = 0, sent_at = 0 WHERE parent_id = ?1", [id]);
  expect(await callIn(tenant, id)).toMatchObject({ state: "completed" });
  expect(await childrenOf(tenant, id)).toMatchObject([{ tool: "place_order", state: "completed", attempt: 2 }]);
  expect(keys).toHaveLength(2);
  expect(new Set(keys).size).toBe(1);
  expect((await asked).json).toMatchObject({ status: "completed", content: '"receipt 2"' });
});
