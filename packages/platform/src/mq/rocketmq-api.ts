/**
 * RocketMQ's gRPC API of version 5 (`apache.rocketmq.v2`), one method after the other: requests are signed, and
 * answers are read with what they say of their own success. Connections are the guarded door's, one for each
 * address that the cluster names.
 */
import { createHmac, randomUUID } from "node:crypto";
import { isIP } from "node:net";
import { hostname } from "node:os";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { callGrpc, type Metadata } from "@toolyard/core/grpc/call";
import type { Codec, TypedMethod } from "@toolyard/core/grpc/codec";
import { readDescriptorSet } from "@toolyard/core/grpc/descriptors";
import { MessageTooLarge } from "@toolyard/core/grpc/frames";
import { loadCodec } from "@toolyard/core/grpc/uploaded";
import type { GrpcStatus } from "@toolyard/core/grpc/status";
import type { JsonObject } from "@toolyard/core/json";
import type { Http2Connection } from "@toolyard/core/ports/egress";
import type { BrokerAccount, BrokerServer } from "@toolyard/core/ports/message-broker";
import { withDelivery } from "@toolyard/core/errors/delivery";
import * as z from "zod";
import { rocketMqDescriptors } from "./rocketmq-descriptors.ts";
import { nameOf, oneLine, setUpMs, unreachable, type BrokerDeps } from "./sockets.ts";

const service = "apache.rocketmq.v2.MessagingService";
/** The newest behaviour that servers tell apart by the version of a client. */
const clientVersion = "5.0.3";
/** What has no number of its own among the protocol's languages on older servers. */
const clientLanguage = "HTTP";
/** The queues of a topic are told with what each broker is called; some ten thousand are less. */
const largestAnswer = 4_194_304;
/** So much of a batch is taken at once: some messages of the largest size that brokers take. */
const largestBatch = 67_108_864;

export const codes = {
  ok: 20_000,
  illegalDeliveryTime: 40_012,
  invalidReceiptHandle: 40_013,
  unauthorized: 40_100,
  messageNotFound: 40_401,
  notFound: 40_400,
  topicNotFound: 40_402,
  offsetNotFound: 40_404,
  tooManyRequests: 42_900,
} as const;

/** What a server says of one thing it was asked for. */
const saidSchema = z.looseObject({ code: z.int().default(0), message: z.string().default("") });
const statusSchema = saidSchema.default({ code: 0, message: "" });
export type RocketMqStatus = z.output<typeof statusSchema>;

const addressSchema = z.looseObject({ host: z.string().default(""), port: z.int().default(0) });
const queueSchema = z.looseObject({
  id: z.int().default(0),
  permission: z.int().default(0),
  broker: z
    .looseObject({
      name: z.string().default(""),
      id: z.int().default(0),
      endpoints: z.looseObject({ addresses: z.array(addressSchema).default([]) }).default({ addresses: [] }),
    })
    .default({ name: "", id: 0, endpoints: { addresses: [] } }),
  acceptMessageTypes: z.array(z.int()).default([]),
});
export type RocketMqQueue = z.output<typeof queueSchema>;

/** A method with what it takes, and what it answers. */
export interface ApiMethod<T> {
  readonly name: string;
  readonly input: string;
  readonly output: string;
  readonly answer: z.ZodType<T>;
  /** Requests and answers come in streams; the first of each counts. */
  readonly isStream?: boolean;
  /** Bytes of an answer; absent: as usual. */
  readonly largest?: number;
}

function method<T>(name: string, answer: z.ZodType<T>): ApiMethod<T> {
  const type = `apache.rocketmq.v2.${name}`;
  return { name, input: `${type}Request`, output: `${type}Response`, answer };
}

export const queryRoute = method(
  "QueryRoute",
  z.looseObject({ status: statusSchema, messageQueues: z.array(queueSchema).default([]) }),
);

const entrySchema = z.looseObject({
  status: statusSchema,
  offset: z.string().default("0"),
});
export const sendMessage = method(
  "SendMessage",
  z.looseObject({ status: statusSchema, entries: z.array(entrySchema).default([]) }),
);

