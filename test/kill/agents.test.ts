/** Processes killed while an agent works: it is asked again only as long as it has done nothing. */
import { newId } from "@toolyard/core/ids";
import type { KillPoint } from "@toolyard/core/calls/kill-points";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json } from "../support/gateway-client.ts";
import { verifies } from "../support/verifies.ts";
import { LanePool, openCase, openShop } from "./lane.ts";
import { endedRows } from "./rows.ts";
import { startShop, toolName, type Shop } from "./shop.ts";

let shop: Shop;
let lanes: LanePool;
beforeAll(async () => {
  [shop, lanes] = await Promise.all([startShop(), LanePool.start(1)]);
});
afterAll(async () => {
  await lanes.close();
  await shop.close();
});

interface Ended {
  readonly order: string;
  /** That of `agent://`. */
  readonly call: Json;
  readonly rows: readonly Json[];
}

/** Asks an agent for an order; the process that runs it dies at `point`. */
function askAndDie(point: KillPoint): Promise<Ended> {
  return lanes.use(async (lane) => {
    const order = newId("request");
    const tenant = await openShop(lane, shop, { manners: "ignores keys", sensitive: false });
    await tenant.client.post("/v1/agents", { name: "buyer", model: "stub-1", tools: [toolName] });
    const { application, takeOver, close } = await openCase(lane, tenant, [point]);
    try {
      const reply = await application.send("post", "/v1/tools/invoke", {
        body: { uri: "agent://buyer", arguments: { prompt: order }, async: true },
        headers: () => ({ "idempotency-key": order }),
      });
      await takeOver();
      const call = await application.follow(reply.json.id);
      return { order, call, rows: await endedRows(tenant.client, 20_000) };
    } finally {
      await close();
    }
  });
}

describe(`an agent whose process dies ${verifies("AGENT-2")}`, () => {
  test("before it has called anything is asked again, and the order is made once", async () => {
    const { order, call, rows } = await askAndDie("chat.admitted");
    expect(call.state).toBe("completed");
    expect(call.attempt).toBe(2);
    expect(call.result.preview).toContain(`receipt of ${order}`);
    expect(shop.effectsFor(order)).toBe(1);
    const chats = rows.filter(({ kind }) => kind === "chat").map(({ state, error }) => error?.code ?? state);
    expect(new Set(chats)).toEqual(new Set(["chat_interrupted", "completed"]));
  });

  test("after it has is not asked again: what it came to is unknown, and its calls are named", async () => {
    const { order, call, rows } = await askAndDie("chat.round-recorded");
    const made = rows.find(({ tool }) => tool === toolName);
    expect(call).toMatchObject({ state: "unknown", error: { code: "outcome_unknown" } });
    expect(shop.effectsFor(order)).toBeLessThanOrEqual(1);
    expect(JSON.stringify(call.error)).toContain(made?.id);
    expect(rows.filter(({ kind }) => kind === "chat")).toHaveLength(1);
  });
});
