/**
 * Subscriptions to RocketMQ through the whole gateway, with nodes as processes, over a server that was recorded from it
 * (MQ-3, MQ-4); mq-rocketmq-consumer.test.ts has the consumer at RocketMQ itself.
 */
import { randomUUID } from "node:crypto";
import { createEgress } from "@toolyard/core/blind/egress";
import type { BrokerSession } from "@toolyard/core/ports/message-broker";
import { createMessageBrokers } from "@toolyard/platform/mq/message-brokers";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startMutingProxy, type MutingProxy } from "../support/brokers/proxy.ts";
import { readRocketMq } from "../support/brokers/rocketmq-reader.ts";
import { startRocketMqStub } from "../support/brokers/rocketmq-stub.ts";
import { rocketMqUser, type RocketMqServer } from "../support/brokers/rocketmq.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { writingTool } from "../support/http-tools.ts";
import { endNodes, startNode, type NodeProcess } from "../support/node-process.ts";
import { verifies } from "../support/verifies.ts";

const within = { timeout: 30_000, interval: 100 };

describe(`a subscription to RocketMQ, as it was recorded ${verifies("MQ-3", "MQ-4")}`, () => {
  let gateway: Gateway;
  let server: RocketMqServer;
  let proxy: MutingProxy;
  let backEnd: HttpStub;
  let egress: ReturnType<typeof createEgress>;
  let publisher: BrokerSession;
  let tenant: TestTenant;
  let nodeKey: string;

  beforeAll(async () => {
    server = await startRocketMqStub();
    proxy = await startMutingProxy(server.port);
    backEnd = await startHttpStub();
    gateway = await startGateway({ timing: { leaseMs: 6_000, heartbeatMs: 1_000 }, tickEveryMs: 200 });
    egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
    publisher = await createMessageBrokers({ egress }).open({
      kind: "rocketmq",
      servers: [{ host: "127.0.0.1", port: server.port }],
      login: { username: rocketMqUser.accessKey, password: rocketMqUser.secretKey, credential: "ROCKET" },
      virtualHost: "/",
      mechanism: "plain",
    });
  }, 60_000);
  afterAll(async () => {
    await publisher.close();
    await egress.close();
    await gateway.close();
    await backEnd.close();
    await proxy.close();
    await server.close();
  });
  beforeEach(async () => {
    backEnd.requests.length = 0;
    tenant = await gateway.newTenant();
    nodeKey = (await tenant.newKey({ scopes: ["node", "consume"] })).key;
    await tenant.putCredential("ROCKET", rocketMqUser.secretKey);
    await tenant.addPlugin(writingTool(backEnd));
    await tenant.client.post("/v1/tool-services", {
      scheme: "mq",
      service_id: "shop",
      config: {
        broker: "rocketmq",
        servers: [`127.0.0.1:${proxy.port}`],
        security: "none",
        allow_unencrypted: true,
        username: rocketMqUser.accessKey,
        password: { credential: "ROCKET" },
        topics: { orders: {}, anything: {}, untyped: {}, late: {} },
      },
    });
  });
  afterEach(async () => {
    proxy.unmute();
    await endNodes();
  });

  const subscribe = (topic: string, options: Json = {}): Promise<Json> =>
    tenant.client.post("/v1/subscriptions", {
      name: topic,
      uri: `mq://shop/${topic}`,
      target: { uri: "plugin://create_order", arguments: { sku: { $message: "/body/sku" } } },
      options,
    });
  const node = (name = "lab-1"): Promise<NodeProcess> =>
    startNode({ url: gateway.url, key: nodeKey, name, subscriptions: true });
  const seen = (id: string): Promise<Json> => tenant.client.get(`/v1/subscriptions/${id}`);
  const consuming = (id: string): Promise<void> =>
    expect.poll(async () => (await seen(id)).state, within).toBe("consuming");
  const callsOf = async (id: string): Promise<Json[]> =>
    (await tenant.client.get(`/v1/calls?caller_id=${id}&limit=100&order=asc`)).data;
  const skus = (): string[] => backEnd.requests.map(({ body }) => JSON.parse(body.toString()).sku);
  const newId = (): string => `01${randomUUID().replaceAll("-", "").toUpperCase()}`;

  async function publish(destination: string, body: string, id = newId()): Promise<string> {
    const message = { id, destination, body: Buffer.from(body), contentType: "application/json" };
    const rest = { headers: {}, isPersistent: true, at: new Date() };
    await publisher.publish({ ...message, ...rest }, { signal: new AbortController().signal });
    return id;
  }

  test("makes each message a call, and one that comes twice one call", async () => {
    const { id } = await subscribe("orders");
    expect(await seen(id)).toMatchObject({ state: "unheld", delivery: "at_least_once", note: null });
    await node();
    await consuming(id);
    await publish("orders", '{"sku":"A-1"}');
    await expect.poll(skus, within).toEqual(["A-1"]);
    const same = newId();
    await publish("orders", '{"sku":"twice"}', same);
    await publish("orders", '{"sku":"twice"}', same);
    await expect.poll(async () => (await seen(id)).totals, within).toMatchObject({ accepted: 2, duplicates: 1 });
    await expect
      .poll(async () => (await callsOf(id)).map(({ state }) => state), within)
      .toEqual(["completed", "completed"]);
    expect(skus()).toEqual(["A-1", "twice"]);
    expect((await callsOf(id))[0]).toMatchObject({
      uri: "plugin://create_order",
      route: "mq.subscription",
      caller: { id, chain: [{ kind: "subscription", id }] },
    });
  }, 60_000);

  test("begins with what comes after it was made, where it says so; to begin earlier is refused with what helps", async () => {
    const refused = await tenant.client.send("post", "/v1/subscriptions", {
      name: "early",
      uri: "mq://shop/orders",
      target: { uri: "plugin://create_order", arguments: { sku: { $message: "/body/sku" } } },
      options: { start_from: "earliest" },
    });
    expect(refused.json.error).toMatchObject({
      code: "invalid_definition",
      param: "options.start_from",
      message: expect.stringContaining("resetOffsetByTime"),
    });
    await publish("late", '{"sku":"before"}');
    const { id } = await subscribe("late", { start_from: "latest" });
    await node();
    await consuming(id);
    await publish("late", '{"sku":"after"}');
    await expect.poll(skus, within).toEqual(["after"]);
    await expect.poll(async () => (await seen(id)).totals, within).toMatchObject({ accepted: 1, dead: 0 });
  }, 60_000);

  test("is one call for a message whose node died before it was acknowledged", async () => {
    const { id } = await subscribe("untyped");
    const first = await node();
    await consuming(id);
    await publish("untyped", '{"sku":"first"}');
    await expect.poll(async () => (await seen(id)).totals, within).toMatchObject({ accepted: 1 });
    // Whatever the node says to the broker from here on is lost, its acknowledgement too.
    proxy.mute();
    await publish("untyped", '{"sku":"killed"}');
    await expect.poll(async () => (await callsOf(id)).length, within).toBe(2);
    await first.stop("SIGKILL");
    proxy.unmute();
    await node("lab-2");
    await expect.poll(async () => (await seen(id)).totals.duplicates, within).toBe(1);
    expect(await callsOf(id)).toHaveLength(2);
    await expect.poll(skus, within).toEqual(["first", "killed"]);
  }, 60_000);

  test("gives up a message of which no call can be made: dead letter, list, record, and the next one goes on", async () => {
    const group = `orders-${randomUUID()}`;
    const { id } = await subscribe("anything", { max_attempts: 2, group });
    await node();
    await consuming(id);
    const broken = await publish("anything", "no json");
    await expect
      .poll(async () => (await tenant.client.get(`/v1/subscriptions/${id}/failed-messages`)).data, within)
      .toMatchObject([{ message_id: broken, state: "dead", attempts: 2, error: { code: "invalid_json" } }]);
    await publish("anything", '{"sku":"good"}');
    await expect.poll(skus, within).toEqual(["good"]);
    const codes = async (): Promise<Json[]> => (await callsOf(id)).map(({ state, error }) => [state, error?.code]);
    await expect.poll(codes, within).toEqual([
      ["rejected", "invalid_json"],
      ["completed", undefined],
    ]);
    const dead = await readRocketMq({ port: server.port, topic: `%DLQ%${group}`, login: rocketMqUser });
    expect((await dead.take([broken])).map(({ body }) => body)).toEqual(["no json"]);
    dead.close();
  }, 60_000);
});
