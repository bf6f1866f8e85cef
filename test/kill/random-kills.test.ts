/**
 * 200 queued calls, two processes that work on them, and somebody who kills, freezes and restarts the
 * two at random: every call comes to an end and is accounted for. TOOLYARD_KILL_SEED repeats a run (as
 * far as time allows), TOOLYARD_TESTS=long makes more rounds with more kills.
 */
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Client, Json } from "../support/gateway-client.ts";
import { isLong } from "../support/long.ts";
import { verifies } from "../support/verifies.ts";
import { createApplication, type Application } from "./application.ts";
import { pause } from "./instance.ts";
import { startLane, type Lane } from "./lane.ts";
import { endedRows, faultOf } from "./rows.ts";
import { createRandom, Seat } from "./seats.ts";
import { orderPlugin, startShop, toolName, type Manners, type Shop } from "./shop.ts";

const rounds = isLong ? 8 : 1;
const blows = isLong ? 25 : 14;
/** Of each shop; 200 in all. */
const callsEach = 100;
const clientsEach = 5;
const pricePerCall = 7;
const bothManners: readonly Manners[] = ["honours keys", "ignores keys"];
const endsWithinMs = 60_000;
const firstSeed = Number(process.env["TOOLYARD_KILL_SEED"] ?? Math.trunc(Math.random() * 1e9));

type Seats = readonly [Seat, Seat];

let lane: Lane;
let shop: Shop;
let seats: Seats;
let random: () => number = Math.random;

beforeAll(async () => {
  [lane, shop] = await Promise.all([startLane(), startShop({ workMs: () => 50 + random() * 600 })]);
  const { survivor, startInstance } = lane;
  seats = [new Seat(startInstance, Promise.resolve(survivor)), new Seat(startInstance, startInstance())];
});
afterAll(async () => {
  for (const { instance } of seats) await (await instance).close();
  await lane.close();
  await shop.close();
});

describe(`queued calls under random kills ${verifies("API-5", "CHAT-13")}`, () => {
  const seeds = Array.from({ length: rounds }, (_, round) => firstSeed + round);

  test.each(seeds)("are all accounted for, seed %i", async (seed) => {
    random = createRandom(seed);
    const tenants = await Promise.all(bothManners.map(openShop));
    const struck = strike();
    const placing = Promise.allSettled(tenants.map(placeOrders));
    // Whatever goes wrong with orders, the next round begins when nobody is struck any more.
    const { kills, freezes } = await struck;
    const placed = (await placing).map((orders) => {
      if (orders.status === "rejected") throw orders.reason;
      return orders.value;
    });
    const audits = await Promise.all(tenants.map((tenant, at) => audit(tenant, placed[at] ?? [])));
    const again = audits.reduce((sum, { repeated }) => sum + repeated, 0);
    const unknown = audits.reduce((sum, { undecided }) => sum + undecided, 0);
    console.log(
      `seed ${seed}: ${kills} kills, ${freezes} freezes; ${again} calls taken over, ${unknown} of them left unknown`,
    );
    expect(audits.flatMap(({ faults }) => faults)).toEqual([]);
    // Else the blows hit nobody.
    expect(again).toBeGreaterThan(0);
  });
});

interface Customer {
  readonly manners: Manners;
  readonly key: string;
}

async function openShop(manners: Manners): Promise<Customer> {
  const { driver } = await seats[0].instance;
  const tenant = await driver.newTenant({ concurrent_tool_calls: 100 });
  await tenant.addPlugin(orderPlugin(shop, manners, false));
  const price = { kind: "tool", pattern: toolName, per_call: pricePerCall };
  await tenant.client.expect("put", "/v1/prices", { prices: [price] });
  return { manners, key: tenant.key };
}

