/**
 * RocketMQ 5 by its gRPC proxies (MQ-1, MQ-2, MQ-4). A topic has a type, which the broker tells with the topic's
 * queues and insists on: what is sent is made to fit it. A message is sent once; what became of it is read off the
 * answer's code.
 */
import { createHash } from "node:crypto";
import { hostname } from "node:os";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { JsonObject } from "@toolyard/core/json";
import type {
  BrokerAccount,
  BrokerMessage,
  BrokerServer,
  BrokerSession,
  Confirmation,
  PublishOptions,
} from "@toolyard/core/ports/message-broker";
import { deliveryOf, withDelivery } from "@toolyard/core/errors/delivery";
import {
  codes,
  endpointsOf,
  queryRoute,
  RocketMqApi,
  rocketMqCodec,
  sendMessage,
  telemetry,
  type ApiMethod,
  type RocketMqQueue,
  type RocketMqStatus,
} from "./rocketmq-api.ts";
import { givenUp, loginRefused, nameOf, oneLine, setUpMs, unreachable, type BrokerDeps } from "./sockets.ts";

const requestMs = 30_000;
/** Queues move, and topics change; so long an answer about them is taken for true. */
const routeKeptMs = 30_000;

const producer = 1;
const normal = 1;
const fifo = 2;
const delayed = 3;
/** Permissions of queues: write, read and write. */
const writable: ReadonlySet<number> = new Set([3, 4]);
/** Encoding of a body that goes as it is. */
const identity = 1;

/** Said neither yes nor no: the message may be there, or come to be there. */
const open: ReadonlySet<number> = new Set([40_800, 50_000, 50_001, 50_002, 50_400, 50_401, 50_402]);

export async function openRocketMq(
  deps: BrokerDeps,
  account: BrokerAccount,
  server: BrokerServer,
): Promise<BrokerSession> {
  const api = new RocketMqApi(deps, account, await rocketMqCodec());
  const session = new RocketMqSession(api, account, server);
  try {
    await session.introduce([], AbortSignal.timeout(setUpMs));
    return session;
  } catch (error) {
    await api.close();
    throw error;
  }
}

/** What is known of a topic. */
interface Route {
  readonly at: number;
  readonly queues: readonly RocketMqQueue[];
  /** Types of messages that it takes; empty: the broker does not tell. */
  readonly types: ReadonlySet<number>;
}

class RocketMqSession implements BrokerSession {
  readonly #api: RocketMqApi;
  readonly #account: BrokerAccount;
  readonly #server: BrokerServer;
  readonly #routes = new Map<string, Route>();
  #turn = 0;
  /** Somebody waited in vain: those who wait still may, who comes next gets another connection. */
  #isSuspect = false;

  constructor(api: RocketMqApi, account: BrokerAccount, server: BrokerServer) {
    this.#api = api;
    this.#account = account;
    this.#server = server;
  }

