/**
 * Subscriptions to Redis Pub/Sub through the whole gateway, and what of subscriptions hangs on no broker. Redis is
 * skipped with the reason where it is not installed (MQ-3, MQ-4, CFG-1, CFG-4, URI-2).
 */
import { bodyKey } from "@toolyard/core/subscriptions/take";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { noRedis, redisPassword, startRedis, type RedisServer } from "../support/brokers/redis.ts";
import { publishFlow } from "../support/flows.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { writingTool } from "../support/http-tools.ts";
import { endNodes, startNode, type NodeProcess } from "../support/node-process.ts";
import { connectSocket } from "../support/socket-client.ts";
import { verifies } from "../support/verifies.ts";

const within = { timeout: 30_000, interval: 100 };

let gateway: Gateway;
let backEnd: HttpStub;
let tenant: TestTenant;
let nodeKey: string;
beforeAll(async () => {
  backEnd = await startHttpStub();
  gateway = await startGateway({ timing: { leaseMs: 6_000, heartbeatMs: 1_000 }, tickEveryMs: 200 });
}, 60_000);
afterAll(async () => {
  await gateway.close();
  await backEnd.close();
});
beforeEach(async () => {
  backEnd.requests.length = 0;
  tenant = await gateway.newTenant();
  nodeKey = (await tenant.newKey({ scopes: ["node", "consume"] })).key;
  await tenant.putCredential("REDIS", redisPassword);
  await tenant.addPlugin(writingTool(backEnd));
});
afterEach(endNodes);

const target = { uri: "plugin://create_order", arguments: { sku: { $message: "/body/sku" } } };
const addService = (port: number, change: Json = {}, owner = tenant): Promise<Json> =>
  owner.client.post("/v1/tool-services", {
    scheme: "mq",
    service_id: "bus",
    config: {
      broker: "redis",
      servers: [`127.0.0.1:${port}`],
      security: "none",
      allow_unencrypted: true,
      password: { credential: "REDIS" },
      topics: { orders: {}, copies: {} },
      ...change,
    },
  });
const subscribe = (change: Json = {}, owner = tenant): Promise<Json> =>
  owner.client.post("/v1/subscriptions", { name: "orders", uri: "mq://bus/orders", target, ...change });
const seen = (id: string, owner = tenant): Promise<Json> => owner.client.get(`/v1/subscriptions/${id}`);
const node = (name = "lab-1", key = nodeKey): Promise<NodeProcess> =>
  startNode({ url: gateway.url, key, name, subscriptions: true });

