/**
 * `/ws` as it is deployed: the built `ws` function behind the WebSocket API, and functions of other bundles
 * that tell its clients what has changed, whatever becomes of their environments (design "AWS").
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test } from "vitest";
import { openDatabase } from "@toolyard/db/client";
import type { Database, SqlValue } from "@toolyard/db/database";
import { createDriver, type GatewayDriver, type Json, type TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool } from "../support/http-tools.ts";
import { calls, startLlmStub, text, type LlmStub } from "../support/llm-stub.ts";
import { connectSocket, HandshakeRefused, type ConnectOptions, type SocketClient } from "../support/socket-client.ts";
import { verifies } from "../support/verifies.ts";
import type { Deployment } from "./deployment.ts";
import { openGroundOfAws, type Ground } from "./home.ts";
import type { Environment } from "./runtime-api.ts";

const look = { name: "look", arguments: { q: "x" } };
const chat = { model: "stub-1", messages: [{ role: "user", content: "look it up" }] };
const allEvents = ["call.running", "call.completed"];

describe.skipIf(inject("runtimeClientMissing") !== "")("/ws under the runtime client", () => {
  let ground: Ground;
  let database: Database;
  let deployment: Deployment;
  let driver: GatewayDriver;
  let tenant: TestTenant;
  let llm: LlmStub;
  let backEnd: HttpStub;
  let clients: SocketClient[] = [];

  beforeAll(async () => {
    [ground, llm, backEnd] = await Promise.all([openGroundOfAws(), startLlmStub(), startHttpStub()]);
    const { DATABASE_URL: url = "", DATABASE_AUTH_TOKEN: authToken = "" } = ground.services.env;
    database = await openDatabase({ url, authToken });
    // The schedule is the test's own, so that it shows who told.
    deployment = await ground.start({ spreads: true, duplicates: true, tickEveryMs: 3_600_000 });
    driver = createDriver(deployment.url, ground.services.adminKey);
    llm.respond(({ messages }) => ((messages as readonly unknown[]).length === 1 ? calls(look) : text("it is there")));
  });
  afterAll(async () => {
    await deployment.close();
    await database.close();
    await Promise.all([llm.close(), backEnd.close()]);
    await ground.close();
  });
  beforeEach(async () => {
    tenant = await driver.newTenant();
    await tenant.addProvider(llm.url);
    await tenant.addPlugin(readingTool(backEnd, "look"));
  });
  afterEach(async () => {
    for (const trigger of deployment.triggers) trigger.resume();
    await Promise.all(clients.map((client) => client.close()));
    clients = [];
  });

  const connect = async (options: ConnectOptions = {}, query = ""): Promise<SocketClient> => {
    const client = await connectSocket(`${deployment.webSocketApi.url}${query}`, options);
    clients.push(client);
    return client;
  };
  const open = (): Promise<SocketClient> => connect({ headers: { authorization: `Bearer ${tenant.key}` } });
  const refused = async (options: ConnectOptions, query = ""): Promise<number> =>
    connect(options, query).then(
      () => 101,
      (error: unknown) => (error instanceof HandshakeRefused ? error.status : 0),
    );
  const listen = async (): Promise<SocketClient> => {
    const client = await open();
    const subscribed = await client.ask({ type: "subscribe", id: "s", topic: "calls", events: allEvents });
    expect(subscribed).toMatchObject({ type: "subscribed" });
    return client;
  };
  const run = async (sql: string, ...args: SqlValue[]): Promise<readonly Json[]> => {
    const [result] = await database.batch([{ sql, args }]);
    return result?.rows ?? [];
  };
  const connections = (): Promise<readonly Json[]> => run("SELECT id FROM connections WHERE tenant = ?", tenant.id);
  const tick = async (): Promise<void> => {
    expect(await deployment.functions.tick.invoke({})).toMatchObject({ kind: "whole" });
  };
  /** Of one call, each event once, whatever came twice. */
  /** Of that call, each once and by `seq`: several functions may send at once (docs/realtime.md). */
  const heard = (client: SocketClient, id: string): readonly string[] => {
    const about = client.of(...allEvents).filter(({ data }) => data.id === id);
    return [...new Set(about.toSorted((a, b) => Number(a.seq) - Number(b.seq)).map(({ type }) => String(type)))];
  };
  const pauseWorker = (): void => deployment.triggers.forEach((trigger) => trigger.pause());
  const busy = (name: "chat" | "worker" | "tick"): Environment | undefined =>
    deployment.functions[name].environments.find(({ isBusy }) => isBusy);
  /** Claims that a process holds run out after a quarter of a minute. */
  const letClaimsRunOut = (): Promise<readonly Json[]> =>
    run("UPDATE connection_events SET next_at = 1 WHERE tenant = ? AND next_at > 0", tenant.id);

  test(`connects with a key, answers from two environments, and forgets who leaves ${verifies("BLIND-4")}`, async () => {
    const client = await open();
    expect(await client.ask({ type: "hello", version: 1 })).toMatchObject({ type: "welcome" });
    for (let count = 0; count < 3; count += 1)
      expect(await client.ask({ type: "ping" })).toMatchObject({ type: "pong" });
    expect(deployment.functions.ws.environments).toHaveLength(2);
    expect(await connections()).toHaveLength(1);
    await client.close();
    await expect.poll(connections).toEqual([]);
  });

  test(`connects with a ticket, once, and says which subprotocol it speaks ${verifies("BLIND-4")}`, async () => {
    const { ticket, url } = await tenant.client.post("/v1/realtime/tickets");
    expect(url).toBe(deployment.webSocketApi.url);
    const client = await connect({ protocols: ["toolyard.v1", `ticket.${ticket}`] });
    expect(client.socket.protocol).toBe("toolyard.v1");
    expect(await client.ask({ type: "ping" })).toMatchObject({ type: "pong" });
    expect(await refused({}, `?ticket=${ticket}`)).toBe(401);
  });

  test("refuses the handshake of whoever has no key, a wrong one or a suspended tenant, and leaves no row", async () => {
    expect(await refused({})).toBe(401);
    expect(await refused({ headers: { authorization: "Bearer nonsense" } })).toBe(401);
    await driver.operator.expect("patch", `/v1/tenants/${tenant.id}`, { status: "suspended" });
    expect(await refused({ headers: { "x-api-key": tenant.key } })).toBe(403);
    expect(await connections()).toEqual([]);
  });

  test(`tells of a call of 'api', which leaves it to the worker ${verifies("CHAT-13")}`, async () => {
    const [client, other] = [await listen(), await open()];
    const { id } = await tenant.client.post("/v1/tools/invoke", look);
    await expect.poll(() => heard(client, id)).toEqual(allEvents);
    expect(client.of("call.completed")).toMatchObject([{ subscriptions: ["s"], data: { id } }]);
    expect(other.of(...allEvents)).toEqual([]);
  });

  test(`tells of a call that the worker runs ${verifies("CHAT-13")}`, async () => {
    const client = await listen();
    const { id } = await tenant.client.post("/v1/tools/invoke", { ...look, async: true });
    await expect.poll(() => heard(client, id)).toEqual(allEvents);
    expect((await tenant.client.get(`/v1/calls/${id}`)).state).toBe("completed");
  });

  test(`tells of a chat and its tool without anybody's help ${verifies("CHAT-13")}`, async () => {
    const client = await listen();
    pauseWorker();
    const answer = await tenant.client.send("post", "/v1/chat/completions", { ...chat, stream: true });
    expect(answer.text).toContain("[DONE]");
    const listed: readonly Json[] = (await tenant.client.get("/v1/calls")).data;
    expect(listed.map(({ kind }) => String(kind)).toSorted()).toEqual(["chat", "tool"]);
    for (const { id } of listed) await expect.poll(() => heard(client, id)).toContain("call.completed");
  });

  test(`tells by the tick what nobody has told ${verifies("CHAT-13")}`, async () => {
    const client = await listen();
    pauseWorker();
    const { id } = await tenant.client.post("/v1/tools/invoke", look);
    expect(heard(client, id)).toEqual([]);
    await tick();
    await expect.poll(() => heard(client, id)).toEqual(allEvents);
  });

  test(`tells again what an environment had in its hands when it was killed ${verifies("CHAT-13")}`, async () => {
    const client = await listen();
    pauseWorker();
    const { id } = await tenant.client.post("/v1/tools/invoke", look);
    const release = deployment.webSocketApi.holdPushes();
    const dying = deployment.functions.tick.invoke({});
    await expect.poll(() => deployment.webSocketApi.held).toBeGreaterThan(0);
    // Its request may still be on its way, so that it comes to nothing.
    deployment.webSocketApi.failPushes(1, 500);
    busy("tick")?.kill();
    expect(await dying).toMatchObject({ kind: "failed" });
    release();
    await expect.poll(() => deployment.webSocketApi.held).toBe(0);
    deployment.webSocketApi.failPushes(0, 200);
    expect(heard(client, id)).toEqual([]);
    await tick();
    expect(heard(client, id)).toEqual([]);
    await letClaimsRunOut();
    await tick();
    await expect.poll(() => heard(client, id)).toEqual(allEvents);
  });

  test(`tells at least once where an environment is frozen over its claim, and goes on later ${verifies("CHAT-13")}`, async () => {
    const client = await listen();
    pauseWorker();
    const { id } = await tenant.client.post("/v1/tools/invoke", look);
    const release = deployment.webSocketApi.holdPushes();
    const late = deployment.functions.tick.invoke({});
    await expect.poll(() => deployment.webSocketApi.held).toBeGreaterThan(0);
    const frozen = busy("tick");
    frozen?.freeze();
    await expect.poll(() => frozen?.isFrozen()).toBe(true);
    release();
    await letClaimsRunOut();
    await tick();
    await expect.poll(() => heard(client, id)).toEqual(allEvents);
    frozen?.thaw();
    expect(await late).toMatchObject({ kind: "whole" });
    // Nothing is left to tell, and what came twice has the same id.
    expect(await run("SELECT 1 FROM connection_events WHERE tenant = ? AND next_at > 0", tenant.id)).toEqual([]);
    const ids = client.of("call.completed").map(({ id: event }) => String(event));
    expect(new Set(ids).size).toBe(1);
  });

  test("forgets a connection that is gone where nobody said so", async () => {
    const client = await listen();
    deployment.webSocketApi.cut();
    await client.closed;
    expect(await connections()).toHaveLength(1);
    await tenant.client.post("/v1/tools/invoke", look);
    await expect.poll(connections).toEqual([]);
  });

  test("says that something went wrong where an environment dies over a message, and serves the next one", async () => {
    const client = await open();
    await client.ask({ type: "ping" });
    const { started } = deployment.functions.ws;
    const release = deployment.webSocketApi.holdPushes();
    client.say({ type: "ping", id: "lost" });
    await expect.poll(() => deployment.webSocketApi.held).toBe(1);
    deployment.functions.ws.environments.find(({ isBusy }) => isBusy)?.kill();
    await expect.poll(() => client.frames.at(-1)).toMatchObject({ message: "Internal server error" });
    release();
    expect(await client.ask({ type: "ping" })).toMatchObject({ type: "pong" });
    expect(await client.ask({ type: "ping" })).toMatchObject({ type: "pong" });
    expect(deployment.functions.ws.started).toBe(started + 1);
  });
});
