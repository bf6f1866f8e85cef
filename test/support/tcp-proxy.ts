/** Stands between a client and the gateway and breaks connections when told to, as networks do. */
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

export interface TcpProxy {
  readonly url: string;
  /** Connections so far. */
  connections(): number;
  /** From now on what the gateway says is lost; it does not notice. */
  loseAnswers(): void;
  /** Breaks every connection to a client that is open now; the gateway notices, or keeps talking to nobody. */
  cut(gatewayNotices?: boolean): void;
  close(): Promise<void>;
}

interface Pair {
  readonly client: Socket;
  readonly gateway: Socket;
  isLosing: boolean;
  isOneSided: boolean;
}

export async function startTcpProxy(target: string): Promise<TcpProxy> {
  const { hostname, port } = new URL(target);
  const pairs = new Set<Pair>();
  let connections = 0;
  const server = createServer((client) => {
    connections += 1;
    const pair: Pair = { client, gateway: connect(Number(port), hostname), isLosing: false, isOneSided: false };
    pairs.add(pair);
    client.on("error", () => undefined).pipe(pair.gateway, { end: false });
    client.on("close", () => {
      if (!pair.isOneSided) pair.gateway.destroy();
    });
    pair.gateway
      .on("error", () => undefined)
      .on("data", (bytes) => {
        if (!pair.isLosing && !client.destroyed) client.write(bytes);
      });
    pair.gateway.on("close", () => {
      pairs.delete(pair);
      client.destroy();
    });
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const cut = (gatewayNotices = true): void => {
    for (const pair of pairs) {
      pair.isOneSided = !gatewayNotices;
      pair.client.resetAndDestroy();
    }
  };
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    connections: () => connections,
    loseAnswers() {
      for (const pair of pairs) pair.isLosing = true;
    },
    cut,
    async close() {
      const closed = new Promise((done) => server.close(done));
      for (const { client, gateway } of pairs) for (const socket of [client, gateway]) socket.destroy();
      await closed;
    },
  };
}
