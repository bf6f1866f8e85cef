/**
 * The part of Redis that publishers and listeners need, over the real wire (RESP 2): it refuses what Redis
 * refuses (commands before the login, wrong passwords, commands and numbers of arguments it does not know).
 */
import { createServer as createPlainServer, type AddressInfo, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { localCertificate, localKey } from "./tls-pair.ts";

/** `silent`: takes a message and says nothing. `drop`: takes it and breaks the connection, once. `huge`: answers without an end. */
export type PublishMood = "take" | "silent" | "drop" | "huge";

export interface RedisStub {
  readonly port: number;
  readonly published: readonly { readonly channel: string; readonly message: string }[];
  /** Connections that are open. */
  readonly open: number;
  onPublish: PublishMood;
  close(): Promise<void>;
}

export interface RedisStubOptions {
  readonly user?: { readonly name: string; readonly password: string };
  readonly tls?: boolean;
}

export async function startRedisStub({ user, tls = false }: RedisStubOptions = {}): Promise<RedisStub> {
  const published: { channel: string; message: string }[] = [];
  const sockets = new Set<Socket>();
  const listeners = new Map<Socket, Set<string>>();
  const stub = {
    port: 0,
    published,
    get open() {
      return sockets.size;
    },
    onPublish: "take" as PublishMood,
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((done) => void server.close(() => done()));
    },
  };

  function publish(channel: string, message: string): string {
    published.push({ channel, message });
    const hearing = [...listeners].filter(([, channels]) => channels.has(channel));
    for (const [socket] of hearing) socket.write(array(["message", channel, message]));
    return `:${hearing.length}\r\n`;
  }

  function serve(socket: Socket): void {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => {
      sockets.delete(socket);
      listeners.delete(socket);
    });
    let isIn = user === undefined;
    const answer = ([name = "", ...args]: readonly string[]): string | undefined => {
      const command = name.toUpperCase();
      if (command === "AUTH") {
        const [username, password] = args.length === 1 ? ["default", args[0]] : args;
        if (args.length === 0 || args.length > 2) return "-ERR syntax error\r\n";
        if (username !== user?.name || password !== user?.password)
          return "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
        isIn = true;
        return "+OK\r\n";
      }
      if (!isIn) return "-NOAUTH Authentication required.\r\n";
      if (command === "PING") return "+PONG\r\n";
      if (command === "QUIT") {
        socket.end("+OK\r\n");
        return undefined;
      }
      if (command === "SUBSCRIBE" && args.length > 0) {
        const channels = listeners.get(socket) ?? new Set();
        listeners.set(socket, channels);
        return args
          .map((channel) => `*3\r\n${bulk("subscribe")}${bulk(channel)}:${channels.add(channel).size}\r\n`)
          .join("");
      }
      if (command === "PUBLISH") {
        const [channel, message] = args;
        if (channel === undefined || message === undefined || args.length !== 2)
          return "-ERR wrong number of arguments for 'publish' command\r\n";
        const reply = publish(channel, message);
        if (stub.onPublish === "silent") return undefined;
        if (stub.onPublish === "take") return reply;
        if (stub.onPublish === "huge") return bulk("x".repeat(10_000_000));
        stub.onPublish = "take";
        socket.destroy();
        return undefined;
      }
      return `-ERR unknown command '${name}', with args beginning with: \r\n`;
    };
    let rest = Buffer.alloc(0);
    socket.on("data", (bytes: Buffer) => {
      rest = Buffer.concat([rest, bytes]);
      for (let read = readCommand(rest); read !== undefined; read = readCommand(rest)) {
        rest = rest.subarray(read.length);
        const reply = answer(read.command);
        if (reply !== undefined && !socket.destroyed) socket.write(reply);
      }
    });
  }

  const server = tls ? createTlsServer({ key: localKey, cert: localCertificate }, serve) : createPlainServer(serve);
  server.on("tlsClientError", () => undefined);
  await new Promise<void>((done) => void server.listen(0, "127.0.0.1", () => done()));
  stub.port = (server.address() as AddressInfo).port;
  return stub;
}

function bulk(text: string): string {
  return `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
}

function array(texts: readonly string[]): string {
  return `*${texts.length}\r\n${texts.map(bulk).join("")}`;
}

/** The first command of the bytes, once it is there as a whole. */
function readCommand(bytes: Buffer): { readonly command: readonly string[]; readonly length: number } | undefined {
  let at = 0;
  const line = (): string | undefined => {
    const end = bytes.indexOf("\r\n", at);
    if (end < 0) return undefined;
    const text = bytes.toString("utf8", at, end);
    at = end + 2;
    return text;
  };
  const head = line();
  if (head === undefined) return undefined;
  const command: string[] = [];
  for (let left = Number(head.slice(1)); left > 0; left -= 1) {
    const size = Number(line()?.slice(1) ?? Number.NaN);
    if (Number.isNaN(size) || bytes.length < at + size + 2) return undefined;
    command.push(bytes.toString("utf8", at, at + size));
    at += size + 2;
  }
  return { command, length: at };
}
