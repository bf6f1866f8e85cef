/**
 * A process killed at any kill point, in any flow that passes it (design "The call", "Async"): the
 * order takes effect exactly once where the shop honours the key that it is sent, arrives at most once
 * where it does not, and no call is lost.
 */
import { killPoints, type KillPoint } from "@toolyard/core/calls/kill-points";
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json } from "../support/gateway-client.ts";
import { verifies } from "../support/verifies.ts";
import { createApplication } from "./application.ts";
import {
  flowNames,
  flows,
  outsidePasses,
  passes,
  type Fate,
  type Flow,
  type FlowName,
  type Moment,
  type Told,
} from "./flows.ts";
import { eventually, type Instance } from "./instance.ts";
import { LanePool, openCase, openShop, type Lane } from "./lane.ts";
import { endedRows, newestOrder } from "./rows.ts";
import { startShop, toolName, type Manners, type Shop } from "./shop.ts";

const lanesAtOnce = 5;
const endsWithinMs = 15_000;
const bothManners: readonly Manners[] = ["honours keys", "ignores keys"];

let shop: Shop;
let lanes: LanePool;

beforeAll(async () => {
  [shop, lanes] = await Promise.all([startShop(), LanePool.start(lanesAtOnce)]);
});
afterAll(async () => {
  await lanes.close();
  await shop.close();
});

interface Scenario {
  readonly flow: FlowName;
  readonly at: string;
  readonly fate: Fate;
  readonly manners: Manners;
  /** Sees to it that the victim dies at the right moment. */
  readonly arm: (victim: Instance, order: string) => Promise<void>;
}

const points = Object.entries(passes).flatMap(([at, fates]) =>
  scenariosOf(at, fates, (victim) => victim.order({ kind: "stop", at: at as KillPoint, with: "SIGKILL" })),
);
const moments = Object.entries(outsidePasses).flatMap(([at, fates]) =>
  scenariosOf(at, fates, async (victim, order) => killAtMoment(at as Moment, victim, order)),
);

function scenariosOf(at: string, fates: Partial<Record<FlowName, Fate>>, arm: Scenario["arm"]): readonly Scenario[] {
  return flowNames.flatMap((flow) => {
    const fate = fates[flow];
    return fate === undefined ? [] : bothManners.map((manners) => ({ flow, at, fate, manners, arm }));
  });
}

function killAtMoment(at: Moment, victim: Instance, order: string): void {
  if (at === "the shop is at work") shop.onRequest(order, () => victim.kill());
  else shop.onModelTurn(order, at === "the model thinks about the request" ? 1 : 2, () => victim.kill());
}

describe("the table of kill points", () => {
  test("names a flow for every point", () => {
    const unreached = killPoints.filter((point) => Object.keys(passes[point]).length === 0);
    expect(unreached).toEqual([]);
  });

  test.concurrent.each(flowNames)("says where a %s passes", async (name) => {
    const expected = killPoints.filter((point) => Object.hasOwn(passes[point], name));
    const reached = await lanes.use(async (lane) => {
      const order = newId("request");
      const flow: Flow = flows[name];
      const tenant = await openShop(lane, shop, { manners: "honours keys", sensitive: flow.sensitive });
      const { victim, application, close } = await openCase(lane, tenant);
      try {
        const before = await flow.before?.(application, order);
        await victim.order({ kind: "report" });
        await flow.run(application, order, before);
        // The last points come after the answer.
        const isThere = (): boolean => expected.every((point) => victim.reached.includes(point));
        await eventually("The last point", 3_000, () => isThere() || undefined).catch(() => undefined);
        return victim.reached;
      } finally {
        await close();
      }
    });
    expect(reached.toSorted()).toEqual(expected.toSorted());
  });
});

describe(`a process killed in the middle ${verifies("API-5", "CHAT-13")}`, () => {
  describe.each(bothManners)("of an order to a shop that %s", (manners) => {
    const own = [...points, ...moments].filter((scenario) => scenario.manners === manners);
    test.concurrent.each(own)("$flow, at $at", (scenario) => lanes.use((lane) => play(lane, scenario)));
  });
});

async function play(lane: Lane, scenario: Scenario): Promise<void> {
  const order = newId("request");
  const flow: Flow = flows[scenario.flow];
  const tenant = await openShop(lane, shop, { manners: scenario.manners, sensitive: flow.sensitive });
  const before = await flow.before?.(
    createApplication(tenant.client, async () => tenant.client),
    order,
  );
  shop.forget(order);
  const { victim, application, takeOver, close } = await openCase(lane, tenant);
  try {
    await scenario.arm(victim, order);
    const told = await flow.run(application, order, before);
    await takeOver();
    if (Object.hasOwn(passes, scenario.at)) expect(victim.output).toContain(`stopped at ${scenario.at}`);
    const rows = await endedRows(tenant.client, endsWithinMs);
    checkRows(rows, flow);
    check(scenario, { order, told, rows });
  } finally {
    await close();
  }
}

function checkRows(rows: readonly Json[], flow: Flow): void {
  const orders = rows.filter(({ kind }) => kind === "tool");
  expect(orders).toHaveLength(flow.before === undefined ? 1 : 2);
  expect(orders.every(({ tool }) => tool === toolName)).toBe(true);
  const chats = rows.filter(({ kind }) => kind === "chat");
  const given = chats.filter(({ state }) => state === "completed");
  const cut = chats.filter(({ state, error }) => state === "failed" && error.code === "chat_interrupted");
  expect(given.length + cut.length).toBe(chats.length);
}

interface Aftermath {
  readonly order: string;
  readonly told: Told;
  readonly rows: readonly Json[];
}

function check({ fate, manners }: Scenario, { order, told, rows }: Aftermath): void {
  const newest = newestOrder(rows);
  const expected = manners === "honours keys" ? "done" : fate;
  expect({ told: told.fate, recorded: newest.state }, told.text).toEqual({
    told: expected,
    recorded: expected === "done" ? "completed" : "unknown",
  });
  if (expected === "done") {
    expect(shop.effectsFor(order)).toBe(1);
    expect(newest.result.preview).toContain(`receipt of ${order}`);
  }
  if (manners === "ignores keys") expect(shop.requestsFor(order).length).toBeLessThanOrEqual(1);
}
