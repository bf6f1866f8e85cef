/** Stands between a client and a broker, and cuts the line when told to. */
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

export interface CuttingProxy {
  readonly port: number;
  /** Connections that were taken, ever. */
  readonly taken: number;
  /** Connections that are open now. */
  readonly open: number;
  /** Bytes of the client after which nothing of the broker comes back, and the line is cut; undefined: never. */
  cutAfter: string | undefined;
  /** How often it has cut. */
  readonly cuts: number;
  close(): Promise<void>;
}

export async function startCuttingProxy(target: number): Promise<CuttingProxy> {
  const sockets = new Set<Socket>();
  const proxy = {
    port: 0,
    taken: 0,
    open: 0,
    cutAfter: undefined as string | undefined,
    cuts: 0,
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((done) => void server.close(() => done()));
    },
  };
  const server = createServer((client) => {
    proxy.taken += 1;
    proxy.open += 1;
    client.on("close", () => {
      proxy.open -= 1;
    });
    const broker = connect(target, "127.0.0.1");
    for (const socket of [client, broker]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        sockets.delete(socket);
        client.destroy();
        // What the broker has been given reaches it.
        broker.end();
      });
    }
    let isCut = false;
    client.on("data", (bytes: Buffer) => {
      broker.write(bytes);
      if (proxy.cutAfter === undefined || !bytes.includes(proxy.cutAfter)) return;
      isCut = true;
      proxy.cuts += 1;
      // By then the broker has it and has said so, to nobody.
      setTimeout(() => client.destroy(), 100);
    });
    broker.on("data", (bytes: Buffer) => {
      if (!isCut) client.write(bytes);
    });
  });
  await new Promise<void>((done) => void server.listen(0, "127.0.0.1", () => done()));
  proxy.port = (server.address() as AddressInfo).port;
  return proxy;
}

/** Stands between a consumer and a broker, and keeps what the consumer says to itself when told to. */
export interface MutingProxy {
  readonly port: number;
  /** From now on nothing that clients say arrives; what the broker says does. */
  mute(): void;
  /** Connections from now on are heard again. */
  unmute(): void;
  close(): Promise<void>;
}

export async function startMutingProxy(target: number): Promise<MutingProxy> {
  const sockets = new Set<Socket>();
  let isMute = false;
  const server = createServer((client) => {
    const broker = connect(target, "127.0.0.1");
    for (const socket of [client, broker]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        sockets.delete(socket);
        client.destroy();
        broker.destroy();
      });
    }
    client.on("data", (bytes: Buffer) => {
      if (!isMute) broker.write(bytes);
    });
    broker.on("data", (bytes: Buffer) => void client.write(bytes));
  });
  await new Promise<void>((done) => void server.listen(0, "127.0.0.1", () => done()));
  return {
    port: (server.address() as AddressInfo).port,
    mute() {
      isMute = true;
    },
    unmute() {
      isMute = false;
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((done) => void server.close(() => done()));
    },
  };
}
