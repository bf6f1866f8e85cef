/**
 * Takes messages from a RocketMQ topic as a member of a consumer group (MQ-3), by its gRPC proxies ("simple
 * consumer"): what is taken is invisible to others of the group for a while, which is extended as long as it is in
 * hand. What is given up goes to the group's dead-letter queue (`%DLQ%group`). Where a group begins that is new the
 * broker decides: with the whole of a young topic, or with the last message; what is older than the consumer wants is
 * passed over here. Whether messages stay in order stands with the group at the broker.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { unzipSync, zstdDecompressSync } from "node:zlib";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { JsonObject } from "@toolyard/core/json";
import type { BrokerAccount, BrokerServer } from "@toolyard/core/ports/message-broker";
import {
  largestMessageBytes,
  type ConsumeOptions,
  type MessageConsumer,
  type ReceivedMessage,
  type Settlement,
} from "@toolyard/core/ports/message-consumer";
import { InHand } from "./in-hand.ts";
import { unlz4 } from "./kafka-codecs.ts";
import {
  ackMessage,
  changeInvisibleDuration,
  codes,
  endpointsOf,
  forwardToDeadLetterQueue,
  heartbeat,
  notifyClientTermination,
  queryRoute,
  receiveMessage,
  RocketMqApi,
  rocketMqCodec,
  telemetry,
  type ApiMethod,
  type RocketMqMessage,
  type RocketMqQueue,
  type RocketMqStatus,
} from "./rocketmq-api.ts";
import { toHeaders, toMessageId } from "./received-text.ts";
import { loginRefused, lostConsumer, oneLine, setUpMs, type BrokerDeps } from "./sockets.ts";

const simpleConsumer = 3;
const byTag = 1;
/** Said of whatever is packed, though clients of the remoting protocol pack with zlib unless they are told to otherwise. */
const packed = 2;
/** What frames begin with, read as little-endian numbers. */
const marks = { zstd: 0xfd2f_b528, lz4: 0x184d_2204 } as const;
const readable: ReadonlySet<number> = new Set([2, 4]);
/** Brokers forget members of whom they hear nothing for two minutes. */
const signOfLifeMs = 10_000;
const pollMs = 15_000;
/** Of an answer to a poll that found nothing in time. */
const pollSlackMs = 15_000;
const invisibleMs = 60_000;
const extendEveryMs = 20_000;
/** After which a message that is given back is delivered again. */
const againMs = 1_000;
const mostOfBatch = 32;

/** Nothing was there to be taken. */
const nothing: ReadonlySet<number> = new Set([codes.ok, codes.notFound, codes.messageNotFound, codes.offsetNotFound]);

interface Place {
  readonly account: BrokerAccount;
  readonly server: BrokerServer;
}

export async function consumeRocketMq(
  deps: BrokerDeps,
  place: Place,
  options: ConsumeOptions,
): Promise<MessageConsumer> {
  const api = new RocketMqApi(deps, place.account, await rocketMqCodec());
  const consumer = new RocketMqConsumer(api, place, options);
  try {
    await consumer.start();
    return consumer;
  } catch (error) {
    await consumer.close(0);
    throw error;
  }
}

class RocketMqConsumer implements MessageConsumer {
  readonly dropped = 0;
  readonly ended: Promise<GatewayError>;
  readonly #api: RocketMqApi;
  readonly #place: Place;
  readonly #options: ConsumeOptions;
  readonly #group: JsonObject;
  readonly #topic: JsonObject;
  readonly #inHand = new InHand();
  readonly #end: (error: GatewayError) => void;
  readonly #held = new Set<Held>();
  /** No more is taken. */
  readonly #stopped = new AbortController();
  /** Nothing more is said to the broker. */
  readonly #closed = new AbortController();
  /** Resolved and made anew whenever a message is settled. */
  #settled = Promise.withResolvers<void>();
  #isKnown = false;

  constructor(api: RocketMqApi, place: Place, options: ConsumeOptions) {
    this.#api = api;
    this.#place = place;
    this.#options = options;
    this.#group = api.resource(options.source.group);
    this.#topic = api.resource(options.source.name);
    const { promise, resolve } = Promise.withResolvers<GatewayError>();
    this.ended = promise;
    this.#end = resolve;
  }

