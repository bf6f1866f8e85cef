/**
 * `mq://` through the whole gateway, against brokers of the system (Debian's RabbitMQ and Redis), which are
 * skipped with the reason where they are not installed (MQ-1, MQ-2, MQ-4, SVCERR-1).
 */
import { connect } from "node:net";
import { deliveryOf } from "@toolyard/core/errors/delivery";
import { createMessageBrokers } from "@toolyard/platform/mq/message-brokers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { noKafka, startKafka, type KafkaMock } from "../support/brokers/kafka.ts";
import { startCuttingProxy, type CuttingProxy } from "../support/brokers/proxy.ts";
import { noRabbitMq, rabbitUser, startRabbitMq, type RabbitMq } from "../support/brokers/rabbitmq.ts";
import { noRedis, redisPassword, startRedis, type RedisServer } from "../support/brokers/redis.ts";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { isLong, whyLeftOut } from "../support/long.ts";
import { startRedisStub } from "../support/redis-stub.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let tenant: TestTenant;
beforeAll(async () => {
  gateway = await startGateway();
  tenant = await gateway.newTenant();
  await tenant.client.expect("put", "/v1/credentials/RABBIT", { value: rabbitUser.password });
});
afterAll(() => gateway.close());

const create = (serviceId: string, config: Json): Promise<Json> =>
  tenant.client.post("/v1/tool-services", { scheme: "mq", service_id: serviceId, config });
const invoke = (uri: string, args: Json): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args });

async function published(uri: string, args: Json): Promise<Json> {
  const { status, json, text } = await invoke(uri, args);
  expect(status, text).toBe(200);
  return JSON.parse(json.content);
}

async function refused(uri: string, args: Json): Promise<Json> {
  const { status, json } = await invoke(uri, args);
  return { status, ...json.error };
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((done) => setTimeout(done, 20));
}

describe(`a configuration ${verifies("CFG-1", "SVCERR-1")}`, () => {
  const base = { broker: "redis", servers: ["127.0.0.1:6379"], security: "none", allow_unencrypted: true };
  test.each<[string, Json, string, RegExp]>([
    ["no server", { ...base, servers: [] }, "config.servers", />=1|at least|small/i],
    ["a URL for a server", { ...base, servers: ["redis://h"] }, "config.servers.0", /without a scheme/],
    ["clear text that nobody asked for", { ...base, allow_unencrypted: false }, "config.security", /allow_unencrypted/],
    ["a name without a password", { ...base, username: "u" }, "config.password", /missing/],
    ["headers on Redis", { ...base, topics: { t: { headers: { a: "b" } } } }, "config.topics.t.headers", /no headers/],
    [
      "an exchange on Redis",
      { ...base, topics: { t: { exchange: "e" } } },
      "config.topics.t.exchange",
      /RabbitMQ only/,
    ],
    ["a virtual host on Redis", { ...base, virtual_host: "/x" }, "config.virtual_host", /RabbitMQ only/],
    [
      "a topic that Kafka does not name so",
      { ...base, broker: "kafka", topics: { t: { name: "a b" } } },
      "config.topics.t.name",
      /Kafka takes/,
    ],
    [
      "a secret among the headers",
      { ...base, broker: "kafka", topics: { t: { headers: { Authorization: "x" } } } },
      "config.topics.t.headers.Authorization",
      /is a secret/,
    ],
    ["a field that there is not", { ...base, colour: "red" }, "config.colour", /not a known field/],
    [
      "a schema of messages that leads nowhere",
      { ...base, topics: { t: { message: { properties: { a: { $ref: "#/$defs/s" } } } } } },
      "config.topics.t.message",
      /'#\/\$defs\/s', which does not exist/,
    ],
  ])("with %s is refused, naming the field", async (_what, config, param, message) => {
    const { status, json } = await tenant.client.send("post", "/v1/tool-services", {
      scheme: "mq",
      service_id: "bad",
      config,
    });
    expect(status).toBe(400);
    expect(json.error).toMatchObject({ code: "invalid_definition", param });
    expect(json.error.message).toMatch(message);
  });

  test("may describe messages by definitions, which calls are checked against and models are told whole", async () => {
    const message = {
      type: "object",
      properties: { a: { $ref: "#/$defs/s" }, in: { $ref: "#" } },
      $defs: { s: { type: "string" } },
    };
    await create("described", { ...base, servers: ["127.0.0.1:1"], topics: { t: { message } } });
    const error = await refused("mq://described/t", { message: { a: "x", in: { a: 1 } } });
    expect(error).toMatchObject({ status: 400, code: "invalid_arguments" });
    expect(error.message).toContain("/message/in/a: must be string");
    const listed = await tenant.client.get("/v1/tools?format=openai");
    const told = listed.data.find((each: Json) => each.function.name.includes("described"));
    expect(told.function.parameters).toMatchObject({
      properties: {
        message: { properties: { a: { $ref: "#/$defs/s" }, in: { $ref: "#/properties/message" } } },
      },
      $defs: message.$defs,
    });
  });

  test("keeps a server that tools must not reach out", async () => {
    const { json } = await tenant.client.send("post", "/v1/tool-services", {
      scheme: "mq",
      service_id: "bad",
      config: { ...base, servers: ["169.254.169.254:80"] },
    });
    expect(json.error).toMatchObject({ code: "egress_denied", param: "config.servers.0" });
  });
});

