/** Brokers that say more than may be said at once: none of them is given memory for it (MQ-4). */
import { gzipSync } from "node:zlib";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { deliveryOf } from "@toolyard/core/errors/delivery";
import type { Egress } from "@toolyard/core/ports/egress";
import type { BrokerAccount, BrokerKind, BrokerMessage } from "@toolyard/core/ports/message-broker";
import { largestMessageBytes, type ReceivedMessage } from "@toolyard/core/ports/message-consumer";
import kafkajs from "kafkajs";
import { afterEach, describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { createMessageBrokers } from "./message-brokers.ts";
import { createMessageConsumers } from "./message-consumers.ts";

const servers: Server[] = [];
const sockets: Socket[] = [];
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) server.close();
});

async function listen(serve: (socket: Socket) => void): Promise<number> {
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => undefined);
    serve(socket);
  });
  servers.push(server);
  await new Promise<void>((done) => void server.listen(0, "127.0.0.1", () => done()));
  return (server.address() as AddressInfo).port;
}

const egress: Pick<Egress, "connect" | "connectHttp2"> = {
  connect: ({ host, port }) =>
    new Promise((resolve) => {
      const socket = connect(port, host, () => resolve(socket));
    }),
  connectHttp2: () => Promise.reject(new Error("nobody asks")),
};
const brokers = createMessageBrokers({ egress });
const consumers = createMessageConsumers({ egress });

const account = (kind: BrokerKind, port: number): BrokerAccount => ({
  kind,
  servers: [{ host: "127.0.0.1", port }],
  login: undefined,
  virtualHost: "/",
  mechanism: "plain",
});
const message: BrokerMessage = {
  id: "call_1",
  destination: "",
  key: "orders",
  body: Buffer.from("{}"),
  contentType: "application/json",
  headers: {},
  isPersistent: true,
  at: new Date(0),
};
const publish = { signal: new AbortController().signal };

/** Answers each thing that it is told with the next of these, once; what it gets after that it says nothing to. */
const redis = (answers: readonly string[]): Promise<number> =>
  listen((socket) => {
    const left = [...answers];
    socket.on("data", () => {
      const answer = left.shift();
      if (answer !== undefined) socket.write(answer);
    });
  });

describe(`a server of Redis ${verifies("MQ-4")}`, () => {
  test.each([
    ["a blob that is announced to be of 2 GB", "$2000000000\r\n"],
    ["a list of 20 million", "*20000000\r\n"],
    ["lists in lists", "*1\r\n".repeat(30_000)],
    ["lists of lists that are small each", "*4000\r\n*4000\r\n*4000\r\n*4000\r\n*4000\r\n*4000\r\n"],
    ["a line without end", `+${"x".repeat(70_000)}`],
    ["numbers without end", `*20000\r\n${":1\r\n".repeat(20_000)}`],
  ])("that answers with %s cannot be published to", async (_what, answer) => {
    const opening = brokers.open(account("redis", await redis([answer])));
    await expect(opening).rejects.toMatchObject({
      code: "tool_unreachable",
      message: expect.stringMatching(/a reply of more than 65536 bytes/),
    });
  });

  test.each([
    ["behind half of a line's end", `+PONG\r?$2000000000\r\n${":1\r\n".repeat(1_000)}`],
    ["before which another protocol begins", "AMQP\u0000\u0000\u0009\u0001"],
    ["in a form of a later version", `%2000000000\r\n${":1\r\n".repeat(1_000)}`],
  ])("that hides a long one %s cannot be published to", async (_what, answer) => {
    const opening = brokers.open(account("redis", await redis([answer])));
    await expect(opening).rejects.toMatchObject({
      code: "tool_unreachable",
      message: expect.stringMatching(/not its protocol/),
    });
  });

  test("that does so while a message is under way leaves it unknown, and is gone", async () => {
    const session = await brokers.open(account("redis", await redis(["+PONG\r\n", "$2000000000\r\n"])));
    await expect(session.publish(message, publish)).rejects.toMatchObject({
      code: "tool_unreachable",
      message: expect.stringMatching(/a reply of more than 65536 bytes/),
    });
    expect(session.isAlive()).toBe(false);
  });

  test("that answers in pieces, and several at once, is understood", async () => {
    const port = await listen((socket) => {
      socket.once("data", () => {
        socket.write("+PO");
        setTimeout(() => socket.write("NG\r\n"), 20);
        socket.on("data", (asked: Buffer) => {
          const count = asked.toString("latin1").split("publish").length - 1;
          socket.write(":0\r\n".repeat(count));
        });
      });
    });
    const session = await brokers.open(account("redis", port));
    for (let round = 0; round < 3; round += 1) {
      const replies = await Promise.all(Array.from({ length: 1_000 }, () => session.publish(message, publish)));
      expect(new Set(replies.map(({ receivers }) => receivers))).toEqual(new Set([0]));
    }
    await session.close();
  });

  test("whose messages are larger than any service takes is not listened to any more", async () => {
    const subscribed = "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n";
    const said = "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n";
    const heard: string[] = [];
    const port = await listen((socket) => {
      socket.once("data", () => {
        socket.write("+PONG\r\n");
        socket.once("data", () => socket.write(`${subscribed}${said}$2\r\nhi\r\n`));
      });
    });
    const consumer = await consumers.open(account("redis", port), {
      source: { name: "news", group: "", from: "latest" },
      prefetch: 8,
      onMessage: ({ body }) => {
        heard.push(Buffer.from(body).toString());
        sockets[0]?.write(`${said}$${largestMessageBytes + 70_000}\r\n`);
        return Promise.resolve("done");
      },
    });
    expect(await consumer.ended).toMatchObject({
      code: "tool_unreachable",
      message: expect.stringMatching(/a reply of/),
    });
    expect(heard).toEqual(["hi"]);
  });
});

