/**
 * Takes messages from a Kafka topic as a member of a consumer group (MQ-3): partitions are shared among those of a
 * group, and an offset is committed once everything before it is settled. Messages of one key are given on one
 * after the other; of different keys, several at once.
 */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { BrokerAccount, BrokerServer } from "@toolyard/core/ports/message-broker";
import type {
  ConsumeOptions,
  ConsumerSource,
  MessageConsumer,
  ReceivedMessage,
  Settlement,
} from "@toolyard/core/ports/message-consumer";
import type { Admin, Consumer, EachBatchPayload, IHeaders, Kafka, KafkaMessage, Producer } from "kafkajs";
import { InHand } from "./in-hand.ts";
import { clientOf, notConnected, readFailure, type KafkaClient } from "./kafka.ts";
import { toHeaders, toMessageId } from "./received-text.ts";
import { atMost, lostConsumer, type BrokerDeps } from "./sockets.ts";

/** Reading is safe to repeat, and groups change hands all the time. */
const retry = { retries: 5, initialRetryTime: 100, restartOnFailure: () => Promise.resolve(false) };
/** While messages are in hand the group is told so often that this member lives. */
const signOfLifeMs = 1_000;
/** A member that says nothing for so long has died, and others get its partitions. */
const sessionMs = 10_000;
const mostPartitionsAtOnce = 16;
const hangUpMs = 5_000;

/** What the broker says of a partition in which a group has consumed nothing. */
const noPlace = -1;

interface Beginning {
  readonly topic: string;
  readonly partition: number;
  readonly offset: string;
}

interface Place {
  readonly account: BrokerAccount;
  readonly server: BrokerServer;
}

export async function consumeKafka(deps: BrokerDeps, place: Place, options: ConsumeOptions): Promise<MessageConsumer> {
  const client = clientOf(deps, place, "consuming");
  const consumer = new KafkaConsumer(client, place, options);
  try {
    await consumer.start();
    return consumer;
  } catch (error) {
    await consumer.close(0);
    if (error instanceof GatewayError) throw error;
    const { type, text } = readFailure(error);
    const isRefusal = type !== undefined && type !== "SASL_AUTHENTICATION_FAILED";
    if (!isRefusal) throw notConnected(error, { ...place, wire: client.wire });
    const { name, group } = options.source;
    const what = type === "UNKNOWN_TOPIC_OR_PARTITION" ? "there is no such topic" : text;
    throw new GatewayError("tool_failed", `Kafka does not let topic '${name}' be consumed by '${group}': ${what}.`, {
      extra: { type },
      cause: error,
    });
  }
}

class KafkaConsumer implements MessageConsumer {
  readonly dropped = 0;
  readonly ended: Promise<GatewayError>;
  readonly #kafka: Kafka;
  readonly #server: BrokerServer;
  readonly #options: ConsumeOptions;
  readonly #consumer: Consumer;
  readonly #admin: Admin;
  readonly #inHand = new InHand();
  readonly #end: (error: GatewayError) => void;
  /** Nothing is waited for any more. */
  readonly #givenUp = new AbortController();
  #producer: Promise<Producer> | undefined;
  /** Resolved and made anew whenever a message is settled. */
  #settled = Promise.withResolvers<void>();
  #hasBegun = false;
  /** Where partitions begin that others had when this one joined, should they leave no place there. */
  readonly #left = new Map<number, Beginning>();
  #isClosed = false;