describe(`a subscription ${verifies("MQ-3", "CFG-1", "URI-2")}`, () => {
  beforeEach(() => addService(9));

  test("is held by no node whose key may not consume: that ends, and says why", async () => {
    const { key } = await tenant.newKey({ scopes: ["node"] });
    const refused = await startNode({ url: gateway.url, key, subscriptions: true, isRefused: true });
    expect(await refused.ended).toBe(1);
    expect(refused.output()).toContain("'consume'");
  });

  test.for<readonly [string, Json, string, RegExp]>([
    ["another scheme", { uri: "api://bus/orders" }, "uri", /mq:\/\/\{service\}\/\{topic\}/],
    ["no such service", { uri: "mq://none/orders" }, "uri", /no mq service 'none'.*POST \/v1\/tool-services/],
    ["no such topic", { uri: "mq://bus/none" }, "uri", /'bus' has no topic 'none'/],
    ["a target that is no URI", { target: { uri: "nothing" } }, "target.uri", /target\.uri/],
    ["a target that is not there", { target: { uri: "plugin://none" } }, "target.uri", /target\.uri.*none/],
    [
      "itself as its target",
      { target: { uri: "mq://bus/orders", arguments: { message: 1 } } },
      "target.uri",
      /subscribed/,
    ],
    [
      "an argument that the target does not have",
      { target: { uri: "mq://bus/copies", arguments: { message: 1, colour: 1 } } },
      "target.arguments.colour",
      /not a parameter/,
    ],
    ["an argument missing", { target: { uri: "mq://bus/copies", arguments: {} } }, "target.arguments", /'message'/],
    [
      "a pointer that is none",
      { target: { ...target, arguments: { sku: { $message: "body" } } } },
      "target.arguments.sku.$message",
      /JSON pointer/,
    ],
    [
      "a part that no message has",
      { target: { ...target, arguments: { sku: { $message: "/boddy/sku" } } } },
      "target.arguments.sku.$message",
      /'\/boddy\/sku'.*body.*published_at/,
    ],
    ["another broker's option", { options: { queue: "q" } }, "options.queue", /RabbitMQ only.*Redis/],
    ["an option that there is not", { options: { colour: 1 } }, "options.colour", /colour/],
    ["a name that nobody can write", { name: "a b" }, "name", /letters/],
  ])("with %s is refused, naming the field", async ([, change, param, message]) => {
    const body = { name: "bad", uri: "mq://bus/orders", target, ...change };
    const { status, json } = await tenant.client.send("post", "/v1/subscriptions", body);
    expect(status).toBeGreaterThanOrEqual(400);
    expect(status).toBeLessThan(500);
    expect(json.error.param).toBe(param);
    expect(json.error.message).toMatch(message);
  });

  test(`keeps its service from being deleted, unless that is meant ${verifies("CFG-4")}`, async () => {
    const { id } = await subscribe();
    const [service] = (await tenant.client.get("/v1/tool-services?scheme=mq")).data;
    const refused = await tenant.client.send("delete", `/v1/tool-services/${service.id}`);
    expect(refused.json.error).toMatchObject({
      code: "service_referenced",
      references: [{ kind: "subscription", id, name: "orders", field: "uri", value: "mq://bus/orders" }],
    });
    await tenant.client.send("delete", `/v1/tool-services/${service.id}?force=true`);
    expect(await seen(id)).toMatchObject({ state: "blocked", delivery: null, reason: { code: "tool_not_found" } });
    expect((await tenant.client.send("delete", `/v1/subscriptions/${id}`)).status).toBe(204);
    expect((await tenant.client.send("get", `/v1/subscriptions/${id}`)).status).toBe(404);
  });

  test("gives nobody's broker to a node without the scope, and nobody else's to another tenant's", async () => {
    const { id } = await subscribe();
    const socketOf = (key: string) =>
      connectSocket(`${gateway.url.replace("http", "ws")}/ws?client_type=node`, {
        headers: { authorization: `Bearer ${key}` },
      });
    const hold = { type: "subscription.hold", node: "lab-1", instance: "instance-of-a-test", reports: [] };
    const open = { type: "subscription.open", subscription: id, instance: "instance-of-a-test" };
    const plain = await socketOf((await tenant.newKey({ scopes: ["node"] })).key);
    for (const message of [hold, open]) {
      expect((await plain.ask(message)).error).toMatchObject({ code: "permission_denied", param: "consume" });
    }
    const stranger = await gateway.newTenant();
    const other = await socketOf((await stranger.newKey({ scopes: ["node", "consume"] })).key);
    expect((await other.ask(hold)).subscriptions).toEqual([]);
    expect((await other.ask(open)).error).toMatchObject({ code: "not_found" });
    const own = await socketOf(nodeKey);
    // It has to hold it first.
    expect((await own.ask(open)).error).toMatchObject({ code: "not_found" });
    expect((await own.ask(hold)).subscriptions).toMatchObject([{ id, name: "orders" }]);
    expect((await own.ask(open)).account).toMatchObject({ kind: "redis", login: { password: redisPassword } });
    await Promise.all([plain, other, own].map((socket) => socket.close()));
  });

  test("gives up a message that does not fit, whatever brought it, and says of what field", async () => {
    const { id } = await subscribe({ options: { max_attempts: 2 } });
    const socket = await connectSocket(`${gateway.url.replace("http", "ws")}/ws?client_type=node`, {
      headers: { authorization: `Bearer ${nodeKey}` },
    });
    const instance = "instance-of-a-test";
    await socket.ask({ type: "subscription.hold", node: "lab-1", instance, reports: [] });
    const { fingerprint } = await socket.ask({ type: "subscription.open", subscription: id, instance });
    const bring = (message: Json): Promise<Json> =>
      socket.ask({ type: "subscription.message", subscription: id, fingerprint, instance, message });
    const brought = { delivery: "delivery-of-a-test", message_id: "odd", bytes: 2, body: "e30=" };
    expect(await bring({ ...brought, at: null })).toMatchObject({ outcome: "refused", code: "invalid_arguments" });
    const last = await bring({ ...brought, at: null });
    expect(last).toMatchObject({ outcome: "dead", message: expect.stringMatching(/its 'at' is not valid/) });
    const unreadable = { ...brought, message_id: "packed", unreadable: "It is not gzip." };
    expect(await bring(unreadable)).toMatchObject({ outcome: "refused", message: expect.stringMatching(/not gzip/) });
    // A field that only newer nodes know is no message's fault.
    expect((await bring({ ...brought, colour: "red" })).error).toMatchObject({ code: "invalid_request" });
    expect((await tenant.client.get(`/v1/subscriptions/${id}/failed-messages`)).data).toMatchObject([
      { message_id: "packed", state: "retrying" },
      { message_id: "odd", state: "dead" },
    ]);
    await socket.close();
  });
});