  /** @throws GatewayError as `MessageConsumers.open` */
  async start(): Promise<void> {
    await this.#introduce();
    const { status, messageQueues } = await this.#ask(queryRoute, {
      topic: this.#topic,
      endpoints: endpointsOf(this.#place.server),
    });
    this.#check(status);
    const brokers = new Map(
      messageQueues
        .filter(({ permission, broker }) => readable.has(permission) && broker.id === 0)
        .map((queue) => [queue.broker.name, queue]),
    );
    if (brokers.size === 0) throw this.#refused("it has no queue that can be read");
    void this.#showLife();
    for (const queue of brokers.values()) void this.#takeFrom(queue);
  }

  waiting(): Promise<number | undefined> {
    return Promise.resolve(undefined);
  }

  async close(graceMs: number): Promise<void> {
    this.#stopped.abort();
    this.#settled.resolve();
    await this.#inHand.settled(graceMs);
    this.#closed.abort();
    // What is in hand still is somebody else's soon, not only when its time is over.
    await Promise.allSettled([...this.#held].map((held) => this.#hide(held, againMs)));
    if (this.#isKnown) await this.#ask(notifyClientTermination, { group: this.#group }).catch(() => undefined);
    await this.#api.close();
  }

  async #introduce(): Promise<void> {
    const filter = { type: byTag, expression: "*" };
    const settings: JsonObject = {
      clientType: simpleConsumer,
      accessPoint: endpointsOf(this.#place.server),
      requestTimeout: `${setUpMs / 1_000}s`,
      subscription: { group: this.#group, subscriptions: [{ topic: this.#topic, expression: filter }] },
      userAgent: { version: "toolyard", platform: "Node.js" },
    };
    const { status } = await this.#ask(telemetry, { settings });
    this.#check(status);
    this.#isKnown = true;
    await this.#beat();
  }

  async #beat(): Promise<void> {
    const { status } = await this.#ask(heartbeat, { group: this.#group, clientType: simpleConsumer });
    this.#check(status);
  }

  async #showLife(): Promise<void> {
    const { signal } = this.#stopped;
    try {
      for (;;) {
        await sleep(signOfLifeMs, undefined, { signal });
        await this.#beat();
      }
    } catch (error) {
      this.#lost(error);
    }
  }

  /** Polls one broker as long as there is room for messages. */
  async #takeFrom({ broker }: RocketMqQueue): Promise<void> {
    const [address] = broker.endpoints.addresses;
    const server = address === undefined ? this.#place.server : { host: address.host, port: address.port };
    const { signal } = this.#stopped;
    try {
      while (!signal.aborted) {
        const room = Math.min(mostOfBatch, this.#options.prefetch - this.#inHand.size);
        if (room <= 0) await this.#settled.promise;
        else for (const message of await this.#poll(server, broker.name, room)) this.#begin(message, server);
      }
    } catch (error) {
      this.#lost(error);
    }
  }

  async #poll(server: BrokerServer, broker: string, room: number): Promise<readonly RocketMqMessage[]> {
    const request: JsonObject = {
      group: this.#group,
      messageQueue: { topic: this.#topic, id: -1, broker: { name: broker } },
      filterExpression: { type: byTag, expression: "*" },
      batchSize: room,
      invisibleDuration: `${invisibleMs / 1_000}s`,
      longPollingTimeout: `${pollMs / 1_000}s`,
    };
    const timeoutMs = pollMs + pollSlackMs;
    const signal = AbortSignal.any([this.#stopped.signal, AbortSignal.timeout(timeoutMs)]);
    const answers = await this.#api.askAll(receiveMessage, request, { server, signal, timeoutMs });
    const messages = answers.flatMap(({ message }) => (message === undefined ? [] : [message]));
    const refusal = answers.find(({ status }) => status !== undefined && !nothing.has(status.code))?.status;
    if (refusal?.code === codes.tooManyRequests) await sleep(againMs, undefined, { signal: this.#stopped.signal });
    else if (refusal !== undefined && messages.length === 0) this.#check(refusal);
    return messages;
  }

  #begin(message: RocketMqMessage, server: BrokerServer): void {
    this.#inHand.add(
      this.#take(message, server).then(() => {
        this.#settled.resolve();
        this.#settled = Promise.withResolvers();
      }),
    );
  }

  /** Never rejects: what cannot be settled is delivered again. */
  async #take(message: RocketMqMessage, server: BrokerServer): Promise<void> {
    const held: Held = {
      server,
      messageId: message.systemProperties.messageId,
      handle: message.systemProperties.receiptHandle,
    };
    const over = new AbortController();
    const extending = this.#extend(held, AbortSignal.any([over.signal, this.#closed.signal]));
    this.#held.add(held);
    let settlement: Settlement = "again";
    try {
      if (this.#isTooOld(message)) settlement = "done";
      else if (!this.#stopped.signal.aborted) settlement = await this.#options.onMessage(toReceived(message));
    } catch {
      // It is delivered again.
    }
    this.#held.delete(held);
    over.abort();
    await extending;
    // Given back already.
    if (this.#closed.signal.aborted) return;
    await this.#settle(held, settlement, message).catch(() => undefined);
  }

  /** By the broker's clock. */
  #isTooOld({ systemProperties: { storeTimestamp } }: RocketMqMessage): boolean {
    const { since } = this.#options.source;
    return since !== undefined && storeTimestamp !== undefined && Date.parse(storeTimestamp) < since;
  }

  async #extend(held: Held, signal: AbortSignal): Promise<void> {
    try {
      for (;;) {
        await sleep(extendEveryMs, undefined, { signal });
        await this.#hide(held, invisibleMs);
      }
    } catch {
      // Settled; or it is delivered once more while it is in hand, which its id tells.
    }
  }

  async #settle(held: Held, settlement: Settlement, message: RocketMqMessage): Promise<void> {
    const { server, messageId, handle: receiptHandle } = held;
    const place = { group: this.#group, topic: this.#topic };
    if (settlement === "again") return this.#hide(held, againMs);
    if (settlement === "done") {
      await this.#ask(ackMessage, { ...place, entries: [{ messageId, receiptHandle }] }, server);
      return undefined;
    }
    const { deliveryAttempt } = message.systemProperties;
    const attempts = { deliveryAttempt, maxDeliveryAttempts: deliveryAttempt };
    await this.#ask(forwardToDeadLetterQueue, { ...place, messageId, receiptHandle, ...attempts }, server);
    return undefined;
  }

  async #hide(held: Held, forMs: number): Promise<void> {
    const { status, receiptHandle } = await this.#ask(
      changeInvisibleDuration,
      {
        group: this.#group,
        topic: this.#topic,
        messageId: held.messageId,
        receiptHandle: held.handle,
        invisibleDuration: `${forMs / 1_000}s`,
      },
      held.server,
    );
    if (status.code === codes.ok && receiptHandle !== undefined) held.handle = receiptHandle;
  }

  #ask<T>(method: ApiMethod<T>, request: JsonObject, server: BrokerServer = this.#place.server): Promise<T> {
    return this.#api.ask(method, request, { server, signal: AbortSignal.timeout(setUpMs), timeoutMs: setUpMs });
  }

  /** @throws GatewayError saying what the broker thinks of it */
  #check({ code, message }: RocketMqStatus): void {
    if (code === codes.ok) return;
    if (code === codes.unauthorized) throw loginRefused(this.#place.account, this.#place.server, message);
    throw this.#refused(code === codes.topicNotFound ? "there is no such topic" : oneLine(message), code);
  }

  #refused(what: string, code?: number): GatewayError {
    const { name, group } = this.#options.source;
    return new GatewayError(
      "tool_failed",
      `RocketMQ does not let topic '${name}' be consumed by '${group}': ${what}.`,
      code === undefined ? {} : { extra: { code } },
    );
  }

  #lost(error: unknown): void {
    if (this.#stopped.signal.aborted) return;
    this.#stopped.abort();
    this.#settled.resolve();
    if (error instanceof GatewayError && error.code !== "tool_unreachable") return this.#end(error);
    const text = error instanceof Error ? error.message : String(error);
    this.#end(
      lostConsumer(this.#place.server, `${text.replace(/\.$/, "")}, topic '${this.#options.source.name}'`, error),
    );
  }
}

