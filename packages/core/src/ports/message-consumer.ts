/**
 * Takes messages from brokers (MQ-3, MQ-4). Implementations: platform/src/mq, one file a kind of broker. What is
 * taken stays the broker's until it is settled: a process that dies, and a consumer that is closed, leave what they
 * had in hand to whoever consumes next. Consumers never connect again by themselves; whoever holds one opens another.
 */
import type { GatewayError } from "../errors/gateway-error.ts";
import type { BrokerAccount } from "./message-broker.ts";

/** Of one message: no service may allow more (`max_message_bytes`), and so no more is taken from a broker. */
export const largestMessageBytes = 16_777_216;

/** What is consumed. Fields of other kinds of brokers are left alone. */
export interface ConsumerSource {
  /** Queue (RabbitMQ), topic (Kafka, RocketMQ) or channel (Redis). */
  readonly name: string;
  /** Consumers of one group share the messages (Kafka, RocketMQ). */
  readonly group: string;
  /** Where a group begins that has consumed nothing yet (Kafka). */
  readonly from: "latest" | "earliest";
  /**
   * RocketMQ: what was stored before is passed over. Kafka: the same with `latest`, in partitions that a group which
   * has begun has no place in. Epoch milliseconds.
   */
  readonly since?: number | undefined;
  /** RabbitMQ: makes the queue where it is missing. */
  readonly declare?: QueueDeclaration | undefined;
  /** Kafka: the topic for messages that are given up; absent: they are passed over. */
  readonly deadLetterTopic?: string | undefined;
}

export interface QueueDeclaration {
  /** Bound to it with each of the keys; absent: bound to nothing. */
  readonly exchange?: string | undefined;
  readonly bindingKeys: readonly string[];
  /** Gets what is given up. */
  readonly deadLetterExchange?: string | undefined;
}

export interface ReceivedMessage {
  /**
   * The same however often the message is delivered: the producer's id, else what the broker knows it by.
   * Absent: nothing tells a message that comes again from a new one.
   */
  readonly id?: string | undefined;
  readonly body: Uint8Array;
  readonly contentType?: string | undefined;
  /** Those that are text. */
  readonly headers: Readonly<Record<string, string>>;
  /** Routing key (RabbitMQ), or what keeps messages in order (Kafka, RocketMQ). */
  readonly key?: string | undefined;
  /** Where it lies, in the broker's words: `partition`, `offset`, `exchange`. */
  readonly place: Readonly<Record<string, string | number>>;
  /** When it was published; epoch milliseconds. */
  readonly at?: number | undefined;
  /** The broker has given it to somebody before. */
  readonly isRedelivered: boolean;
  /** Why it is not as it was sent: no call can be made of it. A body that is too long for us is empty. */
  readonly unreadable?: string | undefined;
}

/**
 * `done`: never to be delivered again. `dead`: given up; it goes where the broker has a place for such messages.
 * `again`: given back, for another delivery.
 */
export type Settlement = "done" | "dead" | "again";

export interface ConsumeOptions {
  readonly source: ConsumerSource;
  /** Messages in hand at once; no more are taken until one is settled. */
  readonly prefetch: number;
  readonly onMessage: (message: ReceivedMessage) => Promise<Settlement>;
}

export interface MessageConsumer {
  /** The connection is gone, or the broker has sent it away: with what it said. Never for one that was closed. */
  readonly ended: Promise<GatewayError>;
  /** How many messages wait at the broker; undefined where it cannot say. @throws whatever the connection says */
  waiting(): Promise<number | undefined>;
  /** How many messages were dropped here since, for brokers that store none (Redis). */
  readonly dropped: number;
  /**
   * Takes nothing more, has `onMessage` end within `graceMs` for what is in hand and settles it, and gives the rest
   * back. Never throws.
   */
  close(graceMs: number): Promise<void>;
}

export interface MessageConsumers {
  /**
   * Connected, logged in, and consuming.
   * @throws GatewayError `egress_denied`, `tool_unreachable`, `credential_invalid`, `tool_failed`
   */
  open(account: BrokerAccount, options: ConsumeOptions): Promise<MessageConsumer>;
}
