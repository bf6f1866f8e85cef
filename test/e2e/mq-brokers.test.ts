/**
 * `mq://` to brokers themselves where they are guarded and where they fail (MQ-1, MQ-2, MQ-4): TLS and logins of
 * RabbitMQ, Kafka and Redis, and each of them killed while messages are under way. Those that are not installed are
 * left out with the reason.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { kafkaUser, noKafkaServer, startKafkaServer, type KafkaServer } from "../support/brokers/kafka-server.ts";
import { noRabbitMq, rabbitUser, startRabbitMq, type RabbitMq } from "../support/brokers/rabbitmq.ts";
import { noRedis, redisPassword, redisUser, startRedis, type RedisServer } from "../support/brokers/redis.ts";
import { readRocketMq } from "../support/brokers/rocketmq-reader.ts";
import { startRocketMqStub } from "../support/brokers/rocketmq-stub.ts";
import { noRocketMq, rocketMqUser, startRocketMq, type RocketMqServer } from "../support/brokers/rocketmq.ts";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { isLong, whyLeftOut } from "../support/long.ts";
import { openTo } from "../support/sockets.ts";
import { localCertificate, localKey, testCertificate } from "../support/tls-pair.ts";
import { verifies } from "../support/verifies.ts";

const startMs = 400_000;
const clear = { security: "none", allow_unencrypted: true } as const;

let gateway: Gateway;
let tenant: TestTenant;
beforeAll(async () => {
  gateway = await startGateway();
  tenant = await gateway.newTenant();
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
  const { status, json, text } = await invoke(uri, args);
  expect(status, text).not.toBe(200);
  return { status, ...json.error };
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((done) => setTimeout(done, 20));
}

const why = (missing: string | undefined): string => (missing === undefined ? "" : ` (skipped: ${missing})`);

/** What the gateway said of each message. */
interface Told {
  readonly sent: readonly string[];
  readonly unknown: readonly string[];
  readonly refused: readonly string[];
}

interface Failing {
  readonly uri: string;
  kill(): Promise<void>;
  start(): Promise<void>;
}

/** Publishes without a pause from several sides while the broker is killed and started again. */
async function publishThroughKill({ uri, kill, start }: Failing): Promise<Told> {
  const told = { sent: [] as string[], unknown: [] as string[], refused: [] as string[] };
  let isOver = false;
  let next = 0;
  const publishOn = async (): Promise<void> => {
    while (!isOver) {
      const message = `m${(next += 1)}`;
      const { status, json } = await invoke(uri, { message });
      if (status === 200) told.sent.push(message);
      else if (json.error.code === "outcome_unknown") told.unknown.push(message);
      else told.refused.push(message);
    }
  };
  const publishers = [1, 2, 3, 4].map(publishOn);
  await until(() => told.sent.length >= 10);
  await kill();
  await until(() => told.refused.length > 0);
  const before = told.sent.length;
  await start();
  await until(() => told.sent.length >= before + 10);
  isOver = true;
  await Promise.all(publishers);
  return told;
}

/** Everything that was confirmed is there; nothing is there twice; what was refused is not. */
function expectKept(bodies: readonly string[], { sent, unknown, refused: notSent }: Told): void {
  const there = bodies.map((body) => String(JSON.parse(body))).filter((body) => /^m\d+$/.test(body));
  expect(there.length).toBe(new Set(there).size);
  const set = new Set(there);
  expect(sent.filter((message) => !set.has(message))).toEqual([]);
  expect(notSent.filter((message) => set.has(message))).toEqual([]);
  const allowed = new Set([...sent, ...unknown]);
  expect(there.filter((message) => !allowed.has(message))).toEqual([]);
}

async function expectNoSocketLeft(serviceId: string, ports: readonly number[]): Promise<void> {
  await tenant.client.send("delete", `/v1/tool-services/${serviceId}?force=true`);
  for (const port of ports) await until(async () => ((await openTo(port)) ?? 0) === 0);
}

