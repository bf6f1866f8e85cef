/**
 * An instance that stands still in the middle of a call until its lease has run out, and then goes on
 * as if nothing had happened (a paused container, a frozen function): whoever took over has written
 * the record, and nothing that comes late changes it, but for an answer to a call that ended `unknown`.
 */
import type { KillPoint } from "@toolyard/core/calls/kill-points";
import { newId } from "@toolyard/core/ids";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { verifies } from "../support/verifies.ts";
import { eventually, type Instance } from "./instance.ts";
import { LanePool, openCase, openShop, type Lane, type SuiteOptions } from "./lane.ts";
import { allRows, endedRows, newestOrder } from "./rows.ts";
import { startShop, toolName, type Manners, type Shop } from "./shop.ts";

const withinMs = 30_000;

let shop: Shop;
let lanes: LanePool;

interface Freeze {
  readonly at: KillPoint;
  readonly manners: Manners;
  readonly path: string;
  readonly body: (order: string) => Json;
  /** What the client does at the survivor, while the frozen instance still has its first request. */
  readonly meanwhile?: (tenant: TestTenant, order: string) => Promise<Reply>;
  /** The last point that the thawed instance passes. */
  readonly last?: KillPoint;
}

interface Frozen {
  readonly order: string;
  /** What the record said before the instance was thawed, and what it says in the end. */
  readonly before: readonly Json[];
  readonly after: readonly Json[];
  /** What the instance said when it was thawed. */
  readonly reply: Reply;
  readonly meanwhile: Reply | undefined;
}

const call = { path: "/v1/tools/invoke", body: (order: string): Json => ({ name: toolName, arguments: { order } }) };
const asyncCall = {
  path: call.path,
  body: (order: string): Json => ({ ...call.body(order), async: true }),
  last: "worker.finished",
} as const;
const chat = {
  path: "/v1/chat/completions",
  body: (order: string): Json => ({ model: "stub-1", messages: [{ role: "user", content: order }] }),
  meanwhile: (tenant: TestTenant, order: string) => askAgain(tenant, chat.path, chat.body(order), order),
  last: "chat.settled",
} as const;

async function freeze(lane: Lane, { at, manners, path, body, meanwhile, last }: Freeze): Promise<Frozen> {
  const order = newId("request");
  const tenant = await openShop(lane, shop, { manners, sensitive: false });
  const { victim, close } = await openCase(lane, tenant);
  try {
    await victim.order({ kind: "stop", at, with: "SIGSTOP" });
    const first = victim.driver
      .client(tenant.key)
      .send("post", path, body(order), { headers: { "idempotency-key": order } });
    // Where the case fails before it is waited for, that is what is told.
    first.catch(() => undefined);
    await eventually(`The halt at ${at}`, withinMs, async () => (await victim.isFrozen()) || undefined);
    lane.survivor.thaw();
    const said = await meanwhile?.(tenant, order);
    const before = await endedRows(tenant.client, withinMs);
    victim.thaw();
    const reply = await first;
    if (last !== undefined) await passed(victim, last);
    // Whatever it still wanted to write went to the database before this question.
    await victim.driver.client(tenant.key).get("/v1/calls");
    return { order, before, after: await allRows(tenant.client), reply, meanwhile: said };
  } finally {
    await close();
  }
}

async function askAgain(tenant: TestTenant, path: string, body: Json, order: string): Promise<Reply> {
  return eventually("An answer of the survivor", withinMs, async () => {
    const reply = await tenant.client.send("post", path, body, { headers: { "idempotency-key": order } });
    return reply.status === 409 ? undefined : reply;
  });
}

async function passed(instance: Instance, point: KillPoint): Promise<void> {
  await eventually(`The thawed instance's ${point}`, withinMs, () => instance.reached.includes(point) || undefined);
}

