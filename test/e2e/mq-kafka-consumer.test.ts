/**
 * Taking messages from Kafka itself (MQ-3, MQ-4): where a group begins, and where it goes on. Left out with the reason
 * where Kafka is not there.
 */
import { createEgress } from "@toolyard/core/blind/egress";
import type { ConsumerSource, MessageConsumer } from "@toolyard/core/ports/message-consumer";
import { createMessageConsumers } from "@toolyard/platform/mq/message-consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { noKafkaServer, startKafkaServer, type KafkaServer } from "../support/brokers/kafka-server.ts";
import { verifies } from "../support/verifies.ts";

const startMs = 400_000;
const within = { timeout: 30_000, interval: 50 };

describe.skipIf(noKafkaServer !== undefined)(
  `a group of Kafka's${noKafkaServer === undefined ? "" : ` (skipped: ${noKafkaServer})`} ${verifies("MQ-3", "MQ-4")}`,
  () => {
    const egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
    let kafka: KafkaServer;
    beforeAll(async () => {
      kafka = await startKafkaServer();
      // The first group there is waits for the topic that says where groups are.
      await kafka.createTopic("known");
      await kafka.append("known", 0, ["it"]);
      await kafka.readUntil("known", "it");
    }, startMs);
    afterAll(async () => {
      await kafka.close();
      await egress.close();
    });

    interface Consuming {
      readonly consumer: MessageConsumer;
      readonly got: readonly string[];
    }

    async function consume(name: string, source: Partial<ConsumerSource> = {}): Promise<Consuming> {
      const got: string[] = [];
      const consumer = await createMessageConsumers({ egress }).open(
        {
          kind: "kafka",
          servers: [{ host: "127.0.0.1", port: kafka.ports.plain }],
          virtualHost: "/",
          mechanism: "plain",
        },
        {
          source: { name, group: `of-${name}`, from: "latest", ...source },
          prefetch: 8,
          onMessage({ body }) {
            got.push(Buffer.from(body).toString());
            return Promise.resolve("done");
          },
        },
      );
      return { consumer, got };
    }

    /** A group that has consumed one message. */
    async function begun(topic: string, source: Partial<ConsumerSource> = {}): Promise<void> {
      const { consumer, got } = await consume(topic, source);
      await kafka.append(topic, 0, ["first"]);
      await expect.poll(() => got, within).toEqual(["first"]);
      await expect.poll(() => consumer.waiting(), within).toBe(0);
      await consumer.close(5_000);
    }

    test(
      "that is new begins with what comes next, and misses nothing of a partition that is made while nobody consumes",
      async () => {
        await kafka.createTopic("grown");
        await kafka.append("grown", 0, ["before"]);
        await begun("grown");
        await kafka.growTo("grown", 2);
        await kafka.append("grown", 1, ["to the new one"]);
        const { consumer, got } = await consume("grown");
        await expect.poll(() => got, within).toEqual(["to the new one"]);
        await consumer.close(5_000);
      },
      startMs,
    );

    test(
      "that has begun takes of other partitions what is no older than whoever wants it",
      async () => {
        await kafka.createTopic("shared");
        await begun("shared");
        await kafka.growTo("shared", 2);
        await kafka.append("shared", 1, ["old"]);
        await new Promise((done) => setTimeout(done, 10));
        const since = Date.now();
        await kafka.append("shared", 1, ["since then"]);
        const { consumer, got } = await consume("shared", { since });
        await expect.poll(() => got, within).toEqual(["since then"]);
        await consumer.close(5_000);
      },
      startMs,
    );

    test(
      "that is new takes nothing old of a partition that another member had, and left without a place",
      async () => {
        await kafka.createTopic("handed");
        await kafka.growTo("handed", 2);
        for (const partition of [0, 1]) await kafka.append("handed", partition, ["before"]);
        const leave = await kafka.join("handed", "of-handed");
        const { consumer, got } = await consume("handed");
        for (const partition of [0, 1]) await kafka.append("handed", partition, [`since to ${partition}`]);
        await leave();
        await expect.poll(() => got.toSorted(), within).toEqual(["since to 0", "since to 1"]);
        await consumer.close(5_000);
      },
      startMs,
    );

    test(
      "goes on with the oldest message that is left where what it came to is gone",
      async () => {
        await kafka.createTopic("short");
        await begun("short");
        await kafka.append("short", 0, ["gone", "left", "last"]);
        await kafka.forgetBefore("short", 2);
        const { consumer, got } = await consume("short");
        await expect.poll(() => got, within).toEqual(["left", "last"]);
        await consumer.close(5_000);
      },
      startMs,
    );
  },
);
