/**
 * Redis Pub/Sub (MQ-4): at most once. The reply says how many have the message; who is not listening never
 * gets it. The client neither connects again nor sends anything again by itself.
 */
import type { Socket } from "node:net";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type {
  BrokerAccount,
  BrokerMessage,
  BrokerServer,
  BrokerSession,
  Confirmation,
  PublishOptions,
} from "@toolyard/core/ports/message-broker";
import { withDelivery } from "@toolyard/core/errors/delivery";
import { AbstractConnector, Redis } from "ioredis";
import { LateSocket } from "./late-socket.ts";
import { IncomingReplies } from "./redis-replies.ts";
import {
  connectTo,
  givenUp,
  loginRefused,
  lostConnection,
  nameOf,
  oneLine,
  setUpMs,
  unreachable,
  untilGivenUp,
  type BrokerDeps,
} from "./sockets.ts";

/** A line: how many have the message, or what is against it. */
const largestAnswerBytes = 65_536;

/** After these words it hangs up on whoever comes: it has too many clients, or serves none from elsewhere. */
const hangUps = /^(?:ERR max number of clients|DENIED)/;

export async function openRedis(
  deps: BrokerDeps,
  account: BrokerAccount,
  server: BrokerServer,
): Promise<BrokerSession> {
  const { client, socket } = await connectRedis(deps, { account, server }, largestAnswerBytes);
  return new RedisSession(client, socket, server);
}

/** @param largestReply bytes of one reply @throws GatewayError as `MessageBrokers.open` */
export async function connectRedis(
  deps: BrokerDeps,
  { account, server }: { readonly account: BrokerAccount; readonly server: BrokerServer },
  largestReply: number,
): Promise<{ readonly client: Redis; readonly socket: LateSocket }> {
  const replies = new IncomingReplies(largestReply);
  const socket = new LateSocket({
    connecting: Promise.resolve(await connectTo(deps, server, account.tls)),
    onConnect: () => undefined,
    onWrite: () => undefined,
    onRead: (bytes) => replies.read(bytes),
  });
  // What it was is asked of the socket.
  socket.on("error", () => undefined);
  const client = new Redis({
    Connector: connectorOf(socket),
    lazyConnect: true,
    protocol: 2,
    // It would send what was not answered once more.
    retryStrategy: () => null,
    enableOfflineQueue: false,
    enableReadyCheck: false,
    disableClientInfo: true,
  });
  client.on("error", () => undefined);
  const timer = setTimeout(() => socket.destroy(new Error(`no answer within ${setUpMs} ms`)), setUpMs);
  try {
    await client.connect();
    await logIn(client, account, server);
    return { client, socket };
  } catch (error) {
    client.disconnect();
    socket.destroy();
    throw error instanceof GatewayError ? error : unreachable(server, textOf(socket.errored ?? error), error);
  } finally {
    clearTimeout(timer);
  }
}

function connectorOf(socket: LateSocket): new (options: unknown) => AbstractConnector {
  return class extends AbstractConnector {
    constructor() {
      super(1_000);
    }

    override connect(): Promise<Socket> {
      // The client has no use for more of a socket than this one has.
      const stream = socket as unknown as Socket;
      // Where the client finds what it has to hang up on.
      Object.assign(this, { stream });
      return Promise.resolve(stream);
    }
  };
}

/** @throws GatewayError `credential_invalid`; whatever the connection says */
async function logIn(client: Redis, account: BrokerAccount, server: BrokerServer): Promise<void> {
  const { login } = account;
  try {
    if (login === undefined) await client.ping();
    else if (login.username === undefined) await client.auth(login.password);
    else await client.auth(login.username, login.password);
  } catch (error) {
    const said = textOf(error);
    if (/^(?:WRONGPASS|NOAUTH|ERR (?:AUTH|invalid password|Client sent AUTH))/.test(said))
      throw loginRefused(account, server, said);
    if (hangUps.test(said)) throw unreachable(server, said, error);
    // An account that may only publish is not let in by this, but is there.
    if (!isReply(error)) throw error;
  }
}

class RedisSession implements BrokerSession {
  readonly #client: Redis;
  readonly #socket: LateSocket;
  readonly #server: BrokerServer;
  /** Somebody waited in vain: those who wait still may, who comes next gets another connection. */
  #isSuspect = false;

  constructor(client: Redis, socket: LateSocket, server: BrokerServer) {
    this.#client = client;
    this.#socket = socket;
    this.#server = server;
  }

  async publish({ destination, body }: BrokerMessage, { signal, onSent }: PublishOptions): Promise<Confirmation> {
    if (signal.aborted) throw givenUp();
    if (!this.#isOpen) throw unreachable(this.#server, "it closed the connection");
    onSent?.();
    try {
      const receivers: unknown = await untilGivenUp(this.#client.publish(destination, Buffer.from(body)), signal);
      if (typeof receivers !== "number") throw new TypeError("it answered with something else than a number");
      return { receivers };
    } catch (error) {
      if (error instanceof GatewayError) {
        this.#isSuspect = true;
        throw error;
      }
      if (isReply(error)) throw this.#refused(destination, textOf(error));
      throw lostConnection(this.#server, textOf(this.#socket.errored ?? error), error);
    }
  }

  describe(): Promise<string> {
    return Promise.resolve(`Redis at ${nameOf(this.#server)}`);
  }

  isAlive(): boolean {
    return !this.#isSuspect && this.#isOpen;
  }

  get #isOpen(): boolean {
    return this.#client.status === "ready" && !this.#socket.destroyed;
  }

  async close(): Promise<void> {
    this.#client.disconnect();
    this.#socket.end();
    setTimeout(() => this.#socket.destroy(), 1_000).unref();
    await Promise.resolve();
  }

  #refused(channel: string, said: string): GatewayError {
    const isPassing = /^(?:LOADING|BUSY|TRYAGAIN|MASTERDOWN|CLUSTERDOWN)\b/.test(said);
    return withDelivery(
      new GatewayError(
        isPassing ? "tool_deferred" : "tool_failed",
        `Redis at '${nameOf(this.#server)}' refused the message for channel '${channel}': ${oneLine(said)}.`,
      ),
      isPassing ? "not_sent" : "answered",
    );
  }
}

function isReply(error: unknown): boolean {
  return error instanceof Error && error.name === "ReplyError";
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