test(`a broker of Kafka whose answer is larger than any that a publisher needs is not waited for ${verifies("MQ-4")}`, async () => {
  const port = await listen((socket) => void socket.once("data", () => socket.write(Buffer.from("00400001", "hex"))));
  await expect(brokers.open(account("kafka", port))).rejects.toMatchObject({
    code: "tool_unreachable",
    message: expect.stringMatching(/a frame of 4194305 bytes/),
  });
});

test(`a batch of Kafka is unpacked as far as one that is not packed may go ${verifies("MQ-3", "MQ-4")}`, async () => {
  // Has the client loaded.
  await brokers.open(account("kafka", await listen((socket) => socket.destroy()))).catch(() => undefined);
  const codec = kafkajs.CompressionCodecs[kafkajs.CompressionTypes.GZIP]() as {
    decompress(packed: Buffer): Promise<Buffer>;
  };
  const zeros = (bytes: number): Buffer => gzipSync(Buffer.alloc(bytes), { level: 1 });
  expect((await codec.decompress(zeros(1_000))).length).toBe(1_000);
  await expect(codec.decompress(zeros(67_108_865))).rejects.toThrow(/larger than 67108864 bytes/);
});

describe(`a broker of AMQP ${verifies("MQ-3", "MQ-4")}`, () => {
  const u8 = (value: number): Buffer => Buffer.from([value]);
  const u16 = (value: number): Buffer => Buffer.from([value >> 8, value & 255]);
  const u32 = (value: number): Buffer => Buffer.concat([u16(Math.floor(value / 65_536)), u16(value % 65_536)]);
  const u64 = (value: number): Buffer => Buffer.concat([u32(Math.floor(value / 2 ** 32)), u32(value % 2 ** 32)]);
  const short = (text: string): Buffer => Buffer.concat([u8(text.length), Buffer.from(text)]);
  const long = (text: string): Buffer => Buffer.concat([u32(text.length), Buffer.from(text)]);
  const frame = (type: number, channel: number, ...parts: readonly Buffer[]): Buffer => {
    const payload = Buffer.concat(parts);
    return Buffer.concat([u8(type), u16(channel), u32(payload.length), payload, u8(0xce)]);
  };
  const method = (channel: number, id: string, ...parts: readonly Buffer[]): Buffer => {
    const [ofClass = 0, ofMethod = 0] = id.split(".").map(Number);
    return frame(1, channel, u16(ofClass), u16(ofMethod), ...parts);
  };
  /** Of a body, with properties as they stand behind it. */
  const header = (channel: number, length: number, ...properties: readonly Buffer[]): Buffer =>
    frame(2, channel, u16(60), u16(0), u64(length), ...(properties.length === 0 ? [u16(0)] : properties));
  const returned = (channel: number): Buffer =>
    method(channel, "60.50", u16(312), short("NO_ROUTE"), short(""), short("orders"));
  const confirmed = (channel: number): Buffer => method(channel, "60.80", u64(1), u8(0));
  const delivered = (channel: number, tag: number): Buffer =>
    method(channel, "60.60", short("c1"), u64(tag), u8(0), short(""), short("orders"));

  type Answer = (channel: number) => Buffer;
  const usual: Readonly<Record<string, Answer>> = {
    "10.11": () => method(0, "10.30", u16(2_047), u32(131_072), u16(0)),
    "10.40": () => method(0, "10.41", short("")),
    "10.50": () => method(0, "10.51"),
    "20.10": (channel) => method(channel, "20.11", long("")),
    "20.40": (channel) => method(channel, "20.41"),
    "50.10": (channel) => method(channel, "50.11", short("orders"), u32(0), u32(0)),
    "60.10": (channel) => method(channel, "60.11"),
    "60.30": (channel) => method(channel, "60.31", short("c1")),
    "85.10": (channel) => method(channel, "85.11"),
  };

  /** @param told the methods that it was told */
  function amqp(answers: Readonly<Record<string, Answer>>, told: string[] = []): Promise<number> {
    return listen((socket) => {
      let rest = Buffer.alloc(0);
      let isBegun = false;
      socket.on("data", (bytes: Buffer) => {
        rest = Buffer.concat([rest, bytes]);
        if (!isBegun) {
          if (rest.length < 8) return;
          rest = rest.subarray(8);
          isBegun = true;
          socket.write(method(0, "10.10", u16(9), u32(0), long("PLAIN"), long("en_US")));
        }
        while (rest.length >= 7 && rest.length >= rest.readUInt32BE(3) + 8) {
          const [type, channel, size] = [rest[0], rest.readUInt16BE(1), rest.readUInt32BE(3)];
          const payload = rest.subarray(7, 7 + size);
          rest = rest.subarray(size + 8);
          if (type !== 1) continue;
          const id = `${payload.readUInt16BE(0)}.${payload.readUInt16BE(2)}`;
          told.push(id);
          const answer = (answers[id] ?? usual[id])?.(channel);
          if (answer !== undefined) socket.write(answer);
        }
      });
    });
  }

  const failureOf = async (answers: Readonly<Record<string, Answer>>): Promise<unknown> => {
    const session = await brokers.open(account("rabbitmq", await amqp(answers)));
    const failure: unknown = await session.publish(message, publish).catch((thrown: unknown) => thrown);
    await session.close();
    return failure;
  };

  test("that returns a message and says that it has 4 GB is gone", async () => {
    expect(await failureOf({ "60.40": (at) => Buffer.concat([returned(at), header(at, 4e9)]) })).toMatchObject({
      code: "tool_unreachable",
      message: expect.stringMatching(/a message of 4000000000 bytes/),
    });
  });

  test("cannot hide such a message in the end of a frame", async () => {
    const hiding: Answer = (at) => {
      // So much that there is no memory for it.
      const hidden = Buffer.concat([u8(0xce), header(at, 2 ** 50)]);
      // Its own end stands where the hidden frame's does.
      return method(at, "60.50", u16(312), short("NO_ROUTE"), short(""), short(""), hidden.subarray(0, -1));
    };
    const failure = await failureOf({ "60.40": (at) => Buffer.concat([hiding(at), header(at, 0), confirmed(at)]) });
    expect(failure).toMatchObject({ code: "tool_failed", message: expect.stringMatching(/NO_ROUTE/) });
  });

  test("that sends parts of a message beyond its length is gone", async () => {
    const part: Answer = (at) => frame(3, at, Buffer.alloc(10));
    expect(await failureOf({ "60.40": (at) => Buffer.concat([returned(at), header(at, 5), part(at)]) })).toMatchObject({
      code: "tool_unreachable",
      message: expect.stringMatching(/does not speak AMQP/),
    });
  });

  test("that sends a frame larger than was agreed is gone", async () => {
    const agreed = { ...usual, "10.11": () => method(0, "10.30", u16(2_047), u32(8_192), u16(0)) };
    const tooLong: Answer = (at) => frame(1, at, Buffer.alloc(9_000));
    expect(await failureOf({ ...agreed, "60.40": tooLong })).toMatchObject({
      code: "tool_unreachable",
      message: expect.stringMatching(/a frame of 9008 bytes, and 8192 are agreed/),
    });
  });

  test("that returns a message with its body says why, as before", async () => {
    const parts: Answer = (at) => Buffer.concat([frame(3, at, Buffer.alloc(600)), frame(3, at, Buffer.alloc(400))]);
    const failure = await failureOf({
      "60.40": (at) => Buffer.concat([returned(at), header(at, 1_000), parts(at), confirmed(at)]),
    });
    expect(failure).toMatchObject({ code: "tool_failed", message: expect.stringMatching(/NO_ROUTE/) });
  });

  test("that takes smaller frames than usual is told nothing of a message that does not fit one", async () => {
    const told: string[] = [];
    const small = { "10.11": () => method(0, "10.30", u16(2_047), u32(8_192), u16(0)) };
    const session = await brokers.open(account("rabbitmq", await amqp(small, told)));
    const headers = { large: "x".repeat(8_192) };
    const failure: unknown = await session.publish({ ...message, headers }, publish).catch((thrown: unknown) => thrown);
    expect(failure).toMatchObject({ code: "tool_failed", message: expect.stringMatching(/does not fit/) });
    expect(deliveryOf(failure)).toBe("not_sent");
    await session.close();
    expect(told).toContain("85.10");
    expect(told).not.toContain("60.40");
  });

  interface Consumed {
    readonly heard: readonly ReceivedMessage[];
    readonly lost: { readonly message: string } | undefined;
  }

  /** Until so many have been heard of, or the broker is left. */
  async function consume(sent: Answer, prefetch: number, enough: number): Promise<Consumed> {
    const heard: ReceivedMessage[] = [];
    const port = await amqp({ "60.20": (at) => Buffer.concat([method(at, "60.21", short("c1")), sent(at)]) });
    const over = Promise.withResolvers<undefined>();
    const consumer = await consumers.open(account("rabbitmq", port), {
      source: { name: "orders", group: "", from: "latest" },
      prefetch,
      onMessage: (taken) => {
        heard.push(taken);
        if (heard.length === enough) over.resolve(undefined);
        return Promise.resolve("done");
      },
    });
    const lost = await Promise.race([consumer.ended, over.promise]);
    await consumer.close(1_000);
    return { heard, lost };
  }

  test("may send a message that is too long for us: it is told about without its body, and others come", async () => {
    const length = largestMessageBytes + 100_000;
    const whole = Array.from({ length: Math.ceil(length / 131_064) }, (_none, at) =>
      Math.min(131_064, length - at * 131_064),
    );
    const { heard, lost } = await consume(
      (at) =>
        Buffer.concat([
          delivered(at, 1),
          header(at, length),
          ...whole.map((size) => frame(3, at, Buffer.alloc(size))),
          delivered(at, 2),
          header(at, 4),
          frame(3, at, Buffer.from("good")),
        ]),
      2,
      2,
    );
    expect(lost).toBeUndefined();
    expect(heard.map(({ body, unreadable }) => [Buffer.from(body).toString(), unreadable])).toEqual([
      ["", `It has ${length} bytes; no more than ${largestMessageBytes} are taken from a broker.`],
      ["good", undefined],
    ]);
  });

  test("may send a message whose headers nobody can read: it is told about, and others come", async () => {
    const unknown = Buffer.concat([u16(0x2000), u32(4), short("a"), Buffer.from("?x")]);
    const { heard, lost } = await consume(
      (at) =>
        Buffer.concat([
          delivered(at, 1),
          header(at, 0, unknown),
          delivered(at, 2),
          header(at, 4),
          frame(3, at, Buffer.from("good")),
        ]),
      2,
      2,
    );
    expect(lost).toBeUndefined();
    expect(heard.map(({ body, unreadable }) => [Buffer.from(body).toString(), unreadable])).toEqual([
      ["", "Its properties and headers cannot be read."],
      ["good", undefined],
    ]);
  });

  test("that sends more messages than may be in hand is left", async () => {
    const some: Answer = (at) =>
      Buffer.concat(Array.from({ length: 5 }, (_none, tag) => Buffer.concat([delivered(at, tag + 1), header(at, 0)])));
    const { heard, lost } = await consume(some, 2, 5);
    expect(lost).toMatchObject({
      code: "tool_unreachable",
      message: expect.stringMatching(/more than the 2 messages/),
    });
    expect(heard.length).toBeLessThanOrEqual(2);
  });
});
