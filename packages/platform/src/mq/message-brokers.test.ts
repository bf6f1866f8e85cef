import { createServer, connect, type AddressInfo, type Server, type Socket } from "node:net";
import { openHttp2 } from "@toolyard/core/blind/http2-connection";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { Egress, EgressTarget } from "@toolyard/core/ports/egress";
import type { BrokerAccount, BrokerKind } from "@toolyard/core/ports/message-broker";
import type { ConsumerSource } from "@toolyard/core/ports/message-consumer";
import { deliveryOf, withDelivery } from "@toolyard/core/errors/delivery";
import { afterEach, describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { createMessageBrokers } from "./message-brokers.ts";
import { createMessageConsumers } from "./message-consumers.ts";
import { loginRefused } from "./sockets.ts";

const kinds: readonly BrokerKind[] = ["rabbitmq", "kafka", "redis", "rocketmq"];
const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await new Promise<void>((done) => void server.close(() => done()));
});

/** Somebody who is no broker. */
async function listen(serve: (socket: Socket) => void): Promise<number> {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.resume();
    serve(socket);
  });
  servers.push(server);
  await new Promise<void>((done) => void server.listen(0, "127.0.0.1", () => done()));
  return (server.address() as AddressInfo).port;
}

function account(kind: BrokerKind, ports: readonly number[]): BrokerAccount {
  return {
    kind,
    servers: ports.map((port) => ({ host: "127.0.0.1", port })),
    login: undefined,
    virtualHost: "/",
    mechanism: "plain",
  };
}

const opened: Socket[] = [];

function dial({ host, port }: EgressTarget): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, host, () => resolve(socket));
    opened.push(socket);
    socket.once("error", () =>
      reject(withDelivery(new GatewayError("tool_unreachable", `Nobody is at ${host}:${port}.`), "not_sent")),
    );
  });
}

const egress: Pick<Egress, "connect" | "connectHttp2"> = {
  connect: dial,
  async connectHttp2(target) {
    const { host, port, signal } = target;
    return openHttp2({ socket: await dial(target), host, port, tls: undefined, signal });
  },
};
const brokers = createMessageBrokers({ egress });

async function failure(kind: BrokerKind, ports: readonly number[]): Promise<unknown> {
  const error = await brokers.open(account(kind, ports)).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  // Whatever went wrong, nothing stays open.
  while (opened.some((socket) => !socket.destroyed)) await new Promise((done) => setTimeout(done, 10));
  return error;
}

describe.each(kinds)(`opening %s ${verifies("MQ-4")}`, (kind) => {
  test("says that nobody is there, and was sent nothing", async () => {
    const error = await failure(kind, [9, 9]);
    expect(error).toMatchObject({ code: "tool_unreachable" });
    expect(deliveryOf(error)).toBe("not_sent");
  });

  test("says that whoever is there hangs up", async () => {
    const error = await failure(kind, [await listen((socket) => socket.end())]);
    expect(error).toMatchObject({ code: "tool_unreachable" });
    expect(deliveryOf(error)).toBe("not_sent");
  });

  test("says that whoever is there speaks something else", async () => {
    const page = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    const error = await failure(kind, [await listen((socket) => socket.end(page.repeat(100)))]);
    expect(error).toMatchObject({ code: "tool_unreachable" });
    expect(deliveryOf(error)).toBe("not_sent");
  });

  test("keeps what our own door says no to", async () => {
    const refuse = (): Promise<never> => Promise.reject(new GatewayError("egress_denied", "Not there."));
    const closed = createMessageBrokers({
      egress: { connect: refuse, connectHttp2: refuse },
    });
    await expect(closed.open(account(kind, [1]))).rejects.toMatchObject({ code: "egress_denied" });
  });
});

test(`who dials a port without TLS by TLS is told so, in words that are no library's ${verifies("MQ-4")}`, async () => {
  const port = await listen((socket) => void socket.once("data", () => socket.end("AMQP\u0000\u0000\u0009\u0001")));
  const opening = brokers.open({ ...account("rabbitmq", [port]), tls: {} });
  await expect(opening).rejects.toMatchObject({
    code: "tool_unreachable",
    message: `The broker at '127.0.0.1:${port}' could not be reached: it does not speak TLS there (ERR_SSL_WRONG_VERSION_NUMBER).`,
  });
});

test.each([
  ["redis", "give 'config.password'."],
  ["rabbitmq", "give 'config.username' and 'config.password'."],
] as const)(`a login that %s wants is told with the fields to give ${verifies("MQ-4")}`, (kind, advice) => {
  const server = { host: "127.0.0.1", port: 1 };
  expect(loginRefused(account(kind, [1]), server, "who are you").message).toContain(`(who are you); ${advice}`);
});

test.each([
  "ERR max number of clients reached",
  "DENIED Redis is running in protected mode because protected mode is enabled",
])(
  `a Redis that hangs up with the words '%s' has been sent nothing, and they are told ${verifies("MQ-4")}`,
  async (words) => {
    const error = await failure("redis", [
      await listen((socket) => void socket.once("data", () => socket.end(`-${words}\r\n`))),
    ]);
    expect(error).toMatchObject({ code: "tool_unreachable", message: expect.stringContaining(words) });
    expect(deliveryOf(error)).toBe("not_sent");
  },
);

/** Lengths of frames, and what a client of Kafka makes of them. */
describe.each(["00000000", "ffffffff", "80000000", "04000001"])(
  `whoever answers a client of Kafka with the bytes %s ${verifies("MQ-4")}`,
  (answer) => {
    const serve = (socket: Socket): void => void socket.once("data", () => socket.write(Buffer.from(answer, "hex")));

    test("cannot be published to", async () => {
      const error = await failure("kafka", [await listen(serve)]);
      expect(error).toMatchObject({ code: "tool_unreachable" });
      expect(deliveryOf(error)).toBe("not_sent");
    });

    test("cannot be consumed from", async () => {
      const source: ConsumerSource = { name: "orders", group: "gateway", from: "latest" };
      const consuming = createMessageConsumers({ egress }).open(account("kafka", [await listen(serve)]), {
        source,
        prefetch: 1,
        onMessage: () => Promise.resolve("done"),
      });
      await expect(consuming).rejects.toMatchObject({ code: "tool_unreachable" });
    }, 20_000);
  },
);

test(`a broker of Kafka that breaks off the login with a frame beyond all measure is not waited for ${verifies("MQ-4")}`, async () => {
  // Of each request only the kind and the number count; the login itself has neither.
  const answers = ["00000000000100110000000000000000", "0000000000010005504c41494e"];
  const port = await listen((socket) => {
    socket.on("data", (request: Buffer) => {
      const body = answers.shift();
      if (body === undefined) return void socket.write(Buffer.from("7fffffff", "hex"));
      const answer = Buffer.concat([request.subarray(8, 12), Buffer.from(body, "hex")]);
      const length = Buffer.alloc(4);
      length.writeInt32BE(answer.length);
      socket.write(Buffer.concat([length, answer]));
    });
  });
  const login = { username: "gateway", password: "secret", credential: "kafka-password" };
  const error = await brokers.open({ ...account("kafka", [port]), login }).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  // A broker that hangs up on a login has refused it.
  expect(error).toMatchObject({ code: "credential_invalid" });
});
