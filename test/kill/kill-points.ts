/**
 * A process killed at any kill point, in any flow that passes it (design "The call", "Async"): the
 * order takes effect exactly once where the shop honours the key that it is sent, arrives at most once
 * where it does not, and no call is lost. TOOLYARD_TESTS=long leaves no way to die out; else each place is
 * died at once, now at the one shop and now at the other.
 */
import { killPoints, type KillPoint } from "@toolyard/core/calls/kill-points";
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json } from "../support/gateway-client.ts";
import { isLong } from "../support/long.ts";
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
import { LanePool, openCase, openShop, type Lane, type SuiteOptions } from "./lane.ts";
import { endedRows, faultOf, newestOrder } from "./rows.ts";
import { startShop, toolName, type Manners, type Shop } from "./shop.ts";

const endsWithinMs = 15_000;
const recordedWithinMs = 10_000;
const bothManners: readonly Manners[] = ["honours keys", "ignores keys"];

let shop: Shop;
let lanes: LanePool;

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
  scenariosOf(at, fates, (victim, order) => killAtMoment(at as Moment, victim, order)),
);

function scenariosOf(at: string, fates: Partial<Record<FlowName, Fate>>, arm: Scenario["arm"]): readonly Scenario[] {
  return flowNames.flatMap((flow) => {
    const fate = fates[flow];
    if (fate === undefined) return [];
    return bothManners.map((manners) => ({ flow, at, fate, manners, arm }));
  });
}

async function killAtMoment(at: Moment, victim: Instance, order: string): Promise<void> {
  if (at === "the shop is at work") return shop.onRequest(order, () => victim.kill());
  if (at === "the model thinks about the request") return shop.onModelTurn(order, 1, () => victim.kill());
  // The model already reads results while they are recorded; before that is a point of its own.
  await victim.order({ kind: "report" });
  const isRecorded = (): true | undefined => victim.reached.includes("call.finished") || undefined;
  shop.onModelTurn(order, 2, async () => {
    await eventually("The record of the result", recordedWithinMs, isRecorded).finally(() => victim.kill());
  });
}

export function describeKillPoints({ openSite, lanesAtOnce = 5, skipsWalks = false }: SuiteOptions = {}): void {
  const all = [...points, ...moments];
  const scenarios = isLong ? all : oneOfEachPlace(all);

  beforeAll(async () => {
    [shop, lanes] = await Promise.all([startShop(), LanePool.start(lanesAtOnce, openSite)]);
  });
  afterAll(async () => {
    await lanes.close();
    await shop.close();
  });

  describe("the table of kill points", () => {
    test("names a flow for every point", () => {
      const unreached = killPoints.filter((point) => Object.keys(passes[point]).length === 0);
      expect(unreached).toEqual([]);
    });

    const walked = skipsWalks ? [] : flowNames;
    test.concurrent.each(walked)("says where a %s passes", async (name) => {
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
      const own = scenarios.filter((scenario) => scenario.manners === manners);
      test.concurrent.each(own)("$flow, at $at", async (scenario) => {
        const { text, ...aftermath } = await lanes.use((lane) => play(lane, scenario));
        const fate = manners === "honours keys" ? "done" : scenario.fate;
        expect(aftermath, text).toEqual({
          diedAt: scenario.at,
          told: fate,
          recorded: fate === "done" ? "completed" : "unknown",
          calls: scenario.flow === "replayed call" ? 2 : 1,
          fault: undefined,
          oddChats: [],
        });
      });
    });
  });
}

/** One way to die in each place: now at the one shop, now at the other, and in another flow than at the place before. */
function oneOfEachPlace(all: readonly Scenario[]): readonly Scenario[] {
  const places = [...new Set(all.map(({ at }) => at))];
  return places.flatMap((place, index) => {
    const manners = bothManners[index % bothManners.length];
    const ways = all.filter((scenario) => scenario.at === place && scenario.manners === manners);
    return ways.slice(index % ways.length).slice(0, 1);
  });
}

interface Aftermath {
  /** Where the victim says that it died; a moment that is no point of its code, it cannot know. */
  readonly diedAt: string;
  readonly told: Told["fate"];
  /** How the order ended by the record. */
  readonly recorded: string;
  /** Tool calls on record. */
  readonly calls: number;
  readonly fault: string | undefined;
  /** Chats that neither gave an answer nor were cut short. */
  readonly oddChats: readonly string[];
  /** What the application was told, for people. */
  readonly text: string;
}

async function play(lane: Lane, { flow: name, at, manners, arm }: Scenario): Promise<Aftermath> {
  const order = newId("request");
  const flow: Flow = flows[name];
  const tenant = await openShop(lane, shop, { manners, sensitive: flow.sensitive });
  const direct = createApplication(tenant.client, async () => tenant.client);
  const before = await flow.before?.(direct, order);
  shop.forget(order);
  const { victim, application, takeOver, close } = await openCase(lane, tenant);
  try {
    await arm(victim, order);
    const told = await flow.run(application, order, before);
    await takeOver();
    const rows = await endedRows(tenant.client, endsWithinMs);
    const newest = newestOrder(rows);
    return {
      diedAt: Object.hasOwn(outsidePasses, at) ? at : (/^stopped at (\S+)$/m.exec(victim.output)?.[1] ?? "nowhere"),
      told: told.fate,
      recorded: newest.state,
      calls: rows.filter(({ kind, tool }) => kind === "tool" && tool === toolName).length,
      fault: faultOf(shop, newest, { order, manners }),
      oddChats: rows.filter(isOddChat).map(({ state, error }) => `${state} ${error?.code}`),
      text: told.text,
    };
  } finally {
    await close();
  }
}

function isOddChat({ kind, state, error }: Json): boolean {
  return kind === "chat" && state !== "completed" && error?.code !== "chat_interrupted";
}
