/** What becomes of the WebSockets of a server: slow, silent, wild and unwelcome clients, and processes that end. */
import { openDatabase } from "@toolyard/db/client";
import type { Database } from "@toolyard/db/database";
import { publish } from "@toolyard/core/realtime/publish";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, startGatewayProcess, type Gateway } from "../support/gateway.ts";
import { connectSocket, type ConnectOptions, type SocketClient } from "../support/socket-client.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let database: Database;
let tenant: TestTenant;

beforeAll(async () => {
  gateway = await startGateway({ socketTiming: { pollMs: 50, renewMs: 100 } });
  database = await openDatabase({ url: gateway.databaseUrl });
  tenant = await gateway.newTenant();
});
afterAll(async () => {
  await database.close();
  await gateway.close();
});

const address = (url: string): string => `${url.replace(/^http/, "ws")}/ws`;

async function open(
  key = tenant.key,
  { url = gateway.url, ...options }: ConnectOptions & { readonly url?: string } = {},
): Promise<SocketClient> {
  const client = await connectSocket(address(url), { ...options, headers: { authorization: `Bearer ${key}` } });
  onTestFinished(() => client.socket.terminate());
  return client;
}

async function rows(at = database): Promise<number> {
  const [counted] = await at.batch([{ sql: "SELECT COUNT(*) AS n FROM connections", args: [] }]);
  return Number(counted?.rows[0]?.["n"]);
}

describe("a client", () => {
  test("that reads too slowly is cut off, and keeps nobody else waiting", async () => {
    const client = await open();
    const other = await open();
    client.socket.pause();
    const data = { text: "x".repeat(30_000) };
    const note = { type: "note", audience: { kind: "tenant" }, data } as const;
    for (let count = 0; count < 20; count += 1) {
      await publish(
        gateway.core,
        tenant.id,
        Array.from({ length: 40 }, () => note),
      );
    }
    await expect.poll(() => other.of("note").length).toBe(800);
    client.socket.resume();
    expect(await client.closed).toMatchObject({ code: 1013, reason: expect.stringContaining("faster") });
    await expect.poll(() => rows()).toBe(1);
    expect(client.of("note").length).toBeLessThan(800);
    expect(await other.ask({ type: "ping" })).toMatchObject({ type: "pong" });
  });

  test("that answers no ping is gone", async () => {
    const asking = await startGateway({ sharedWith: gateway, socketTiming: { pingMs: 200 } });
    onTestFinished(() => asking.close());
    const client = await open(tenant.key, { url: asking.url, isDeaf: true });
    expect(await client.closed).toMatchObject({ code: 1006 });
    const alive = await open(tenant.key, { url: asking.url });
    await new Promise((next) => setTimeout(next, 700));
    expect(await alive.ask({ type: "ping" })).toMatchObject({ type: "pong" });
  });

  test.each<[string, number, (client: SocketClient) => void]>([
    ["sends bytes", 1003, ({ socket }) => socket.send(Buffer.from([1, 2, 3]))],
    ["sends more than 128 KB", 1009, ({ socket }) => socket.send("x".repeat(131_073))],
    [
      "sends without waiting for answers",
      1008,
      ({ socket }) => {
        for (let count = 0; count < 2_000; count += 1) socket.send(JSON.stringify({ type: "ping", id: `p${count}` }));
      },
    ],
  ])("that %s is told %i", async (_what, code, act) => {
    const client = await open();
    act(client);
    expect((await client.closed).code).toBe(code);
  });

  test("whose key is revoked is told so", async () => {
    const key = await tenant.newKey();
    const client = await open(key.key);
    await tenant.client.expect("delete", `/v1/api-keys/${key.id}`);
    expect(await client.closed).toMatchObject({ code: 1008, reason: expect.stringContaining("no more") });
  });

  test("may ask for much at once, in order", async () => {
    const client = await open();
    const names = Array.from({ length: 50 }, (_none, index) => `s${index}`);
    for (const id of names) client.say({ type: "subscribe", id, topic: "calls" });
    await expect.poll(() => client.of("subscribed").map(({ id }) => id)).toEqual(names);
    expect(await client.ask({ type: "subscribe", id: "one-more", topic: "calls" })).toMatchObject({
      type: "error",
      error: { code: "concurrency_limited" },
    });
  });
});

