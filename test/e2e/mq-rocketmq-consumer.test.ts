/**
 * Taking messages from RocketMQ (MQ-3), at RocketMQ itself where there is one, and always at a server that was
 * recorded from it.
 */
import { randomUUID } from "node:crypto";
import { createEgress } from "@toolyard/core/blind/egress";
import type { BrokerAccount, BrokerMessage } from "@toolyard/core/ports/message-broker";
import type { MessageConsumer, ReceivedMessage, Settlement } from "@toolyard/core/ports/message-consumer";
import { createMessageBrokers } from "@toolyard/platform/mq/message-brokers";
import { createMessageConsumers } from "@toolyard/platform/mq/message-consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startRocketMqStub } from "../support/brokers/rocketmq-stub.ts";
import { noRocketMq, rocketMqUser, startRocketMq, type RocketMqServer } from "../support/brokers/rocketmq.ts";
import { openTo } from "../support/sockets.ts";
import { verifies } from "../support/verifies.ts";

const servers = [
  { what: "RocketMQ", missing: noRocketMq, start: startRocketMq },
  { what: "a recorded RocketMQ", missing: undefined, start: startRocketMqStub },
] as const;
const startMs = 400_000;
/** Arrives as it was sent, length, spaces and stop. */
const wordy = `  two  spaces, ${"and so on, ".repeat(40)}end.`;

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((done) => setTimeout(done, 20));
}

for (const { what, missing, start } of servers) {
  describe.skipIf(missing !== undefined)(
    `${what}${missing === undefined ? "" : ` (none: ${missing})`} ${verifies("MQ-3", "MQ-4")}`,
    () => {
      const egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
      let server: RocketMqServer;
      beforeAll(async () => {
        server = await start();
      }, startMs);
      afterAll(async () => {
        await server.close();
        await egress.close();
      });

      const account = (password: string = rocketMqUser.secretKey): BrokerAccount => ({
        kind: "rocketmq",
        servers: [{ host: "127.0.0.1", port: server.port }],
        login: { username: rocketMqUser.accessKey, password, credential: "ROCKET" },
        virtualHost: "/",
        mechanism: "plain",
      });

      async function publish(destination: string, bodies: readonly string[]): Promise<readonly string[]> {
        const session = await createMessageBrokers({ egress }).open(account());
        const ids: string[] = [];
        for (const body of bodies) {
          const message: BrokerMessage = {
            id: `01${randomUUID().replaceAll("-", "").toUpperCase()}`,
            destination,
            key: "customer-7",
            body: Buffer.from(body),
            contentType: "text/plain",
            headers: { trace: "t1", note: wordy },
            isPersistent: true,
            at: new Date(),
          };
          await session.publish(message, { signal: new AbortController().signal });
          ids.push(message.id);
        }
        await session.close();
        return ids;
      }

      interface Consuming {
        readonly consumer: MessageConsumer;
        readonly got: readonly ReceivedMessage[];
      }

      async function consume(
        name: string,
        group: string,
        settle: (message: ReceivedMessage, got: readonly ReceivedMessage[]) => Settlement,
        since?: number,
      ): Promise<Consuming> {
        const got: ReceivedMessage[] = [];
        const consumer = await createMessageConsumers({ egress }).open(account(), {
          source: { name, group, from: "latest", ...(since === undefined ? {} : { since }) },
          prefetch: 8,
          onMessage: (message) => {
            got.push(message);
            return Promise.resolve(settle(message, got));
          },
        });
        return { consumer, got };
      }

      const times = (got: readonly ReceivedMessage[], id: string | undefined): number =>
        got.filter((message) => message.id === id).length;

      test("gives a message with all that came with it, and once where it is done", async () => {
        const group = `done-${randomUUID()}`;
        const { consumer, got } = await consume("orders", group, () => "done");
        const [first] = await publish("orders", ["one"]);
        await until(() => times(got, first) === 1);
        expect(got.find(({ id }) => id === first)).toMatchObject({
          key: "customer-7",
          contentType: "text/plain",
          headers: { trace: "t1", note: wordy, "message-id": first },
          isRedelivered: false,
        });
        expect(Buffer.from(got.find(({ id }) => id === first)?.body ?? []).toString()).toBe("one");
        await consumer.close(5_000);
        const next = await consume("orders", group, () => "done");
        const [second] = await publish("orders", ["two"]);
        await until(() => times(next.got, second) === 1);
        expect(times(next.got, first)).toBe(0);
        await next.consumer.close(5_000);
      });

      test("passes over what was stored before, for good, where that is wanted", async () => {
        const group = `since-${randomUUID()}`;
        const old = await publish("late", ["old", "older"]);
        await new Promise((done) => setTimeout(done, 10));
        const since = Date.now();
        const { consumer, got } = await consume("late", group, () => "done", since);
        const [fresh] = await publish("late", ["fresh"]);
        await until(() => times(got, fresh) === 1);
        await consumer.close(5_000);
        // Whoever comes next to the group does not find it either.
        const next = await consume("late", group, () => "done");
        const [last] = await publish("late", ["last"]);
        await until(() => times(next.got, last) === 1);
        for (const id of old) expect([times(got, id), times(next.got, id)]).toEqual([0, 0]);
        await next.consumer.close(5_000);
      });

      test("gives a message again that was given back, until it is given up", async () => {
        const { consumer, got } = await consume("anything", `again-${randomUUID()}`, ({ id }, sofar) =>
          times(sofar, id) < 3 ? "again" : "dead",
        );
        const [id] = await publish("anything", ["again"]);
        await until(() => times(got, id) === 3);
        expect(got.filter((message) => message.id === id).map(({ isRedelivered }) => isRedelivered)).toEqual([
          false,
          true,
          true,
        ]);
        const [after] = await publish("anything", ["after"]);
        await until(() => times(got, after) === 3);
        expect(times(got, id)).toBe(3);
        await consumer.close(5_000);
      }, 120_000);

      test("says that the topic is not there, and of a wrong secret key which credential to look at", async () => {
        await expect(consume("nowhere", "readers", () => "done")).rejects.toMatchObject({
          code: "tool_failed",
          message: expect.stringMatching(/there is no such topic/),
        });
        const options = {
          source: { name: "orders", group: "readers", from: "latest" },
          prefetch: 1,
          onMessage: () => Promise.resolve<Settlement>("done"),
        } as const;
        await expect(createMessageConsumers({ egress }).open(account("wrong"), options)).rejects.toMatchObject({
          code: "credential_invalid",
          details: { param: "ROCKET" },
        });
      });

      test(
        "that is killed ends the consumer; what was not done is there for the next one",
        async () => {
          const group = `killed-${randomUUID()}`;
          const never = Promise.withResolvers<Settlement>();
          const taken = Promise.withResolvers<void>();
          const consumer = await createMessageConsumers({ egress }).open(account(), {
            source: { name: "untyped", group, from: "latest" },
            prefetch: 8,
            onMessage: () => {
              taken.resolve();
              return never.promise;
            },
          });
          const [id] = await publish("untyped", ["not done"]);
          await taken.promise;
          await server.kill();
          expect(await consumer.ended).toMatchObject({ code: "tool_unreachable" });
          await consumer.close(0);
          await until(async () => ((await openTo(server.port)) ?? 0) === 0);
          await server.start();
          const next = await consume("untyped", group, () => "done");
          await until(() => times(next.got, id) > 0);
          await next.consumer.close(5_000);
          await until(async () => ((await openTo(server.port)) ?? 0) === 0);
        },
        startMs,
      );
    },
  );
}
