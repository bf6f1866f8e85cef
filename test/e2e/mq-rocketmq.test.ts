/**
 * `mq://` to RocketMQ through the whole gateway (MQ-1, MQ-2, MQ-4, SVCERR-1): against RocketMQ itself where there is
 * one, and always against a server that was recorded from it.
 */
import { randomUUID } from "node:crypto";
import { connect, type Socket } from "node:net";
import { createEgress } from "@toolyard/core/blind/egress";
import { openHttp2 } from "@toolyard/core/blind/http2-connection";
import type { BrokerAccount, BrokerMessage, BrokerSession } from "@toolyard/core/ports/message-broker";
import { deliveryOf } from "@toolyard/core/errors/delivery";
import { createMessageBrokers } from "@toolyard/platform/mq/message-brokers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startCuttingProxy } from "../support/brokers/proxy.ts";
import { readRocketMq, type RocketMqReader } from "../support/brokers/rocketmq-reader.ts";
import { startRocketMqStub } from "../support/brokers/rocketmq-stub.ts";
import { noRocketMq, rocketMqUser, startRocketMq, type RocketMqServer } from "../support/brokers/rocketmq.ts";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { localCertificate, testCertificate } from "../support/tls-pair.ts";
import { verifies } from "../support/verifies.ts";

const servers = [
  { what: "RocketMQ", missing: noRocketMq, start: startRocketMq },
  { what: "a recorded RocketMQ", missing: undefined, start: startRocketMqStub },
] as const;

const why = (missing: string | undefined): string => (missing === undefined ? "" : ` (none: ${missing})`);

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((done) => setTimeout(done, 20));
}

