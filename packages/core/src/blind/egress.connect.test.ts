/** Connections for protocols other than HTTP pass the same checks as requests (BLIND-8). */
import { once } from "node:events";
import { createServer, type AddressInfo, type Server } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Egress, EgressTarget } from "../ports/egress.ts";
import { deliveryOf } from "../errors/delivery.ts";
import { createEgress, type EgressOptions } from "./egress.ts";

let server: Server;
let port: number;
beforeAll(async () => {
  server = createServer((socket) => socket.end("hello"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  ({ port } = server.address() as AddressInfo);
});
afterAll(() => {
  server.close();
});

async function through<T>(options: Partial<EgressOptions>, use: (egress: Egress) => Promise<T>): Promise<T> {
  const egress = createEgress({ allowCidrs: ["127.0.0.0/8"], ...options });
  try {
    return await use(egress);
  } finally {
    await egress.close();
  }
}

const failure = async (egress: Egress, target: EgressTarget): Promise<readonly unknown[]> => {
  const error: unknown = await egress.connect(target).then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  return error instanceof GatewayError ? [error.code, error.details.extra?.["reason"], deliveryOf(error)] : [error];
};

const resolvesTo = (...addresses: readonly string[]): Partial<EgressOptions> => ({
  resolve: () => Promise.resolve(addresses.map((address) => ({ address, family: 4 }))),
});

test(`a connection goes to the address that was checked ${verifies("BLIND-8")}`, async () => {
  const heard = await through(resolvesTo("127.0.0.1"), async (egress) => {
    const socket = await egress.connect({ host: "mail.example.com.", port });
    const [data] = (await once(socket, "data")) as [Buffer];
    socket.destroy();
    return data.toString();
  });
  expect(heard).toBe("hello");
});

test(`no connection to addresses that are not public, by literal or by name ${verifies("BLIND-8")}`, async () => {
  const closed: Partial<EgressOptions> = { allowCidrs: [] };
  await through({ ...closed, ...resolvesTo("93.184.216.34", "127.0.0.1") }, async (egress) => {
    expect(await failure(egress, { host: "127.0.0.1", port })).toEqual(["egress_denied", "loopback", "not_sent"]);
    expect(await failure(egress, { host: "::ffff:127.0.0.1", port })).toEqual([
      "egress_denied",
      "ipv4_mapped",
      "not_sent",
    ]);
    // One bad address is enough.
    expect(await failure(egress, { host: "mail.example.com", port })).toEqual([
      "egress_denied",
      "loopback",
      "not_sent",
    ]);
    expect(await failure(egress, { host: "metadata.google.internal", port })).toEqual([
      "egress_denied",
      "metadata",
      "not_sent",
    ]);
  });
  await through({ deniedEndpoints: [`127.0.0.1:${port}`] }, async (egress) => {
    expect(await failure(egress, { host: "127.0.0.1", port })).toEqual([
      "egress_denied",
      "denied_endpoint",
      "not_sent",
    ]);
  });
});

test("nobody there, and giving up, are told as not sent", async () => {
  await through({}, async (egress) => {
    expect(await failure(egress, { host: "127.0.0.1", port: 9 })).toEqual(["tool_unreachable", undefined, "not_sent"]);
    const signal = AbortSignal.abort();
    expect(await failure(egress, { host: "127.0.0.1", port, signal })).toEqual([
      "call_cancelled",
      undefined,
      "not_sent",
    ]);
  });
  const hangs = { resolve: () => new Promise<never>(() => undefined) };
  await through(hangs, async (egress) => {
    const giveUp = new AbortController();
    const waiting = failure(egress, { host: "mail.example.com", port, signal: giveUp.signal });
    giveUp.abort();
    expect(await waiting).toEqual(["call_cancelled", undefined, "not_sent"]);
  });
});
