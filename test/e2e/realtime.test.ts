/** `/ws` of whole gateways: who gets in, what they hear, and what becomes of them (docs/realtime.md). */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { connectSocket, HandshakeRefused, type ConnectOptions, type SocketClient } from "../support/socket-client.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
/** Another process, as far as it can tell: it shares nothing but the database. */
let second: Gateway;
let database: Database;
let backEnd: HttpStub;
let tenant: TestTenant;
let clients: SocketClient[] = [];

beforeAll(async () => {
  gateway = await startGateway();
  second = await startGateway({ sharedWith: gateway });
  database = await openDatabase({ url: gateway.databaseUrl });
  backEnd = await startHttpStub();
});
afterAll(async () => {
  await database.close();
  await second.close();
  await Promise.all([gateway.close(), backEnd.close()]);
});
beforeEach(async () => {
  backEnd.answer = () => ({ body: "{}" });
  tenant = await gateway.newTenant();
  await addTools(tenant);
});
afterEach(async () => {
  await Promise.all(clients.map((client) => client.close()));
  clients = [];
});

async function addTools(of: TestTenant): Promise<void> {
  const parameters = { type: "object", properties: { word: { type: "string" } } };
  const execution = { base_url: `${backEnd.url}/x`, content_type: "application/json" };
  await of.addPlugin({
    name: "look",
    parameters,
    execution: { ...execution, method: "GET", param_placement: "query" },
  });
  await of.addPlugin({
    name: "careful",
    parameters,
    execution: { ...execution, method: "POST", param_placement: "body" },
    sensitive: true,
  });
}

const address = (at: Gateway = gateway): string => `${at.url.replace(/^http/, "ws")}/ws`;

async function open(
  key: string,
  options: { readonly at?: Gateway; readonly query?: string } = {},
): Promise<SocketClient> {
  return connect(`${address(options.at)}${options.query ?? ""}`, { headers: { authorization: `Bearer ${key}` } });
}

async function connect(url: string, options: ConnectOptions = {}): Promise<SocketClient> {
  const client = await connectSocket(url, options);
  clients.push(client);
  return client;
}

async function refusal(url: string, options: ConnectOptions = {}): Promise<HandshakeRefused> {
  try {
    await connect(url, options);
  } catch (error) {
    if (error instanceof HandshakeRefused) return error;
    throw error;
  }
  throw new Error("the handshake was accepted");
}

const look = (client = tenant.client): Promise<Json> =>
  client.post("/v1/tools/invoke", { name: "look", arguments: { word: "a-private-word" } });
const rowsOf = async (table: string, of = tenant.id): Promise<number> => {
  const [counted] = await database.batch([{ sql: `SELECT COUNT(*) AS n FROM ${table} WHERE tenant = ?`, args: [of] }]);
  return Number(counted?.rows[0]?.["n"]);
};
const typesOf = (client: SocketClient): string[] =>
  client.frames.map(({ type }) => String(type)).filter((type) => type.startsWith("call."));

