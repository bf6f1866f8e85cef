/**
 * Gives messages to brokers (MQ-1, MQ-2, MQ-4). Implementations: platform/src/mq. They connect through the
 * guarded door alone and send nothing twice by themselves: what became of a message is told, never guessed.
 */
import type { EgressTls } from "./egress.ts";

export type BrokerKind = "rabbitmq" | "kafka" | "redis" | "rocketmq";

export interface BrokerServer {
  readonly host: string;
  readonly port: number;
}

export interface BrokerAccount {
  readonly kind: BrokerKind;
  /** Tried in this order. */
  readonly servers: readonly BrokerServer[];
  /** Absent: in clear. */
  readonly tls?: EgressTls | undefined;
  readonly login?: BrokerLogin | undefined;
  /** Of RabbitMQ. */
  readonly virtualHost: string;
  /** Of Kafka, where there is a login. */
  readonly mechanism: "plain" | "scram-sha-256" | "scram-sha-512";
  /** Of RocketMQ: what its topics stand in. */
  readonly namespace?: string | undefined;
}

export interface BrokerLogin {
  readonly username: string | undefined;
  readonly password: string;
  /** Name of the password's credential, for errors. */
  readonly credential: string;
}

export interface BrokerMessage {
  /** Ours; goes with the message where the broker has a place for it. */
  readonly id: string;
  /** Where it goes: a topic, a channel, a queue, or an exchange (RabbitMQ; empty: straight to the queue `key`). */
  readonly destination: string;
  /** Routing key (RabbitMQ), or what keeps messages in order (Kafka, RocketMQ). */
  readonly key?: string | undefined;
  /** RocketMQ: by what it is searched for at the broker, besides `key`. */
  readonly keys?: readonly string[] | undefined;
  /** RocketMQ: by what consumers choose. */
  readonly tag?: string | undefined;
  readonly body: Uint8Array;
  readonly contentType: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Outlives a restart of the broker, where the broker makes a difference. */
  readonly isPersistent: boolean;
  readonly at: Date;
  /** Milliseconds for which the broker itself holds it back; for brokers that can (`holdsBack`). */
  readonly delayMs?: number | undefined;
}

export interface Confirmation {
  /** Kafka: where it lies. */
  readonly partition?: number | undefined;
  /** Kafka, RocketMQ. */
  readonly offset?: string | undefined;
  /** Redis: who has it. */
  readonly receivers?: number | undefined;
  /** RabbitMQ, RocketMQ: milliseconds for which it is held back, the delay asked for or a little more. */
  readonly heldBackMs?: number | undefined;
}

export interface PublishOptions {
  readonly signal: AbortSignal;
  /** Called once, when the message's bytes are about to leave. */
  readonly onSent?: (() => void) | undefined;
}

export interface BrokerSession {
  /**
   * Returns when the broker has confirmed the message.
   * @throws GatewayError `tool_failed`, `tool_deferred` (answered: the broker does not have it),
   * `tool_unreachable`, `call_cancelled`; `not_sent` before the message's first byte, `uncertain` after it
   */
  publish(message: BrokerMessage, options: PublishOptions): Promise<Confirmation>;
  /**
   * Whether the broker itself can hold back a message for this destination; absent: as its kind says.
   * @throws GatewayError as `publish`; nothing has been sent
   */
  holdsBack?(message: BrokerMessage, signal: AbortSignal): Promise<boolean>;
  /** What is there, for people. */
  describe(): Promise<string>;
  isAlive(): boolean;
  close(): Promise<void>;
}

export interface MessageBrokers {
  /**
   * Connected and logged in.
   * @throws GatewayError `egress_denied`, `tool_unreachable`, `credential_invalid`, `tool_failed`; all `not_sent`
   */
  open(account: BrokerAccount): Promise<BrokerSession>;
}