for (const { what, missing, start } of servers) {
  describe.skipIf(missing !== undefined)(
    `${what}${why(missing)} ${verifies("MQ-1", "MQ-2", "MQ-4", "SVCERR-1")}`,
    () => {
      let gateway: Gateway;
      let tenant: TestTenant;
      let server: RocketMqServer;
      const readers: RocketMqReader[] = [];
      beforeAll(async () => {
        [gateway, server] = await Promise.all([startGateway(), start()]);
        tenant = await gateway.newTenant();
        await tenant.client.expect("put", "/v1/credentials/ROCKET", { value: rocketMqUser.secretKey });
        await create("rocket", {
          ...clear(),
          max_message_bytes: 8_388_608,
          max_native_delay_ms: 5_000,
          topics: {
            orders: { headers: { source: "toolyard" }, free_headers: true },
            tagged: { name: "orders", tag: "always" },
            text: { name: "orders", content_type: "text/plain" },
          },
          open_topics: true,
        });
      }, 400_000);
      afterAll(async () => {
        for (const reader of readers) reader.close();
        await server.close();
        await gateway.close();
      });

      const clear = (): Json => ({
        broker: "rocketmq",
        servers: [`127.0.0.1:${server.port}`],
        security: "none",
        allow_unencrypted: true,
        username: rocketMqUser.accessKey,
        password: { credential: "ROCKET" },
      });
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

      async function read(topic: string): Promise<RocketMqReader> {
        const reader = await readRocketMq({ port: server.port, topic, login: rocketMqUser });
        readers.push(reader);
        return reader;
      }

      async function open(through?: number): Promise<BrokerSession> {
        const account: BrokerAccount = {
          kind: "rocketmq",
          servers: [{ host: "127.0.0.1", port: server.port }],
          login: { username: rocketMqUser.accessKey, password: rocketMqUser.secretKey, credential: "ROCKET" },
          virtualHost: "/",
          mechanism: "plain",
        };
        // The broker names its own address, which the door leads elsewhere.
        const connectHttp2 = async ({ host, port }: { readonly host: string; readonly port: number }) =>
          openHttp2({ socket: await dial(through ?? port), host, port, tls: undefined, signal: undefined });
        const unused = (): Promise<never> => Promise.reject(new Error("RocketMQ speaks HTTP/2."));
        return createMessageBrokers({ egress: { connect: unused, connectHttp2 } }).open(account);
      }

      test("has a message once it has confirmed it, with id, tag, keys and properties", async () => {
        const reader = await read("orders");
        const reply = await published("mq://rocket/orders", {
          message: { orderId: "O001", name: "茶" },
          key: "O001",
          keys: ["customer-7"],
          tag: "created",
          headers: { trace: "t1" },
        });
        expect(reply).toMatchObject({ status: "published", broker: "rocketmq", topic: "orders", stored: true });
        expect(reply.message_id).toMatch(/^01[0-9A-F]{32}$/);
        const [first] = await reader.take([reply.message_id]);
        expect(first).toMatchObject({
          id: reply.message_id,
          body: '{"orderId":"O001","name":"茶"}',
          tag: "created",
          keys: ["O001", "customer-7"],
          properties: {
            trace: "t1",
            source: "toolyard",
            "content-type": "application/json",
            "message-id": reply.message_id,
          },
        });
        const tagged = await published("mq://rocket/tagged", { message: 1 });
        const text = await published("mq://rocket/text", { message: "plain text" });
        const [second, third] = await reader.take([tagged.message_id, text.message_id]);
        expect(second?.tag).toBe("always");
        expect(third).toMatchObject({ body: "plain text", properties: { "content-type": "text/plain" } });
      });

      test("keeps messages of one key in order where the topic does, and asks for the key", async () => {
        const reader = await read("ordered");
        const ids: string[] = [];
        for (const message of [1, 2, 3]) {
          const reply = await published("mq://rocket/ordered", { message, key: "customer-7" });
          ids.push(reply.message_id);
        }
        expect((await reader.take(ids)).map(({ body, group }) => [body, group])).toEqual([
          ["1", "customer-7"],
          ["2", "customer-7"],
          ["3", "customer-7"],
        ]);
        expect(await refused("mq://rocket/ordered", { message: 4 })).toMatchObject({
          code: "invalid_arguments",
          param: "key",
        });
      });

      test("holds messages back itself where the topic is for that, and never for less; others the gateway holds", async () => {
        const [late, orders] = await Promise.all([read("late"), read("orders")]);
        const askedAt = Date.now();
        const itself = await published("mq://rocket/late?delay=2500", { message: "late" });
        expect(itself).toMatchObject({ status: "delayed" });
        expect(itself).not.toHaveProperty("call_id");
        expect(Date.parse(itself.due_at)).toBeGreaterThanOrEqual(askedAt + 2_500);
        const ours = await published("mq://rocket/orders", { message: "ours", delay: 1_200 });
        expect(ours).toMatchObject({ status: "delayed", call_id: expect.stringMatching(/^call_/) });
        const atOnce = await published("mq://rocket/late", { message: "now" });
        await late.take([atOnce.message_id]);
        const [byUs] = await orders.take([ours.message_id]);
        expect(byUs?.at).toBeGreaterThanOrEqual(askedAt + 1_200);
        const [byItself] = await late.take([itself.message_id]);
        expect(byItself?.at).toBeGreaterThanOrEqual(askedAt + 2_500);
      });

      test("is not asked for delays that it would not take; those are calls, too", async () => {
        const long = await published("mq://rocket/late?delay=6000", { message: "long" });
        expect(long).toMatchObject({ status: "delayed", call_id: expect.stringMatching(/^call_/) });
        await tenant.client.send("post", `/v1/calls/${long.call_id}/cancel`);
        await create("rocket-bold", { ...clear(), open_topics: true, max_native_delay_ms: 200_000_000 });
        expect(await refused("mq://rocket-bold/late?delay=100000000", { message: "long" })).toMatchObject({
          code: "tool_failed",
          message: expect.stringMatching(/max_native_delay_ms/),
        });
        for (const delay of [-1, 604_800_001])
          expect(await refused("mq://rocket/late", { message: 1, delay })).toMatchObject({ code: "invalid_arguments" });
      });

      test("says why it does not take a message, and does not have it", async () => {
        expect(await refused("mq://rocket/nowhere", { message: 1 })).toMatchObject({
          code: "tool_failed",
          message: expect.stringMatching(/topic 'nowhere': there is no such topic/),
        });
        expect(await refused("mq://rocket/orders", { message: "x".repeat(4_194_304) })).toMatchObject({
          code: "tool_failed",
          message: expect.stringMatching(/cannot exceed the max 4194304/),
        });
        expect(await refused("mq://rocket/orders", { message: "x".repeat(8_388_608) })).toMatchObject({
          code: "payload_too_large",
        });
        expect(await refused("mq://rocket/orders", { message: 1, headers: { KEYS: "x" } })).toMatchObject({
          code: "tool_failed",
          message: expect.stringMatching(/property is used by system: KEYS/),
        });
        expect(await refused("mq://rocket/orders", { message: 1, tag: "a|b" })).toMatchObject({
          code: "invalid_arguments",
          message: expect.stringMatching(/tag/),
        });
        const reader = await read("anything");
        const { message_id: id } = await published("mq://rocket/anything", { message: "after" });
        expect(await reader.take([id])).toMatchObject([{ body: '"after"' }]);
      });

      test("says of wrong credentials which to look at, and says so where there are none", async () => {
        await create("stranger", { ...clear(), password: "wrong", open_topics: true });
        expect(await refused("mq://stranger/orders", { message: 1 })).toMatchObject({
          code: "credential_invalid",
          message: expect.stringMatching(/PUT \/v1\/credentials\//),
        });
        const { username: _user, password: _password, ...anonymous } = clear();
        const { id } = await create("anonymous", { ...anonymous, open_topics: true });
        expect(await tenant.client.post(`/v1/tool-services/${id}/test`)).toMatchObject({
          ok: false,
          error: { code: "credential_invalid", message: expect.stringMatching(/config\.password/) },
        });
      });

      test("is spoken to in secret, and only where its certificate is trusted", async () => {
        const { allow_unencrypted: _allowed, security: _security, ...encrypted } = clear();
        const config = { ...encrypted, servers: [`127.0.0.1:${server.tlsPort}`], open_topics: true };
        await create("secret", { ...config, tls: { ca: localCertificate } });
        const reader = await read("untyped");
        const { message_id: id } = await published("mq://secret/untyped", { message: "in secret" });
        expect(await reader.take([id])).toMatchObject([{ body: '"in secret"' }]);
        await create("distrusted", { ...config, tls: { ca: testCertificate } });
        expect(await refused("mq://distrusted/untyped", { message: 1 })).toMatchObject({ code: "tool_unreachable" });
      });

      test("that is cut off before it has confirmed leaves the outcome open, and has the message once", async () => {
        const reader = await read("anything");
        const proxy = await startCuttingProxy(server.port);
        const session = await open(proxy.port);
        proxy.cutAfter = "cut-here";
        const cut = message("anything", "cut-here");
        const error: unknown = await session.publish(cut, options).then(
          () => undefined,
          (thrown: unknown) => thrown,
        );
        expect(error).toMatchObject({ code: "tool_unreachable" });
        expect(deliveryOf(error)).toBe("uncertain");
        expect(session.isAlive()).toBe(false);
        await session.close();
        await until(() => proxy.open === 0);
        const next = await published("mq://rocket/anything", { message: "next" });
        expect(await reader.take([cut.id, next.message_id])).toHaveLength(2);
        await proxy.close();
      });

      test("keeps what it has confirmed over its restart, delayed messages, too; the next message finds it again", async () => {
        const confirmed = await published("mq://rocket/orders", { message: "kept" });
        const delayed = await published("mq://rocket/late?delay=3000", { message: "kept and late" });
        await server.kill();
        await server.start();
        const after = await published("mq://rocket/orders?max-attempts=5", { message: "after" });
        const [orders, late] = await Promise.all([read("orders"), read("late")]);
        expect(await orders.take([confirmed.message_id, after.message_id])).toHaveLength(2);
        // After a kill its timer may deliver once more what was on its way, with the same id.
        expect(await late.take([delayed.message_id])).not.toEqual([]);
      }, 400_000);
    },
  );
}

test(`an address that RocketMQ names is reached through the door alone ${verifies("MQ-4")}`, async () => {
  const server = await startRocketMqStub({ names: { host: "169.254.169.254", port: 80 } });
  const egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
  const session = await createMessageBrokers({ egress }).open({
    kind: "rocketmq",
    servers: [{ host: "127.0.0.1", port: server.port }],
    login: { username: rocketMqUser.accessKey, password: rocketMqUser.secretKey, credential: "ROCKET" },
    virtualHost: "/",
    mechanism: "plain",
  });
  await expect(session.publish(message("orders", "1"), options)).rejects.toMatchObject({ code: "egress_denied" });
  await session.close();
  await egress.close();
  await server.close();
});

const options = { signal: new AbortController().signal };

function message(destination: string, body: string): BrokerMessage {
  return {
    id: `01${randomUUID().replaceAll("-", "").toUpperCase()}`,
    destination,
    body: Buffer.from(body),
    contentType: "text/plain",
    headers: {},
    isPersistent: true,
    at: new Date(),
  };
}

function dial(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1", () => resolve(socket)).once("error", reject);
  });
}