describe(`getting in ${verifies("BLIND-4")}`, () => {
  test("with a key in either header, and out again, which leaves no row", async () => {
    const bearer = await open(tenant.key, { query: "?client_type=Console" });
    const upstream = await open(tenant.key, { query: "?clientType=VCPLog" });
    expect(await upstream.ask({ type: "hello", version: 1 })).toMatchObject({ client_type: "VCPLog" });
    await upstream.close();
    const plain = await connect(address(), { headers: { "x-api-key": tenant.key } });
    expect(await bearer.ask({ type: "hello", version: 1 })).toMatchObject({
      type: "welcome",
      version: 1,
      client_type: "Console",
      connection_id: expect.stringMatching(/^sock_/),
      max_frame_bytes: 32_768,
    });
    expect(await plain.ask({ type: "ping" })).toMatchObject({ type: "pong" });
    expect(await rowsOf("connections")).toBe(2);
    await bearer.close();
    await plain.close();
    await expect.poll(() => rowsOf("connections")).toBe(0);
  });

  test("is refused as a request would be, and leaves no row", async () => {
    const key = await tenant.newKey();
    await tenant.client.expect("delete", `/v1/api-keys/${key.id}`);
    const cases: readonly (readonly [number, string, Readonly<Record<string, string>>])[] = [
      [401, "invalid_api_key", {}],
      [401, "invalid_api_key", { authorization: "Bearer nonsense" }],
      [401, "invalid_api_key", { authorization: `Bearer ${key.key}` }],
      [401, "invalid_api_key", { authorization: `Bearer ${tenant.key}`, "x-toolyard-tenant": "ten_other" }],
    ];
    for (const [status, code, headers] of cases) {
      const refused = await refusal(address(), { headers });
      expect(refused).toMatchObject({ status, body: { error: { code, request_id: expect.any(String) } } });
    }
    const inUrl = await refusal(`${address()}?key=${tenant.key}&api_key=${tenant.key}`);
    expect(inUrl.status).toBe(401);
    const bad = await refusal(`${address()}?client_type=a%20b`, {
      headers: { authorization: `Bearer ${tenant.key}` },
    });
    expect(bad).toMatchObject({ status: 400, body: { error: { param: "client_type" } } });
    await gateway.operator.expect("patch", `/v1/tenants/${tenant.id}`, { status: "suspended" });
    const suspended = await refusal(address(), { headers: { authorization: `Bearer ${tenant.key}` } });
    expect(suspended).toMatchObject({ status: 403, body: { error: { code: "tenant_suspended" } } });
    expect(await rowsOf("connections")).toBe(0);
  });

  test("a request that wants no WebSocket is told so, and one that wants another protocol is answered as ever", async () => {
    const reply = await gateway.nobody.send("get", "/ws");
    expect(reply).toMatchObject({ status: 426, json: { error: { code: "upgrade_required" } } });
    expect((await refusal(`${gateway.url.replace(/^http/, "ws")}/other`)).status).toBe(404);
  });

  test("a ticket connects its caller once, in the query or as a subprotocol", async () => {
    const { client } = await tenant.newKey({ name: "browser" });
    const given = await client.post("/v1/realtime/tickets");
    expect(given).toMatchObject({ object: "realtime.ticket", url: address() });
    const left = Date.parse(given.expires_at) - Date.now();
    expect(left).toBeGreaterThan(30_000);
    expect(left).toBeLessThanOrEqual(61_000);
    const first = await connect(`${given.url}?ticket=${given.ticket}`);
    await first.ask({ type: "subscribe", id: "mine", topic: "calls", events: ["call.completed"] });
    // It hears as the one who asked for the ticket: its own calls, and nobody else's.
    await look();
    const own = await look(client);
    await expect.poll(() => typesOf(first)).toEqual(["call.completed"]);
    expect(first.of("call.completed")).toMatchObject([{ data: { id: own.id } }]);

    const again = await refusal(`${given.url}?ticket=${given.ticket}`);
    expect(again).toMatchObject({ status: 401, body: { error: { code: "invalid_ticket", param: "ticket" } } });
    const { ticket } = await client.post("/v1/realtime/tickets");
    const other = await connect(address(), { protocols: ["toolyard.v1", `ticket.${ticket}`] });
    expect(other.socket.protocol).toBe("toolyard.v1");
  });

  test("a ticket that has run out connects nobody", async () => {
    const { ticket } = await tenant.client.post("/v1/realtime/tickets");
    const age = "UPDATE connection_tickets SET expires_at = 1 WHERE tenant = ?";
    await database.batch([{ sql: age, args: [tenant.id] }]);
    expect((await refusal(`${address()}?ticket=${ticket}`)).status).toBe(401);
    expect((await refusal(`${address()}?ticket=${ticket.slice(0, -4)}aaaa`)).status).toBe(401);
    expect((await refusal(`${address()}?ticket=`)).status).toBe(401);
  });
});