describe(`a delayed message of a broker that holds none back ${verifies("MQ-2", "SVCERR-1")}`, () => {
  test("is a call that is due later: never early, to be read and cancelled, with the id that was told", async () => {
    const stub = await startRedisStub();
    await create("bus", {
      broker: "redis",
      servers: [`127.0.0.1:${stub.port}`],
      security: "none",
      allow_unencrypted: true,
      topics: { cache_expire: {} },
      max_delay_ms: 3_600_000,
    });
    const askedAt = Date.now();
    const reply = await published("mq://bus/cache_expire", { message: { key: "k" }, delay: 1_500 });
    expect(reply).toMatchObject({ status: "delayed", message_id: reply.call_id, channel: "cache_expire" });
    expect(Date.parse(reply.due_at)).toBeGreaterThanOrEqual(askedAt + 1_500);
    const forgotten = await published("mq://bus/cache_expire?delay=60000", { message: { key: "gone" } });
    await tenant.client.send("post", `/v1/calls/${forgotten.call_id}/cancel`);
    expect(stub.published).toEqual([]);
    await until(() => stub.published.length > 0);
    expect(Date.now()).toBeGreaterThanOrEqual(askedAt + 1_500);
    expect(stub.published).toEqual([{ channel: "cache_expire", message: '{"key":"k"}' }]);
    await until(async () => (await tenant.client.get(`/v1/calls/${reply.call_id}`)).state === "completed");
    expect(await tenant.client.get(`/v1/calls/${forgotten.call_id}`)).toMatchObject({ state: "cancelled" });
    expect(stub.published).toHaveLength(1);
    await stub.close();
  });

  test("is refused where its delay is negative, too long, or said twice differently", async () => {
    const message = { key: "k" };
    expect(await refused("mq://bus/cache_expire", { message, delay: -1 })).toMatchObject({ code: "invalid_arguments" });
    expect(await refused("mq://bus/cache_expire", { message, delay: 3_600_001 })).toMatchObject({
      code: "invalid_arguments",
    });
    expect(await refused("mq://bus/cache_expire?delay=-1", { message })).toMatchObject({
      code: "invalid_uri",
      param: "delay",
    });
    expect(await refused("mq://bus/cache_expire?delay=3600001", { message })).toMatchObject({
      code: "invalid_uri",
      param: "delay",
    });
    expect(await refused("mq://bus/cache_expire?delay=5", { message, delay: 6 })).toMatchObject({
      code: "invalid_arguments",
    });
  });
});