const statusOnly = z.looseObject({ status: statusSchema });
export const heartbeat = method("Heartbeat", statusOnly);
export const ackMessage = method(
  "AckMessage",
  z.looseObject({ status: statusSchema, entries: z.array(statusOnly).default([]) }),
);
export const changeInvisibleDuration = method(
  "ChangeInvisibleDuration",
  z.looseObject({ status: statusSchema, receiptHandle: z.string().optional() }),
);
export const forwardToDeadLetterQueue = method("ForwardMessageToDeadLetterQueue", statusOnly);
export const notifyClientTermination = method("NotifyClientTermination", statusOnly);

const systemPropertiesSchema = z.looseObject({
  tag: z.string().optional(),
  keys: z.array(z.string()).default([]),
  messageId: z.string().default(""),
  bodyEncoding: z.int().default(0),
  bornTimestamp: z.string().optional(),
  storeTimestamp: z.string().optional(),
  receiptHandle: z.string().default(""),
  queueId: z.int().default(0),
  queueOffset: z.string().optional(),
  deliveryAttempt: z.int().default(1),
  messageGroup: z.string().optional(),
});
const messageSchema = z.looseObject({
  userProperties: z.record(z.string(), z.string()).default({}),
  systemProperties: systemPropertiesSchema,
  body: z.base64().default(""),
});
export type RocketMqMessage = z.output<typeof messageSchema>;
export const receiveMessage = {
  ...method(
    "ReceiveMessage",
    // One of the two, or the time of delivery, which is neither.
    z.looseObject({ status: saidSchema.optional(), message: messageSchema.optional() }),
  ),
  largest: largestBatch,
};

const settingsSchema = z.looseObject({
  publishing: z.looseObject({ maxBodySize: z.int().optional() }).optional(),
});
const telemetryCommand = "apache.rocketmq.v2.TelemetryCommand";
export const telemetry = {
  name: "Telemetry",
  input: telemetryCommand,
  output: telemetryCommand,
  answer: z.looseObject({ status: statusSchema, settings: settingsSchema.optional() }),
  isStream: true,
} as const;

export interface ApiCall {
  /** Whom it is asked. */
  readonly server: BrokerServer;
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
  readonly onSent?: (() => void) | undefined;
}

export class RocketMqApi {
  readonly #deps: BrokerDeps;
  readonly #account: BrokerAccount;
  readonly #codec: Codec;
  readonly #clientId = `${hostname()}@toolyard@${randomUUID()}`;
  readonly #opening = new Map<string, Promise<Http2Connection>>();
  readonly #open = new Map<string, Http2Connection>();
  #isClosed = false;

  constructor(deps: BrokerDeps, account: BrokerAccount, codec: Codec) {
    this.#deps = deps;
    this.#account = account;
    this.#codec = codec;
  }

  isConnectedTo(server: BrokerServer): boolean {
    return this.#open.get(nameOf(server))?.isAlive() === true;
  }

  /**
   * @throws GatewayError `tool_failed` where the answer is no answer, answered or uncertain; as
   * `Http2Connection.request`, and `egress_denied`
   */
  async ask<T>(method: ApiMethod<T>, request: JsonObject, call: ApiCall): Promise<T> {
    const [answer] = await this.askAll(method, request, call);
    if (answer === undefined) throw noAnswer(method.name, call.server, { code: 0, message: "" });
    return answer;
  }