describe("what is pushed", () => {
  test("reaches the connection, the user, the session or the kind of client that it is for", async () => {
    const ann = await tenant.newKey({ user_id: "ann" });
    const clients: Record<string, SocketClient> = {
      one: await open(),
      ann: await open(ann.key),
      session: await open(),
    };
    const console_ = await connectSocket(`${address(gateway.url)}?client_type=Console`, {
      headers: { authorization: `Bearer ${tenant.key}` },
    });
    onTestFinished(() => console_.socket.terminate());
    await clients["session"]?.ask({ type: "subscribe", id: "s", topic: "calls", session_id: "sess-9" });
    const { connection_id: id } = await (clients["one"] as SocketClient).ask({ type: "hello", version: 1 });
    const data = { text: "hello" };
    const sent = await publish(gateway.core, tenant.id, [
      { type: "to.one", audience: { kind: "connection", value: id }, data },
      { type: "to.ann", audience: { kind: "user", value: "ann" }, data },
      { type: "to.session", audience: { kind: "session", value: "sess-9" }, data },
      { type: "to.console", audience: { kind: "client_type", value: "Console" }, data },
      { type: "to.nobody", audience: { kind: "client_type", value: "Nobody" }, data },
      { type: "to.all", audience: { kind: "tenant" }, data },
    ]);
    expect(sent).toBe(5);
    const typesOf = (client?: SocketClient): Json[] =>
      (client?.frames ?? []).map(({ type }) => type).filter((type: string) => type.startsWith("to."));
    await expect.poll(() => typesOf(clients["one"])).toEqual(["to.one", "to.all"]);
    await expect.poll(() => typesOf(clients["ann"])).toEqual(["to.ann", "to.all"]);
    await expect.poll(() => typesOf(clients["session"])).toEqual(["to.session", "to.all"]);
    await expect.poll(() => typesOf(console_)).toEqual(["to.console", "to.all"]);
  });
});

describe(`processes ${verifies("CHAT-13")}`, () => {
  test("that stop say goodbye and leave no row", async () => {
    const other = await startGateway({ sharedWith: gateway });
    const before = await rows();
    const client = await open(tenant.key, { url: other.url });
    await client.ask({ type: "subscribe", id: "s", topic: "calls" });
    expect(await rows()).toBe(before + 1);
    await other.close();
    expect(await client.closed).toMatchObject({ code: 1001 });
    expect(await rows()).toBe(before);
  });

  test("that are killed take no event along, and their rows run out", async () => {
    const killed = await startGatewayProcess({ sharedWith: gateway });
    onTestFinished(() => killed.close());
    const there = await gateway.newTenant();
    await there.addPlugin({
      name: "careful",
      execution: { method: "POST", base_url: "https://api.example.com/x", param_placement: "body" },
      sensitive: true,
    });
    const since = new Date(Date.now() - 60_000).toISOString();
    const cut = await open(there.key, { url: killed.url });
    const stays = await open(there.key);
    for (const client of [cut, stays]) await client.ask({ type: "subscribe", id: "s", topic: "calls" });
    const call = await killed.client(there.key).post("/v1/tools/invoke", { name: "careful", arguments: {} });
    await killed.stop("SIGKILL");
    expect(await cut.closed).toMatchObject({ code: 1006 });
    await expect.poll(() => stays.of("call.approval_required")).toMatchObject([{ data: { id: call.id } }]);
    // Whoever was cut off comes back elsewhere, and reads what it may have missed.
    const again = await open(there.key);
    await again.ask({ type: "subscribe", id: "s", topic: "calls" });
    const missed = await there.client.get(`/v1/calls?from=${since}`);
    expect(missed.data).toMatchObject([{ id: call.id, state: "input_required" }]);
    const left = "SELECT id FROM connections WHERE tenant = ? ORDER BY created_at, id";
    const ids = async (): Promise<unknown[]> =>
      ((await database.batch([{ sql: left, args: [there.id] }]))[0]?.rows ?? []).map(({ id }) => id);
    const [lost = "", ...others] = await ids();
    expect(others).toHaveLength(2);
    await database.batch([{ sql: "UPDATE connections SET expires_at = 1 WHERE id = ?", args: [String(lost)] }]);
    await gateway.tick();
    expect(await ids()).toEqual(others);
  });
});
