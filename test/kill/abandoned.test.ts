/** Calls that every process dies of: after a few of them nobody takes them up any more, and whoever waits hears of it. */
import { mostInterruptions } from "@toolyard/core/calls/interruptions";
import type { KillPoint } from "@toolyard/core/calls/kill-points";
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json } from "../support/gateway-client.ts";
import { verifies } from "../support/verifies.ts";
import type { Application } from "./application.ts";
import { LanePool, openCase } from "./lane.ts";
import { endedRows } from "./rows.ts";
import { orderPlugin, startShop, toolName, type Manners, type Shop } from "./shop.ts";

const endsWithinMs = 30_000;
const diesAt: KillPoint = "call.answered";
const deaths = [diesAt, ...Array.from({ length: mostInterruptions - 1 }, () => diesAt)] as const;

let shop: Shop;
let lanes: LanePool;
beforeAll(async () => {
  [shop, lanes] = await Promise.all([startShop(), LanePool.start(1)]);
});
afterAll(async () => {
  await lanes.close();
  await shop.close();
});

/** What is on record once each process that took the order up has died of it, and one that may has had a look. */
function dieOver(
  { manners, effect, flow }: { readonly manners: Manners; readonly effect: "read" | "write"; readonly flow?: Json },
  ask: (application: Application, order: string) => Promise<unknown>,
): Promise<{ readonly order: string; readonly rows: readonly Json[] }> {
  return lanes.use(async (lane) => {
    const order = newId("request");
    const tenant = await lane.newTenant();
    const { execution, ...plugin } = orderPlugin(shop, manners, false);
    await tenant.addPlugin({ ...plugin, execution: { ...(execution as object), effect } });
    if (flow !== undefined) await tenant.client.expect("post", "/v1/flows", { definition: flow, publish: true });
    const { application, takeOver, close } = await openCase(lane, tenant, deaths);
    try {
      await ask(application, order);
      await takeOver();
      return { order, rows: await endedRows(tenant.client, endsWithinMs) };
    } finally {
      await close();
    }
  });
}

const invoke = (body: Json) => (application: Application, order: string) =>
  application.send("post", "/v1/tools/invoke", {
    body: { ...body, arguments: { order }, async: true },
    headers: () => ({ "idempotency-key": order }),
  });

describe(`a call that every process dies of ${verifies("API-5", "CHAT-13")}`, () => {
  test("has failed where it reads, and is sent no more", async () => {
    const { order, rows } = await dieOver({ manners: "ignores keys", effect: "read" }, invoke({ name: toolName }));
    expect(rows).toMatchObject([
      {
        state: "failed",
        interruptions: mostInterruptions,
        error: { code: "call_abandoned", details: { interruptions: mostInterruptions } },
      },
    ]);
    expect(shop.requestsFor(order)).toHaveLength(mostInterruptions);
  });

  test("is unknown where it writes, and is sent no more", async () => {
    const { order, rows } = await dieOver({ manners: "takes PUT", effect: "write" }, invoke({ name: toolName }));
    expect(rows).toMatchObject([{ state: "unknown", error: { code: "outcome_unknown" } }]);
    expect(shop.requestsFor(order)).toHaveLength(mostInterruptions);
  });

  test(`leaves a flow that asked for it to go on as after any failure ${verifies("FLOW-1")}`, async () => {
    const flow = {
      schema_version: 1,
      name: "cautious",
      description: "Goes on without it.",
      effect: "read",
      input: { type: "object", properties: { order: { type: "string" } }, required: ["order"] },
      start: "look",
      nodes: {
        look: { kind: "tool", name: toolName, arguments: { order: { $: "input.order" } }, on_error: "without" },
        without: { kind: "end", output: { code: { $: "steps.look.error.code" } } },
      },
    };
    const { order, rows } = await dieOver(
      { manners: "ignores keys", effect: "read", flow },
      invoke({ uri: "flow://cautious" }),
    );
    const run = rows.find(({ uri }) => uri.startsWith("flow://"));
    expect(run, JSON.stringify(rows)).toMatchObject({ state: "completed" });
    expect(JSON.parse(run.result.preview)).toEqual({ code: "call_abandoned" });
    expect(shop.requestsFor(order)).toHaveLength(mostInterruptions);
  });
});