  constructor({ kafka }: KafkaClient, { server }: Place, options: ConsumeOptions) {
    this.#kafka = kafka;
    this.#server = server;
    this.#options = options;
    this.#consumer = kafka.consumer({
      groupId: options.source.group,
      sessionTimeout: sessionMs,
      allowAutoTopicCreation: false,
      retry,
    });
    this.#admin = kafka.admin({ retry: { retries: 5, initialRetryTime: 100 } });
    const { promise, resolve } = Promise.withResolvers<GatewayError>();
    this.ended = promise;
    this.#end = resolve;
  }

  /** @throws whatever the library makes of what the brokers say */
  async start(): Promise<void> {
    const { source } = this.#options;
    await this.#admin.connect();
    const beginning = source.from === "latest" ? await this.#beginningOf(source) : [];
    for (const each of beginning) this.#left.set(each.partition, each);
    await this.#consumer.connect();
    // What else the group has no place in was made, or lost its oldest messages, since: all that is there is new to it.
    await this.#consumer.subscribe({ topics: [source.name], fromBeginning: true });
    const joined = Promise.withResolvers<readonly Beginning[]>();
    const failed = Promise.withResolvers<never>();
    failed.promise.catch(() => undefined);
    this.#consumer.on("consumer.group_join", ({ payload }) => {
      if (this.#hasBegun) return;
      const assigned = payload.memberAssignment[source.name] ?? [];
      const own = beginning.filter(({ partition }) => assigned.includes(partition));
      // Now, since what is fetched next depends on it.
      for (const each of own) {
        this.#left.delete(each.partition);
        this.#consumer.seek(each);
      }
      joined.resolve(own);
    });
    this.#consumer.on("consumer.crash", ({ payload }) => {
      failed.reject(payload.error);
      this.#lost(payload.error);
    });
    await this.#consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: Math.min(mostPartitionsAtOnce, this.#options.prefetch),
      eachBatch: (batch) => this.#takeBatch(batch),
    });
    const own = await Promise.race([joined.promise, failed.promise]);
    // What is published from here on must not be passed over by a member that dies before its first commit.
    if (own.length > 0) await this.#consumer.commitOffsets([...own]);
    this.#hasBegun = true;
  }

  async waiting(): Promise<number | undefined> {
    const { name, group } = this.#options.source;
    const ends = await this.#admin.fetchTopicOffsets(name);
    const committed = await this.#committed(name, group);
    return ends.reduce((total, { partition, high, low }) => {
      const at = committed.get(partition) ?? -1;
      return total + Math.max(0, Number(high) - (at < 0 ? Number(low) : at));
    }, 0);
  }

  async close(graceMs: number): Promise<void> {
    this.#isClosed = true;
    this.#settled.resolve();
    await this.#inHand.settled(graceMs);
    this.#givenUp.abort();
    this.#settled.resolve();
    const closing = Promise.allSettled([
      this.#consumer.disconnect(),
      this.#admin.disconnect(),
      this.#producer?.then((producer) => producer.disconnect()),
    ]);
    // A broker that does not answer must not keep anybody.
    await atMost(hangUpMs, closing);
  }

  async #committed(topic: string, groupId: string): Promise<ReadonlyMap<number, number>> {
    const found = await this.#admin.fetchOffsets({ groupId, topics: [topic] });
    return new Map(
      found.flatMap(({ partitions }) => partitions.map(({ partition, offset }) => [partition, Number(offset)])),
    );
  }

  /**
   * A group that is new begins where partitions end now. One that is not has no place in partitions that were made
   * since, nor in those of which others that share it have consumed nothing: there it begins with what is no older
   * than whoever wants it.
   */
  async #beginningOf({ name: topic, group, since }: ConsumerSource): Promise<readonly Beginning[]> {
    // In this order: only the first one learns which brokers there are.
    const ends = await this.#admin.fetchTopicOffsets(topic);
    const committed = await this.#committed(topic, group);
    const isBegun = ({ partition }: Pick<Beginning, "partition">): boolean =>
      (committed.get(partition) ?? noPlace) !== noPlace;
    if (!ends.some(isBegun)) return ends.map(({ partition, high }) => ({ topic, partition, offset: high }));
    if (since === undefined || ends.every(isBegun)) return [];
    const found = await this.#admin.fetchTopicOffsetsByTimestamp(topic, since);
    return found.filter((each) => !isBegun(each)).map(({ partition, offset }) => ({ topic, partition, offset }));
  }

  /** Whoever had this partition has gone, and the group has no place in it still: what was there before is passed over. */
  async #beginsElsewhere({ topic, partition }: EachBatchPayload["batch"]): Promise<boolean> {
    const beginning = this.#left.get(partition);
    if (beginning === undefined) return false;
    const committed = await this.#committed(topic, this.#options.source.group);
    this.#left.delete(partition);
    if ((committed.get(partition) ?? noPlace) !== noPlace) return false;
    this.#consumer.seek(beginning);
    await this.#consumer.commitOffsets([beginning]);
    return true;
  }

  async #takeBatch(payload: EachBatchPayload): Promise<void> {
    if (await this.#beginsElsewhere(payload.batch)) return;
    const { topic, partition, messages } = payload.batch;
    const taking = new BatchInHand(messages, (message) => this.#take(message, { topic, partition }));
    const mayGoOn = (): boolean => !this.#isClosed && !taking.isHeldUp && payload.isRunning() && !payload.isStale();
    for (;;) {
      const settled = this.#settled.promise;
      while (this.#inHand.size < this.#options.prefetch && mayGoOn()) {
        const work = taking.beginNext(mayGoOn);
        if (work === undefined) break;
        this.#inHand.add(work.then(() => this.#tellSettled()));
      }
      const last = taking.advance();
      if (last !== undefined) await this.#commit(payload, last, taking.isDone);
      await payload.heartbeat();
      const isOver = taking.isDone || this.#givenUp.signal.aborted || (!mayGoOn() && taking.isIdle);
      if (isOver && (this.#isClosed || !taking.isHeldUp)) return;
      await atMost(signOfLifeMs, settled);
      // What was given back comes again with the next batch.
      if (isOver) return;
    }
  }

  async #commit(payload: EachBatchPayload, last: string, isDone: boolean): Promise<void> {
    const { topic, partition } = payload.batch;
    payload.resolveOffset(last);
    // Behind the last message there may be records that are none, such as those of transactions.
    const offset = isDone ? payload.batch.lastOffset() : last;
    await this.#consumer.commitOffsets([{ topic, partition, offset: String(BigInt(offset) + 1n) }]);
  }

  #tellSettled(): void {
    this.#settled.resolve();
    this.#settled = Promise.withResolvers();
  }

  async #take(
    message: KafkaMessage,
    where: { readonly topic: string; readonly partition: number },
  ): Promise<Settlement> {
    try {
      const settlement = await this.#options.onMessage(toReceived(message, where));
      if (settlement === "dead") await this.#bury(message, where);
      return settlement;
    } catch (error) {
      this.#lost(error);
      return "again";
    }
  }

  /** @throws whatever keeps it from the topic for such messages */
  async #bury(
    message: KafkaMessage,
    { topic, partition }: { readonly topic: string; readonly partition: number },
  ): Promise<void> {
    const { deadLetterTopic } = this.#options.source;
    if (deadLetterTopic === undefined) return;
    this.#producer ??= this.#connectProducer();
    const producer = await this.#producer;
    const origin = { "dead-letter-topic": topic, "dead-letter-partition": String(partition) };
    await producer.send({
      topic: deadLetterTopic,
      acks: -1,
      messages: [
        {
          key: message.key,
          value: message.value,
          headers: { ...withoutNull(message.headers), ...origin, "dead-letter-offset": message.offset },
        },
      ],
    });
  }

  async #connectProducer(): Promise<Producer> {
    const producer = this.#kafka.producer({ allowAutoTopicCreation: false, retry: { retries: 3 } });
    await producer.connect();
    return producer;
  }

  #lost(error: unknown): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    const { text } = readFailure(error);
    this.#end(lostConsumer(this.#server, `${text}, topic '${this.#options.source.name}'`, error));
  }
}

