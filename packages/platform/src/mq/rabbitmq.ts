/**
 * RabbitMQ (AMQP 0-9-1; MQ-1, MQ-2): persistent messages with publisher confirms, refused where they reach no
 * queue. Each message has a channel for itself while it is under way: what the broker says there is about it.
 * Delays are queues of the delay's length that dead-letter to the destination.
 */
import { createHash } from "node:crypto";
import type { AMQPChannel } from "@cloudamqp/amqp-client/amqp-channel";
import type { AMQPProperties } from "@cloudamqp/amqp-client/amqp-properties";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type {
  BrokerAccount,
  BrokerMessage,
  BrokerServer,
  BrokerSession,
  Confirmation,
  PublishOptions,
} from "@toolyard/core/ports/message-broker";
import { withDelivery, type Delivery } from "@toolyard/core/errors/delivery";
import { AmqpConnection } from "./amqp-connection.ts";
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

/** Of a virtual host that is not there, or is closed to who asks. */
const codeOfNoHost = 530;

/** A queue for delays goes when nobody has used it for so long after its last message is due. */
const delayQueueKeptMs = 60_000;

export async function openRabbitMq(
  deps: BrokerDeps,
  account: BrokerAccount,
  server: BrokerServer,
): Promise<BrokerSession> {
  return new RabbitMqSession(await connectRabbitMq(deps, account, server), server, account.virtualHost);
}

/** @throws GatewayError as `MessageBrokers.open` */
export async function connectRabbitMq(
  deps: BrokerDeps,
  account: BrokerAccount,
  server: BrokerServer,
): Promise<AmqpConnection> {
  const socket = await connectTo(deps, server, account.tls);
  const { virtualHost, login } = account;
  const connection = new AmqpConnection(socket, {
    virtualHost,
    username: login?.username ?? "guest",
    password: login?.password ?? "guest",
  });
  const timer = setTimeout(() => socket.destroy(new Error(`it did not answer within ${setUpMs} ms`)), setUpMs);
  try {
    await connection.connect();
    return connection;
  } catch (error) {
    connection.abandon();
    const { code, text } = readRefusal(error);
    if (code === 403) throw loginRefused(account, server, text);
    if (code === undefined) throw unreachable(server, text, error);
    const advice = code === codeOfNoHost ? "; see 'config.virtual_host'" : "";
    throw refused(`The broker at '${nameOf(server)}' refused the connection: ${text}${advice}.`, {
      code,
      delivery: "not_sent",
    });
  } finally {
    clearTimeout(timer);
  }
}

class RabbitMqSession implements BrokerSession {
  readonly #connection: AmqpConnection;
  readonly #server: BrokerServer;
  readonly #virtualHost: string;
  /** Channels with confirms that nobody uses now. */
  readonly #free: AMQPChannel[] = [];
  /** Somebody waited in vain: those who wait still may, who comes next gets another connection. */
  #isSuspect = false;

  constructor(connection: AmqpConnection, server: BrokerServer, virtualHost: string) {
    this.#connection = connection;
    this.#server = server;
    this.#virtualHost = virtualHost;
  }

