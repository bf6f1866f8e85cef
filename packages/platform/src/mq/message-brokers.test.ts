import { createServer, connect, type AddressInfo, type Server, type Socket } from "node:net";
import { openHttp2 } from "@toolyard/core/blind/http2-connection";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { EgressTarget } from "@toolyard/core/ports/egress";
import type { BrokerAccount, BrokerKind } from "@toolyard/core/ports/message-broker";
import { deliveryOf, withDelivery } from "@toolyard/core/errors/delivery";
import { afterEach, describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { createMessageBrokers } from "./message-brokers.ts";

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

const brokers = createMessageBrokers({
  egress: {
    connect: dial,
    async connectHttp2(target) {
      const { host, port, signal } = target;
      return openHttp2({ socket: await dial(target), host, port, tls: undefined, signal });
    },
  },
});

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
