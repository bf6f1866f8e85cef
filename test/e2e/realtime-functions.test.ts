/** `/ws` as functions behind API Gateway's WebSocket API (design "AWS"): the same clients, nothing held in memory. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { allScopes, type Json } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { startRealtimeFunctions, type RealtimeFunctions } from "../support/realtime-functions.ts";
import { connectSocket, HandshakeRefused, type ConnectOptions, type SocketClient } from "../support/socket-client.ts";
import { verifies } from "../support/verifies.ts";
import { startWebSocketApi } from "../support/websocket-api.ts";

interface Owner {
  readonly id: string;
  readonly key: string;
  request(method: string, path: string, body?: unknown): Promise<Json>;
}

let functions: RealtimeFunctions;
let backEnd: HttpStub;
let owner: Owner;
let clients: SocketClient[] = [];

beforeAll(async () => {
  functions = await startRealtimeFunctions();
  backEnd = await startHttpStub();
});
afterAll(async () => {
  await functions.close();
  await backEnd.close();
});
beforeEach(async () => {
  owner = await newOwner();
});
afterEach(async () => {
  await Promise.all(clients.map((client) => client.close()));
  clients = [];
  await functions.run("DELETE FROM queue_messages");
});

async function newOwner(): Promise<Owner> {
  const operator = { key: functions.operatorKey, method: "POST" };
  const { id } = await functions.request({ ...operator, path: "/v1/tenants", body: { name: "T" } });
  const body = { name: "all", role: "admin", scopes: allScopes };
  const { key } = await functions.request({ ...operator, path: "/v1/api-keys", tenant: id, body });
  const request: Owner["request"] = (method, path, given) => functions.request({ key, method, path, body: given });
  await request("POST", "/v1/plugins", {
    schema_version: "v1",
    name: "look",
    description: "Looks.",
    parameters: { type: "object", properties: {} },
    execution: { method: "GET", base_url: `${backEnd.url}/x`, param_placement: "query" },
  });
  return { id, key, request };
}

async function connect(url: string, options: ConnectOptions = {}): Promise<SocketClient> {
  const client = await connectSocket(url, options);
  clients.push(client);
  return client;
}

const open = (key = owner.key, query = ""): Promise<SocketClient> =>
  connect(`${functions.api.url}${query}`, { headers: { authorization: `Bearer ${key}` } });
const statusOf = async (url: string, headers: Readonly<Record<string, string>> = {}): Promise<number> => {
  try {
    await connect(url, { headers });
    return 101;
  } catch (error) {
    return error instanceof HandshakeRefused ? error.status : 0;
  }
};
const look = (): Promise<Json> => owner.request("POST", "/v1/tools/invoke", { name: "look", arguments: {} });
const connections = (): Promise<readonly Json[]> =>
  functions.run("SELECT id, holder, client_type, hears FROM connections WHERE tenant = ?", owner.id);
const queued = (): Promise<readonly Json[]> => functions.run("SELECT 1 FROM queue_messages WHERE tenant = ?", owner.id);
const typesOf = (client: SocketClient): string[] =>
  client.frames.map(({ type }) => String(type)).filter((type) => type.startsWith("call."));

describe(`connecting ${verifies("BLIND-4")}`, () => {
  test("writes a row that says who it is, and closing takes it away", async () => {
    const client = await open(owner.key, "?client_type=Console");
    expect(await connections()).toMatchObject([{ holder: "", client_type: "Console", hears: 0 }]);
    expect(await client.ask({ type: "hello", version: 1 })).toMatchObject({ type: "welcome", client_type: "Console" });
    await client.close();
    await expect.poll(connections).toEqual([]);
  });

  test("is refused with the status of any request, and leaves no row", async () => {
    const { url } = functions.api;
    expect(await statusOf(url)).toBe(401);
    expect(await statusOf(`${url}?key=${owner.key}`)).toBe(401);
    expect(await statusOf(url, { authorization: "Bearer nonsense" })).toBe(401);
    expect(await statusOf(`${url}?ticket=nonsense`)).toBe(401);
    const operator = { key: functions.operatorKey, method: "PATCH", path: `/v1/tenants/${owner.id}` };
    await functions.request({ ...operator, body: { status: "suspended" } });
    expect(await statusOf(url, { "x-api-key": owner.key })).toBe(403);
    expect(await connections()).toEqual([]);
  });

  test("is done at the stage's address and nowhere below it, where no function hears of it", async () => {
    const { url, results } = functions.api;
    const headers = { authorization: `Bearer ${owner.key}` };
    const before = results.length;
    for (const path of [`${url}/`, `${url}/ws`, `${url}x`, new URL("/", url).href, new URL("/ws", url).href]) {
      expect(await statusOf(path, headers), path).toBe(403);
    }
    expect(results.length).toBe(before);
    expect(await statusOf(url, headers)).toBe(101);
    // What users are told is this address and no other.
    expect((await owner.request("POST", "/v1/realtime/tickets")).url).toBe(url);
  });

  test("with a ticket works once, in the query or as a subprotocol that is chosen", async () => {
    const given = await owner.request("POST", "/v1/realtime/tickets");
    expect(given.url).toBe(functions.api.url);
    const { ticket } = given;
    await connect(`${functions.api.url}?ticket=${ticket}`);
    expect(await statusOf(`${functions.api.url}?ticket=${ticket}`)).toBe(401);
    const next = await owner.request("POST", "/v1/realtime/tickets");
    const client = await connect(functions.api.url, { protocols: ["toolyard.v1", `ticket.${next.ticket}`] });
    expect(client.socket.protocol).toBe("toolyard.v1");
  });
});

describe(`events ${verifies("CHAT-13")}`, () => {
  test("of `api` are told by the worker, which it leaves them to", async () => {
    const client = await open();
    expect(await client.ask({ type: "subscribe", id: "s", topic: "calls" })).toMatchObject({ type: "subscribed" });
    expect(await connections()).toMatchObject([{ hears: 1 }]);
    const call = await look();
    expect(typesOf(client)).toEqual([]);
    expect(await functions.work()).toBe(1);
    await expect.poll(() => typesOf(client)).toEqual(["call.running", "call.completed"]);
    expect(client.of("call.completed")).toMatchObject([{ subscriptions: ["s"], data: { id: call.id } }]);
    // Nothing is left to tell.
    await functions.tick();
    expect(typesOf(client)).toHaveLength(2);
  });

  test("that are told while a client connects, whom API Gateway does not know yet, cost it nothing", async () => {
    const listening = await open(owner.key, "?client_type=VCPLog");
    await look();
    await functions.tick();
    await expect.poll(() => listening.of("vcp_log")).toHaveLength(1);
    // It is due once more, and the next `$connect` finds it.
    await functions.run("UPDATE connection_events SET next_at = 1 WHERE tenant = ?", owner.id);
    const late = await open(owner.key, "?client_type=VCPLog");
    await expect.poll(() => listening.of("vcp_log")).toHaveLength(2);
    expect(late.frames).toEqual([]);
    expect(await connections()).toHaveLength(2);
    await look();
    await functions.tick();
    await expect.poll(() => late.of("vcp_log")).toHaveLength(1);
  });

  test("find who left without a word, soon after it could have connected", async () => {
    await open(owner.key, "?client_type=VCPLog");
    functions.api.cut();
    await functions.run("UPDATE connections SET created_at = created_at - 30000 WHERE tenant = ?", owner.id);
    await look();
    await functions.tick();
    expect(await connections()).toEqual([]);
  });

  test("of `chat` are told by itself, once its answer is out", async () => {
    const client = await open();
    await client.ask({ type: "subscribe", id: "s", topic: "calls", events: ["call.completed"] });
    const answer = await functions.chat(owner.key, {
      model: "toolyard/scripted",
      stream: true,
      messages: [{ role: "user", content: "Call look with {}" }],
    });
    expect(answer).toContain("[DONE]");
    await expect.poll(() => typesOf(client)).toEqual(["call.completed", "call.completed"]);
    expect(await queued()).toEqual([]);
  });

  test("of a function that died before it told are told by the tick", async () => {
    const client = await open();
    await client.ask({ type: "subscribe", id: "s", topic: "calls", events: ["call.completed"] });
    await look();
    await functions.run("DELETE FROM queue_messages");
    await functions.tick();
    await expect.poll(() => typesOf(client)).toEqual(["call.completed"]);
  });

  test("that could not be pushed are pushed again, with the same id", async () => {
    const client = await open();
    await client.ask({ type: "subscribe", id: "s", topic: "calls", events: ["call.completed"] });
    await look();
    functions.api.failPushes(100, 429);
    await functions.work();
    functions.api.failPushes(0, 200);
    expect(typesOf(client)).toEqual([]);
    await functions.run("UPDATE connection_events SET next_at = 1 WHERE next_at IS NOT NULL");
    await functions.tick();
    await expect.poll(() => typesOf(client)).toEqual(["call.completed"]);
  });

  test("find out that a connection is gone where nobody said so, and forget it", async () => {
    const client = await open();
    await client.ask({ type: "subscribe", id: "s", topic: "calls" });
    functions.api.cut();
    await client.closed;
    expect(await connections()).toHaveLength(1);
    await look();
    await functions.work();
    expect(await connections()).toEqual([]);
    expect(await functions.run("SELECT 1 FROM connection_events WHERE tenant = ? AND next_at > 0", owner.id)).toEqual(
      [],
    );
  });

  test("and logs reach nobody of another tenant", async () => {
    const stranger = await newOwner();
    const [own, other] = [await open(), await open(stranger.key)];
    for (const client of [own, other]) {
      await client.ask({ type: "subscribe", id: "c", topic: "calls" });
      await client.ask({ type: "subscribe", id: "l", topic: "logs" });
    }
    await look();
    await functions.work();
    await expect.poll(() => typesOf(own).toSorted()).toEqual(["call.completed", "call.log", "call.running"]);
    expect(typesOf(other)).toEqual([]);
    // Each push went to one connection.
    expect(functions.api.pushed.filter((frame) => frame.includes("call.completed")).length).toBeGreaterThan(0);
  });
});

describe("a tenant to whom nobody listens", () => {
  test("costs a call no trip, no row and no message", async () => {
    const trips = async (work: () => Promise<unknown>): Promise<number> => {
      const before = functions.proxy.trips();
      await work();
      return functions.proxy.trips() - before;
    };
    await look();
    await functions.chat(owner.key, chat);
    const alone = { call: await trips(look), chat: await trips(() => functions.chat(owner.key, chat)) };
    const client = await open();
    await client.ask({ type: "hello", version: 1 });
    expect({ call: await trips(look), chat: await trips(() => functions.chat(owner.key, chat)) }).toEqual(alone);
    expect(alone.chat).toBe(2);
    expect(await queued()).toEqual([]);
    expect(await functions.run("SELECT 1 FROM connection_events WHERE tenant = ?", owner.id)).toEqual([]);
  });

  const chat = { model: "toolyard/scripted", stream: true, messages: [{ role: "user", content: "Hello." }] };
});

describe(`a shipped flow in a tenant that has none of its own ${verifies("MQ-3", "FLOWRUN-1")}`, () => {
  test("is run by a subscription and by a hook, though nothing else has asked for flows there", async () => {
    const bus = {
      broker: "redis",
      servers: ["127.0.0.1:9"],
      security: "none",
      allow_unencrypted: true,
      topics: { q: {} },
    };
    await owner.request("POST", "/v1/tool-services", { scheme: "mq", service_id: "bus", config: bus });
    const { id } = await owner.request("POST", "/v1/subscriptions", {
      name: "questions",
      uri: "mq://bus/q",
      target: { uri: "flow://deep_search" },
    });
    const node = await open();
    const instance = "instance-of-a-test";
    const held = await node.ask({ type: "subscription.hold", node: "lab-1", instance, reports: [] });
    expect(held.subscriptions).toMatchObject([{ id, name: "questions" }]);
    const { fingerprint } = await node.ask({ type: "subscription.open", subscription: id, instance });
    const body = Buffer.from(JSON.stringify({ question: "How high?" }));
    const taken = await node.ask({
      type: "subscription.message",
      subscription: id,
      fingerprint,
      instance,
      message: { delivery: "delivery-of-a-test", body: body.toString("base64"), bytes: body.byteLength },
    });
    expect(taken).toMatchObject({ outcome: "accepted", call_id: expect.stringMatching(/^call_/) });
    const hook = await owner.request("POST", "/v1/flows/deep_search/hooks", { name: "questions" });
    const started = await owner.request("POST", new URL(hook.url).pathname, { question: "How high?" });
    expect((await owner.request("GET", "/v1/flows/deep_search/hooks")).data).toMatchObject([{ id: hook.id }]);
    await functions.work();
    for (const run of [taken.call_id, started.run_id]) {
      // It has run as far as the tool that this tenant has not switched on.
      expect(await owner.request("GET", `/v1/runs/${run}`)).toMatchObject({
        flow: "deep_search",
        state: "failed",
        error: { message: expect.stringContaining("deep_search") },
      });
    }
  });
});

describe("what a client sends", () => {
  test("may have 128 KB in frames of 32 KB, and is answered; a larger frame ends the connection", async () => {
    const client = await open();
    const message = JSON.stringify({ type: "ping", id: "large", padding: "x".repeat(100_000) });
    for (let at = 0; at < message.length; at += 30_000) {
      client.socket.send(message.slice(at, at + 30_000), { fin: at + 30_000 >= message.length });
    }
    await expect.poll(() => client.of("error")).toMatchObject([{ id: "large", error: { code: "invalid_request" } }]);
    client.socket.send("y".repeat(40_000));
    expect(await client.closed).toMatchObject({ code: 1009 });
  });

  test("counts as a request of its key: beyond the limit it is refused, and the connection goes on", async () => {
    const body = { name: "slow", role: "member", scopes: ["chat"], requests_per_minute: 4 };
    const { key } = await owner.request("POST", "/v1/api-keys", body);
    // As many as there are in whichever minute; connecting is the first.
    const client = await open(key);
    const answers: Json[] = [];
    for (let at = 0; at < 9; at += 1) answers.push(await client.ask({ type: "ping", id: `p${at}` }));
    expect(answers.slice(0, 3).map(({ type }) => type)).toEqual(["pong", "pong", "pong"]);
    expect(answers.find(({ type }) => type === "error")).toMatchObject({
      id: expect.stringMatching(/^p\d$/),
      error: { code: "rate_limited", limit: 4, retry_after_ms: expect.any(Number) },
    });
    expect(client.socket.readyState).toBe(client.socket.OPEN);
  });

  test("is taken of a node, however many requests its tenant and its key have had", async () => {
    const body = { name: "node", role: "member", scopes: ["node"], requests_per_minute: 4 };
    const { key } = await owner.request("POST", "/v1/api-keys", body);
    const node = await open(key);
    const answers: Json[] = [];
    // More than fit into whichever two minutes.
    for (let at = 0; at < 9; at += 1) answers.push(await node.ask({ type: "ping", id: `p${at}` }));
    expect(new Set(answers.map(({ type }) => type))).toEqual(new Set(["pong"]));
  });

  test("is answered where the whole answer is more than API Gateway carries", async () => {
    const node = await open(owner.key, "?client_type=DistributedServer");
    const add = async (names: readonly string[], description: string): Promise<void> => {
      const operation = (operationId: string) => ({ get: { operationId, description, responses: {} } });
      const openapi = {
        openapi: "3.1.0",
        info: { title: names[0], version: "1" },
        servers: [{ url: backEnd.url }],
        paths: Object.fromEntries(names.map((name) => [`/${name}`, operation(name)])),
      };
      await owner.request("POST", "/v1/plugins/import", { openapi });
    };
    const names = Array.from({ length: 150 }, (_none, at) => `tool_${at}`);
    await add(names, "d".repeat(1_000));
    const manifests = { type: "vcp.frame", frame: { type: "get_vcp_manifests", data: { requestId: "m1" } } };
    const plugins: Json[] = (await node.ask(manifests)).frames[0].data.plugins;
    expect(plugins.map(({ name }) => name)).toEqual(expect.arrayContaining(names));
    await add(
      Array.from({ length: 900 }, (_none, at) => `more_${at}_`.padEnd(60, "x")),
      "d",
    );
    expect(await node.ask(manifests)).toMatchObject({ type: "error", error: { code: "payload_too_large" } });

    const device = { type: "subscribe", id: "device", topic: "vcp_log", device: "desk" };
    const away = await open(owner.key, "?client_type=VCPLog");
    await away.ask({ ...device });
    await away.close();
    await expect.poll(async () => (await connections()).map(({ holder }) => holder)).toContain("away");
    await functions.run(
      `INSERT INTO connection_events (tenant, audience, audience_value, type, body)
        SELECT ?1, 'client_type', 'VCPLog', 'vcp_log',
          json_object('type', 'vcp_log', 'data', json_object('content', value || printf('%.*c', 8000, 'x')))
        FROM json_each(?2)`,
      owner.id,
      JSON.stringify(Array.from({ length: 40 }, (_none, at) => at + 1)),
    );
    await new Promise((next) => setTimeout(next, 20));
    const back = await open(owner.key, "?client_type=VCPLog");
    await back.ask({ ...device });
    const { frames } = await back.ask({ type: "vcp.replay" });
    expect(frames.length).toBeGreaterThan(5);
    expect(frames.at(-1)).toMatchObject({ data: { content: expect.stringMatching(/^40x/) }, _vcpReplay: true });
  });

  test("is a sign of life, and is told where its connection counts as gone", async () => {
    const client = await open();
    const age = "UPDATE connections SET expires_at = expires_at - 600000 WHERE tenant = ?";
    const left =
      "SELECT expires_at > CAST(unixepoch('subsec') * 1000 AS INTEGER) + 600000 AS fresh FROM connections WHERE tenant = ?";
    await functions.run(age, owner.id);
    expect(await functions.run(left, owner.id)).toEqual([{ fresh: 0 }]);
    expect(await client.ask({ type: "ping" })).toMatchObject({ type: "pong" });
    expect(await functions.run(left, owner.id)).toEqual([{ fresh: 1 }]);
    await functions.run("UPDATE connections SET expires_at = 1 WHERE tenant = ?", owner.id);
    expect(await client.ask({ type: "ping" })).toMatchObject({ type: "error", error: { code: "not_found" } });
    // Left open, its client would wait for what nobody tells it.
    expect((await client.closed).code).toBe(1000);
    await functions.tick();
    expect(await connections()).toEqual([]);
  });

  test("is heard no more once its key is revoked or its tenant suspended: the connection is ended, and no other", async () => {
    const { id, key } = await owner.request("POST", "/v1/api-keys", { name: "for a day", scopes: ["node", "calls"] });
    const [revoked, silent, other] = [await open(key), await open(key, "?client_type=VCPLog"), await open()];
    await functions.work();
    await owner.request("DELETE", `/v1/api-keys/${id}`);
    expect(await revoked.ask({ type: "ping" })).toMatchObject({ type: "error" });
    // The first of them is gone by then, which nobody minds.
    expect((await revoked.closed).code).toBe(1000);
    functions.api.failPushes(100, 429);
    await functions.tick();
    functions.api.failPushes(0, 200);
    expect(silent.socket.readyState).toBe(silent.socket.OPEN);
    await functions.run("UPDATE connection_events SET next_at = 1 WHERE next_at IS NOT NULL AND tenant = ?", owner.id);
    await functions.tick();
    expect((await silent.closed).code).toBe(1000);
    expect(await other.ask({ type: "ping" })).toMatchObject({ type: "pong" });
    expect(await connections()).toHaveLength(1);

    const suspended = { key: functions.operatorKey, method: "PATCH", path: `/v1/tenants/${owner.id}` };
    await functions.request({ ...suspended, body: { status: "suspended" } });
    await functions.tick();
    expect((await other.closed).code).toBe(1000);
    expect(await connections()).toEqual([]);
    const due = "SELECT 1 FROM connection_events WHERE tenant = ? AND next_at IS NOT NULL";
    expect(await functions.run(due, owner.id)).toEqual([]);
  });

  test("goes on where its tenant was suspended for a moment", async () => {
    const client = await open();
    const change = { key: functions.operatorKey, method: "PATCH", path: `/v1/tenants/${owner.id}` };
    await functions.request({ ...change, body: { status: "suspended" } });
    await functions.request({ ...change, body: { status: "active" } });
    await functions.tick();
    expect(await client.ask({ type: "ping" })).toMatchObject({ type: "pong" });
  });

  test("never comes, and the WebSocket API ends the connection", async () => {
    const api = await startWebSocketApi({
      handler: () => () => Promise.resolve({ statusCode: 200 }),
      idleMs: 50,
    });
    const client = await connectSocket(api.url);
    expect(await client.closed).toMatchObject({ code: 1001 });
    await expect.poll(() => api.results.map(({ type }) => type)).toEqual(["CONNECT", "DISCONNECT"]);
    await api.close();
  });
});