describe.skipIf(noKafkaServer !== undefined)(
  `Kafka${why(noKafkaServer)} ${verifies("MQ-1", "MQ-2", "MQ-4", "SVCERR-1")}`,
  () => {
    let kafka: KafkaServer;
    beforeAll(async () => {
      kafka = await startKafkaServer();
      for (const topic of ["orders", "late", "faults"]) await kafka.createTopic(topic);
      await kafka.createTopic("small", { "max.message.bytes": "1000" });
    }, startMs);
    afterAll(() => kafka.close());

    const trust = { ca: localCertificate };
    const login = { username: kafkaUser.name, password: kafkaUser.password };
    test.each<[string, "plain" | "tls" | "login" | "tls_login" | "mutual", Json]>([
      ["in clear", "plain", clear],
      ["over TLS", "tls", { tls: trust }],
      [
        "over TLS with a certificate of our own",
        "mutual",
        { tls: { ...trust, cert: localCertificate, key: localKey } },
      ],
      ["with PLAIN", "login", { ...clear, ...login, mechanism: "plain" }],
      ["with PLAIN over TLS", "tls_login", { tls: trust, ...login }],
      ["with SCRAM-SHA-256", "login", { ...clear, ...login, mechanism: "scram-sha-256" }],
      ["with SCRAM-SHA-256 over TLS", "tls_login", { tls: trust, ...login, mechanism: "scram-sha-256" }],
      ["with SCRAM-SHA-512 over TLS", "tls_login", { tls: trust, ...login, mechanism: "scram-sha-512" }],
    ])("takes messages %s", async (what, listener, config) => {
      const id = what.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");
      await create(id, {
        broker: "kafka",
        servers: [`127.0.0.1:${kafka.ports[listener]}`],
        open_topics: true,
        ...config,
      });
      const reply = await published(`mq://${id}/orders`, { message: what, key: "customer-7" });
      expect(reply).toMatchObject({ status: "published", topic: "orders", partition: 0, stored: true });
      const records = await kafka.readUntil("orders", JSON.stringify(what));
      expect(records.at(-1)).toMatchObject({
        offset: reply.offset,
        key: "customer-7",
        headers: { "message-id": reply.message_id, "content-type": "application/json" },
      });
    });

    test.each<[string, "tls" | "login" | "tls_login" | "mutual", Json, Json]>([
      ["an authority that it is not of", "tls", { tls: { ca: testCertificate } }, { code: "tool_unreachable" }],
      [
        "a wrong password (PLAIN)",
        "login",
        { ...clear, ...login, password: "wrong" },
        { code: "credential_invalid", message: expect.stringMatching(/PUT \/v1\/credentials\//) },
      ],
      [
        "a wrong password (SCRAM-SHA-512)",
        "tls_login",
        { tls: trust, ...login, password: "wrong", mechanism: "scram-sha-512" },
        { code: "credential_invalid", message: expect.stringMatching(/PUT \/v1\/credentials\//) },
      ],
      ["no certificate of our own", "mutual", { tls: trust }, { code: "tool_unreachable" }],
    ])("refuses %s, and says what it is", async (what, listener, config, error) => {
      const id = `bad-${what.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-")}`;
      await create(id, {
        broker: "kafka",
        servers: [`127.0.0.1:${kafka.ports[listener]}`],
        open_topics: true,
        ...config,
      });
      expect(await refused(`mq://${id}/orders`, { message: 1 })).toMatchObject(error);
    });

    test("refuses what is too large for a topic, and a topic that is not there", async () => {
      await create("limits", {
        broker: "kafka",
        servers: [`127.0.0.1:${kafka.ports.plain}`],
        open_topics: true,
        ...clear,
      });
      expect(await refused("mq://limits/small", { message: "x".repeat(2_000) })).toMatchObject({
        code: "tool_failed",
        message: expect.stringMatching(/topic 'small'/),
      });
      expect(await refused("mq://limits/nowhere", { message: 1 })).toMatchObject({
        code: "tool_failed",
        message: expect.stringMatching(/there is no topic 'nowhere'/),
      });
    });

    test("gets a delayed message once it is due, although the gateway that took it is gone by then", async () => {
      const config = { broker: "kafka", servers: [`127.0.0.1:${kafka.ports.plain}`], open_topics: true, ...clear };
      await create("outlives", config);
      const first = await startGateway({ sharedWith: gateway, requestsOnly: true });
      const askedAt = Date.now();
      const { status, json } = await first.client(tenant.key).send("post", "/v1/tools/invoke", {
        uri: "mq://outlives/late?delay=2500",
        arguments: { message: "late" },
      });
      expect(status).toBe(200);
      await first.close();
      const [record] = (await kafka.readUntil("late", '"late"')).slice(-1);
      expect(record?.at).toBeGreaterThanOrEqual(askedAt + 2_500);
      expect(record?.headers["message-id"]).toBe(JSON.parse(json.content).message_id);
    });

    test.runIf(isLong)(
      `that is killed under way loses nothing that it has confirmed, and has nothing twice${whyLeftOut}`,
      async () => {
        await create("kafka-faults", {
          broker: "kafka",
          servers: [`127.0.0.1:${kafka.ports.plain}`],
          open_topics: true,
          ...clear,
        });
        const told = await publishThroughKill({
          uri: "mq://kafka-faults/faults",
          kill: kafka.kill,
          start: kafka.start,
        });
        await published("mq://kafka-faults/faults", { message: "end" });
        const records = await kafka.readUntil("faults", '"end"');
        expectKept(
          records.map(({ value }) => value),
          told,
        );
      },
      startMs,
    );
  },
);

describe.skipIf(noRabbitMq !== undefined)(`RabbitMQ${why(noRabbitMq)} ${verifies("MQ-1", "MQ-4")}`, () => {
  let rabbit: RabbitMq;
  const login = { username: rabbitUser.name, password: rabbitUser.password };
  beforeAll(async () => {
    rabbit = await startRabbitMq();
    const channel = await rabbit.channel();
    await channel.queueDeclare("secret", { durable: true });
    await channel.queueDeclare("faults", { durable: true });
  }, startMs);
  afterAll(() => rabbit.close());

  async function drain(queue: string, last: string): Promise<readonly string[]> {
    const channel = await rabbit.channel();
    const bodies: string[] = [];
    while (bodies.at(-1) !== last) {
      const message = await channel.basicGet(queue, { noAck: true });
      if (message === null) await new Promise((done) => setTimeout(done, 20));
      else bodies.push(message.bodyToString() ?? "");
    }
    return bodies;
  }

  test("takes messages over TLS, where its certificate is trusted", async () => {
    const config = { broker: "rabbitmq", servers: [`127.0.0.1:${rabbit.tlsPort}`], open_topics: true, ...login };
    await create("rabbit-tls", { ...config, tls: { ca: localCertificate } });
    await published("mq://rabbit-tls/secret", { message: "in secret" });
    expect(await drain("secret", '"in secret"')).toEqual(['"in secret"']);
    await create("rabbit-distrusted", { ...config, tls: { ca: testCertificate } });
    expect(await refused("mq://rabbit-distrusted/secret", { message: 1 })).toMatchObject({ code: "tool_unreachable" });
    await create("rabbit-named", { ...config, tls: { ca: localCertificate, server_name: "other.example.com" } });
    expect(await refused("mq://rabbit-named/secret", { message: 1 })).toMatchObject({
      code: "tool_unreachable",
      message: expect.stringMatching(/other\.example\.com/),
    });
  });

  test.runIf(isLong)(
    `that is killed under way loses nothing that it has confirmed, has nothing twice, and keeps no socket${whyLeftOut}`,
    async () => {
      const { id } = await create("rabbit-faults", {
        broker: "rabbitmq",
        servers: [`127.0.0.1:${rabbit.port}`],
        open_topics: true,
        ...clear,
        ...login,
      });
      const told = await publishThroughKill({
        uri: "mq://rabbit-faults/faults",
        kill: rabbit.kill,
        start: rabbit.start,
      });
      await published("mq://rabbit-faults/faults", { message: "end" });
      expectKept(await drain("faults", '"end"'), told);
      await rabbit.hangUp();
      await expectNoSocketLeft(id, [rabbit.port]);
    },
    startMs,
  );
});

describe.skipIf(noRedis !== undefined)(`Redis${why(noRedis)} ${verifies("MQ-1", "MQ-4")}`, () => {
  let redis: RedisServer;
  beforeAll(async () => {
    redis = await startRedis();
  });
  afterAll(() => redis.close());

  test("takes messages over TLS from an account that may publish only, and says what that may not", async () => {
    const config = {
      broker: "redis",
      servers: [`127.0.0.1:${redis.tlsPort}`],
      tls: { ca: localCertificate },
      username: redisUser.name,
      password: redisUser.password,
      open_topics: true,
    };
    await create("redis-tls", config);
    const listener = redis.client();
    const heard: string[] = [];
    listener.on("message", (_channel: string, message: string) => heard.push(message));
    await listener.subscribe("shop.orders");
    expect(await published("mq://redis-tls/shop.orders", { message: "in secret" })).toMatchObject({ receivers: 1 });
    await until(() => heard.length > 0);
    expect(heard).toEqual(['"in secret"']);
    expect(await refused("mq://redis-tls/other", { message: 1 })).toMatchObject({
      code: "tool_failed",
      message: expect.stringMatching(/NOPERM/),
    });
    await create("redis-wrong", { ...config, password: "wrong" });
    expect(await refused("mq://redis-wrong/shop.orders", { message: 1 })).toMatchObject({
      code: "credential_invalid",
      message: expect.stringMatching(/PUT \/v1\/credentials\//),
    });
    await create("redis-distrusted", { ...config, tls: { ca: testCertificate } });
    expect(await refused("mq://redis-distrusted/shop.orders", { message: 1 })).toMatchObject({
      code: "tool_unreachable",
    });
  });

  test(
    "that is killed under way is found again, hears nothing twice, and keeps no socket",
    async () => {
      const { id } = await create("redis-faults", {
        broker: "redis",
        servers: [`127.0.0.1:${redis.port}`],
        open_topics: true,
        ...clear,
        password: redisPassword,
      });
      const listener = redis.client();
      const heard: string[] = [];
      listener.on("message", (_channel: string, message: string) => heard.push(message));
      await listener.subscribe("faults");
      const told = await publishThroughKill({ uri: "mq://redis-faults/faults", kill: redis.kill, start: redis.start });
      expect(heard.length).toBe(new Set(heard).size);
      const allowed = new Set([...told.sent, ...told.unknown].map((message) => JSON.stringify(message)));
      expect(heard.filter((message) => !allowed.has(message))).toEqual([]);
      // Hung up on while it subscribes anew by itself, the listener would have a refusal that nobody can hear.
      await listener.subscribe("faults");
      redis.hangUp();
      await expectNoSocketLeft(id, [redis.port]);
    },
    startMs,
  );
});

for (const { what, missing, start } of [
  { what: "RocketMQ", missing: noRocketMq, start: startRocketMq },
  { what: "a recorded RocketMQ", missing: undefined, start: startRocketMqStub },
]) {
  describe.skipIf(missing !== undefined)(
    `${what}${missing === undefined ? "" : ` (none: ${missing})`} ${verifies("MQ-1", "MQ-4")}`,
    () => {
      let server: RocketMqServer;
      beforeAll(async () => {
        server = await start();
      }, startMs);
      afterAll(() => server.close());

      test(
        "that is killed under way loses nothing that it has confirmed, has nothing twice, and keeps no socket",
        async () => {
          const serviceId = `${what.toLowerCase().replaceAll(" ", "-")}-faults`;
          const { id } = await create(serviceId, {
            broker: "rocketmq",
            servers: [`127.0.0.1:${server.port}`],
            open_topics: true,
            ...clear,
            username: rocketMqUser.accessKey,
            password: rocketMqUser.secretKey,
          });
          const told = await publishThroughKill({
            uri: `mq://${serviceId}/orders`,
            kill: () => server.kill(),
            start: () => server.start(),
          });
          const end = await published(`mq://${serviceId}/orders`, { message: "end" });
          const reader = await readRocketMq({ port: server.port, topic: "orders", login: rocketMqUser });
          await reader.take([end.message_id]);
          expectKept(
            reader.taken.map(({ body }) => body),
            told,
          );
          reader.close();
          await expectNoSocketLeft(id, [server.port]);
        },
        startMs,
      );
    },
  );
}