describe.skipIf(noRabbitMq !== undefined)(
  `RabbitMQ${noRabbitMq === undefined ? "" : ` (skipped: ${noRabbitMq})`} ${verifies("MQ-1", "MQ-2", "MQ-4", "SVCERR-1")}`,
  () => {
    let rabbit: RabbitMq;
    let proxy: CuttingProxy;
    let service: Json;
    beforeAll(async () => {
      rabbit = await startRabbitMq();
      proxy = await startCuttingProxy(rabbit.port);
      const channel = await rabbit.channel();
      await channel.queueDeclare("orders", { durable: true });
      await channel.queueDeclare("small", { durable: true }, { "x-max-length": 1, "x-overflow": "reject-publish" });
      await channel.exchangeDeclare("events", "topic", { durable: true });
      await channel.queueBind("orders", "events", "order.*");
      service = await create("rabbit", {
        broker: "rabbitmq",
        servers: [`127.0.0.1:${proxy.port}`],
        security: "none",
        allow_unencrypted: true,
        username: rabbitUser.name,
        password: { credential: "RABBIT" },
        max_message_bytes: 1_000_000,
        topics: {
          orders: { headers: { source: "toolyard" }, free_headers: true },
          note: { name: "orders", content_type: "text/plain" },
          small: {},
          nowhere: { name: "no-such-queue" },
          events: { exchange: "events" },
          lost: { exchange: "events", routing_key: "nobody.listens" },
          missing: { exchange: "no-such-exchange", routing_key: "x" },
        },
      });
    }, 60_000);
    afterAll(async () => {
      await proxy.close();
      await rabbit.close();
    });

    async function next(queue = "orders"): Promise<Json> {
      const channel = await rabbit.channel();
      for (;;) {
        const message = await channel.basicGet(queue, { noAck: true });
        if (message !== null) return { ...message.properties, body: message.bodyToString() };
        await new Promise((done) => setTimeout(done, 20));
      }
    }

    async function waiting(queue = "orders"): Promise<number> {
      const channel = await rabbit.channel();
      return (await channel.queueDeclare(queue, { passive: true })).messageCount;
    }

    test("has a message once it has confirmed it, with id, type, headers, and on disk", async () => {
      const reply = await published("mq://rabbit/orders", {
        message: { orderId: "O001", name: "茶" },
        headers: { trace: "t1" },
      });
      expect(reply).toMatchObject({ status: "published", broker: "rabbitmq", queue: "orders", stored: true });
      expect(await next()).toMatchObject({
        messageId: reply.message_id,
        contentType: "application/json",
        deliveryMode: 2,
        headers: { trace: "t1", source: "toolyard" },
        body: '{"orderId":"O001","name":"茶"}',
      });
      await published("mq://rabbit/note", { message: "plain text" });
      expect(await next()).toMatchObject({ contentType: "text/plain", body: "plain text" });
      const large = "x".repeat(900_000);
      await published("mq://rabbit/events", { message: large, key: "order.large" });
      expect((await next()).body).toBe(JSON.stringify(large));
    });

    test("says that nobody has a message that reaches no queue", async () => {
      expect(await refused("mq://rabbit/lost", { message: 1 })).toMatchObject({
        code: "tool_failed",
        message: expect.stringMatching(/exchange 'events' for routing key 'nobody\.listens'/),
      });
      expect(await refused("mq://rabbit/nowhere", { message: 1 })).toMatchObject({
        code: "tool_failed",
        message: expect.stringMatching(/no queue 'no-such-queue'/),
      });
      expect(await refused("mq://rabbit/missing", { message: 1 })).toMatchObject({
        code: "tool_failed",
        message: expect.stringMatching(/no exchange 'no-such-exchange'/),
      });
      expect(await refused("mq://rabbit/missing?delay=100", { message: 1 })).toMatchObject({ code: "tool_failed" });
      // The connection has outlived it all.
      await published("mq://rabbit/orders", { message: "after" });
      await next();
    });

    test("says that a full queue has not taken it, and that a message is too large", async () => {
      await published("mq://rabbit/small", { message: 1 });
      expect(await refused("mq://rabbit/small", { message: 2 })).toMatchObject({
        code: "tool_failed",
        message: expect.stringMatching(/did not take/),
      });
      expect(await refused("mq://rabbit/orders", { message: "x".repeat(1_000_000) })).toMatchObject({
        status: 413,
        code: "payload_too_large",
      });
    });

    test("holds messages back, each for its own time, and none for less", async () => {
      const askedAt = Date.now();
      const replies = await Promise.all([
        published("mq://rabbit/orders?delay=2500", { message: "late" }),
        published("mq://rabbit/events", { message: "soon", delay: 1_500, key: "order.soon" }),
      ]);
      expect(replies.map(({ status }) => status)).toEqual(["delayed", "delayed"]);
      expect(await waiting()).toBe(0);
      const first = await next();
      expect([first.body, Date.now() - askedAt >= 1_500]).toEqual(['"soon"', true]);
      const second = await next();
      expect([second.body, Date.now() - askedAt >= 2_500]).toEqual(['"late"', true]);
      expect(second.messageId).toBe(replies[0]?.message_id);
    });

    test("takes many at once over one connection", async () => {
      const before = proxy.taken;
      const replies = await Promise.all(
        Array.from({ length: 12 }, (_, index) => published("mq://rabbit/orders", { message: index })),
      );
      expect(new Set(replies.map(({ message_id: id }) => id)).size).toBe(12);
      expect(proxy.taken - before).toBeLessThanOrEqual(1);
      const got = [];
      for (let left = 12; left > 0; left -= 1) got.push((await next()).body);
      expect(got.map(Number).sort((a, b) => a - b)).toEqual(Array.from({ length: 12 }, (_, index) => index));
    });

    test("that is cut off before it has confirmed leaves the outcome open, and has the message once", async () => {
      proxy.cutAfter = "cut-here";
      const before = proxy.cuts;
      expect(await refused("mq://rabbit/orders?max-attempts=3", { message: "cut-here" })).toMatchObject({
        status: 502,
        code: "outcome_unknown",
      });
      expect(proxy.cuts - before).toBe(1);
      proxy.cutAfter = undefined;
      expect((await next()).body).toBe('"cut-here"');
      expect(await waiting()).toBe(0);
      await published("mq://rabbit/orders", { message: "again" });
      expect((await next()).body).toBe('"again"');
    });

    test.runIf(isLong)(
      `keeps what it has confirmed over its restart, delayed messages, too; the next message finds it again${whyLeftOut}`,
      async () => {
        const confirmed = await published("mq://rabbit/orders", { message: "kept" });
        const delayed = await published("mq://rabbit/orders?delay=1000", { message: "kept and late" });
        await rabbit.restart();
        const after = await published("mq://rabbit/orders?max-attempts=3", { message: "after" });
        const got = [await next(), await next(), await next()];
        const ids = new Set([confirmed, delayed, after].map(({ message_id: id }) => id));
        expect(new Set(got.map(({ messageId }) => messageId))).toEqual(ids);
        expect(await waiting()).toBe(0);
      },
      60_000,
    );

    test("says of wrong credentials which to look at, by call and by test of the connection", async () => {
      expect(await tenant.client.post(`/v1/tool-services/${service.id}/test`)).toMatchObject({ ok: true });
      const { id } = await create("stranger", {
        broker: "rabbitmq",
        servers: [`127.0.0.1:${rabbit.port}`],
        security: "none",
        allow_unencrypted: true,
        username: rabbitUser.name,
        password: "wrong",
        open_topics: true,
      });
      const report = await tenant.client.post(`/v1/tool-services/${id}/test`);
      expect(report).toMatchObject({ ok: false, error: { code: "credential_invalid" } });
      expect(await refused("mq://stranger/orders", { message: 1 })).toMatchObject({ code: "credential_invalid" });
    });

    test("is let go of when its service goes", async () => {
      await published("mq://rabbit/orders", { message: "last" });
      expect(proxy.open).toBe(1);
      await tenant.client.send("delete", `/v1/tool-services/${service.id}?force=true`);
      await until(() => proxy.open === 0);
    });
  },
);

