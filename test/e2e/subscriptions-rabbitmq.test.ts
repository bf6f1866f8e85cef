/**
 * Subscriptions to RabbitMQ through the whole gateway, with nodes as processes and Debian's broker, which is skipped
 * with the reason where it is not installed (MQ-3, MQ-4, CFG-1 to CFG-4).
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startMutingProxy, type MutingProxy } from "../support/brokers/proxy.ts";
import { noRabbitMq, rabbitUser, startRabbitMq, type RabbitMq } from "../support/brokers/rabbitmq.ts";
import { publishFlow } from "../support/flows.ts";
import type { Json, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { writingTool } from "../support/http-tools.ts";
import { endNodes, startNode, type NodeProcess } from "../support/node-process.ts";
import { verifies } from "../support/verifies.ts";

const within = { timeout: 30_000, interval: 100 };

describe.skipIf(noRabbitMq !== undefined)(
  `a subscription to RabbitMQ${noRabbitMq === undefined ? "" : ` (skipped: ${noRabbitMq})`} ${verifies("MQ-3", "MQ-4")}`,
  () => {
    let gateway: Gateway;
    let rabbit: RabbitMq;
    let proxy: MutingProxy;
    let backEnd: HttpStub;
    let tenant: TestTenant;
    let nodeKey: string;
    let service: Json;

    beforeAll(async () => {
      rabbit = await startRabbitMq();
      proxy = await startMutingProxy(rabbit.port);
      backEnd = await startHttpStub();
      gateway = await startGateway({ timing: { leaseMs: 6_000, heartbeatMs: 1_000 }, tickEveryMs: 200 });
    }, 180_000);
    afterAll(async () => {
      await gateway.close();
      await backEnd.close();
      await proxy.close();
      await rabbit.close();
    });

    beforeEach(async () => {
      backEnd.requests.length = 0;
      backEnd.answer = () => ({ body: "{}" });
      tenant = await gateway.newTenant();
      nodeKey = (await tenant.newKey({ scopes: ["node", "consume"] })).key;
      await tenant.putCredential("RABBIT", rabbitUser.password);
      await tenant.addPlugin(writingTool(backEnd));
      const channel = await rabbit.channel();
      await channel.exchangeDeclare("dead", "fanout", { durable: true });
      await channel.queueDeclare("dead-orders", { durable: true });
      await channel.queueBind("dead-orders", "dead", "");
      await channel.queueDeclare("orders", { durable: true }, { "x-dead-letter-exchange": "dead" });
      await channel.queuePurge("orders");
      await channel.queuePurge("dead-orders");
      service = await tenant.client.post("/v1/tool-services", {
        scheme: "mq",
        service_id: "shop",
        config: {
          broker: "rabbitmq",
          servers: [`127.0.0.1:${proxy.port}`],
          security: "none",
          allow_unencrypted: true,
          username: rabbitUser.name,
          password: { credential: "RABBIT" },
          topics: { orders: {}, events: { exchange: "events" } },
        },
      });
    });
    afterEach(async () => {
      proxy.unmute();
      await endNodes();
    });

    const subscribe = (change: Json = {}): Promise<Json> =>
      tenant.client.post("/v1/subscriptions", {
        name: "orders",
        uri: "mq://shop/orders",
        target: { uri: "plugin://create_order", arguments: { sku: { $message: "/body/sku" } } },
        ...change,
      });
    const node = (name = "lab-1"): Promise<NodeProcess> =>
      startNode({ url: gateway.url, key: nodeKey, name, subscriptions: true });
    const seen = (id: string): Promise<Json> => tenant.client.get(`/v1/subscriptions/${id}`);
    const consuming = (id: string): Promise<void> =>
      expect.poll(async () => (await seen(id)).state, within).toBe("consuming");
    const callsOf = async (id: string): Promise<Json[]> =>
      (await tenant.client.get(`/v1/calls?caller_id=${id}&limit=100&order=asc`)).data;
    const skus = (): string[] => backEnd.requests.map(({ body }) => JSON.parse(body.toString()).sku);

    async function publish(body: Json, properties: Json = {}): Promise<void> {
      const channel = await rabbit.channel();
      await channel.confirmSelect();
      const text = typeof body === "string" ? body : JSON.stringify(body);
      await channel.basicPublish("", "orders", text, { deliveryMode: 2, ...properties });
    }

    async function left(queue = "orders"): Promise<number> {
      const channel = await rabbit.channel();
      return (await channel.queueDeclare(queue, { passive: true })).messageCount;
    }

    test("makes each message a call, under its own name, with what the mapping takes of it", async () => {
      const { id } = await subscribe();
      expect(await seen(id)).toMatchObject({ state: "unheld", delivery: "at_least_once", note: null });
      await publish({ sku: "before" }, { messageId: "m-0" });
      await node();
      await consuming(id);
      await publish({ sku: "A-1" }, { messageId: "m-1" });
      await expect.poll(skus, within).toEqual(["before", "A-1"]);
      await expect
        .poll(async () => (await callsOf(id)).map(({ state }) => state), within)
        .toEqual(["completed", "completed"]);
      const [call] = await callsOf(id);
      expect(call).toMatchObject({
        uri: "plugin://create_order",
        route: "mq.subscription",
        async: true,
        caller: { id, chain: [{ kind: "subscription", id }] },
      });
      await expect.poll(async () => (await seen(id)).totals, within).toMatchObject({ accepted: 2, duplicates: 0 });
      const { holders, last_message_at: last } = await seen(id);
      expect(holders).toMatchObject([{ node: "lab-1", connected: true, state: "consuming", waiting: 0 }]);
      expect(Date.now() - Date.parse(last)).toBeLessThan(60_000);
      expect(await left()).toBe(0);
    }, 60_000);

    test("starts one run of a flow for a message that comes twice, with the message as its input", async () => {
      await publishFlow(tenant, {
        name: "intake",
        start: "end",
        nodes: { end: { kind: "end", output: { $: "input" } } },
      });
      const { id } = await subscribe({ target: { uri: "flow://intake" } });
      await node();
      await consuming(id);
      for (const properties of [{ messageId: "same" }, { messageId: "same" }])
        await publish({ sku: "F-1" }, properties);
      await expect.poll(async () => (await seen(id)).totals, within).toMatchObject({ accepted: 1, duplicates: 1 });
      await expect.poll(async () => (await callsOf(id)).map(({ state }) => state), within).toEqual(["completed"]);
      const { data } = await tenant.client.get("/v1/runs?flow=intake");
      expect(data).toHaveLength(1);
      expect(await tenant.client.get(`/v1/runs/${data[0].id}`)).toMatchObject({ output: { sku: "F-1" } });
    }, 60_000);

    test("is one call for a message that comes twice, and for one whose node died before it was acknowledged", async () => {
      const { id } = await subscribe();
      const first = await node();
      await consuming(id);
      await publish({ sku: "twice" }, { messageId: "same" });
      await publish({ sku: "twice" }, { messageId: "same" });
      await expect.poll(async () => (await seen(id)).totals, within).toMatchObject({ accepted: 1, duplicates: 1 });
      // Whatever the node says to the broker from here on is lost, its acknowledgement too.
      proxy.mute();
      await publish({ sku: "killed" }, { messageId: "killed" });
      await expect.poll(async () => (await callsOf(id)).length, within).toBe(2);
      await first.stop("SIGKILL");
      proxy.unmute();
      await expect.poll(() => left(), within).toBe(1);
      await node("lab-2");
      await expect.poll(async () => (await seen(id)).totals, within).toMatchObject({ accepted: 1, duplicates: 2 });
      expect(await left()).toBe(0);
      expect(await callsOf(id)).toHaveLength(2);
      await expect.poll(skus, within).toEqual(["twice", "killed"]);
    }, 60_000);

    test("gives up a message of which no call can be made: dead letter, list, record, and the next one goes on", async () => {
      const { id } = await subscribe({ options: { max_attempts: 2, prefetch: 1 } });
      await node();
      await consuming(id);
      await publish("no json", { messageId: "broken" });
      await publish({ other: 1 }, { messageId: "without-sku" });
      await publish({ sku: "good" }, { messageId: "good" });
      await expect.poll(skus, within).toEqual(["good"]);
      const { data } = await tenant.client.get(`/v1/subscriptions/${id}/failed-messages?order=asc`);
      expect(data).toMatchObject([
        { message_id: "broken", state: "dead", attempts: 2, error: { code: "invalid_json" } },
        { message_id: "without-sku", state: "dead", attempts: 2, error: { code: "invalid_arguments" } },
      ]);
      await expect.poll(() => left("dead-orders"), within).toBe(2);
      const rejected = (await callsOf(id)).filter(({ state }) => state === "rejected");
      expect(rejected.map(({ error }) => error.code)).toEqual(["invalid_json", "invalid_arguments"]);
      await expect
        .poll(async () => (await seen(id)).totals, within)
        .toMatchObject({ accepted: 1, dead: 2, refused: 4 });
    }, 60_000);

    test("takes a message whose time is none, and gives up one that cannot be read: neither is in the way", async () => {
      const { id } = await subscribe({ options: { max_attempts: 2, prefetch: 1 } });
      await node();
      await consuming(id);
      // As producers do who put nanoseconds where seconds belong.
      await publish({ sku: "timeless" }, { messageId: "timeless", timestamp: 1.7e21 });
      await publish("x".repeat(16_777_217), { messageId: "endless" });
      await publish({ sku: "good" }, { messageId: "good" });
      await expect.poll(skus, within).toEqual(["timeless", "good"]);
      expect((await tenant.client.get(`/v1/subscriptions/${id}/failed-messages`)).data).toMatchObject([
        { message_id: "endless", state: "dead", attempts: 2, error: { code: "invalid_arguments" } },
      ]);
      await expect.poll(() => left("dead-orders"), within).toBe(1);
    }, 60_000);

    test("stops while it, its service, or its target is disabled, says so, and goes on where it was", async () => {
      const { id } = await subscribe();
      await node();
      await consuming(id);
      const stopped = async (): Promise<Json> => {
        const connected = async (): Promise<Json[]> => (await seen(id)).holders.filter((each: Json) => each.connected);
        await expect.poll(connected, within).toEqual([]);
        return seen(id);
      };
      await tenant.client.post(`/v1/subscriptions/${id}/disable`);
      expect(await stopped()).toMatchObject({ state: "disabled", reason: null });
      await publish({ sku: "1" }, { messageId: "1" });
      await tenant.client.post(`/v1/subscriptions/${id}/enable`);
      await expect.poll(skus, within).toEqual(["1"]);
      await tenant.client.post(`/v1/tool-services/${service.id}/disable`);
      const blocked = await stopped();
      expect(blocked).toMatchObject({ state: "blocked", reason: { code: "service_disabled" } });
      expect(blocked.reason.message).toMatch(/mq:\/\/shop.*'orders'/);
      await publish({ sku: "2" }, { messageId: "2" });
      await tenant.client.post(`/v1/tool-services/${service.id}/enable`);
      await expect.poll(skus, within).toEqual(["1", "2"]);
      const [plugin] = (await tenant.client.get("/v1/plugins")).data.filter(
        ({ name }: Json) => name === "create_order",
      );
      await tenant.client.send("patch", `/v1/plugins/${plugin.id}`, { enabled: false });
      await publish({ sku: "3" }, { messageId: "3" });
      await expect.poll(async () => (await seen(id)).state, within).toBe("blocked");
      expect((await seen(id)).reason.message).toMatch(/'orders'.*'target.uri'/);
      await tenant.client.send("patch", `/v1/plugins/${plugin.id}`, { enabled: true });
      await expect.poll(skus, within).toEqual(["1", "2", "3"]);
      expect(await left()).toBe(0);
    }, 90_000);

    test("is shared by two nodes, and goes on with another configuration without losing a message", async () => {
      const { id, version } = await subscribe({ options: { prefetch: 2 } });
      await Promise.all([node("lab-1"), node("lab-2")]);
      await expect
        .poll(async () => (await seen(id)).holders.filter(({ state }: Json) => state === "consuming").length, within)
        .toBe(2);
      const all = Array.from({ length: 40 }, (_each, at) => `S-${at}`);
      for (const sku of all.slice(0, 20)) await publish({ sku }, { messageId: sku });
      const target = { uri: "plugin://create_order", arguments: { sku: { $message: "/body/sku" }, qty: 2 } };
      const changed = await tenant.client.send("patch", `/v1/subscriptions/${id}`, { target, version });
      expect(changed.json).toMatchObject({ version: version + 1, target });
      expect((await tenant.client.send("patch", `/v1/subscriptions/${id}`, { enabled: false, version })).status).toBe(
        412,
      );
      for (const sku of all.slice(20)) await publish({ sku }, { messageId: sku });
      await expect.poll(() => skus().length, within).toBe(40);
      expect(skus().toSorted()).toEqual(all.toSorted());
      expect(JSON.parse(backEnd.requests.at(-1)?.body.toString() ?? "")).toMatchObject({ qty: 2 });
      expect(await callsOf(id)).toHaveLength(40);
    }, 90_000);

    test("takes no more than calls may be open, and large messages through a link", async () => {
      const held = Promise.withResolvers<void>();
      backEnd.answer = async () => {
        await held.promise;
        return { body: "{}" };
      };
      const { id } = await subscribe({ options: { prefetch: 1, max_open_calls: 2 } });
      await node();
      await consuming(id);
      const large = "ä".repeat(60_000);
      for (const sku of ["1", "2", large, "4"]) await publish({ sku }, { messageId: `m-${sku.length}-${sku[0]}` });
      await expect.poll(async () => (await callsOf(id)).length, within).toBe(2);
      await expect.poll(() => left(), within).toBe(1);
      expect(await seen(id)).toMatchObject({ state: "consuming", reason: null });
      held.resolve();
      await expect.poll(() => skus().length, within).toBe(4);
      expect(skus()).toContain(large);
    }, 60_000);

    test("makes its queue at an exchange where it is told to, and says what is missing where it is not", async () => {
      const missing = await tenant.client.send("post", "/v1/subscriptions", {
        name: "events",
        uri: "mq://shop/events",
        target: { uri: "plugin://create_order" },
      });
      expect(missing.json.error).toMatchObject({ code: "invalid_definition", param: "options.queue" });
      const channel = await rabbit.channel();
      await channel.exchangeDeclare("events", "topic", { durable: true });
      const { id } = await subscribe({
        name: "events",
        uri: "mq://shop/events",
        target: { uri: "plugin://create_order" },
        options: { declare_queue: true, binding_keys: ["order.#"], queue: `events-${tenant.id}` },
      });
      const lost = await subscribe({ name: "lost", options: { queue: "no-such-queue" } });
      await node();
      await consuming(id);
      await channel.basicPublish("events", "order.created", JSON.stringify({ sku: "by-event" }), { messageId: "e" });
      await expect.poll(skus, within).toEqual(["by-event"]);
      await expect.poll(async () => (await seen(lost.id)).state, within).toBe("failing");
      expect((await seen(lost.id)).reason).toMatchObject({ code: "tool_failed" });
      expect((await seen(lost.id)).reason.message).toMatch(/no-such-queue/);
    }, 60_000);
  },
);
