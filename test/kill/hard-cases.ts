/**
 * Deaths that the table of kill points does not have: one process after the other dies over the same
 * order, a round holds two orders, a result is too long for its row, a repetition is harmless by nature.
 */
import type { KillPoint } from "@toolyard/core/calls/kill-points";
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json, Reply } from "../support/gateway-client.ts";
import { isLong } from "../support/long.ts";
import { verifies } from "../support/verifies.ts";
import type { Application } from "./application.ts";
import { flows, type Fate, type Flow, type FlowName, type Told } from "./flows.ts";
import { LanePool, openCase, openShop, type SuiteOptions } from "./lane.ts";
import { endedRows, faultOf, newestOrder } from "./rows.ts";
import { clientToolName, orderPlugin, startShop, toolName, type Manners, type Shop } from "./shop.ts";

const endsWithinMs = 20_000;

let shop: Shop;
let longWindedShop: Shop;
let lanes: LanePool;

interface Played<T> {
  readonly result: T;
  readonly rows: readonly Json[];
}

/** Runs something while one process after the other dies. */
async function play<T>(
  scene: {
    readonly at: Shop;
    readonly manners: Manners;
    readonly sensitive: boolean;
    readonly deaths: readonly [KillPoint, ...KillPoint[]];
  },
  run: (application: Application) => Promise<T>,
): Promise<Played<T>> {
  return lanes.use(async (lane) => {
    const tenant = await openShop(lane, scene.at, scene);
    const { application, takeOver, close } = await openCase(lane, tenant, scene.deaths);
    try {
      const result = await run(application);
      await takeOver();
      return { result, rows: await endedRows(tenant.client, endsWithinMs) };
    } finally {
      await close();
    }
  });
}

function playFlow(
  name: FlowName,
  scene: {
    at: Shop;
    manners: Manners;
    order: string;
    deaths: readonly [KillPoint, ...KillPoint[]];
    isLost?: boolean | undefined;
  },
): Promise<Played<Told>> {
  const flow: Flow = flows[name];
  return play({ ...scene, sensitive: flow.sensitive }, async (application) => {
    const told = await flow.run(application, scene.order, undefined);
    if (scene.isLost !== true) return told;
    await application.goOn();
    return flow.run(application, scene.order, undefined);
  });
}

interface Chain {
  readonly flow: FlowName;
  readonly deaths: readonly [KillPoint, ...KillPoint[]];
  /** Absent where the second process does not come that far with an order that must not be repeated. */
  readonly fate?: Fate;
  /** The answer may be out when the first process dies; the application has lost it and asks again. */
  readonly isLost?: boolean;
}

const chains: readonly Chain[] = [
  { flow: "direct call", deaths: ["call.answered", "call.answered"] },
  { flow: "direct call", deaths: ["call.answered", "worker.claimed"], fate: "unknown" },
  { flow: "async call", deaths: ["worker.received", "worker.received"], fate: "done" },
  { flow: "async call", deaths: ["call.sent", "call.result-stored"] },
  { flow: "approved call", deaths: ["approval.decided", "worker.received"], fate: "done" },
  { flow: "chat", deaths: ["call.answered", "chat.admitted"], fate: "unknown" },
  { flow: "streamed chat", deaths: ["chat.round-recorded", "chat.round-recorded"], fate: "unknown" },
  { flow: "chat", deaths: ["chat.before-settle", "chat.round-recorded"], fate: "done", isLost: true },
];

/** Both orders are of one round and go to one service: the second waits for the first. */
const roundPoints = [
  "chat.round-recorded",
  "call.sent",
  "call.answered",
  "call.finished",
  "chat.round-finished",
] as const;

const mixedTurns = [
  { at: "chat.round-recorded", told: "outcome_unknown" },
  { at: "chat.before-settle", told: "receipt of" },
  { at: "chat.settled", told: "receipt of" },
] as const;