  /** Everything that it answers. @throws GatewayError as `ask` */
  async askAll<T>(method: ApiMethod<T>, request: JsonObject, call: ApiCall): Promise<readonly T[]> {
    const { server, signal, timeoutMs, onSent } = call;
    const message = this.#codec.encode(method, request);
    const connection = await this.#connectionTo(server);
    const reply = await callGrpc(connection, {
      path: `${service}/${method.name}`,
      messages: [message],
      metadata: this.#metadata(),
      timeoutMs,
      signal,
      maxBytes: method.largest ?? largestAnswer,
      // Whoever ends the stream of requests gets no answer to what stood in it.
      ...(method.isStream === true ? { maxMessages: 1, staysOpen: true } : {}),
      ...(onSent === undefined ? {} : { onSent }),
    });
    if (reply.status.code !== 0) throw noAnswer(method.name, server, reply.status);
    return reply.messages.map((bytes) => {
      const read = method.answer.safeParse(this.#decode(method, bytes));
      if (read.success) return read.data;
      throw noAnswer(method.name, server, { code: 0, message: "the answer is none of RocketMQ's" });
    });
  }

  /** Undefined where it would take far more memory than its bytes. */
  #decode(method: TypedMethod & Pick<ApiMethod<unknown>, "largest">, bytes: Uint8Array): unknown {
    try {
      return JSON.parse(this.#codec.decode(method, bytes, method.largest ?? largestAnswer));
    } catch (error) {
      if (error instanceof MessageTooLarge) return undefined;
      throw error;
    }
  }

  /** A topic, in the namespace of the account. */
  resource(name: string): JsonObject {
    const { namespace } = this.#account;
    return { name, ...(namespace === undefined ? {} : { resourceNamespace: namespace }) };
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.allSettled(this.#opening.values());
    const connections = [...this.#open.values()];
    this.#open.clear();
    await Promise.all(connections.map((connection) => connection.close()));
  }

  #connectionTo(server: BrokerServer): Promise<Http2Connection> {
    if (this.#isClosed) return Promise.reject(unreachable(server, "the connection has been closed"));
    const name = nameOf(server);
    const connection = this.#open.get(name);
    if (connection?.isAlive() === true) return Promise.resolve(connection);
    const opening = this.#opening.get(name) ?? this.#connect(server);
    this.#opening.set(name, opening);
    return opening;
  }

  async #connect(server: BrokerServer): Promise<Http2Connection> {
    const name = nameOf(server);
    try {
      const connection = await this.#deps.egress.connectHttp2({
        ...server,
        tls: this.#account.tls,
        signal: AbortSignal.timeout(setUpMs),
      });
      void this.#open.get(name)?.close();
      this.#open.set(name, connection);
      return connection;
    } finally {
      this.#opening.delete(name);
    }
  }

  #metadata(): Metadata {
    const { login, namespace } = this.#account;
    const at = new Date().toISOString().replaceAll(/[-:]|\.\d+/g, "");
    return [
      ["x-mq-protocol", "v2"],
      ["x-mq-client-id", this.#clientId],
      ["x-mq-client-version", clientVersion],
      ["x-mq-language", clientLanguage],
      ["x-mq-request-id", randomUUID()],
      ["x-mq-date-time", at],
      ...(namespace === undefined ? [] : ([["x-mq-namespace", namespace]] as const)),
      ...(login === undefined ? [] : ([["authorization", authorization(login, at)]] as const)),
    ];
  }
}

/** A server that does not know the method, or whoever asks, has done nothing; what others have done is not known. */
function noAnswer(method: string, server: BrokerServer, { code, message }: GrpcStatus): GatewayError {
  const isNo = [3, 7, 12, 16].includes(code);
  const what = message === "" ? `status ${code} of gRPC` : oneLine(message);
  return withDelivery(
    new GatewayError("tool_failed", `RocketMQ at '${nameOf(server)}' did not answer ${method}: ${what}.`, {
      extra: { grpc_status: code },
    }),
    isNo ? "answered" : "uncertain",
  );
}

/** Signs the time of the request with the secret key. */
export function authorization(
  { username = "", password }: { readonly username: string | undefined; readonly password: string },
  at: string,
): string {
  const signature = createHmac("sha1", password).update(at).digest("hex").toUpperCase();
  return `MQv2-HMAC-SHA1 Credential=${username}, SignedHeaders=x-mq-date-time, Signature=${signature}`;
}

/** Where a client has been told to find the cluster. */
export function endpointsOf({ host, port }: BrokerServer): JsonObject {
  const version = isIP(host);
  return { scheme: version === 4 ? 1 : version === 6 ? 2 : 3, addresses: [{ host, port }] };
}

let codec: Promise<Codec> | undefined;

/** With the library that reads and writes messages, loaded at the first use. */
export function rocketMqCodec(): Promise<Codec> {
  codec ??= loadCodec(readDescriptorSet(Buffer.from(rocketMqDescriptors, "base64")), false);
  return codec;
}
