/**
 * Kafka (MQ-1, MQ-4): acknowledged by all replicas in sync. The client repeats nothing by itself; whether a
 * message had begun to leave when something broke is read off the bytes that were written.
 */
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
import kafkajs, { Kafka, logLevel, Partitioners, type ISocketFactory, type Producer, type SASLOptions } from "kafkajs";
import { ungzip, unlz4, unsnappy, unzstd } from "./kafka-codecs.ts";
import { LateSocket } from "./late-socket.ts";
import {
  connectTo,
  givenUp,
  loginRefused,
  lostConnection,
  nameOf,
  oneLine,
  setUpMs,
  TooMuchSaid,
  unreachable,
  untilGivenUp,
  type BrokerDeps,
} from "./sockets.ts";

const requestMs = 30_000;
/** What a request starts with after its length, where it is one to take messages. */
const produceRequest = 0;
/**
 * The library keeps a frame in memory until it is whole. Whoever publishes is told which partitions a topic has, which
 * for some ten thousand is still less; those of messages taken are of some 10 MB.
 */
const largestFrameBytes = { publishing: 4 * 1_048_576, consuming: 64 * 1_048_576 } as const;

/** A batch of 1 MB, as brokers take it, may have a thousand times that when it is unpacked. We ourselves pack none. */
const { CompressionCodecs, CompressionTypes } = kafkajs;
const unpackedBy =
  (unpack: (packed: Buffer, mostBytes: number) => Buffer | Promise<Buffer>) =>
  (): { readonly decompress: (packed: Buffer) => Promise<Buffer> } => ({
    decompress: async (packed) => unpack(packed, largestFrameBytes.consuming),
  });
CompressionCodecs[CompressionTypes.GZIP] = unpackedBy(ungzip);
CompressionCodecs[CompressionTypes.Snappy] = unpackedBy(unsnappy);
CompressionCodecs[CompressionTypes.LZ4] = unpackedBy(unlz4);
CompressionCodecs[CompressionTypes.ZSTD] = unpackedBy(unzstd);

/** Said no, and may say yes in a moment; the message is not there. */
const passing: ReadonlySet<string> = new Set([
  "LEADER_NOT_AVAILABLE",
  "NOT_LEADER_FOR_PARTITION",
  "REPLICA_NOT_AVAILABLE",
  "BROKER_NOT_AVAILABLE",
  "NOT_ENOUGH_REPLICAS",
  "THROTTLING_QUOTA_EXCEEDED",
]);

/** Said neither yes nor no: the message may be there. */
const open: ReadonlySet<string> = new Set([
  "UNKNOWN",
  "REQUEST_TIMED_OUT",
  "NETWORK_EXCEPTION",
  "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
  "KAFKA_STORAGE_ERROR",
]);

export async function openKafka(
  deps: BrokerDeps,
  account: BrokerAccount,
  server: BrokerServer,
): Promise<BrokerSession> {
  const { kafka, wire } = clientOf(deps, { account, server }, "publishing");
  const producer = kafka.producer({
    retry: { retries: 0 },
    allowAutoTopicCreation: false,
    createPartitioner: Partitioners.DefaultPartitioner,
  });
  try {
    await producer.connect();
    return new KafkaSession(producer, server, wire);
  } catch (error) {
    await producer.disconnect().catch(() => undefined);
    throw notConnected(error, { account, server, wire });
  }
}

export interface KafkaClient {
  readonly kafka: Kafka;
  readonly wire: Wire;
}

/** Has not connected yet, and repeats nothing unless it is told to. */
export function clientOf(
  deps: BrokerDeps,
  { account, server }: { readonly account: BrokerAccount; readonly server: BrokerServer },
  use: keyof typeof largestFrameBytes,
): KafkaClient {
  const wire: Wire = { produced: 0, refusal: undefined };
  const kafka = new Kafka({
    clientId: "toolyard",
    brokers: [nameOf(server)],
    connectionTimeout: setUpMs,
    authenticationTimeout: setUpMs,
    requestTimeout: requestMs,
    enforceRequestTimeout: true,
    retry: { retries: 0 },
    logLevel: logLevel.NOTHING,
    socketFactory: socketsOf(deps, account, { wire, largestFrame: largestFrameBytes[use] }),
    ...(account.login === undefined ? {} : { sasl: saslOf(account), ssl: false }),
  });
  return { kafka, wire };
}

interface Connecting {
  readonly account: BrokerAccount;
  readonly server: BrokerServer;
  readonly wire: Wire;
}

/** @returns why there is no connection; `not_sent` */
export function notConnected(error: unknown, { account, server, wire }: Connecting): GatewayError {
  if (wire.refusal !== undefined) return wire.refusal;
  const { name, text, type } = readFailure(error);
  if (name === "KafkaJSSASLAuthenticationError" || type === "SASL_AUTHENTICATION_FAILED")
    return loginRefused(account, server, text);
  return unreachable(server, text, error);
}

/** What was seen of the connections of one session. */
export interface Wire {
  /** Requests to take messages that have begun to leave. */
  produced: number;
  /** What our own door said no to. */
  refusal: GatewayError | undefined;
}

