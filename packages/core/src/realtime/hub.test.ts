import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import { createFakeCore } from "../../../../test/support/fake-core.ts";
import type { ConnectionRepo } from "../ports/connections.ts";
import { endedEvent, type Connection, type RealtimeEvent } from "./connection.ts";
import { Hub, type Ending, type HubTiming } from "./hub.ts";

const held = (id: string, change: Partial<Connection> = {}): Connection => ({
  id,
  tenant: "ten_a",
  holder: "wrk_1",
  caller: { kind: "operator", id: "operator", role: "operator", scopes: [], tools: null },
  clientType: null,
  subscriptions: { s: { topic: "calls" } },
  closesAt: Date.now() + 60_000,
  ...change,
});

const event = (seq: number, tenant = "ten_a"): RealtimeEvent => ({
  tenant,
  seq,
  type: "call.failed",
  audience: { kind: "calls" },
  callId: null,
  callerId: null,
  sessionId: null,
  decided: false,
  createdAt: 0,
  body: JSON.stringify({ seq }),
});

const long: HubTiming = { pollMs: 60_000, renewMs: 60_000, lifetimeMs: 60_000 };

function start({ timing = long, repo = {} }: { timing?: HubTiming; repo?: Partial<ConnectionRepo> } = {}) {
  const core = createFakeCore();
  const rows: Connection[] = [];
  const events: RealtimeEvent[] = [];
  const looks: ReadonlyMap<string, number>[] = [];
  const sent: string[] = [];
  const ended: [string, Ending][] = [];
  const connections: ConnectionRepo = {
    ...core.repos.connections,
    heldEvents: (_holder, after, limit) => {
      looks.push(new Map(after));
      const found = events.filter(({ tenant, seq }) => seq > (after.get(tenant) ?? Infinity)).slice(0, limit);
      return Promise.resolve({ events: found, connections: rows });
    },
    renew: () => Promise.resolve(rows.map(({ id }) => id)),
    remove: (_tenant, id) =>
      Promise.resolve(
        void rows.splice(
          rows.findIndex((row) => row.id === id),
          1,
        ),
      ),
    removeHeldBy: () => Promise.resolve(void rows.splice(0)),
    ...repo,
  };
  const clock = {
    now: () => Date.now(),
    sleep: (ms: number, signal?: AbortSignal) => sleep(ms, undefined, { signal }),
  };
  const hub = new Hub({
    deps: { ...core, clock, repos: { ...core.repos, connections } },
    push: { send: (id, frame) => Promise.resolve(sent.push(`${id} ${frame}`) > 0 ? "sent" : "gone") },
    ready: () => Promise.resolve(),
    holder: "wrk_1",
    timing,
    close: (id, why) => void ended.push([id, why]),
  });
  onTestFinished(() => hub.stop());
  return { hub, rows, events, looks, sent, ended, lines: core.lines };
}