export function describeFrozen({ openSite, lanesAtOnce = 3 }: SuiteOptions = {}): void {
  beforeAll(async () => {
    [shop, lanes] = await Promise.all([startShop(), LanePool.start(lanesAtOnce, openSite)]);
  });
  afterAll(async () => {
    await lanes.close();
    await shop.close();
  });

  describe(`an instance frozen until another has taken over ${verifies("API-5", "CHAT-13")}`, () => {
    test.concurrent("before it sends: the late request is no second effect, and its client hears the record", () =>
      lanes.use(async (lane) => {
        const { order, before, after, reply } = await freeze(lane, {
          ...call,
          at: "call.before-send",
          manners: "honours keys",
        });
        expect(shop.effectsFor(order)).toBe(1);
        expect(newestOrder(before)).toMatchObject({ state: "completed", attempt: 2 });
        expect(after).toEqual(before);
        expect(reply.status, reply.text).toBe(200);
        expect(reply.json.content).toBe(newestOrder(after).result.preview);
      }));

    test.concurrent("with the answer in hand: the record keeps the answer of whoever took over", () =>
      lanes.use(async (lane) => {
        const { order, before, after, reply } = await freeze(lane, {
          ...call,
          at: "call.answered",
          manners: "honours keys",
        });
        expect(shop.effectsFor(order)).toBe(1);
        expect(JSON.parse(newestOrder(before).result.preview)).toMatchObject({ request: 2 });
        expect(after).toEqual(before);
        expect(reply.json.content, reply.text).toBe(newestOrder(after).result.preview);
      }));

    test.concurrent("with the answer in hand, where nobody may ask again: the answer settles what was unknown", () =>
      lanes.use(async (lane) => {
        const { order, before, after, reply } = await freeze(lane, {
          ...call,
          at: "call.answered",
          manners: "ignores keys",
        });
        expect(shop.requestsFor(order)).toHaveLength(1);
        expect(newestOrder(before)).toMatchObject({ state: "unknown", error: { code: "outcome_unknown" } });
        expect(newestOrder(after)).toMatchObject({ state: "completed", error: null });
        expect(reply.json.content, reply.text).toBe(newestOrder(after).result.preview);
      }));

    test.concurrent("before it sends, where nobody may ask again: at most its own request arrives", () =>
      lanes.use(async (lane) => {
        const { order, before, after, reply } = await freeze(lane, {
          ...call,
          at: "call.before-send",
          manners: "ignores keys",
        });
        expect(shop.requestsFor(order).length).toBeLessThanOrEqual(1);
        expect(newestOrder(before).state).toBe("unknown");
        // It depends on what it learns first: that the call is no longer its own, or the shop's answer.
        const { state, result } = newestOrder(after);
        const said = reply.status === 200 ? reply.json.content : reply.json.error.code;
        expect([state, said]).toEqual(state === "completed" ? [state, result.preview] : ["unknown", "outcome_unknown"]);
      }));

    test.concurrent("as a worker, with the answer in hand: nothing is overwritten", () =>
      lanes.use(async (lane) => {
        const { order, before, after } = await freeze(lane, {
          ...asyncCall,
          at: "call.answered",
          manners: "honours keys",
        });
        expect(shop.effectsFor(order)).toBe(1);
        expect(newestOrder(before)).toMatchObject({ state: "completed", attempt: 2 });
        expect(JSON.parse(newestOrder(before).result.preview)).toMatchObject({ request: 2 });
        expect(after).toEqual(before);
      }));

    test.concurrent("as a worker, before it has started: the call is not started twice", () =>
      lanes.use(async (lane) => {
        const { order, before, after } = await freeze(lane, {
          ...asyncCall,
          at: "worker.received",
          last: "worker.received",
          manners: "ignores keys",
        });
        expect(shop.requestsFor(order)).toHaveLength(1);
        expect(newestOrder(before)).toMatchObject({ state: "completed", attempt: 1 });
        expect(after).toEqual(before);
      }));

    test.concurrent("in a chat: the repeated chat has one effect and an answer, the first stays ended", () =>
      lanes.use(async (lane) => {
        const { order, before, after, meanwhile } = await freeze(lane, {
          ...chat,
          at: "call.before-send",
          manners: "honours keys",
        });
        expect(shop.effectsFor(order)).toBe(1);
        expect(meanwhile?.status, meanwhile?.text).toBe(200);
        expect(meanwhile?.text).toContain(`receipt of ${order}`);
        expect(chatStates(before)).toEqual(["completed", "failed chat_interrupted"]);
        expect(after).toEqual(before);
      }));

    test.concurrent("in a chat, where nobody may ask again: the repeated chat is told so, the answer settles it", () =>
      lanes.use(async (lane) => {
        const { order, before, after, meanwhile } = await freeze(lane, {
          ...chat,
          at: "call.answered",
          manners: "ignores keys",
        });
        expect(shop.requestsFor(order)).toHaveLength(1);
        expect(meanwhile?.text).toContain("outcome_unknown");
        expect(newestOrder(before).state).toBe("unknown");
        expect(newestOrder(after)).toMatchObject({ state: "completed", error: null });
        expect(chatStates(after)).toEqual(["completed", "failed chat_interrupted"]);
      }));
  });
}

/** Newest first. */
function chatStates(rows: readonly Json[]): readonly string[] {
  return rows
    .filter(({ kind }) => kind === "chat")
    .toSorted((a, b) => b.created_at.localeCompare(a.created_at))
    .map(({ state, error }) => (error === null ? state : `${state} ${error.code}`));
}
