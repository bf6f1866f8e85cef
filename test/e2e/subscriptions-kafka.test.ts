/**
 * Subscriptions to Kafka through the whole gateway, over librdkafka's mock cluster, which is skipped with the reason
 * where it cannot be built (MQ-3, MQ-4).
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { noKafka, startKafka, type KafkaMock } from "../support/brokers/kafka.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { writingTool } from "../support/http-tools.ts";
import { isLong, whyLeftOut } from "../support/long.ts";
import { endNodes, startNode, type NodeProcess } from "../support/node-process.ts";
import { verifies } from "../support/verifies.ts";

const within = { timeout: 60_000, interval: 100 };

describe.skipIf(noKafka !== undefined)(
  `a subscription to Kafka${noKafka === undefined ? "" : ` (skipped: ${noKafka})`} ${verifies("MQ-3", "MQ-4")}`,
  () => {
    let gateway: Gateway;
    let kafka: KafkaMock;
    let backEnd: HttpStub;
    let tenant: TestTenant;
    let nodeKey: string;

    beforeAll(async () => {
      kafka = await startKafka(["orders", "orders-dead", "shared", "handed", "packed", "noted", "noted-dead"]);
      backEnd = await startHttpStub();
      gateway = await startGateway({ timing: { leaseMs: 6_000, heartbeatMs: 1_000 }, tickEveryMs: 200 });
    }, 120_000);
    afterAll(async () => {
      await gateway.close();
      await backEnd.close();
      await kafka.close();
    });
    beforeEach(async () => {
      backEnd.requests.length = 0;
      backEnd.answer = () => ({ body: "{}" });
      ({ owner: tenant, nodeKey } = await addTenant());
    });

    async function addTenant(): Promise<{ readonly owner: TestTenant; readonly nodeKey: string }> {
      const owner = await gateway.newTenant();
      const { key } = await owner.newKey({ scopes: ["node", "consume"] });
      await owner.addPlugin(writingTool(backEnd));
      await owner.client.post("/v1/tool-services", {
        scheme: "mq",
        service_id: "log",
        config: {
          broker: "kafka",
          servers: [`127.0.0.1:${kafka.port}`],
          security: "none",
          allow_unencrypted: true,
          topics: {
            orders: {},
            texts: { name: "orders", content_type: "text/plain" },
            shared: {},
            handed: {},
            packed: {},
            noted: {},
          },
        },
      });
      return { owner, nodeKey: key };
    }
    afterEach(endNodes);

    const subscribe = (topic: string, options: Json = {}, owner = tenant): Promise<Json> =>
      owner.client.post("/v1/subscriptions", {
        name: topic,
        uri: `mq://log/${topic}`,
        target: { uri: "plugin://create_order", arguments: { sku: { $message: "/body/sku" } } },
        options,
      });
    const node = (name = "lab-1", key = nodeKey): Promise<NodeProcess> =>
      startNode({ url: gateway.url, key, name, subscriptions: true });
    const seen = (id: string): Promise<Json> => tenant.client.get(`/v1/subscriptions/${id}`);
    const consuming = (id: string): Promise<void> =>
      expect.poll(async () => (await seen(id)).state, within).toBe("consuming");
    const callsOf = async (id: string, owner = tenant): Promise<Json[]> =>
      (await owner.client.get(`/v1/calls?caller_id=${id}&limit=100&order=asc`)).data;
    const skus = (): string[] => backEnd.requests.map(({ body }) => JSON.parse(body.toString()).sku);
    async function publish(topic: string, key: string, message: Json, owner = tenant): Promise<void> {
      const call = { uri: `mq://log/${topic}`, arguments: { message, key } };
      expect((await owner.client.post("/v1/tools/invoke", call)).status).toBe("completed");
    }

    test("makes each message a call once, those of one key one after the other, and dead ones go to their topic", async () => {
      await publish("orders", "k", { sku: "before" });
      const { id } = await subscribe("orders", { max_attempts: 1, dead_letter_topic: "orders-dead" });
      const first = await node();
      await consuming(id);
      let running = 0;
      let most = 0;
      backEnd.answer = async () => {
        running += 1;
        most = Math.max(most, running);
        await new Promise((done) => setTimeout(done, 100));
        running -= 1;
        return { body: "{}" };
      };
      const inOrder = ["1", "2", "3", "4"];
      for (const sku of inOrder) await publish("orders", "same", { sku });
      await expect.poll(skus, within).toEqual(inOrder);
      expect(most).toBe(1);
      await publish("texts", "bad", "no json");
      await publish("orders", "good", { sku: "5" });
      await expect.poll(skus, within).toEqual([...inOrder, "5"]);
      await expect.poll(async () => (await kafka.read("orders-dead")).length, within).toBe(1);
      expect((await kafka.read("orders-dead"))[0]).toMatchObject({
        key: "bad",
        value: "no json",
        headers: { "content-type": "text/plain", "dead-letter-topic": "orders" },
      });
      await expect.poll(async () => (await seen(id)).holders[0]?.waiting, within).toBe(0);
      // What was settled is committed: another process begins after it.
      expect(await first.stop()).toBe(0);
      await publish("orders", "later", { sku: "6" });
      await node("lab-2");
      await expect.poll(skus, within).toEqual([...inOrder, "5", "6"]);
      const ended = async (): Promise<string[]> => (await callsOf(id)).map(({ state }) => String(state)).toSorted();
      await expect.poll(ended, within).toEqual([...Array<string>(6).fill("completed"), "rejected"]);
    }, 120_000);

    test.runIf(isLong)(
      `goes to another node when one dies, and what it had begun is one call${whyLeftOut}`,
      async () => {
        const { id } = await subscribe("handed", { start_from: "earliest" });
        const first = await node();
        await consuming(id);
        await publish("handed", "a", { sku: "1" });
        await expect.poll(async () => (await callsOf(id)).length, within).toBe(1);
        await first.stop("SIGKILL");
        await publish("handed", "a", { sku: "2" });
        await node("lab-2");
        await expect.poll(skus, within).toEqual(["1", "2"]);
        expect(await callsOf(id)).toHaveLength(2);
      },
      120_000,
    );

    test("takes batches in whatever form producers pack them", async () => {
      const codecs = ["gzip", "snappy", "lz4", "zstd"] as const;
      for (const codec of codecs) await kafka.publishPacked("packed", codec, 5, `{"sku":"${codec.repeat(20)}"}`);
      const { id } = await subscribe("packed", { start_from: "earliest" });
      await node();
      await expect.poll(async () => (await callsOf(id)).length, within).toBe(20);
      const sent = codecs.flatMap((codec) => Array<string>(5).fill(codec.repeat(20)));
      await expect.poll(() => skus().toSorted(), within).toEqual(sent.toSorted());
    }, 120_000);

    test("takes messages with headers that say nothing, and has a place for those that are given up", async () => {
      await kafka.publishPacked("noted", "gzip", 1, "no-json");
      await kafka.publishPacked("noted", "gzip", 1, '{"sku":"1"}');
      const { id } = await subscribe("noted", { start_from: "earliest", dead_letter_topic: "noted-dead" });
      await node();
      await expect.poll(skus, within).toEqual(["1"]);
      expect(await kafka.read("noted-dead")).toMatchObject([
        { value: "no-json", headers: { sampled: "", "dead-letter-offset": "0" } },
      ]);
      await expect.poll(async () => (await seen(id)).totals, within).toMatchObject({ accepted: 1, dead: 1 });
    }, 120_000);

    test("is another group for each tenant: both have every message, and neither sees the other's calls", async () => {
      const { id } = await subscribe("shared", { start_from: "earliest" });
      const stranger = await addTenant();
      const theirs = await subscribe("shared", { start_from: "earliest" }, stranger.owner);
      await publish("shared", "a", { sku: "1" });
      await Promise.all([node(), node("lab-2", stranger.nodeKey)]);
      await expect.poll(async () => (await callsOf(id)).length, within).toBe(1);
      await expect.poll(async () => (await callsOf(theirs.id, stranger.owner)).length, within).toBe(1);
      expect(await callsOf(theirs.id)).toEqual([]);
      expect((await stranger.owner.client.send("get", `/v1/subscriptions/${id}`)).status).toBe(404);
    }, 120_000);
  },
);
