/**
 * Runs of a flow of twelve nodes, two processes that carry them out, and somebody who lets them die at enumerated
 * points, kills, freezes and restarts them: each run comes to its end, with one effect for each step where the shop
 * honours keys, and with one request at most where it does not; what is not known there a person decides.
 * TOOLYARD_KILL_SEED repeats a run as far as time allows.
 */
import { killPoints, flowKillPoints, type KillPoint } from "@toolyard/core/calls/kill-points";
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client, Json, Reply } from "../support/gateway-client.ts";
import { condition } from "../support/flows.ts";
import { verifies } from "../support/verifies.ts";
import { createApplication } from "./application.ts";
import { pause } from "./instance.ts";
import { startLane, type Lane, type OpenSite } from "./lane.ts";
import { endedRows, endStates, isAbandoned } from "./rows.ts";
import { createRandom, Seat } from "./seats.ts";
import { orderPlugin, startShop, toolName, type Manners, type Shop } from "./shop.ts";

const bothManners: readonly Manners[] = ["honours keys", "ignores keys"];
const seed = Number(process.env["TOOLYARD_KILL_SEED"] ?? Math.trunc(Math.random() * 1e9));
/** Where runs of flows pass. */
const deaths: readonly KillPoint[] = [
  ...flowKillPoints,
  ...killPoints.filter((point) => point.startsWith("call.") || point.startsWith("worker.")),
];

const placing = (suffix: string): Json => ({
  kind: "tool",
  name: toolName,
  arguments: { order: { $: `input.order & '${suffix}'` } },
});

const packing = {
  schema_version: 1,
  name: "packing",
  description: "Orders a box.",
  input: { type: "object", properties: { order: { type: "string" } }, required: ["order"] },
  start: "box",
  nodes: { box: placing("/box") },
};

const checkout = {
  schema_version: 1,
  name: "checkout",
  description: "Orders everything that belongs to an order.",
  input: { type: "object", properties: { order: { type: "string" } }, required: ["order"] },
  start: "reserve",
  nodes: {
    reserve: { ...placing("/reserve"), next: "parts" },
    parts: { kind: "transform", expression: "['tea', 'rice', 'salt']", next: "each" },
    each: {
      kind: "map",
      items: { $: "steps.parts.output" },
      as: "part",
      concurrency: 2,
      body: {
        start: "one",
        nodes: { one: { kind: "tool", name: toolName, arguments: { order: { $: "input.order & '/' & part" } } } },
      },
      next: "both",
    },
    both: {
      kind: "parallel",
      branches: {
        courier: { start: "call", nodes: { call: placing("/courier") } },
        invoice: {
          start: "linger",
          nodes: { linger: { kind: "wait", duration_ms: 1_100, next: "bill" }, bill: placing("/bill") },
        },
      },
      next: "rest",
    },
    rest: { kind: "wait", duration_ms: 1_200, next: "pack" },
    pack: { kind: "flow", name: "packing", input: { order: { $: "input.order" } }, next: "check" },
    check: condition("$exists(input.order)", "which", "never"),
    which: { kind: "switch", on: "$count(steps.each.output)", cases: { "3": "done" }, default: "never" },
    done: { kind: "end", output: { order: { $: "input.order" } } },
    never: { kind: "fail", message: "It went where it should not." },
  },
};
const suffixes = ["reserve", "tea", "rice", "salt", "courier", "bill", "box"];

export interface FlowRunOptions {
  readonly openSite?: OpenSite;
  /** Of each shop; there are two. */
  readonly runsEach: number;
  /** Each has one run under way at a time, so that there are never more than processes can carry out. */
  readonly clientsEach: number;
  /** At most; they end with the runs. */
  readonly blows: number;
  /** Least time between two blows, or that of a start where that is more. */
  readonly calmMs: number;
  readonly endsWithinMs: number;
}

let lane: Lane;
let shop: Shop;
let seats: readonly [Seat, Seat];
const random = createRandom(seed);

