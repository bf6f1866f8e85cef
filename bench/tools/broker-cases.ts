/** Messages to brokers of this system beside the clients that people use for them. */
import { AMQPClient } from "@cloudamqp/amqp-client";
import { Redis } from "ioredis";
import { Kafka, logLevel, Partitioners } from "kafkajs";
import type { BenchTenant } from "../support/gateway.ts";
import { noKafka, startKafka } from "../../test/support/brokers/kafka.ts";
import { noRabbitMq, rabbitUser, startRabbitMq } from "../../test/support/brokers/rabbitmq.ts";
import { noRedis, redisPassword, startRedis } from "../../test/support/brokers/redis.ts";
import { addService, type ToolCase } from "./tool-case.ts";

const message = { orderId: "O001", status: "created", lines: ["one", "two", "three"] };
const body = JSON.stringify(message);

function addBroker(tenant: BenchTenant, broker: string, port: number, login: object = {}): Promise<void> {
  return addService(tenant, "mq", broker, {
    broker,
    servers: [`127.0.0.1:${port}`],
    security: "none",
    allow_unencrypted: true,
    ...login,
    topics: { orders: { description: "An order." } },
  });
}

export const redisCase: ToolCase = {
  bareClient: "ioredis",
  absent: noRedis,
  async start(_backEnds, tenant) {
    const server = await startRedis();
    await addBroker(tenant, "redis", server.port, { password: redisPassword });
    const client = new Redis({ host: "127.0.0.1", port: server.port, password: redisPassword });
    return {
      uri: "mq://redis/orders",
      arguments: { message },
      bare: () => client.publish("orders", body),
      async close() {
        client.disconnect();
        await server.close();
      },
    };
  },
};

/** Persistent and confirmed, on both sides. */
export const rabbitMqCase: ToolCase = {
  bareClient: "amqp-client",
  absent: noRabbitMq,
  async start(_backEnds, tenant) {
    const { name, password } = rabbitUser;
    const server = await startRabbitMq();
    const client = new AMQPClient(`amqp://${name}:${password}@127.0.0.1:${server.port}`);
    await client.connect();
    const channel = await client.channel();
    await channel.queueDeclare("orders", { durable: true }, { "x-max-length": 100 });
    await channel.confirmSelect();
    await addBroker(tenant, "rabbitmq", server.port, { username: name, password });
    const properties = { deliveryMode: 2, contentType: "application/json" };
    return {
      uri: "mq://rabbitmq/orders",
      arguments: { message },
      bare: () => channel.basicPublish("", "orders", body, properties, true),
      async close() {
        await client.close();
        await server.close();
      },
    };
  },
};

/** Acknowledged by all replicas in sync, on both sides; the broker is the mock cluster of librdkafka. */
export const kafkaCase: ToolCase = {
  bareClient: "kafkajs",
  absent: noKafka,
  async start(_backEnds, tenant) {
    const server = await startKafka(["orders"]);
    const kafka = new Kafka({ brokers: [`127.0.0.1:${server.port}`], logLevel: logLevel.NOTHING });
    const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
    await producer.connect();
    await addBroker(tenant, "kafka", server.port);
    return {
      uri: "mq://kafka/orders",
      arguments: { message },
      bare: () => producer.send({ topic: "orders", acks: -1, messages: [{ value: body }] }),
      async close() {
        await producer.disconnect();
        await server.close();
      },
    };
  },
};
