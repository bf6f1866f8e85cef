import { describe, expect, test } from "vitest";
import type { Caller } from "../callers/caller.ts";
import type { Audience, Connection, RealtimeEvent, Subscription } from "./connection.ts";
import { namesFor } from "./audience.ts";

const member: Caller = { kind: "key", id: "key_1", role: "member", scopes: ["tools"], tools: null, userId: "ada" };

function connection(change: Partial<Connection> = {}, ...subscriptions: Subscription[]): Connection {
  const plain = { id: "sock_1", tenant: "ten_a", holder: null, caller: member, clientType: "Console", closesAt: 0 };
  return { ...plain, subscriptions: Object.fromEntries(subscriptions.map((each, at) => [`s${at}`, each])), ...change };
}

function event(change: Partial<RealtimeEvent> = {}): RealtimeEvent {
  return {
    tenant: "ten_a",
    seq: 1,
    type: "call.failed",
    audience: { kind: "calls" },
    callId: "call_1",
    callerId: "key_1",
    sessionId: "sess_1",
    decided: false,
    createdAt: 0,
    body: "{}",
    ...change,
  };
}

describe("an event of a call", () => {
  test("is for those subscriptions that it fits", () => {
    const all = connection(
      {},
      { topic: "calls" },
      { topic: "calls", events: ["call.failed", "call.unknown"] },
      { topic: "calls", events: ["call.completed"] },
      { topic: "calls", call_id: "call_1", session_id: "sess_1" },
      { topic: "calls", call_id: "call_2" },
      { topic: "calls", session_id: "sess_2" },
      { topic: "logs" },
    );
    expect(namesFor(all, event())).toEqual(["s0", "s1", "s3"]);
    expect(namesFor(all, event({ audience: { kind: "logs" }, type: "call.log" }))).toEqual(["s6"]);
    expect(namesFor(connection(), event())).toBeUndefined();
  });

  test.each<[string, Partial<Caller>, Partial<RealtimeEvent>, boolean]>([
    ["its own caller", {}, {}, true],
    ["another caller", { id: "key_2" }, {}, false],
    ["nobody's call", {}, { callerId: null }, false],
    ["a holder of 'calls'", { id: "key_2", scopes: ["calls"] }, {}, true],
    ["an admin without 'calls'", { id: "key_2", role: "admin", scopes: ["manage"] }, {}, false],
    ["the operator", { kind: "operator", id: "operator", role: "operator", scopes: [] }, {}, true],
    ["a holder of 'approve' where a person decides", { id: "key_2", scopes: ["approve"] }, { decided: true }, true],
    ["a holder of 'approve' where nobody does", { id: "key_2", scopes: ["approve"] }, {}, false],
    ["somebody of another tenant", {}, { tenant: "ten_b" }, false],
  ])("is heard by %s: %j %j %j", (_who, caller, change, hears) => {
    const listening = connection({ caller: { ...member, ...caller } }, { topic: "calls" });
    expect(namesFor(listening, event(change)) !== undefined).toBe(hears);
  });
});

describe("what is addressed", () => {
  test.each<[Audience, Partial<Connection>, boolean]>([
    [{ kind: "tenant" }, {}, true],
    [{ kind: "tenant" }, { tenant: "ten_b" }, false],
    [{ kind: "connection", value: "sock_1" }, {}, true],
    [{ kind: "connection", value: "sock_2" }, {}, false],
    [{ kind: "connection", value: "sock_1" }, { tenant: "ten_b" }, false],
    [{ kind: "user", value: "ada" }, {}, true],
    [{ kind: "user", value: "bob" }, {}, false],
    [{ kind: "client_type", value: "Console" }, {}, true],
    [{ kind: "client_type", value: "Console" }, { clientType: null }, false],
    [{ kind: "session", value: "sess_1" }, { subscriptions: { s: { topic: "logs", session_id: "sess_1" } } }, true],
    [{ kind: "session", value: "sess_1" }, { subscriptions: { s: { topic: "calls", session_id: "sess_2" } } }, false],
    [
      { kind: "session", value: "sess_1" },
      { caller: { ...member, id: "key_2" }, subscriptions: { s: { topic: "calls", session_id: "sess_1" } } },
      false,
    ],
  ])("to %j is for %j: %j", (audience, change, isFor) => {
    expect(namesFor(connection(change), event({ audience, type: "note" }))).toEqual(isFor ? [] : undefined);
  });
});