/** Every address that the cluster names goes through the door. */
function socketsOf(
  deps: BrokerDeps,
  { tls }: BrokerAccount,
  { wire, largestFrame }: { readonly wire: Wire; readonly largestFrame: number },
): ISocketFactory {
  return ({ host, port, onConnect }) => {
    const connecting = connectTo(deps, { host, port }, tls);
    connecting.catch((error: unknown) => {
      if (error instanceof GatewayError && error.code === "egress_denied") wire.refusal = error;
    });
    const frames = new IncomingFrames(largestFrame);
    const socket = new LateSocket({
      connecting,
      onConnect,
      onRead: (bytes) => frames.read(bytes),
      onWrite: (bytes) => {
        if (bytes.length >= 6 && bytes.readInt16BE(4) === produceRequest) wire.produced += 1;
      },
    });
    // Kafkajs has no use for more of a socket than this one has.
    return socket as unknown as ReturnType<ISocketFactory>;
  };
}

/** Follows the lengths that frames begin with. */
class IncomingFrames {
  readonly #largest: number;
  #length: Buffer = Buffer.alloc(0);
  /** Bytes of the frame that are still to come. */
  #open = 0;

  constructor(largest: number) {
    this.#largest = largest;
  }

  /** @throws TooMuchSaid; Error about a frame that no broker sends */
  read(bytes: Buffer): void {
    let rest = bytes;
    while (rest.length > 0) {
      const skipped = Math.min(this.#open, rest.length);
      const missing = 4 - this.#length.length;
      this.#open -= skipped;
      this.#length = Buffer.concat([this.#length, rest.subarray(skipped, skipped + missing)]);
      rest = rest.subarray(skipped + missing);
      if (this.#length.length === 4) this.#begin();
    }
  }

  #begin(): void {
    this.#open = this.#length.readInt32BE();
    this.#length = Buffer.alloc(0);
    if (this.#open < 0) throw new Error(`a frame of ${this.#open} bytes`);
    if (this.#open > this.#largest)
      throw new TooMuchSaid(
        `it sends a frame of ${this.#open} bytes, and ${this.#largest} at most are taken from Kafka`,
      );
  }
}

function saslOf({ login, mechanism }: BrokerAccount): SASLOptions {
  return { mechanism, username: login?.username ?? "", password: login?.password ?? "" };
}

class KafkaSession implements BrokerSession {
  readonly #producer: Producer;
  readonly #server: BrokerServer;
  readonly #wire: Wire;
  #isAlive = true;

  constructor(producer: Producer, server: BrokerServer, wire: Wire) {
    this.#producer = producer;
    this.#server = server;
    this.#wire = wire;
  }

  async publish(message: BrokerMessage, { signal, onSent }: PublishOptions): Promise<Confirmation> {
    if (signal.aborted) throw givenUp();
    const { produced } = this.#wire;
    onSent?.();
    try {
      const [record] = await untilGivenUp(this.#send(message), signal);
      return { partition: record?.partition, offset: record?.baseOffset ?? record?.offset };
    } catch (error) {
      throw this.#readError(error, message, this.#wire.produced > produced);
    }
  }

  describe(): Promise<string> {
    return Promise.resolve(`Kafka, reached at ${nameOf(this.#server)}`);
  }

  isAlive(): boolean {
    return this.#isAlive;
  }

  async close(): Promise<void> {
    this.#isAlive = false;
    await this.#producer.disconnect();
  }

  #send({ destination, key, body, headers, id, contentType, at }: BrokerMessage): ReturnType<Producer["send"]> {
    return this.#producer.send({
      topic: destination,
      acks: -1,
      timeout: requestMs,
      messages: [
        {
          key: key ?? null,
          value: Buffer.from(body),
          headers: { ...headers, "content-type": contentType, "message-id": id },
          timestamp: String(at.getTime()),
        },
      ],
    });
  }

  #readError(error: unknown, message: BrokerMessage, hasLeft: boolean): GatewayError {
    const delivery = hasLeft ? "uncertain" : "not_sent";
    if (error instanceof GatewayError) {
      // Who waits still may; who comes next gets another connection.
      this.#isAlive = false;
      return withDelivery(error, delivery);
    }
    const { type, text } = readFailure(error);
    const { destination: topic } = message;
    if (this.#wire.refusal !== undefined && !hasLeft) return this.#wire.refusal;
    if (type === undefined || open.has(type)) {
      // The next message gets connections of its own.
      this.#isAlive = false;
      return hasLeft ? lostConnection(this.#server, text, error) : unreachable(this.#server, text, error);
    }
    if (passing.has(type))
      return withDelivery(new GatewayError("tool_deferred", `Kafka puts off topic '${topic}': ${text}.`), "not_sent");
    const what = type === "UNKNOWN_TOPIC_OR_PARTITION" ? `there is no topic '${topic}'` : text;
    return withDelivery(
      new GatewayError("tool_failed", `Kafka refused the message for topic '${topic}': ${what}.`, { extra: { type } }),
      "answered",
    );
  }
}

export interface KafkaFailure {
  readonly name: string;
  /** Name of the protocol's error, where the broker said one. */
  readonly type: string | undefined;
  readonly text: string;
}

/** The library wraps what happened into what it would have done about it. */
export function readFailure(error: unknown): KafkaFailure {
  let at: unknown = error;
  for (let depth = 0; depth < 5 && at instanceof Error && at.cause instanceof Error && at.cause !== at; depth += 1)
    at = at.cause;
  if (!(at instanceof Error)) return { name: "", type: undefined, text: oneLine(String(at)) };
  const type = "type" in at && typeof at.type === "string" ? at.type : undefined;
  return { name: at.name, type, text: oneLine(at.message) };
}
