/** Brokers of the system, one for each kind that `mq://` knows; see ../brokers. */
import { brokerKinds } from "@toolyard/core/mq/config";
import { noKafka, startKafka } from "../brokers/kafka.ts";
import { noRabbitMq, rabbitUser, startRabbitMq } from "../brokers/rabbitmq.ts";
import { noRedis, redisPassword, startRedis } from "../brokers/redis.ts";
import type { ServicePeer } from "./peer.ts";

type Kind = keyof typeof brokerKinds;
type BrokerPeer = Omit<ServicePeer, "scheme" | "name">;

const inClear = { security: "none", allow_unencrypted: true } as const;

/** One line for each kind of broker; a kind without one is skipped, saying so. */
const brokers: { readonly [K in Kind]?: BrokerPeer } = {
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
            arguments: { message: "later", delay: 3_600_000 },
            gives: /"status":"delayed"/,
          },
        ],
        close: () => rabbit.close(),
      };
    },
  },
  kafka: {
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
        operations: [
          {
            tool: "orders",
            arguments: { message: { orderId: "O001" }, key: "customer-7" },
            gives: /"status":"published".*"partition":0/,
            count: async () => (await kafka.read("orders")).length,
          },
          {
            tool: "late",
            what: "late, held back",
            arguments: { message: "later", delay: 3_600_000 },
            gives: /"status":"delayed".*"call_id"/,
          },
        ],
        close: () => kafka.close(),
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

export const mqPeers: readonly ServicePeer[] = (Object.keys(brokerKinds) as readonly Kind[]).map((kind) => ({
  scheme: "mq",
  name: brokerKinds[kind].title,
  ...(brokers[kind] ?? {
    absent: `test/support/service-peers/mq.ts has no line for '${kind}'`,
    start: () => Promise.reject(new Error(`There is no ${kind}.`)),
  }),
}));