export function describeFlowRuns(options: FlowRunOptions): void {
  beforeAll(async () => {
    [lane, shop] = await Promise.all([startLane(options.openSite), startShop({ workMs: () => 20 + random() * 200 })]);
    const { survivor, startInstance } = lane;
    seats = [new Seat(startInstance, Promise.resolve(survivor)), new Seat(startInstance, startInstance())];
  });
  afterAll(async () => {
    for (const { instance } of seats) await (await instance).close();
    await lane.close();
    await shop.close();
  });

  describe(`runs of flows ${verifies("FLOW-1", "API-5")}`, () => {
    test(
      `survive whatever dies under them, seed ${seed}`,
      async () => {
        const since = performance.now();
        const customers = await Promise.all(bothManners.map(openShop));
        const isOver = new AbortController();
        const striking = strike(options, isOver.signal);
        const operating = customers.map((customer) => operate(customer, isOver.signal));
        const placing = Promise.all(customers.map((customer) => placeRuns(customer, options)));
        const placed = await placing.finally(() => isOver.abort());
        const [struck] = await Promise.all([striking, ...operating]);
        const audits = await Promise.all(
          customers.map((customer, at) => audit(customer, placed[at] ?? [], options.endsWithinMs)),
        );
        const sum = (of: (one: Audit) => number): number => audits.reduce((all, one) => all + of(one), 0);
        const seconds = Math.round((performance.now() - since) / 1_000);
        console.log(
          `seed ${seed}: ${placed.flat().length} runs in ${seconds} s, ${struck}; ${sum(({ claims }) => claims)} claims, ${sum(({ taken }) => taken)} calls taken over, ${sum(({ unknown }) => unknown)} steps unknown and decided by the operator`,
        );
        expect(audits.flatMap(({ faults }) => faults)).toEqual([]);
      },
      options.endsWithinMs * 4,
    );
  });
}

interface Customer {
  readonly manners: Manners;
  readonly key: string;
}

async function openShop(manners: Manners): Promise<Customer> {
  const { driver } = await seats[0].instance;
  const tenant = await driver.newTenant({ concurrent_tool_calls: 100 });
  await tenant.addPlugin(orderPlugin(shop, manners, false));
  for (const definition of [packing, checkout]) {
    await tenant.client.expect("post", "/v1/flows", { definition, publish: true });
  }
  return { manners, key: tenant.key };
}

/** Every point in turn, and between them blows from outside. */
async function strike({ blows, calmMs }: FlowRunOptions, isOver: AbortSignal): Promise<string> {
  const struck: Promise<void>[] = [];
  let freezes = 0;
  while (struck.length < blows && !isOver.aborted) {
    await pause(Math.max(calmMs, ...seats.map(({ startMs }) => startMs)) + random() * 700);
    const seat = seats[random() < 0.5 ? 0 : 1];
    if (seat.isBusy) continue;
    const point = deaths[struck.length % deaths.length];
    const how = random();
    if (how < 0.15) freezes += 1;
    if (how < 0.15) struck.push(seat.freezeFor(2_500 + random() * 1_000));
    else if (how < 0.4 || point === undefined) struck.push(seat.replace());
    else struck.push(seat.dieAt(point, 4_000));
  }
  await Promise.all(struck);
  return `${struck.length - freezes} deaths, ${freezes} freezes`;
}

interface Placed {
  readonly order: string;
  readonly run: string;
}

async function placeRuns(
  { key }: Customer,
  { runsEach, clientsEach, endsWithinMs }: FlowRunOptions,
): Promise<readonly Placed[]> {
  const until = performance.now() + endsWithinMs;
  const clients = Array.from({ length: clientsEach }, async () => {
    const placed: Placed[] = [];
    while (placed.length < runsEach / clientsEach) {
      const one = await placeRun(key);
      placed.push(one);
      while (performance.now() < until && !(await hasEnded(key, one.run))) await pause(700 + random() * 600);
    }
    return placed;
  });
  return (await Promise.all(clients)).flat();
}

/** Who does not answer has died; the next one will be asked. */
async function hasEnded(key: string, run: string): Promise<boolean> {
  const { driver } = await seats[random() < 0.5 ? 0 : 1].instance;
  const reply = await driver
    .client(key)
    .send("get", `/v1/calls/${run}`)
    .catch(() => undefined);
  return endStates.includes(reply?.json?.state);
}

