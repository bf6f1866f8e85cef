/**
 * Listens to a channel of Redis Pub/Sub (MQ-3, MQ-4): at most once. Redis stores nothing and waits for nobody, so
 * what comes while too much is in hand is dropped here, counted, rather than kept without bound.
 */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { BrokerAccount, BrokerServer } from "@toolyard/core/ports/message-broker";
import { largestMessageBytes, type ConsumeOptions, type MessageConsumer } from "@toolyard/core/ports/message-consumer";
import type { Redis } from "ioredis";
import { InHand } from "./in-hand.ts";
import type { LateSocket } from "./late-socket.ts";
import { connectRedis } from "./redis.ts";
import { lostConsumer, oneLine, type BrokerDeps } from "./sockets.ts";

/** Of one message: what it says, and the channel. */
const largestReplyBytes = largestMessageBytes + 65_536;
/** Messages that may wait for a place, for each place. */
const lineLength = 50;

export async function consumeRedis(
  deps: BrokerDeps,
  place: { readonly account: BrokerAccount; readonly server: BrokerServer },
  options: ConsumeOptions,
): Promise<MessageConsumer> {
  const { server } = place;
  const { client, socket } = await connectRedis(deps, place, largestReplyBytes);
  const consumer = new RedisConsumer(client, socket, { server, options });
  try {
    await consumer.start();
    return consumer;
  } catch (error) {
    client.disconnect();
    socket.destroy();
    const said = error instanceof Error ? error.message : String(error);
    if (socket.errored !== null) throw lostConsumer(server, socket.errored.message, error);
    if (!(error instanceof Error) || error.name !== "ReplyError") throw lostConsumer(server, said, error);
    const { name } = options.source;
    throw new GatewayError("tool_failed", `Redis does not let channel '${name}' be listened to: ${oneLine(said)}.`, {
      cause: error,
    });
  }
}

class RedisConsumer implements MessageConsumer {
  readonly ended: Promise<GatewayError>;
  readonly #client: Redis;
  readonly #socket: LateSocket;
  readonly #server: BrokerServer;
  readonly #options: ConsumeOptions;
  readonly #inHand = new InHand();
  readonly #line: Buffer[] = [];
  readonly #end: (error: GatewayError) => void;
  #dropped = 0;
  #isClosed = false;

  constructor(
    client: Redis,
    socket: LateSocket,
    { server, options }: { readonly server: BrokerServer; readonly options: ConsumeOptions },
  ) {
    this.#client = client;
    this.#socket = socket;
    this.#server = server;
    this.#options = options;
    const { promise, resolve } = Promise.withResolvers<GatewayError>();
    this.ended = promise;
    this.#end = resolve;
  }

  get dropped(): number {
    return this.#dropped;
  }

  /** @throws whatever Redis says */
  async start(): Promise<void> {
    this.#client.on("messageBuffer", (_channel: Buffer, body: Buffer) => this.#hear(body));
    this.#socket.once("close", () => {
      if (this.#isClosed) return;
      this.#isClosed = true;
      const cause = this.#socket.errored;
      this.#end(lostConsumer(this.#server, cause?.message ?? "it closed the connection", cause));
    });
    await this.#client.subscribe(this.#options.source.name);
    if (this.#socket.destroyed) throw new Error("it closed the connection");
  }

  waiting(): Promise<number | undefined> {
    return Promise.resolve(undefined);
  }

  async close(graceMs: number): Promise<void> {
    this.#isClosed = true;
    this.#dropped += this.#line.splice(0).length;
    this.#client.disconnect();
    this.#socket.end();
    setTimeout(() => this.#socket.destroy(), 1_000).unref();
    await this.#inHand.settled(graceMs);
  }

  #hear(body: Buffer): void {
    const { prefetch } = this.#options;
    if (this.#isClosed) return;
    if (this.#inHand.size < prefetch) this.#take(body);
    else if (this.#line.length < prefetch * lineLength) this.#line.push(body);
    else this.#dropped += 1;
  }

  #take(body: Buffer): void {
    const taken = this.#options.onMessage({ body, headers: {}, place: {}, isRedelivered: false }).then(
      () => undefined,
      () => undefined,
    );
    this.#inHand.add(taken);
    void taken.then(() => this.#next());
  }

  #next(): void {
    if (this.#isClosed || this.#inHand.size >= this.#options.prefetch) return;
    const body = this.#line.shift();
    if (body !== undefined) this.#take(body);
  }
}