describe.skipIf(noRedis !== undefined)(
  `Redis Pub/Sub${noRedis === undefined ? "" : ` (skipped: ${noRedis})`} ${verifies("MQ-1", "MQ-4")}`,
  () => {
    let redis: RedisServer;
    let proxy: CuttingProxy;
    beforeAll(async () => {
      redis = await startRedis();
      proxy = await startCuttingProxy(redis.port);
      await create("redis", {
        broker: "redis",
        servers: [`127.0.0.1:${proxy.port}`],
        security: "none",
        allow_unencrypted: true,
        password: redisPassword,
        open_topics: true,
      });
    });
    afterAll(async () => {
      await proxy.close();
      await redis.close();
    });

    test("says how many have the message, and that with nobody listening it is gone", async () => {
      expect(await published("mq://redis/news", { message: "alone" })).toMatchObject({
        receivers: 0,
        stored: false,
        note: expect.stringContaining("gone"),
      });
      const listener = redis.client();
      const heard: string[] = [];
      listener.on("message", (_channel: string, message: string) => heard.push(message));
      await listener.subscribe("news");
      expect(await published("mq://redis/news", { message: { a: "茶" } })).toMatchObject({ receivers: 1 });
      await until(() => heard.length > 0);
      expect(heard).toEqual(['{"a":"茶"}']);
    });

    test("that is cut off leaves the outcome open; the message is published once", async () => {
      const listener = redis.client();
      const heard: string[] = [];
      listener.on("message", (_channel: string, message: string) => heard.push(message));
      await listener.subscribe("cuts");
      proxy.cutAfter = "cut-here";
      expect(await refused("mq://redis/cuts?max-attempts=3", { message: "cut-here" })).toMatchObject({
        code: "outcome_unknown",
      });
      proxy.cutAfter = undefined;
      expect(await published("mq://redis/cuts", { message: "next" })).toMatchObject({ receivers: 1 });
      await until(() => heard.includes('"next"'));
      expect(heard).toEqual(['"cut-here"', '"next"']);
    });

    test("that refuses the password says which credential to look at", async () => {
      const { id } = await create("redis-stranger", {
        broker: "redis",
        servers: [`127.0.0.1:${redis.port}`],
        security: "none",
        allow_unencrypted: true,
        password: "wrong",
      });
      expect(await tenant.client.post(`/v1/tool-services/${id}/test`)).toMatchObject({
        ok: false,
        error: { code: "credential_invalid" },
      });
    });
  },
);