describe(`events of calls ${verifies("CHAT-13")}`, () => {
  test("come as they happen, without what was in the call", async () => {
    const client = await open(tenant.key);
    const subscribed = await client.ask({ type: "subscribe", id: "all", topic: "calls" });
    expect(subscribed).toMatchObject({ type: "subscribed", id: "all", seq: expect.any(Number) });
    const call = await look();
    await expect.poll(() => typesOf(client)).toEqual(["call.running", "call.completed"]);
    const [running, completed] = client.of("call.running", "call.completed");
    expect(completed).toMatchObject({
      id: expect.stringMatching(/^evt_/),
      timestamp: expect.any(String),
      subscriptions: ["all"],
      data: { id: call.id, object: "call", state: "completed", tool: "look", error_code: null },
    });
    expect(completed.seq).toBeGreaterThan(running.seq);
    expect(running.seq).toBeGreaterThan(subscribed.seq);
    expect(JSON.stringify(client.frames)).not.toContain("a-private-word");
  });

  test("of a call that waits for a person, until it has been decided and has run", async () => {
    const client = await open(tenant.key);
    await client.ask({ type: "subscribe", id: "s", topic: "calls" });
    const { id } = await tenant.client.post("/v1/tools/invoke", { name: "careful", arguments: {} });
    await expect.poll(() => typesOf(client)).toEqual(["call.approval_required"]);
    await tenant.client.post(`/v1/calls/${id}/approve`);
    await expect
      .poll(() => typesOf(client))
      .toEqual(["call.approval_required", "call.queued", "call.running", "call.completed"]);
    expect(new Set(client.of("call.queued", "call.completed").map(({ data }) => data.id))).toEqual(new Set([id]));
  });

  test("only of the types, the session and the call that were asked for", async () => {
    const client = await open(tenant.key);
    await client.ask({ type: "subscribe", id: "ends", topic: "calls", events: ["call.completed", "call.failed"] });
    await client.ask({ type: "subscribe", id: "session", topic: "calls", session_id: "s-1" });
    await look();
    await tenant.client.post("/v1/tools/invoke", { name: "look", arguments: {}, session_id: "s-1" });
    await expect.poll(() => client.of("call.completed").length).toBe(2);
    expect(client.of("call.completed").map(({ subscriptions }) => subscriptions)).toEqual([
      ["ends"],
      ["ends", "session"],
    ]);
    expect(client.of("call.running")).toMatchObject([{ subscriptions: ["session"], data: { session_id: "s-1" } }]);
    const { id } = await tenant.client.post("/v1/tools/invoke", { name: "careful", arguments: {} });
    await client.ask({ type: "unsubscribe", id: "ends" });
    await client.ask({ type: "unsubscribe", id: "session" });
    await client.ask({ type: "subscribe", id: "one", topic: "calls", call_id: id });
    await look();
    await tenant.client.post(`/v1/calls/${id}/reject`);
    await expect.poll(() => client.of("call.rejected")).toMatchObject([{ data: { id }, subscriptions: ["one"] }]);
    expect(client.of("call.completed")).toHaveLength(2);
  });

  test("reach a client of another process, in their order", async () => {
    const there = await open(tenant.key, { at: second });
    await there.ask({ type: "subscribe", id: "s", topic: "calls" });
    const ids = [];
    for (let count = 0; count < 5; count += 1) ids.push((await look()).id);
    await expect.poll(() => there.of("call.completed").map(({ data }) => data.id)).toEqual(ids);
    const order = there.frames.filter(({ seq, subscriptions }) => seq !== undefined && subscriptions !== undefined);
    expect(order.map(({ seq }) => seq)).toEqual(order.map(({ seq }) => seq).toSorted((a, b) => a - b));
    expect(new Set(order.map(({ id }) => id)).size).toBe(order.length);
  });

  test("of chats and their tools are told to whoever watches", async () => {
    const client = await open(tenant.key);
    await client.ask({ type: "subscribe", id: "s", topic: "calls", events: ["call.completed"] });
    await tenant.client.post("/v1/chat/completions", {
      model: "toolyard/scripted",
      messages: [{ role: "user", content: 'Call look with {"word": "x"}' }],
    });
    await expect
      .poll(() => new Set(client.of("call.completed").map(({ data }) => data.kind)))
      .toEqual(new Set(["chat", "tool"]));
  });
});