/**
 * The messages of a batch: begun in their order, those of one key one after the other, settled in any, and done
 * with up to the first that is not.
 */
class BatchInHand {
  readonly #messages: readonly KafkaMessage[];
  readonly #take: (message: KafkaMessage) => Promise<Settlement>;
  readonly #settlements: (Settlement | undefined)[];
  readonly #lastOfKey = new Map<string, Promise<void>>();
  #begun = 0;
  #done = 0;

  constructor(messages: readonly KafkaMessage[], take: (message: KafkaMessage) => Promise<Settlement>) {
    this.#messages = messages;
    this.#take = take;
    this.#settlements = messages.map(() => undefined);
  }

  get isDone(): boolean {
    return this.#done === this.#messages.length;
  }

  /** Nothing that was begun is open. */
  get isIdle(): boolean {
    return this.#settlements.slice(0, this.#begun).every((settlement) => settlement !== undefined);
  }

  /** One was given back, and nothing behind it can be done with. */
  get isHeldUp(): boolean {
    return this.#settlements.includes("again");
  }

  /** Never rejects. Undefined: all are begun. @param mayGoOn asked anew when its turn comes */
  beginNext(mayGoOn: () => boolean): Promise<void> | undefined {
    const at = this.#begun;
    const message = this.#messages[at];
    if (message === undefined) return undefined;
    this.#begun += 1;
    const key = message.key?.toString("base64");
    const before = (key === undefined ? undefined : this.#lastOfKey.get(key)) ?? Promise.resolve();
    const work = before.then(async () => {
      this.#settlements[at] = mayGoOn() ? await this.#take(message) : "again";
    });
    if (key !== undefined) this.#lastOfKey.set(key, work);
    return work;
  }

  /** Offset of the last message up to which all are done with, where it is another one by now. */
  advance(): string | undefined {
    const before = this.#done;
    while (this.#settlements[this.#done] === "done" || this.#settlements[this.#done] === "dead") this.#done += 1;
    return this.#done === before ? undefined : this.#messages[this.#done - 1]?.offset;
  }
}

/** The library reads headers that are null, and cannot write them. */
function withoutNull(headers: IHeaders = {}): IHeaders {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, [value].flat().map((each) => each ?? "")]),
  );
}

function toReceived(
  { key, value, headers = {}, offset, timestamp }: KafkaMessage,
  { topic, partition }: { readonly topic: string; readonly partition: number },
): ReceivedMessage {
  const given = new Map(
    Object.entries(headers).flatMap(([name, value]): [string, string][] => {
      // Null, where the producer said no more than the name.
      const first = (Array.isArray(value) ? value[0] : value)?.toString("utf8");
      return first === undefined ? [] : [[name, first]];
    }),
  );
  const texts = toHeaders(given);
  const contentType = texts["content-type"];
  return {
    // A topic that was made anew has the same offsets once more.
    id: toMessageId(given.get("message-id")) ?? `${topic}-${partition}@${offset}#${timestamp}`,
    body: value ?? new Uint8Array(),
    ...(contentType === undefined ? {} : { contentType }),
    headers: texts,
    ...(key === null ? {} : { key: key.toString("utf8") }),
    place: { partition, offset },
    at: Number(timestamp),
    isRedelivered: false,
  };
}