export function describeHardCases({ openSite, lanesAtOnce = 5 }: SuiteOptions = {}): void {
  beforeAll(async () => {
    [shop, longWindedShop, lanes] = await Promise.all([
      startShop(),
      startShop({ termsBytes: 20_000 }),
      LanePool.start(lanesAtOnce, openSite),
    ]);
  });
  afterAll(async () => {
    await lanes.close();
    await shop.close();
    await longWindedShop.close();
  });

  describe(`one process after the other, killed over the same order ${verifies("API-5", "CHAT-13")}`, () => {
    // In short runs each of them at one of the two shops.
    const isOfShort = (at: number, place: number): boolean => isLong || at % 2 === place;
    test.concurrent.each(chains.filter(({ fate }, at) => fate === undefined || isOfShort(at, 0)))(
      "$flow, at $deaths: one effect at a shop that honours keys",
      async ({ flow, deaths, isLost }) => {
        const order = newId("request");
        const { result, rows } = await playFlow(flow, { at: shop, manners: "honours keys", order, deaths, isLost });
        expect(result.fate, result.text).toBe("done");
        expect(shop.effectsFor(order)).toBe(1);
        expect(newestOrder(rows)).toMatchObject({ state: "completed" });
      },
    );

    const unrepeated = chains.filter(({ fate }, at) => fate !== undefined && isOfShort(at, 1));
    test.concurrent.each(unrepeated)(
      "$flow, at $deaths: $fate at a shop that ignores keys",
      async ({ flow, deaths, isLost, fate }) => {
        const order = newId("request");
        const { result, rows } = await playFlow(flow, { at: shop, manners: "ignores keys", order, deaths, isLost });
        expect({ told: result.fate, recorded: newestOrder(rows).state }, result.text).toEqual({
          told: fate,
          recorded: fate === "done" ? "completed" : "unknown",
        });
        expect(faultOf(shop, newestOrder(rows), { order, manners: "ignores keys" })).toBeUndefined();
      },
    );
  });

  describe(`a chat killed in the middle of a round of two orders ${verifies("API-5")}`, () => {
    const cases = roundPoints.flatMap((at) =>
      (["honours keys", "ignores keys"] as const).map((manners) => ({ at, manners })),
    );
    test.concurrent.each(cases)("at $at, at a shop that $manners", async ({ at, manners }) => {
      const orders = [newId("request"), newId("request")];
      const { rows } = await play({ at: shop, manners, sensitive: false, deaths: [at] }, (application) =>
        application.send("post", "/v1/chat/completions", {
          body: { model: "stub-1", messages: [{ role: "user", content: orders.join(" and ") }] },
          headers: () => ({ "idempotency-key": orders.join() }),
        }),
      );
      const calls = rows.filter(({ kind }) => kind === "tool");
      expect(calls).toHaveLength(2);
      const faults = orders.map((order) => {
        const row = calls.find(({ input }) => input.order === order);
        return faultOf(shop, row, { order, manners });
      });
      expect(faults).toEqual([undefined, undefined]);
    });
  });

  describe(`a turn that the client is to go on with ${verifies("CHAT-5")}`, () => {
    test.concurrent.each(mixedTurns)(
      "whose process died at $at is there again, and so is what became of our call",
      async ({ at, told }) => {
        const order = newId("request");
        const tools = [{ type: "function", function: { name: clientToolName, parameters: { type: "object" } } }];
        const asked = [{ role: "user", content: order }];
        const { result, rows } = await play(
          { at: shop, manners: "ignores keys", sensitive: false, deaths: [at] },
          async (application) => {
            const send = (messages: readonly Json[]): Promise<Reply> =>
              application.send("post", "/v1/chat/completions", {
                body: { model: "stub-1", messages, tools },
                headers: () => ({ "idempotency-key": `${order}-${messages.length}` }),
              });
            const first = await send(asked);
            if (first.status !== 200) throw new Error(`No turn to go on with: ${first.text}`);
            const { message } = first.json.choices[0];
            const answer = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "somebody agrees" };
            return send([...asked, message, answer]);
          },
        );
        const { content } = result.json.choices[0].message;
        expect(content, result.text).toContain(told);
        expect(content).toContain("somebody agrees");
        expect(faultOf(shop, newestOrder(rows), { order, manners: "ignores keys" })).toBeUndefined();
      },
    );
  });

  describe(`a long result ${verifies("CHAT-13")}`, () => {
    test.concurrent.each(["direct call", "async call"] as const)(
      "that was stored before its %s died is the result, although the order was sent again",
      async (name) => {
        const order = newId("request");
        const { rows } = await playFlow(name, {
          at: longWindedShop,
          manners: "honours keys",
          order,
          deaths: ["call.result-stored"],
        });
        expect(longWindedShop.requestsFor(order)).toHaveLength(2);
        expect(newestOrder(rows)).toMatchObject({ state: "completed", attempt: 2, result: { complete: false } });
        expect(newestOrder(rows).result.preview).toContain('"request":1,');
      },
    );
  });

  describe(`an order that is harmless to repeat by nature ${verifies("API-5")}`, () => {
    test.concurrent.each(["direct call", "async call", "chat", "approved call"] as const)(
      "is sent again when the process of its %s died",
      async (name) => {
        const order = newId("request");
        const { result, rows } = await playFlow(name, {
          at: shop,
          manners: "takes PUT",
          order,
          deaths: ["call.answered"],
        });
        expect(result.fate, result.text).toBe("done");
        expect(newestOrder(rows)).toMatchObject({ state: "completed", attempt: 2 });
        expect(shop.requestsFor(order)).toHaveLength(2);
      },
    );
  });

  describe(`a call whose process died, and that cannot or must not be run again ${verifies("API-5")}`, () => {
    test.concurrent("is unknown where its configuration came with the request", async () => {
      const order = newId("request");
      const definition = orderPlugin(shop, "honours keys", false);
      const { result, rows } = await play(
        { at: shop, manners: "ignores keys", sensitive: false, deaths: ["call.answered"] },
        (application) =>
          application.send("post", "/v1/tools/invoke", {
            body: { name: toolName, arguments: { order }, runtime_config: { plugins: [definition] } },
            headers: () => ({ "idempotency-key": order }),
          }),
      );
      expect(result.json.error.code, result.text).toBe("outcome_unknown");
      expect(newestOrder(rows).state).toBe("unknown");
      expect(shop.requestsFor(order)).toHaveLength(1);
    });

    test.concurrent("is not run again where it was cancelled meanwhile", async () => {
      const order = newId("request");
      const { rows } = await play(
        { at: shop, manners: "honours keys", sensitive: false, deaths: ["worker.claimed"] },
        async (application) => {
          const { json } = await application.send("post", "/v1/tools/invoke", {
            body: { name: toolName, arguments: { order }, async: true },
            headers: () => ({ "idempotency-key": order }),
          });
          await application.goOn();
          await application.send("post", `/v1/calls/${json.id}/cancel`, {});
        },
      );
      expect(newestOrder(rows)).toMatchObject({ state: "unknown", cancel_requested: true });
      expect(shop.requestsFor(order)).toEqual([]);
    });
  });
}
