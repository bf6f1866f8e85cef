/**
 * Brokers, one for each kind that `mq://` knows; see ../brokers. Of Kafka and RocketMQ the real ones where they are
 * there, else what stands in for them, which their names say.
 */
import { brokerKinds } from "@toolyard/core/mq/config";
import { noKafka, startKafka } from "../brokers/kafka.ts";
import { noRabbitMq, rabbitUser, startRabbitMq } from "../brokers/rabbitmq.ts";
import { noRedis, redisPassword, startRedis } from "../brokers/redis.ts";
import { readRocketMq, type RocketMqReader } from "../brokers/rocketmq-reader.ts";
import { startRocketMqStub } from "../brokers/rocketmq-stub.ts";
import { noRocketMq, rocketMqUser, startRocketMq } from "../brokers/rocketmq.ts";
import { localCertificate } from "../tls-pair.ts";
import { servicesRun, type PeerOperation, type ServicePeer } from "./peer.ts";

type Kind = keyof typeof brokerKinds;

interface BrokerPeer extends Omit<ServicePeer, "scheme" | "name"> {
  /** What stands in for the broker; undefined: it is the broker itself. */
  readonly standIn?: string | undefined;
}

const inClear = { security: "none", allow_unencrypted: true } as const;
/** Held back by the gateway where the broker has no delays. */
const heldBack = { message: "later", delay: 3_600_000 } as const;

/** Maven fetches it as its module is loaded, which is for `npm run test:services` to wait for. */
async function findKafka(): Promise<BrokerPeer> {
  if (servicesRun === undefined) return kafkaMock;
  const { kafkaUser, noKafkaServer, startKafkaServer } = await import("../brokers/kafka-server.ts");
  if (noKafkaServer !== undefined)
    return noKafka === undefined ? kafkaMock : { ...kafkaMock, absent: `${noKafkaServer}; ${noKafka}` };
  return {
    async start() {
      const kafka = await startKafkaServer();
      for (const topic of ["orders", "late"]) await kafka.createTopic(topic);
      return {
        config: {
          broker: "kafka",
          servers: [`127.0.0.1:${kafka.ports.tls_login}`],
          tls: { ca: localCertificate },
          mechanism: "scram-sha-512",
          username: kafkaUser.name,
          password: kafkaUser.password,
          topics: { orders: {}, late: {} },
        },
        operations: kafkaOperations(() => kafka.count("orders")),
        close: () => kafka.close(),
      };
    },
  };
}

const kafkaMock: BrokerPeer = {
  standIn: "librdkafka's mock cluster",
  absent: noKafka,
  takes: "a compiler, and a broker",
  async start() {
    const kafka = await startKafka(["orders", "late"]);
    return {
      config: {
        broker: "kafka",
        servers: [`127.0.0.1:${kafka.port}`],
        ...inClear,
        topics: { orders: {}, late: {} },
      },
      operations: kafkaOperations(async () => (await kafka.read("orders")).length),
      close: () => kafka.close(),
    };
  },
};

function kafkaOperations(count: () => Promise<number>): readonly PeerOperation[] {
  return [
    {
      tool: "orders",
      arguments: { message: { orderId: "O001" }, key: "customer-7" },
      gives: /"status":"published".*"partition":0/,
      count,
    },
    { tool: "late", what: "late, held back", arguments: heldBack, gives: /"status":"delayed".*"call_id"/ },
  ];
}

/** One line for each kind of broker. */
const brokers: Readonly<Record<Kind, BrokerPeer>> = {
  rabbitmq: {
    absent: noRabbitMq,
    takes: "a broker",
    async start() {
      const rabbit = await startRabbitMq();
      const channel = await rabbit.channel();
      await channel.queueDeclare("orders", { durable: true });
      await channel.exchangeDeclare("events", "topic", { durable: true });
      await channel.queueDeclare("heard", { durable: true });
      await channel.queueBind("heard", "events", "order.*");
      const waiting = (queue: string) => async (): Promise<number> =>
        (await channel.queueDeclare(queue, { passive: true })).messageCount;
      return {
        config: {
          broker: "rabbitmq",
          servers: [`127.0.0.1:${rabbit.port}`],
          ...inClear,
          username: rabbitUser.name,
          password: rabbitUser.password,
          topics: { orders: { free_headers: true }, events: { exchange: "events" } },
        },
        operations: [
          {
            tool: "orders",
            arguments: { message: { orderId: "O001" }, headers: { trace: "t1" } },
            gives: /"status":"published".*"stored":true/,
            count: waiting("orders"),
          },
          {
            tool: "events",
            arguments: { message: { orderId: "O001" }, key: "order.created" },
            gives: /"status":"published"/,
            count: waiting("heard"),
          },
          {
            tool: "orders",
            what: "orders, held back",
            arguments: heldBack,
            gives: /"status":"delayed"/,
          },
        ],
        close: () => rabbit.close(),
      };
    },
  },
  kafka: await findKafka(),
  rocketmq: {
    standIn: noRocketMq === undefined ? undefined : "a server recorded from it",
    async start() {
      const server = await (noRocketMq === undefined ? startRocketMq() : startRocketMqStub());
      const { port } = server;
      const read = (topic: string): Promise<RocketMqReader> => readRocketMq({ port, topic, login: rocketMqUser });
      const orders = await read("orders");
      const ordered = await read("ordered");
      return {
        config: {
          broker: "rocketmq",
          servers: [`127.0.0.1:${port}`],
          ...inClear,
          username: rocketMqUser.accessKey,
          password: rocketMqUser.secretKey,
          topics: { orders: { free_headers: true }, ordered: {}, late: {} },
        },
        operations: [
          {
            tool: "orders",
            arguments: { message: { orderId: "O001" }, keys: ["O001"], tag: "created", headers: { trace: "t1" } },
            gives: /"status":"published".*"stored":true/,
            count: () => orders.count(),
          },
          {
            tool: "ordered",
            arguments: { message: { orderId: "O001" }, key: "customer-7" },
            gives: /"status":"published".*"stored":true/,
            count: () => ordered.count(),
          },
          { tool: "late", what: "late, held back by it", arguments: heldBack, gives: /"status":"delayed"/ },
          {
            tool: "orders",
            what: "orders, held back by the gateway",
            arguments: heldBack,
            gives: /"status":"delayed".*"call_id"/,
          },
        ],
        async close() {
          orders.close();
          ordered.close();
          await server.close();
        },
      };
    },
  },
  redis: {
    absent: noRedis,
    async start() {
      const redis = await startRedis();
      const listener = redis.client();
      const heard: string[] = [];
      listener.on("message", (_channel, message: string) => void heard.push(message));
      await listener.subscribe("news");
      return {
        config: {
          broker: "redis",
          servers: [`127.0.0.1:${redis.port}`],
          ...inClear,
          password: redisPassword,
          topics: { news: {} },
        },
        operations: [
          {
            tool: "news",
            arguments: { message: { orderId: "O001" } },
            gives: /"status":"published".*"receivers":1/,
            count: () => heard.length,
          },
        ],
        close: () => redis.close(),
      };
    },
  },
};

export const mqPeers: readonly ServicePeer[] = (Object.keys(brokerKinds) as readonly Kind[]).map((kind) => {
  const { standIn, ...peer } = brokers[kind];
  const { title } = brokerKinds[kind];
  return { scheme: "mq", name: standIn === undefined ? title : `${title} (${standIn})`, ...peer };
});