  async publish(message: BrokerMessage, { signal, onSent }: PublishOptions): Promise<Confirmation> {
    if (signal.aborted) throw givenUp();
    if (this.#connection.blocked !== undefined) throw this.#blocked(this.#connection.blocked);
    const channel = await this.#beforeSending(() => this.#takeChannel());
    try {
      const route = await this.#beforeSending(() => prepareRoute(channel, message));
      if (signal.aborted) throw givenUp();
      const result = await this.#send(channel, { message, route, signal, onSent });
      this.#free.push(channel);
      return result;
    } catch (error) {
      if (signal.aborted) this.#isSuspect = true;
      // It may still be waiting for an answer that nobody wants any more.
      if (!channel.closed && this.#connection.isOpen) channel.close().catch(() => undefined);
      throw error;
    }
  }

  describe(): Promise<string> {
    return Promise.resolve(`RabbitMQ at ${nameOf(this.#server)}, virtual host '${this.#virtualHost}'`);
  }

  isAlive(): boolean {
    return !this.#isSuspect && this.#connection.isOpen;
  }

  async close(): Promise<void> {
    if (!this.#connection.isOpen) return;
    const timer = setTimeout(() => this.#connection.abandon(), 1_000);
    await this.#connection.close().catch(() => undefined);
    clearTimeout(timer);
  }

  async #takeChannel(): Promise<AMQPChannel> {
    for (let free = this.#free.pop(); free !== undefined; free = this.#free.pop()) if (!free.closed) return free;
    const channel = await this.#connection.channel();
    channel.onerror = () => undefined;
    await channel.confirmSelect();
    return channel;
  }

  /** Whatever fails here, the message itself has not left. */
  async #beforeSending<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof GatewayError) throw error;
      const { code, text } = readRefusal(error);
      if (code === undefined || code === 320) throw unreachable(this.#server, text, error);
      throw refused(`RabbitMQ refused it: ${text}.`, { code, delivery: "not_sent" });
    }
  }

  async #send(channel: AMQPChannel, { message, route, signal, onSent }: Sending): Promise<Confirmation> {
    let returned: string | undefined;
    channel.onReturn = ({ replyText }) => {
      returned = replyText ?? "NO_ROUTE";
    };
    const before = this.#connection.sent;
    onSent?.();
    const confirmed = channel.basicPublish(
      route.exchange,
      route.key,
      Buffer.from(message.body),
      toProperties(message),
      true,
    );
    // The library writes at once, or finds that it cannot.
    const hasLeft = this.#connection.sent > before;
    try {
      await untilGivenUp(confirmed, signal);
    } catch (error) {
      throw hasLeft ? this.#unconfirmed(error, message) : this.#unsent(error, message);
    }
    if (returned !== undefined) throw unrouted(message, returned);
    return route.heldBackMs === undefined ? {} : { heldBackMs: route.heldBackMs };
  }

  #unsent(error: unknown, message: BrokerMessage): GatewayError {
    if (error instanceof GatewayError) return withDelivery(error, "not_sent");
    const { text } = readRefusal(error);
    if (text.startsWith("Connection blocked")) return this.#blocked(text);
    if (!this.#connection.isOpen) return unreachable(this.#server, text, error);
    return refused(
      `The message for ${placeOf(message)} does not fit what RabbitMQ at '${nameOf(this.#server)}' takes: ${text}.`,
      { code: undefined, delivery: "not_sent" },
    );
  }

  #unconfirmed(error: unknown, message: BrokerMessage): GatewayError {
    if (error instanceof GatewayError) return error;
    const { code, text, isOfChannel } = readRefusal(error);
    if (isOfChannel && code !== undefined)
      return refused(`RabbitMQ refused the message for ${placeOf(message)}: ${text}.`, { code, delivery: "answered" });
    if (text === "Message rejected")
      return refused(
        `RabbitMQ did not take the message for ${placeOf(message)} (negative confirm; its queue may be full).`,
        {
          code: undefined,
          delivery: "answered",
        },
      );
    return lostConnection(this.#server, text, error);
  }

  #blocked(why: string): GatewayError {
    return withDelivery(
      new GatewayError(
        "tool_deferred",
        `RabbitMQ at '${nameOf(this.#server)}' takes no messages now, it has too little memory or disk (${oneLine(why)}).`,
      ),
      "not_sent",
    );
  }
}

interface Route {
  readonly exchange: string;
  readonly key: string;
  readonly heldBackMs?: number | undefined;
}

interface Sending extends PublishOptions {
  readonly message: BrokerMessage;
  readonly route: Route;
}

/** @throws whatever the broker says of the destination; it has closed the channel then */
async function prepareRoute(channel: AMQPChannel, message: BrokerMessage): Promise<Route> {
  const { destination: exchange, key = "", delayMs } = message;
  if (delayMs === undefined || delayMs === 0) return { exchange, key };
  // What dead-letters to nowhere is gone without a word.
  if (exchange === "") await channel.queueDeclare(key, { passive: true });
  else await channel.exchangeDeclare(exchange, "", { passive: true });
  const heldBackMs = roundUp(delayMs);
  const target = createHash("sha256")
    .update(JSON.stringify([exchange, key]))
    .digest("base64url")
    .slice(0, 16);
  const queue = `toolyard.delay.${heldBackMs}.${target}`;
  await channel.queueDeclare(
    queue,
    { durable: true },
    {
      "x-message-ttl": heldBackMs,
      "x-dead-letter-exchange": exchange,
      "x-dead-letter-routing-key": key,
      // Declaring it once more starts this time anew.
      "x-expires": heldBackMs + delayQueueKeptMs,
    },
  );
  return { exchange: "", key: queue, heldBackMs };
}

/** One queue for each delay there is, and so not for each millisecond. Never shorter, and a second longer at most. */
function roundUp(delayMs: number): number {
  const step = delayMs < 10_000 ? 100 : 1_000;
  return Math.ceil(delayMs / step) * step;
}

function toProperties({ id, contentType, headers, isPersistent, at }: BrokerMessage): AMQPProperties {
  return {
    messageId: id,
    contentType,
    headers: { ...headers },
    deliveryMode: isPersistent ? 2 : 1,
    timestamp: at,
    appId: "toolyard",
  };
}

function placeOf({ destination, key = "" }: BrokerMessage): string {
  return destination === "" ? `queue '${key}'` : `exchange '${destination}' with routing key '${key}'`;
}

function unrouted(message: BrokerMessage, replyText: string): GatewayError {
  const { destination, key = "" } = message;
  const advice =
    destination === ""
      ? `there is no queue '${key}'`
      : `no queue is bound to exchange '${destination}' for routing key '${key}'`;
  return refused(`RabbitMQ returned the message (${oneLine(replyText)}): ${advice}; nobody has it.`, {
    code: 312,
    delivery: "answered",
  });
}

function refused(
  message: string,
  { code, delivery }: { readonly code: number | undefined; readonly delivery: Delivery },
): GatewayError {
  const extra = code === undefined ? {} : { extra: { reply_code: code } };
  return withDelivery(new GatewayError("tool_failed", message, extra), delivery);
}

export interface Refusal {
  /** Reply code of AMQP, where the broker said one. */
  readonly code: number | undefined;
  readonly text: string;
  readonly isOfChannel: boolean;
}

export function readRefusal(error: unknown): Refusal {
  const message = error instanceof Error ? error.message : String(error);
  const [, where, said, code] = /^(channel|connection)(?: \d+)? closed: (.*) \((\d{3})\)$/s.exec(message) ?? [];
  return {
    code: code === undefined ? undefined : Number(code),
    text: oneLine(said ?? message),
    isOfChannel: where === "channel",
  };
}