describe(`a message whose words a target does not take ${verifies("MQ-3", "FLOW-3")}`, () => {
  test("is given up, and is in nobody's way", async () => {
    await addService(9, { max_message_bytes: 4_194_304 });
    const parameters = { type: "object", properties: { rows: { type: "array", items: { type: "integer" } } } };
    await tenant.addPlugin({ ...writingTool(backEnd, "take_rows"), parameters });
    await publishFlow(tenant, { name: "daily", start: "end", nodes: { end: { kind: "end" } } });
    const whole = { arguments: { $message: "/body" } };
    const options = { max_attempts: 2 };
    const targets = [
      { uri: "flow://daily", ...whole },
      { uri: "plugin://take_rows", ...whole },
    ];
    const [flow, rows] = await Promise.all(
      targets.map((to, index) => subscribe({ name: `take-${index}`, target: to, options })),
    );
    const socket = await connectSocket(`${gateway.url.replace("http", "ws")}/ws?client_type=node`, {
      headers: { authorization: `Bearer ${nodeKey}` },
    });
    const instance = "instance-of-a-test";
    await socket.ask({ type: "subscription.hold", node: "lab-1", instance, reports: [] });
    const bringTwice = async ({ id }: Json, body: Json): Promise<Json[]> => {
      const { fingerprint } = await socket.ask({ type: "subscription.open", subscription: id, instance });
      const text = Buffer.from(JSON.stringify(body));
      const message = { delivery: "delivery-of-a-test", message_id: text.toString("base64").slice(0, 64) };
      const uploaded = text.length > 10_000;
      const bring = async (): Promise<Json> => {
        if (uploaded) await gateway.core.blobs.put(bodyKey(tenant.id, id, message.delivery), text);
        const sent = {
          ...message,
          bytes: text.length,
          ...(uploaded ? { uploaded } : { body: text.toString("base64") }),
        };
        return socket.ask({ type: "subscription.message", subscription: id, fingerprint, instance, message: sent });
      };
      return [await bring(), await bring()];
    };
    for (const [subscription, body, says] of [
      [flow, { orderId: 1, buCode: "BU01" }, /may not act for this business unit/],
      [flow, { tenantId: "ten_somebody" }, /'tenantId' cannot be another one's/],
      [rows, { rows: Array.from({ length: 600_000 }, () => 1) }, /takes too long/],
    ] as const) {
      const [first, last] = await bringTwice(subscription, body);
      expect(first).toMatchObject({
        outcome: "refused",
        code: "invalid_arguments",
        message: expect.stringMatching(says),
      });
      expect(last).toMatchObject({ outcome: "dead" });
    }
    await socket.close();
  });
});

describe.skipIf(noRedis !== undefined)(
  `a subscription to Redis${noRedis === undefined ? "" : ` (skipped: ${noRedis})`} ${verifies("MQ-3", "MQ-4")}`,
  () => {
    let redis: RedisServer;
    beforeAll(async () => {
      redis = await startRedis();
    }, 60_000);
    afterAll(() => redis.close());

    const listeners = async (): Promise<number> => Number((await redis.client().pubsub("NUMSUB", "orders"))[1]);
    const callsOf = async (id: string, owner = tenant): Promise<Json[]> =>
      (await owner.client.get(`/v1/calls?caller_id=${id}&limit=100`)).data;

    test("is at most once, says so, and is one node's at a time, which another takes over", async () => {
      await addService(redis.port);
      const created = await subscribe();
      const { id } = created;
      expect(created).toMatchObject({ delivery: "at_most_once" });
      expect(created.note).toMatch(/gone/);
      const first = await node("lab-1");
      await expect.poll(listeners, within).toBe(1);
      await node("lab-2");
      const publisher = redis.client();
      await publisher.publish("orders", JSON.stringify({ sku: "1" }));
      await expect.poll(async () => (await callsOf(id)).length, within).toBe(1);
      expect(await listeners()).toBe(1);
      await first.stop("SIGKILL");
      await expect
        .poll(async () => (await seen(id)).holders.map(({ node: name }: Json) => name), within)
        .toEqual(["lab-2"]);
      await expect.poll(listeners, within).toBe(1);
      await publisher.publish("orders", JSON.stringify({ sku: "2" }));
      await expect.poll(async () => (await callsOf(id)).length, within).toBe(2);
    }, 60_000);

    test("starts a run of a flow with the message as its input, as the subscription", async () => {
      await addService(redis.port);
      const flowId = await publishFlow(tenant, {
        name: "intake",
        input: { type: "object", required: ["sku"], properties: { sku: { type: "string" } } },
        start: "order",
        nodes: {
          order: { kind: "tool", name: "create_order", arguments: { sku: { $: "input.sku" } }, next: "end" },
          end: { kind: "end", output: { $: "input" } },
        },
      });
      const { id } = await subscribe({ target: { uri: "flow://intake" } });
      const references = (await tenant.client.get(`/v1/flows/${flowId}/references`)).data;
      expect(references).toMatchObject([{ kind: "subscription", id, field: "target.uri" }]);
      await node();
      await expect.poll(async () => (await seen(id)).state, within).toBe("consuming");
      await redis.client().publish("orders", JSON.stringify({ sku: "S-1", more: [1] }));
      const runs = async (): Promise<Json[]> => (await callsOf(id)).filter((call) => call.parent_id === null);
      await expect.poll(async () => (await runs()).map(({ state }) => state), within).toEqual(["completed"]);
      const [{ id: run }] = (await tenant.client.get("/v1/runs?flow=intake")).data;
      expect(await tenant.client.get(`/v1/runs/${run}`)).toMatchObject({ output: { sku: "S-1", more: [1] } });
      expect(backEnd.requests.map(({ body }) => JSON.parse(body.toString()).sku)).toEqual(["S-1"]);
    }, 60_000);

    test("of one tenant is heard by none of another, at the same broker", async () => {
      await addService(redis.port);
      const { id } = await subscribe();
      const stranger = await gateway.newTenant();
      await stranger.putCredential("REDIS", redisPassword);
      await addService(redis.port, {}, stranger);
      const theirs = await subscribe({ target: { uri: "mq://bus/copies", arguments: { message: 1 } } }, stranger);
      await node();
      await expect.poll(async () => (await seen(id)).state, within).toBe("consuming");
      expect(await seen(theirs.id, stranger)).toMatchObject({ state: "unheld", holders: [] });
      await redis.client().publish("orders", JSON.stringify({ sku: "1" }));
      await expect.poll(async () => (await callsOf(id)).length, within).toBe(1);
      expect(await callsOf(theirs.id, stranger)).toEqual([]);
    }, 60_000);

    test("says at which server what went wrong, and goes on once that is mended", async () => {
      await addService(redis.port);
      await tenant.putCredential("REDIS", "wrong");
      const { id } = await subscribe();
      await node();
      await expect.poll(async () => (await seen(id)).state, within).toBe("failing");
      const { reason, holders } = await seen(id);
      const message = expect.stringMatching(new RegExp(`127\\.0\\.0\\.1:${redis.port}.*REDIS`));
      expect(reason).toEqual({ code: "credential_invalid", message });
      expect(holders[0].last_error_at).not.toBeNull();
      await tenant.putCredential("REDIS", redisPassword);
      await expect.poll(async () => (await seen(id)).state, within).toBe("consuming");
    }, 60_000);
  },
);