describe.skipIf(noKafka !== undefined)(
  `Kafka${noKafka === undefined ? "" : ` (skipped: ${noKafka})`} ${verifies("MQ-1", "MQ-2", "MQ-4")}`,
  () => {
    let kafka: KafkaMock;
    const topics = ["orders", "late", "open", "sure", "puts-off", "cut"];
    beforeAll(async () => {
      kafka = await startKafka(topics);
      await create("kafka", {
        broker: "kafka",
        servers: ["127.0.0.1:9", `127.0.0.1:${kafka.port}`],
        security: "none",
        allow_unencrypted: true,
        topics: { orders: { headers: { source: "toolyard" } } },
        open_topics: true,
      });
    }, 30_000);
    afterAll(() => kafka.close());

    test("has a message once it has acknowledged it, with key, headers and place; a server that is not there is passed over", async () => {
      const reply = await published("mq://kafka/orders", { message: { orderId: "O001" }, key: "customer-7" });
      expect(reply).toMatchObject({ status: "published", topic: "orders", partition: 0, offset: "0", stored: true });
      const second = await published("mq://kafka/orders", { message: "two" });
      expect(second.offset).toBe("1");
      expect(await kafka.read("orders")).toEqual([
        {
          offset: 0,
          key: "customer-7",
          value: '{"orderId":"O001"}',
          headers: { source: "toolyard", "content-type": "application/json", "message-id": reply.message_id },
        },
        expect.objectContaining({ offset: 1, key: "", value: '"two"' }),
      ]);
    });

    test("holds a message back by a call of its own", async () => {
      const askedAt = Date.now();
      const { call_id: id, message_id: messageId } = await published("mq://kafka/late", {
        message: "late",
        delay: 600,
      });
      const early = await kafka.read("late");
      // On a busy machine the reader itself may come late.
      expect(early.length === 0 || Date.now() >= askedAt + 600).toBe(true);
      await until(async () => (await tenant.client.get(`/v1/calls/${id}`)).state === "completed");
      expect(Date.now()).toBeGreaterThanOrEqual(askedAt + 600);
      expect(await kafka.read("late")).toMatchObject([{ value: '"late"', headers: { "message-id": messageId } }]);
    });

    test("that refuses a message says so, and does not have it", async () => {
      await kafka.failNext(10);
      expect(await refused("mq://kafka/sure?max-attempts=3", { message: "too large" })).toMatchObject({
        code: "tool_failed",
        message: expect.stringMatching(/topic 'sure'/),
      });
      expect(await kafka.read("sure")).toEqual([]);
      await published("mq://kafka/sure", { message: "after" });
    });

    test("that puts a message off is asked again, and has it once", async () => {
      await kafka.failNext(19);
      await published("mq://kafka/puts-off?max-attempts=3", { message: "once" });
      expect(await kafka.read("puts-off")).toMatchObject([{ value: '"once"' }]);
    });

    test("that is cut off before it has acknowledged leaves the outcome open, and has the message once", async () => {
      const proxy = await startCuttingProxy(kafka.port);
      // The cluster names its own address, which the door leads to the proxy.
      const brokers = createMessageBrokers({
        egress: {
          connect: ({ host }) =>
            new Promise((resolve, reject) => {
              const socket = connect(proxy.port, host, () => resolve(socket)).once("error", reject);
            }),
          connectHttp2: () => Promise.reject(new Error("Kafka speaks no HTTP.")),
        },
      });
      const session = await brokers.open({
        kind: "kafka",
        servers: [{ host: "127.0.0.1", port: kafka.port }],
        login: undefined,
        virtualHost: "/",
        mechanism: "plain",
      });
      const message = {
        id: "call_1",
        destination: "cut",
        body: Buffer.from("cut-here"),
        contentType: "text/plain",
        headers: {},
        isPersistent: true,
        at: new Date(),
      };
      proxy.cutAfter = "cut-here";
      const error: unknown = await session.publish(message, { signal: new AbortController().signal }).then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      expect(error).toMatchObject({ code: "tool_unreachable" });
      expect(deliveryOf(error)).toBe("uncertain");
      expect(session.isAlive()).toBe(false);
      expect(await kafka.read("cut")).toMatchObject([{ value: "cut-here" }]);
      await session.close();
      await until(() => proxy.open === 0);
      await proxy.close();
    });

    test("that does not say whether it has a message leaves the outcome open, and is not asked again", async () => {
      await kafka.failNext(20);
      expect(await refused("mq://kafka/open?max-attempts=3", { message: "perhaps" })).toMatchObject({
        code: "outcome_unknown",
      });
      await published("mq://kafka/open", { message: "next" });
      expect(await kafka.read("open")).toMatchObject([{ value: '"next"' }]);
    });
  },
);
