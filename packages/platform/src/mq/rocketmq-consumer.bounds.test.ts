import { deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import { createEgress } from "@toolyard/core/blind/egress";
import type { BrokerAccount } from "@toolyard/core/ports/message-broker";
import { largestMessageBytes, type ReceivedMessage } from "@toolyard/core/ports/message-consumer";
import { expect, test } from "vitest";
import { startRocketMqStub } from "../../../../test/support/brokers/rocketmq-stub.ts";
import { rocketMqUser } from "../../../../test/support/brokers/rocketmq.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { createMessageConsumers } from "./message-consumers.ts";
import { RocketMqApi, rocketMqCodec, sendMessage } from "./rocketmq-api.ts";

const normal = 1;
const packed = 2;

test(`packed messages are unpacked as they were packed, and those that cannot be are told about rather than given back for ever ${verifies("MQ-3", "MQ-4")}`, async () => {
  const bodies = [
    gzipSync("fine"),
    deflateSync("fine"),
    zstdCompressSync("fine"),
    // A block that is as it was, and the end.
    Buffer.concat([Buffer.from("04224d18604082", "hex"), Buffer.from("04000080", "hex"), Buffer.from("fine\0\0\0\0")]),
    Buffer.from("not packed"),
    gzipSync(Buffer.alloc(largestMessageBytes + 1)),
  ];
  const stub = await startRocketMqStub();
  const egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
  const server = { host: "127.0.0.1", port: stub.port };
  const login = { username: rocketMqUser.accessKey, password: rocketMqUser.secretKey, credential: "ROCKET" };
  const account: BrokerAccount = { kind: "rocketmq", servers: [server], login, virtualHost: "/", mechanism: "plain" };
  const api = new RocketMqApi({ egress }, account, await rocketMqCodec());
  const heard: ReceivedMessage[] = [];
  const all = Promise.withResolvers<void>();
  const consumer = await createMessageConsumers({ egress }).open(account, {
    source: { name: "orders", group: "packed", from: "latest" },
    prefetch: 8,
    onMessage: (message) => {
      if (heard.push(message) === bodies.length) all.resolve();
      return Promise.resolve("done");
    },
  });
  for (const [at, body] of bodies.entries()) {
    const systemProperties = { messageId: `message-${at}`, messageType: normal, bodyEncoding: packed };
    const message = { topic: { name: "orders" }, systemProperties, body: body.toString("base64") };
    const call = { server, signal: AbortSignal.timeout(5_000), timeoutMs: 5_000 };
    await api.ask(sendMessage, { messages: [message] }, call);
  }
  await all.promise;
  const told = heard.toSorted((a, b) => (a.id ?? "").localeCompare(b.id ?? ""));
  expect(told.map(({ body, unreadable }) => [Buffer.from(body).toString(), unreadable])).toEqual([
    ["fine", undefined],
    ["fine", undefined],
    ["fine", undefined],
    ["fine", undefined],
    ["", expect.stringMatching(/packed in no way that is known/)],
    ["", expect.stringMatching(/more than 16777216 bytes/)],
  ]);
  await consumer.close(1_000);
  await Promise.all([api.close(), egress.close(), stub.close()]);
});