/** A message in hand; whenever it is hidden for longer it gets another handle. */
interface Held {
  readonly server: BrokerServer;
  readonly messageId: string;
  handle: string;
}

function toReceived({ userProperties, systemProperties, body }: RocketMqMessage): ReceivedMessage {
  const { messageId, bodyEncoding, bornTimestamp, queueId, queueOffset, deliveryAttempt, keys, messageGroup } =
    systemProperties;
  const headers = toHeaders(Object.entries(userProperties));
  const contentType = headers["content-type"];
  const key = messageGroup ?? keys[0];
  const id = toMessageId(userProperties["message-id"]) ?? messageId;
  return {
    ...(id === "" ? {} : { id }),
    ...readBody(Buffer.from(body, "base64"), bodyEncoding),
    ...(contentType === undefined ? {} : { contentType }),
    headers,
    ...(key === undefined ? {} : { key }),
    place: { queue: queueId, ...(queueOffset === undefined ? {} : { offset: queueOffset }) },
    ...(bornTimestamp === undefined ? {} : { at: Date.parse(bornTimestamp) }),
    isRedelivered: deliveryAttempt > 1,
  };
}

/** One that cannot be unpacked would never be settled: it is told about. */
function readBody(bytes: Buffer, encoding: number): Pick<ReceivedMessage, "body" | "unreadable"> {
  if (encoding !== packed) return { body: bytes };
  try {
    return { body: unpack(bytes) };
  } catch {
    const unreadable = `Its body is packed in no way that is known, or has more than ${largestMessageBytes} bytes unpacked.`;
    return { body: new Uint8Array(), unreadable };
  }
}

/** @throws Error for what is none of these, or is too large */
function unpack(bytes: Buffer): Buffer {
  const mark = bytes.length < 4 ? undefined : bytes.readUInt32LE();
  if (mark === marks.lz4) return unlz4(bytes, largestMessageBytes);
  const options = { maxOutputLength: largestMessageBytes };
  // The latter takes gzip and zlib.
  return mark === marks.zstd ? zstdDecompressSync(bytes, options) : unzipSync(bytes, options);
}