describe(`what a caller may hear ${verifies("BLIND-4", "CHAT-11")}`, () => {
  test("is what it may read: its own calls, with 'calls' everybody's, with 'approve' what waits for a person", async () => {
    const member = await tenant.newKey({ scopes: ["tools"] });
    const approver = await tenant.newKey({ scopes: ["approve"] });
    const [admins, members, approvers] = [
      await open(tenant.key),
      await open(member.key, { at: second }),
      await open(approver.key),
    ];
    for (const client of [admins, members, approvers]) {
      await client.ask({ type: "subscribe", id: "s", topic: "calls" });
    }
    const ofAdmin = await look();
    const ofMember = await look(member.client);
    const waiting = await tenant.client.post("/v1/tools/invoke", { name: "careful", arguments: {} });
    await tenant.client.post(`/v1/calls/${waiting.id}/reject`);
    const last = await look(member.client);
    const idsOf = (client: SocketClient): string[] => [
      ...new Set(client.frames.flatMap(({ data }) => (data?.object === "call" ? [String(data.id)] : []))),
    ];
    await expect.poll(() => idsOf(members)).toEqual([ofMember.id, last.id]);
    await expect.poll(() => idsOf(admins)).toEqual([ofAdmin.id, ofMember.id, waiting.id, last.id]);
    expect(idsOf(approvers)).toEqual([waiting.id]);
    expect(typesOf(approvers)).toEqual(["call.approval_required", "call.rejected"]);
  });

  test("is nothing of another tenant, whatever it names", async () => {
    const stranger = await gateway.newTenant();
    await addTools(stranger);
    const client = await open(stranger.key);
    const session = { session_id: "of-owner" };
    await client.ask({ type: "subscribe", id: "all", topic: "calls" });
    await client.ask({ type: "subscribe", id: "session", topic: "calls", ...session });
    await client.ask({ type: "subscribe", id: "logs", topic: "logs" });
    // Somebody of the owner listens as well, so that events are written.
    const owner = await open(tenant.key);
    await owner.ask({ type: "subscribe", id: "all", topic: "calls" });
    const waiting = await tenant.client.post("/v1/tools/invoke", { name: "careful", arguments: {}, ...session });
    await client.ask({ type: "subscribe", id: "call", topic: "calls", call_id: waiting.id });
    await tenant.client.post(`/v1/calls/${waiting.id}/reject`);
    await expect.poll(() => typesOf(owner)).toContain("call.rejected");
    const own = await look(stranger.client);
    await expect.poll(() => typesOf(client)).toEqual(["call.running", "call.completed", "call.log"]);
    expect(new Set(client.frames.map(({ data }) => data?.id ?? data?.call_id).filter(Boolean))).toEqual(
      new Set([own.id]),
    );
    expect(await rowsOf("connections", stranger.id)).toBe(1);
  });

  test("ends with its key", async () => {
    const key = await tenant.newKey({ scopes: ["tools", "calls"] });
    const client = await open(key.key);
    await client.ask({ type: "subscribe", id: "s", topic: "calls" });
    const owner = await open(tenant.key);
    await owner.ask({ type: "subscribe", id: "s", topic: "calls" });
    await tenant.client.expect("delete", `/v1/api-keys/${key.id}`);
    await look();
    await expect.poll(() => typesOf(owner)).toContain("call.completed");
    expect(typesOf(client)).toEqual([]);
    expect(await client.closed).toMatchObject({ code: 1008, reason: expect.stringContaining("no more") });
  });

  test("ends at once with its key and with its tenant's activity, so that nothing more is done for it", async () => {
    const holder = await startGateway({ sharedWith: gateway, socketTiming: { renewMs: 60_000 } });
    onTestFinished(() => holder.close());
    const open = (key: string): Promise<readonly SocketClient[]> =>
      Promise.all(
        ["ws", "VCPlog", "vcp-distributed-server"].map((path) =>
          connect(`${holder.url.replace(/^http/, "ws")}/${path}`, { headers: { authorization: `Bearer ${key}` } }),
        ),
      );
    const key = await tenant.newKey({ scopes: ["node", "calls", "approve"] });
    const [revoked, others] = [await open(key.key), await open(tenant.key)];
    await tenant.client.expect("delete", `/v1/api-keys/${key.id}`);
    for (const client of revoked) expect((await client.closed).code).toBe(1008);
    expect(await others[0]?.ask({ type: "ping" })).toMatchObject({ type: "pong" });
    await gateway.operator.expect("patch", `/v1/tenants/${tenant.id}`, { status: "suspended" });
    for (const client of others) expect((await client.closed).code).toBe(1008);
  });

  test("is gone with its tenant", async () => {
    const client = await open(tenant.key);
    await client.ask({ type: "subscribe", id: "s", topic: "calls" });
    await look();
    await tenant.client.post("/v1/realtime/tickets");
    expect(await rowsOf("connection_events")).toBeGreaterThan(0);
    await gateway.operator.expect("delete", `/v1/tenants/${tenant.id}`);
    for (const table of ["connections", "connection_events", "connection_tickets"]) {
      expect({ table, rows: await rowsOf(table) }).toEqual({ table, rows: 0 });
    }
  });
});