  /** Settings are exchanged before messages are. @throws GatewayError as `MessageBrokers.open` */
  async introduce(topics: readonly JsonObject[], signal: AbortSignal): Promise<void> {
    const settings: JsonObject = {
      clientType: producer,
      accessPoint: endpointsOf(this.#server),
      requestTimeout: `${requestMs / 1_000}s`,
      publishing: { topics: [...topics] },
      userAgent: { version: "toolyard", platform: "Node.js" },
    };
    const { status } = await this.#beforeSending(telemetry, { settings }, signal);
    this.#check(status, "the connection");
  }

  async publish(message: BrokerMessage, { signal, onSent }: PublishOptions): Promise<Confirmation> {
    if (signal.aborted) throw givenUp();
    const { destination: name } = message;
    const route = await this.#routeOf(name, signal);
    const request = { messages: [toMessage(message, route, this.#api.resource(name))] };
    const server = this.#serverFor(message, route);
    try {
      const { status, entries } = await this.#api.ask(sendMessage, request, {
        server,
        signal,
        timeoutMs: requestMs,
        onSent,
      });
      const [entry] = entries;
      this.#check(entry?.status ?? status, `the message for topic '${name}'`);
      const { delayMs } = message;
      return {
        offset: entry?.offset,
        ...(delayMs === undefined ? {} : { heldBackMs: delayMs }),
      };
    } catch (error) {
      this.#routes.delete(name);
      if (deliveryOf(error) === "uncertain") this.#isSuspect = true;
      throw error;
    }
  }

  async holdsBack({ destination }: BrokerMessage, signal: AbortSignal): Promise<boolean> {
    return takes(await this.#routeOf(destination, signal), delayed);
  }

  describe(): Promise<string> {
    return Promise.resolve(`RocketMQ at ${nameOf(this.#server)}`);
  }

  isAlive(): boolean {
    return !this.#isSuspect && this.#api.isConnectedTo(this.#server);
  }

  close(): Promise<void> {
    return this.#api.close();
  }

  /** @throws GatewayError as `publish`; `not_sent`, or answered */
  async #routeOf(name: string, signal: AbortSignal): Promise<Route> {
    const known = this.#routes.get(name);
    if (known !== undefined && Date.now() - known.at < routeKeptMs) return known;
    const topic = this.#api.resource(name);
    const { status, messageQueues } = await this.#beforeSending(
      queryRoute,
      { topic, endpoints: endpointsOf(this.#server) },
      signal,
    );
    this.#check(status, `topic '${name}'`);
    await this.introduce([topic], signal);
    const queues = messageQueues.filter(({ permission, broker }) => writable.has(permission) && broker.id === 0);
    const types = new Set(queues.flatMap(({ acceptMessageTypes }) => acceptMessageTypes).filter((type) => type !== 0));
    const route = { at: Date.now(), queues, types };
    this.#routes.set(name, route);
    return route;
  }

  /** Whatever fails here, no message has left. */
  async #beforeSending<T>(method: ApiMethod<T>, request: JsonObject, signal: AbortSignal): Promise<T> {
    const limit = AbortSignal.timeout(setUpMs);
    try {
      return await this.#api.ask(method, request, {
        server: this.#server,
        signal: AbortSignal.any([signal, limit]),
        timeoutMs: setUpMs,
      });
    } catch (error) {
      if (signal.aborted) throw givenUp();
      if (limit.aborted) throw unreachable(this.#server, `no answer within ${setUpMs} ms`, error);
      throw deliveryOf(error) === "uncertain" && error instanceof Error ? withDelivery(error, "not_sent") : error;
    }
  }

  /** Messages of one key go to one queue. */
  #serverFor({ destination, key }: BrokerMessage, { queues, types }: Route): BrokerServer {
    const turn = key !== undefined && types.has(fifo) ? hashOf(key) : (this.#turn += 1);
    const [address] = queues[turn % queues.length]?.broker.endpoints.addresses ?? [];
    if (address === undefined)
      throw refused(`RocketMQ takes no messages for topic '${destination}': it has no queue that can be written to.`);
    return { host: address.host.replace(/^\[|\]$/g, ""), port: address.port };
  }

  /** @throws GatewayError saying what the broker thinks of it */
  #check({ code, message }: RocketMqStatus, what: string): void {
    if (code === codes.ok) return;
    if (code === codes.unauthorized) throw loginRefused(this.#account, this.#server, message);
    const said = code === codes.topicNotFound ? "there is no such topic" : oneLine(message);
    const extra = { extra: { code } };
    if (code === codes.tooManyRequests)
      throw withDelivery(new GatewayError("tool_deferred", `RocketMQ puts off ${what}: ${said}.`, extra), "not_sent");
    if (open.has(code)) {
      const text = `RocketMQ did not say whether it has ${what}: ${said}.`;
      throw withDelivery(new GatewayError("tool_failed", text, extra), "uncertain");
    }
    const advice =
      code === codes.illegalDeliveryTime ? "; set 'config.max_native_delay_ms' to what the broker allows" : "";
    throw refused(`RocketMQ refused ${what}: ${said}${advice}.`, code);
  }
}

function toMessage(message: BrokerMessage, route: Route, topic: JsonObject): JsonObject {
  const { id, key, keys = [], tag, body, contentType, headers, at, delayMs } = message;
  const type = typeOf(message, route);
  return {
    topic,
    userProperties: { ...headers, "content-type": contentType, "message-id": id },
    systemProperties: {
      messageId: id,
      messageType: type,
      bodyEncoding: identity,
      bornTimestamp: at.toISOString(),
      bornHost: hostname(),
      keys: [...new Set([...(key === undefined ? [] : [key]), ...keys])],
      ...(tag === undefined ? {} : { tag }),
      ...(type === fifo && key !== undefined ? { messageGroup: key } : {}),
      ...(type === delayed ? { deliveryTimestamp: new Date(at.getTime() + (delayMs ?? 0)).toISOString() } : {}),
    },
    body: Buffer.from(body).toString("base64"),
  };
}

/** The type of message that the topic takes, by what there is to be sent. @throws GatewayError `invalid_arguments` */
function typeOf({ destination, key, delayMs }: BrokerMessage, route: Route): number {
  if (delayMs !== undefined) return delayed;
  if (key !== undefined && takes(route, fifo)) return fifo;
  if (takes(route, normal)) return normal;
  // One that is due already is delivered at once.
  if (takes(route, delayed)) return delayed;
  if (takes(route, fifo)) {
    throw withDelivery(
      new GatewayError(
        "invalid_arguments",
        `Topic '${destination}' keeps messages of one key in order; say the 'key' of this one.`,
        { param: "key" },
      ),
      "not_sent",
    );
  }
  throw refused(`RocketMQ takes no messages of ours for topic '${destination}': it is for transactions only.`);
}

function takes({ types }: Route, type: number): boolean {
  return types.size === 0 || types.has(type);
}

function hashOf(key: string): number {
  return createHash("sha256").update(key).digest().readUInt32BE();
}

function refused(text: string, code?: number): GatewayError {
  return withDelivery(new GatewayError("tool_failed", text, code === undefined ? {} : { extra: { code } }), "answered");
}
