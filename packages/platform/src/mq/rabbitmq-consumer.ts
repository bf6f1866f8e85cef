/**
 * Takes messages from a RabbitMQ queue (MQ-3): consumers of one queue compete, the broker keeps what nobody has
 * acknowledged, and what is given up goes to the queue's dead-letter exchange where it has one.
 */
import type { AMQPChannel } from "@cloudamqp/amqp-client/amqp-channel";
import type { AMQPConsumer } from "@cloudamqp/amqp-client/amqp-consumer";
import type { AMQPMessage } from "@cloudamqp/amqp-client/amqp-message";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { BrokerAccount, BrokerServer } from "@toolyard/core/ports/message-broker";
import {
  largestMessageBytes,
  type ConsumeOptions,
  type ConsumerSource,
  type MessageConsumer,
  type ReceivedMessage,
  type Settlement,
} from "@toolyard/core/ports/message-consumer";
import type { AmqpConnection } from "./amqp-connection.ts";
import { InHand } from "./in-hand.ts";
import { connectRabbitMq, readRefusal } from "./rabbitmq.ts";
import { toHeaders } from "./received-text.ts";
import { atMost, lostConsumer, type BrokerDeps } from "./sockets.ts";

/** A broker that does not answer must not keep anybody. */
const hangUpMs = 1_000;

export async function consumeRabbitMq(
  deps: BrokerDeps,
  { account, server }: { readonly account: BrokerAccount; readonly server: BrokerServer },
  options: ConsumeOptions,
): Promise<MessageConsumer> {
  const connection = await connectRabbitMq(deps, account, server);
  connection.largestBody = largestMessageBytes;
  const { source, prefetch, onMessage } = options;
  const consumer = new RabbitMqConsumer(connection, server, source);
  try {
    await consumer.start(prefetch, onMessage);
    return consumer;
  } catch (error) {
    connection.abandon();
    const { code, text } = readRefusal(error);
    if (code === undefined || code === 320) throw lostConsumer(server, text, error);
    const what = code === 404 ? `there is no such queue or exchange (${text})` : text;
    throw new GatewayError("tool_failed", `RabbitMQ does not let queue '${source.name}' be consumed: ${what}.`, {
      extra: { reply_code: code },
      cause: error,
    });
  }
}

class RabbitMqConsumer implements MessageConsumer {
  readonly dropped = 0;
  readonly ended: Promise<GatewayError>;
  readonly #connection: AmqpConnection;
  readonly #server: BrokerServer;
  readonly #source: ConsumerSource;
  readonly #inHand = new InHand();
  readonly #end: (error: GatewayError) => void;
  #consumer: AMQPConsumer | undefined;
  #isClosed = false;

  constructor(connection: AmqpConnection, server: BrokerServer, source: ConsumerSource) {
    this.#connection = connection;
    this.#server = server;
    this.#source = source;
    const { promise, resolve } = Promise.withResolvers<GatewayError>();
    this.ended = promise;
    this.#end = resolve;
  }

  /** @throws whatever the broker says */
  async start(prefetch: number, onMessage: ConsumeOptions["onMessage"]): Promise<void> {
    const channel = await this.#connection.channel();
    channel.onerror = () => undefined;
    await declare(channel, this.#source);
    await channel.prefetch(prefetch);
    const consumer = await channel.basicConsume(this.#source.name, { noAck: false }, (message) => {
      if (this.#isClosed) return;
      // Each is in memory, and no broker sends more than was asked for.
      if (this.#inHand.size < prefetch) this.#inHand.add(this.#take(message, onMessage));
      else this.#lost(new Error(`it has sent more than the ${prefetch} messages that may be in hand ('prefetch')`));
    });
    this.#consumer = consumer;
    consumer.wait().catch((error: unknown) => this.#lost(error));
    this.#connection.ondisconnect = (error) => this.#lost(error);
    if (!this.#connection.isOpen) this.#lost(new Error("it closed the connection"));
  }

  async waiting(): Promise<number | undefined> {
    // Of its own: a queue that is gone closes it.
    const channel = await this.#connection.channel();
    channel.onerror = () => undefined;
    const { messageCount } = await channel.queueDeclare(this.#source.name, { passive: true });
    await channel.close();
    return messageCount;
  }

  async close(graceMs: number): Promise<void> {
    const mayTake = this.#connection.isOpen;
    this.#isClosed = true;
    // What was delivered and not begun goes back to the queue with the connection.
    if (mayTake && this.#consumer !== undefined) await atMost(hangUpMs, this.#consumer.cancel());
    await this.#inHand.settled(graceMs);
    if (this.#connection.isOpen) await atMost(hangUpMs, this.#connection.close());
    this.#connection.abandon();
  }

  async #take(message: AMQPMessage, onMessage: ConsumeOptions["onMessage"]): Promise<void> {
    let settlement: Settlement = "again";
    try {
      settlement = await onMessage(toReceived(message, this.#connection.unreadable(message)));
    } finally {
      // On a channel that is gone the broker has taken it back already.
      await settle(message, settlement).catch(() => undefined);
    }
  }

  #lost(error: unknown): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const { text } = readRefusal(error);
    this.#end(lostConsumer(this.#server, `${text}, queue '${this.#source.name}'`, error));
    this.#connection.abandon();
  }
}

/** @throws whatever the broker says of the queue */
async function declare(channel: AMQPChannel, { name, declare: wanted }: ConsumerSource): Promise<void> {
  if (wanted === undefined) {
    await channel.queueDeclare(name, { passive: true });
    return;
  }
  const { exchange, bindingKeys, deadLetterExchange } = wanted;
  const deadLetters = deadLetterExchange === undefined ? {} : { "x-dead-letter-exchange": deadLetterExchange };
  await channel.queueDeclare(name, { durable: true }, deadLetters);
  if (exchange === undefined) return;
  for (const key of bindingKeys) await channel.queueBind(name, exchange, key);
}

async function settle(message: AMQPMessage, settlement: Settlement): Promise<void> {
  if (settlement === "done") await message.ack();
  else await message.nack(settlement === "again");
}

function toReceived(
  { properties, body, exchange, routingKey, redelivered }: AMQPMessage,
  unreadable: string | undefined,
): ReceivedMessage {
  const { messageId, contentType, headers, timestamp } = properties;
  return {
    ...(messageId === undefined || messageId === "" ? {} : { id: messageId }),
    body: body ?? new Uint8Array(),
    ...(contentType === undefined ? {} : { contentType }),
    headers: textHeaders(headers ?? {}),
    ...(routingKey === "" ? {} : { key: routingKey }),
    place: exchange === "" ? {} : { exchange },
    ...(timestamp === undefined ? {} : { at: timestamp.getTime() }),
    isRedelivered: redelivered,
    unreadable,
  };
}

function textHeaders(headers: Readonly<Record<string, unknown>>): Record<string, string> {
  return toHeaders(
    Object.entries(headers).flatMap(([name, value]): [string, string][] =>
      ["string", "number", "boolean", "bigint"].includes(typeof value) ? [[name, String(value)]] : [],
    ),
  );
}