describe(`logs of calls ${verifies("BLIND-6")}`, () => {
  test("say what became of each try, with secrets redacted and nothing that is the operator's", async () => {
    await tenant.putCredential("KEY", "a-very-secret-value");
    await tenant.addPlugin({
      name: "flaky",
      execution: { method: "GET", base_url: `${backEnd.url}/flaky`, param_placement: "query", max_attempts: 2 },
      auth_config: { type: "api_key", mapping: [{ source: "KEY", target: "x-key", location: "header" }] },
    });
    let tries = 0;
    backEnd.answer = ({ headers }) => {
      tries += 1;
      return tries === 1 ? { status: 503, body: `{"why": "${String(headers["x-key"])} is busy"}` } : { body: "{}" };
    };
    const [here, there] = [await open(tenant.key), await open(tenant.key, { at: second })];
    for (const client of [here, there]) await client.ask({ type: "subscribe", id: "logs", topic: "logs" });
    const call = await tenant.client.post("/v1/tools/invoke", { name: "flaky", arguments: {} });
    for (const client of [here, there]) {
      await expect.poll(() => client.of("call.log").length).toBe(2);
      expect(client.of("call.log").map(({ data }) => data)).toMatchObject([
        { call_id: call.id, level: "debug", tool: "flaky", attempt: 1, code: "tool_failed" },
        { call_id: call.id, level: "debug", tool: "flaky", attempt: 2, message: "the tool has answered" },
      ]);
      expect(client.of("call.log")).toMatchObject([{ subscriptions: ["logs"] }, { subscriptions: ["logs"] }]);
      expect(JSON.stringify(client.frames)).not.toContain("a-very-secret-value");
      // Events were not asked for.
      expect(typesOf(client)).toEqual(["call.log", "call.log"]);
    }
  });

  test("of others' calls are not for a caller that may not read them", async () => {
    const member = await tenant.newKey({ scopes: ["tools"] });
    const [members, admins] = [await open(member.key), await open(tenant.key)];
    for (const client of [members, admins]) await client.ask({ type: "subscribe", id: "logs", topic: "logs" });
    await look();
    const own = await look(member.client);
    await expect.poll(() => admins.of("call.log").length).toBe(2);
    await expect.poll(() => members.of("call.log").map(({ data }) => data.call_id)).toEqual([own.id]);
  });
});

describe("a tenant to whom nobody listens", () => {
  test("has no row written, connected or not", async () => {
    const idle = await open(tenant.key);
    await idle.ask({ type: "hello", version: 1 });
    await look();
    await tenant.client.post("/v1/chat/completions", {
      model: "toolyard/scripted",
      messages: [{ role: "user", content: 'Call look with {"word": "x"}' }],
    });
    expect(await rowsOf("connection_events")).toBe(0);
    const listens = await idle.ask({ type: "subscribe", id: "s", topic: "calls" });
    await look();
    await expect.poll(() => typesOf(idle)).toEqual(["call.running", "call.completed"]);
    await idle.ask({ type: "unsubscribe", id: "s" });
    const rows = await rowsOf("connection_events");
    await look();
    expect(await rowsOf("connection_events")).toBe(rows);
    expect(listens.type).toBe("subscribed");
  });
});

describe("the client of the guide", () => {
  let directory: string;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "toolyard-realtime-"));
    const guide = await readFile(new URL("../../docs/realtime.md", import.meta.url), "utf8");
    const [, source = ""] = /```ts\n([\s\S]*?)```/.exec(guide) ?? [];
    await writeFile(join(directory, "watch.ts"), source);
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));

  test("hears of calls, connects again where it was cut off, and reads what it has missed", async () => {
    interface Guide {
      watchCalls(base: string, key: string, hear: (event: Json) => void): () => void;
    }
    const { watchCalls } = (await import(pathToFileURL(join(directory, "watch.ts")).href)) as Guide;
    const other = await startGateway({ sharedWith: gateway });
    const [, port = ""] = /:(\d+)$/.exec(other.url) ?? [];
    const events: Json[] = [];
    const stop = watchCalls(other.url, tenant.key, (event) => void events.push(event));
    await expect.poll(() => rowsOf("connections")).toBe(1);
    await expect.poll(async () => (await hearing()) > 0).toBe(true);
    const first = await look();
    await expect.poll(() => events.map(({ data }) => [data.id, data.state])).toContainEqual([first.id, "completed"]);
    await other.close();
    const missed = await look();
    const back = await startGateway({ sharedWith: gateway, env: { PORT: port } });
    await expect.poll(() => events.map(({ data }) => [data.id, data.state])).toContainEqual([missed.id, "completed"]);
    stop();
    await back.close();
  });

  const hearing = async (): Promise<number> => {
    const sql = "SELECT MAX(hears) AS hears FROM connections WHERE tenant = ?";
    const [found] = await database.batch([{ sql, args: [tenant.id] }]);
    return Number(found?.rows[0]?.["hears"]);
  };
});
