import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createFakeCore } from "../../../../test/support/fake-core.ts";
import type { ConnectionRepo } from "../ports/connections.ts";
import type { Connection, Subscription } from "./connection.ts";
import { answerMessage } from "./messages.ts";

const connection: Connection = {
  id: "sock_1",
  tenant: "ten_a",
  holder: "wrk_1",
  caller: { kind: "key", id: "key_1", role: "member", scopes: [], tools: null },
  clientType: null,
  subscriptions: {},
  closesAt: 0,
};

interface Told {
  readonly name: string;
  readonly subscription: Subscription | undefined;
}

function start(change: Partial<ConnectionRepo> = {}) {
  const told: Told[] = [];
  const core = createFakeCore();
  const at = { connection, seq: 7 };
  const connections: ConnectionRepo = {
    ...core.repos.connections,
    subscribe: (_tenant, _id, name, subscription) => {
      told.push({ name, subscription });
      return Promise.resolve(at);
    },
    unsubscribe: (_tenant, _id, name) => {
      told.push({ name, subscription: undefined });
      return Promise.resolve(at);
    },
    ...change,
  };
  const deps = { ...core, repos: { ...core.repos, connections } };
  const say = async (message: unknown): Promise<Record<string, unknown>> =>
    JSON.parse(await answerMessage(deps, connection, typeof message === "string" ? message : JSON.stringify(message)));
  return { told, say, lines: core.lines };
}

describe("a message", () => {
  test("is answered under its id", async () => {
    const { say, told } = start();
    expect(await say({ type: "hello", version: 1, id: "a" })).toMatchObject({ type: "welcome", id: "a", version: 1 });
    expect(await say({ type: "ping" })).toMatchObject({ type: "pong", server_time: expect.any(String) });
    expect(await say({ type: "subscribe", id: "b", topic: "calls", events: ["call.failed"] })).toEqual({
      type: "subscribed",
      id: "b",
      seq: 7,
    });
    expect(await say({ type: "unsubscribe", id: "b" })).toEqual({ type: "unsubscribed", id: "b" });
    expect(told).toEqual([
      { name: "b", subscription: { topic: "calls", events: ["call.failed"] } },
      { name: "b", subscription: undefined },
    ]);
  });

  test.each([
    ["no JSON", "{", "invalid_json", null],
    ["no object", "[1]", "invalid_request", "type"],
    ["of a type that nobody knows", { type: "execute_tool", id: "x" }, "invalid_request", "type"],
    ["named after what every object has", { type: "toString" }, "invalid_request", "type"],
    ["of another version", { type: "hello", version: 2 }, "invalid_request", "version"],
    ["with a field that is not known", { type: "ping", more: 1 }, "invalid_request", "more"],
    ["without the name it needs", { type: "subscribe", topic: "calls" }, "invalid_request", "id"],
    ["with a name that is none", { type: "subscribe", id: "$.a", topic: "calls" }, "invalid_request", "id"],
    ["for a topic that there is not", { type: "subscribe", id: "a", topic: "all" }, "invalid_request", "topic"],
    [
      "for an event that there is not",
      { type: "subscribe", id: "a", topic: "calls", events: ["x"] },
      "invalid_request",
      "events.0",
    ],
    [
      "with a filter that logs have not",
      { type: "subscribe", id: "a", topic: "logs", events: [] },
      "invalid_request",
      "events",
    ],
  ])("that is %s is an error that says why", async (_what, message, code, param) => {
    const { say, told } = start();
    expect(await say(message)).toMatchObject({ type: "error", error: { code, param } });
    expect(told).toEqual([]);
  });

  test("for a connection that is gone, or has as many subscriptions as it may, is an error", async () => {
    const gone = start({ subscribe: () => Promise.resolve(undefined), unsubscribe: () => Promise.resolve(undefined) });
    expect(await gone.say({ type: "subscribe", id: "a", topic: "calls" })).toMatchObject({
      id: "a",
      error: { code: "not_found" },
    });
    expect(await gone.say({ type: "unsubscribe", id: "a" })).toMatchObject({ error: { code: "not_found" } });
    const full = start({ subscribe: () => Promise.resolve("full") });
    expect(await full.say({ type: "subscribe", id: "a", topic: "calls" })).toMatchObject({
      error: { code: "concurrency_limited" },
    });
  });

  test("that meets a fault of ours says nothing about it", async () => {
    const { say, lines } = start({ subscribe: () => Promise.reject(new Error("password in here")) });
    const answer = await say({ type: "subscribe", id: "a", topic: "calls" });
    expect(answer).toMatchObject({ type: "error", id: "a", error: { code: "internal_error" } });
    expect(JSON.stringify([answer, lines])).not.toContain("password");
    expect(lines).toMatchObject([{ level: "warn", fields: { tenant: "ten_a", caller: "key_1" } }]);
  });

  test("of any kind gets one answer of a known type", async () => {
    const { say } = start();
    const types = fc.constantFrom("hello", "ping", "subscribe", "unsubscribe", "welcome", "__proto__", "");
    const fields = fc.dictionary(fc.constantFrom("id", "topic", "events", "version", "call_id", "x"), fc.jsonValue());
    const nearly = fc.tuple(types, fields).map(([type, rest]) => JSON.stringify({ ...rest, type }));
    await fc.assert(
      fc.asyncProperty(fc.oneof(nearly, fc.json(), fc.string()), async (text) => {
        const answer = await say(text);
        expect(["welcome", "pong", "subscribed", "unsubscribed", "error"]).toContain(answer["type"]);
      }),
    );
  });

  test("subscribes to exactly what it names, whatever that is", async () => {
    const name = fc.stringMatching(/^[A-Za-z0-9][\w.:-]{0,63}$/);
    const filter = fc.string({ minLength: 1, maxLength: 200 });
    const wanted = fc.record(
      { topic: fc.constantFrom("calls", "logs"), session_id: filter, call_id: filter },
      { requiredKeys: ["topic"] },
    );
    await fc.assert(
      fc.asyncProperty(name, wanted, async (id, subscription) => {
        const { say, told } = start();
        expect(await say({ type: "subscribe", id, ...subscription })).toEqual({ type: "subscribed", id, seq: 7 });
        expect(told).toEqual([{ name: id, subscription }]);
      }),
    );
  });
});