/** Kills and freezes, now one and now the other, sometimes both at once. */
async function strike(): Promise<{ readonly kills: number; readonly freezes: number }> {
  const struck: Promise<void>[] = [];
  let freezes = 0;
  while (struck.length < blows) {
    await pause(200 + random() * 700);
    const seat = seats[random() < 0.5 ? 0 : 1];
    if (seat.isBusy) continue;
    const isFreeze = random() < 0.25;
    if (isFreeze) freezes += 1;
    // Longer than a lease, so that the other one takes over what the frozen one holds.
    struck.push(isFreeze ? seat.freezeFor(2_500 + random() * 1_000) : seat.replace());
  }
  await Promise.all(struck);
  return { kills: blows - freezes, freezes };
}

interface Placed {
  readonly order: string;
  readonly callId: string;
}

async function placeOrders({ key }: Customer): Promise<readonly Placed[]> {
  const clients = Array.from({ length: clientsEach }, async () => {
    const placed: Placed[] = [];
    while (placed.length < callsEach / clientsEach) {
      placed.push(await placeOrder(key));
      await pause(random() * 900);
    }
    return placed;
  });
  return (await Promise.all(clients)).flat();
}

async function placeOrder(key: string): Promise<Placed> {
  const order = newId("request");
  const application = await createRovingApplication(key);
  const { status, json, text } = await application.send("post", "/v1/tools/invoke", {
    body: { name: toolName, arguments: { order }, async: true },
    headers: () => ({ "idempotency-key": order }),
  });
  // A repetition may come after the first acceptance has been worked off, or has come to an end that nobody knows.
  const { code, call_id: endedCallId } = json.error ?? {};
  if (code === "outcome_unknown") return { order, callId: endedCallId };
  if (status !== 202 && status !== 200) throw new Error(`Order ${order} was not accepted: ${status} ${text}`);
  return { order, callId: json.id };
}

/** Goes to one of the two, and to the other when that is gone. */
async function createRovingApplication(key: string): Promise<Application> {
  let at = random() < 0.5 ? 0 : 1;
  const next = async (): Promise<Client> => {
    at = 1 - at;
    const seat = seats[at === 0 ? 0 : 1];
    return (await seat.instance).driver.client(key);
  };
  return createApplication(await next(), next);
}

/** Record and meter of one moment: whoever was frozen may still bring evidence for a call that ended `unknown`. */
async function settledBooks(client: Client): Promise<{ readonly rows: readonly Json[]; readonly used: Json }> {
  const costs = (rows: readonly Json[]): string => JSON.stringify(rows.map(({ id, state, cost }) => [id, state, cost]));
  for (let before = await endedRows(client, endsWithinMs); ;) {
    const [used] = (await client.get("/v1/usage?group_by=tool")).data;
    const rows = await endedRows(client, endsWithinMs);
    if (costs(rows) === costs(before)) return { rows, used };
    before = rows;
  }
}

interface Audit {
  readonly faults: readonly string[];
  /** Calls that more than one process had. */
  readonly repeated: number;
  readonly undecided: number;
}

async function audit({ manners, key }: Customer, placed: readonly Placed[]): Promise<Audit> {
  const { driver } = await seats[0].instance;
  const client = driver.client(key);
  const { rows, used } = await settledBooks(client);
  const byId = new Map(rows.map((row) => [row.id as string, row]));
  const faults = placed.flatMap(({ order, callId }) => {
    const fault = faultOf(shop, byId.get(callId), { order, manners });
    return fault === undefined ? [] : [`${callId} of a shop that ${manners}: ${fault}`];
  });
  if (rows.length !== callsEach) faults.push(`${rows.length} calls on record instead of ${callsEach}`);
  const completed = rows.filter(({ state }) => state === "completed");
  if (completed.some(({ cost }) => cost.micros !== pricePerCall)) faults.push("a call has not the price of a call");
  const micros = rows.reduce((sum, { cost }) => sum + (cost?.micros ?? 0), 0);
  if (used.calls !== callsEach || used.micros !== micros) {
    faults.push(`the meter says ${used.calls} calls for ${used.micros}, the record ${rows.length} for ${micros}`);
  }
  return {
    faults,
    repeated: rows.filter(({ attempt }) => attempt > 1).length,
    undecided: rows.filter(({ state }) => state === "unknown").length,
  };
}