describe("a process that holds connections", () => {
  test("reads nothing before the first and after the last", async () => {
    const { hub, rows, looks } = start({ timing: { ...long, pollMs: 5 } });
    hub.wake();
    await sleep(50);
    expect(looks).toEqual([]);
    const connection = held("a");
    rows.push(connection);
    hub.add({ connection, seq: 7 });
    await expect.poll(() => looks.length).toBeGreaterThan(1);
    expect(looks[0]).toEqual(new Map([["ten_a", 7]]));
    await hub.remove(connection);
    await sleep(50);
    const { length } = looks;
    await sleep(50);
    expect(looks).toHaveLength(length);
  });

  test("tells each event once, to those that are connected, and goes on from there", async () => {
    const { hub, rows, events, looks, sent } = start();
    const [a, b, unknown] = [held("a"), held("b", { subscriptions: {} }), held("c")];
    rows.push(a, b, unknown);
    events.push(event(1), event(2), event(3, "ten_b"));
    hub.add({ connection: a, seq: 1 });
    hub.add({ connection: b, seq: 1 });
    await expect.poll(() => sent).toEqual(['a {"seq":2,"subscriptions":["s"]}']);
    events.push(event(4));
    hub.wake();
    await expect.poll(() => sent).toHaveLength(2);
    expect(looks.at(-1)).toEqual(new Map([["ten_a", 2]]));
  });

  test("looks again at once where there is more than it reads in one go", async () => {
    const { hub, rows, events, sent } = start();
    rows.push(held("a"));
    events.push(...Array.from({ length: 450 }, (_none, index) => event(index + 1)));
    hub.add({ connection: held("a"), seq: 0 });
    await expect.poll(() => sent).toHaveLength(450);
  });

  test("goes on after the database was away", async () => {
    let isAway = true;
    const { hub, sent, lines } = start({
      timing: { ...long, pollMs: 5 },
      repo: {
        heldEvents: () =>
          isAway
            ? Promise.reject(new Error("away"))
            : Promise.resolve({ events: [event(2)], connections: [held("a")] }),
      },
    });
    hub.add({ connection: held("a"), seq: 1 });
    await expect.poll(() => lines.length).toBeGreaterThan(0);
    isAway = false;
    await expect.poll(() => sent.length).toBeGreaterThan(0);
  });

  test("ends those that count no more, and says why", async () => {
    const { hub, rows, ended } = start({ timing: { ...long, renewMs: 10 } });
    const [stays, revoked, old] = [held("a"), held("b"), held("c", { closesAt: 1 })];
    rows.push(stays);
    for (const connection of [stays, revoked, old]) hub.add({ connection, seq: 1 });
    await expect.poll(() => ended.length).toBeGreaterThanOrEqual(2);
    expect(ended.slice(0, 2)).toEqual([
      ["b", "not_allowed"],
      ["c", "expired"],
    ]);
  });

  test("has those come back whose rows ran out while their database was away", async () => {
    let isAway = true;
    const { hub, ended } = start({
      timing: { ...long, renewMs: 10, lifetimeMs: 100 },
      repo: { renew: () => (isAway ? Promise.reject(new Error("away")) : Promise.resolve([])) },
    });
    hub.add({ connection: held("a"), seq: 1 });
    await sleep(150);
    expect(ended).toEqual([]);
    isAway = false;
    await expect.poll(() => ended[0]).toEqual(["a", "lost"]);
    await expect.poll(() => ended.at(-1)).toEqual(["a", "not_allowed"]);
  });

  test("ends one at once that is said to count no more, unless it counts again", async () => {
    const { hub, rows, events, ended, sent } = start();
    const [revoked, again] = [held("a"), held("b")];
    rows.push(again);
    for (const connection of [revoked, again]) hub.add({ connection, seq: 0 });
    events.push(
      ...["a", "b", "elsewhere"].map((value, at) => ({
        ...event(at + 1),
        type: endedEvent,
        audience: { kind: "connection", value } as const,
      })),
      event(4),
    );
    hub.wake();
    await expect.poll(() => sent).toEqual(['b {"seq":4,"subscriptions":["s"]}']);
    expect(ended).toEqual([["a", "not_allowed"]]);
  });

  test("does not end one that was added while it asked", async () => {
    const asked = Promise.withResolvers<void>();
    const answer = Promise.withResolvers<readonly string[]>();
    let asks = 0;
    const { hub, ended } = start({
      timing: { ...long, renewMs: 10 },
      repo: {
        renew: () => {
          asks += 1;
          asked.resolve();
          return asks === 1 ? answer.promise : Promise.resolve(["b"]);
        },
        heldEvents: () => Promise.resolve({ events: [], connections: [] }),
      },
    });
    hub.add({ connection: held("a"), seq: 1 });
    await asked.promise;
    hub.add({ connection: held("b"), seq: 1 });
    answer.resolve([]);
    await expect.poll(() => asks).toBeGreaterThan(2);
    expect(new Set(ended.map(([id]) => id))).toEqual(new Set(["a"]));
  });

  test("takes its rows along as it stops", async () => {
    const { hub, rows } = start();
    rows.push(held("a"));
    hub.add({ connection: held("a"), seq: 1 });
    await hub.stop();
    expect(rows).toEqual([]);
  });
});