async function placeRun(key: string): Promise<Placed> {
  const order = newId("request");
  let at = random() < 0.5 ? 0 : 1;
  const next = async (): Promise<Client> => {
    at = 1 - at;
    return (await seats[at === 0 ? 0 : 1].instance).driver.client(key);
  };
  const place = async (triesLeft: number): Promise<Reply> => {
    const application = createApplication(await next(), next);
    return application
      .send("post", "/v1/tools/invoke", {
        body: { uri: "flow://checkout?async=true", arguments: { order } },
        headers: () => ({ "idempotency-key": order }),
      })
      .catch((error: unknown) => {
        // Both may be away for longer than one request is patient.
        if (triesLeft > 0) return place(triesLeft - 1);
        throw error;
      });
  };
  const { status, json, text } = await place(5);
  if (status !== 202 && status !== 200) throw new Error(`Order ${order} was not accepted: ${status} ${text}`);
  return { order, run: json.id };
}

interface Audit {
  readonly faults: readonly string[];
  readonly claims: number;
  readonly taken: number;
  readonly unknown: number;
}

async function audit({ manners, key }: Customer, placed: readonly Placed[], endsWithinMs: number): Promise<Audit> {
  const { driver } = await seats[0].instance;
  const rows = await endedRows(driver.client(key), endsWithinMs);
  const byId = new Map(rows.map((row) => [row.id as string, row]));
  const steps = rows.filter(({ tool }) => tool === toolName);
  const faults = placed.flatMap(({ order, run }) => {
    const row = byId.get(run);
    // Its steps went with it, wherever they were.
    if (row?.state === "failed" && isAbandoned(row)) return [];
    const wrong =
      row?.state === "completed" ? [] : [`run ${run} ended as ${row?.state}: ${JSON.stringify(row?.error)}`];
    return [...wrong, ...suffixes.flatMap((suffix) => faultsOf(steps, `${order}/${suffix}`, manners))];
  });
  const whole = rows.filter(({ uri, parent_id: parent }) => uri === "flow://checkout" && parent === null);
  if (whole.length !== placed.length) faults.push(`${whole.length} runs on record instead of ${placed.length}`);
  return {
    faults,
    claims: whole.reduce((all, { attempt }) => all + attempt, 0),
    taken: steps.filter(({ attempt }) => attempt > 1).length,
    unknown: steps.filter(({ state }) => state === "unknown").length,
  };
}

function faultsOf(steps: readonly Json[], order: string, manners: Manners): readonly string[] {
  const of = steps.filter(({ input }) => input?.order === order);
  const [step] = of;
  const requests = shop.requestsFor(order).length;
  if (of.length !== 1) return [`${order} has ${of.length} calls on record`];
  if (manners === "honours keys") {
    if (step.state === "unknown" && isAbandoned(step)) return [];
    if (step.state !== "completed") return [`${order} ended as ${step.state}: ${JSON.stringify(step.error)}`];
    return shop.effectsFor(order) === 1 ? [] : [`${order} took effect ${shop.effectsFor(order)} times`];
  }
  if (requests > 1) return [`${order} was sent ${requests} times`];
  if (step.state === "completed") return requests === 1 ? [] : [`${order} is completed and was never sent`];
  return step.state === "unknown" ? [] : [`${order} ended as ${step.state}: ${JSON.stringify(step.error)}`];
}

/** Answers whatever a run asks, for as long as there are runs. */
async function operate({ key }: Customer, isOver: AbortSignal): Promise<void> {
  while (!isOver.aborted) {
    await pause(1_000);
    const { driver } = await seats[random() < 0.5 ? 0 : 1].instance;
    const client = driver.client(key);
    // One that has just died answers once more for the one that follows.
    const asked = await client.get("/v1/calls?state=input_required&limit=100").catch(() => undefined);
    const input = { form: { action: "accept", content: { decision: "skip" } } };
    for (const { id } of asked?.data ?? []) {
      await client.send("post", `/v1/calls/${id}/approve`, { input }).catch(() => undefined);
    }
  }
}
