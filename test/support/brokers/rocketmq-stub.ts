/**
 * What publishers and consumers see of a RocketMQ 5 proxy, over its wire, for machines without one. It refuses what
 * the proxy refuses, in its words and with its codes, as they were recorded from version 5.3; one file of tests runs
 * over both.
 */
import { createHmac, randomUUID } from "node:crypto";
import {
  Server,
  ServerCredentials,
  type Metadata,
  type sendUnaryData,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type UntypedHandleCall,
} from "@grpc/grpc-js";
import { localCertificate, localKey } from "../tls-pair.ts";
import { rocketMqTopics, rocketMqUser, type RocketMqServer } from "./rocketmq.ts";
import { rocketMqMethod, textOf, type Fields } from "./rocketmq-wire.ts";

const types = { NORMAL: 1, FIFO: 2, DELAY: 3, TRANSACTION: 4 } as const;
const largestBody = 4_194_304;
const longestDelayMs = 86_400_000;
const reservedProperties: ReadonlySet<string> = new Set(["KEYS", "TAGS", "WAIT", "DELAY", "UNIQ_KEY"]);
const pollMs = 20;
const longestEmptyPollMs = 500;
/** Before the group's name. */
const deadLetters = "%DLQ%";
/** Shorter than anybody asks for, so that tests of what was not settled need not wait. */
const hiddenMs = 3_000;

type Unary = ServerUnaryCall<Fields, Fields>;

interface Stored {
  readonly topic: string;
  readonly message: Fields;
  readonly dueAt: number;
  /** By group: until when nobody else of it gets the message; Infinity: done with. */
  readonly hiddenUntil: Map<string, number>;
  /** By group: how often it was given to somebody. */
  readonly attempts: Map<string, number>;
}

class Refusal extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

export interface StubOptions {
  /** Where its topics are said to lie; absent: where it was asked. */
  readonly names?: { readonly host: string; readonly port: number };
}

export async function startRocketMqStub({ names }: StubOptions = {}): Promise<RocketMqServer> {
  const stored: Stored[] = [];
  const clients = new Set<string>();
  let port = 0;
  let tlsPort = 0;

  const check = (metadata: Metadata): string => {
    const [clientId] = metadata.get("x-mq-client-id");
    if (clientId === undefined || clientId === "") throw new Refusal(40_017, "client id cannot be empty");
    checkLogin(metadata);
    return String(clientId);
  };

  const unary =
    (answer: (request: Fields, clientId: string) => Fields) =>
    ({ request, metadata }: Unary, done: sendUnaryData<Fields>): void => {
      try {
        done(null, { status: ok, ...answer(request, check(metadata)) });
      } catch (error) {
        done(null, { status: toStatus(error) });
      }
    };

  const handlers: Record<string, UntypedHandleCall> = {
    QueryRoute: unary(({ topic, endpoints }) => ({
      messageQueues: [
        queueOf(nameOf(topic), names === undefined ? endpoints : { scheme: 1, addresses: [{ ...names }] }),
      ],
    })),
    SendMessage: unary(({ messages }) => {
      const [message] = messages as readonly Fields[];
      if (message === undefined) throw new Refusal(40_016, "no message to send");
      const entry = accept(message);
      stored.push(entry);
      return { entries: [{ status: ok, messageId: textOf(systemOf(message)["messageId"]), offset: "0" }] };
    }),
    Heartbeat: unary((_request, clientId) => {
      if (!clients.has(clientId)) throw new Refusal(40_015, "cannot find client settings for this client");
      return {};
    }),
    AckMessage: unary(({ group, entries }) => {
      for (const { receiptHandle } of entries as readonly Fields[])
        stored[Number(receiptHandle)]?.hiddenUntil.set(nameOf(group), Infinity);
      return {};
    }),
    ChangeInvisibleDuration: unary(({ group, receiptHandle, invisibleDuration }) => {
      const hiddenUntil = Date.now() + secondsOf(invisibleDuration) * 1_000;
      stored[Number(receiptHandle)]?.hiddenUntil.set(nameOf(group), hiddenUntil);
      return { receiptHandle: textOf(receiptHandle) };
    }),
    ForwardMessageToDeadLetterQueue: unary(({ group, receiptHandle }) => {
      const entry = stored[Number(receiptHandle)];
      if (entry === undefined) return {};
      entry.hiddenUntil.set(nameOf(group), Infinity);
      const { message } = entry;
      stored.push({
        topic: `${deadLetters}${nameOf(group)}`,
        message,
        dueAt: 0,
        hiddenUntil: new Map(),
        attempts: new Map(),
      });
      return {};
    }),
    NotifyClientTermination: unary((_request, clientId) => {
      clients.delete(clientId);
      return {};
    }),
    ReceiveMessage(call: ServerWritableStream<Fields, Fields>) {
      void Promise.resolve()
        .then(() => {
          if (!clients.has(check(call.metadata)))
            throw new Refusal(40_015, "cannot find client settings for this client");
          return receive(call, stored);
        })
        .then(
          () => call.end(),
          (error: unknown) => {
            call.write({ status: toStatus(error) });
            call.end();
          },
        );
    },
    Telemetry(call: ServerDuplexStream<Fields, Fields>) {
      call.on("error", () => undefined);
      call.on("data", (command: Fields) => {
        // What is asked is not answered where the one who asked has said that this was all.
        setImmediate(() => {
          try {
            clients.add(check(call.metadata));
            if (!call.writableEnded) call.write({ status: ok, settings: command["settings"] ?? {} });
          } catch (error) {
            call.write({ status: toStatus(error) });
          }
        });
      });
      call.on("end", () => call.end());
    },
  };

  async function listen(ports: readonly [number, number]): Promise<Server> {
    const server = new Server({ "grpc.max_receive_message_length": -1 });
    const methods = Object.keys(handlers).map((name) => [name, rocketMqMethod(name, streamsOf(name))]);
    server.addService(Object.fromEntries(methods), handlers);
    const pair = { cert_chain: Buffer.from(localCertificate), private_key: Buffer.from(localKey) };
    port = await bind(server, ports[0], ServerCredentials.createInsecure());
    tlsPort = await bind(server, ports[1], ServerCredentials.createSsl(null, [pair]));
    return server;
  }

  let server = await listen([0, 0]);
  return {
    get port() {
      return port;
    },
    get tlsPort() {
      return tlsPort;
    },
    kill() {
      server.forceShutdown();
      clients.clear();
      return Promise.resolve();
    },
    async start() {
      server = await listen([port, tlsPort]);
    },
    close() {
      server.forceShutdown();
      return Promise.resolve();
    },
  };
}

function bind(server: Server, port: number, credentials: ServerCredentials): Promise<number> {
  return new Promise((resolve, reject) => {
    server.bindAsync(`127.0.0.1:${port}`, credentials, (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    );
  });
}

const ok = { code: 20_000, message: "OK" };

function toStatus(error: unknown): Fields {
  if (error instanceof Refusal) return { code: error.code, message: error.message };
  return { code: 50_001, message: String(error) };
}

function streamsOf(name: string): "none" | "answers" | "both" {
  if (name === "Telemetry") return "both";
  return name === "ReceiveMessage" ? "answers" : "none";
}

function checkLogin(metadata: Metadata): void {
  const [authorization = ""] = metadata.get("authorization").map(String);
  const [at = ""] = metadata.get("x-mq-date-time").map(String);
  const [, accessKey, signature] =
    /^MQv2-HMAC-SHA1 Credential=([^,]*), SignedHeaders=x-mq-date-time, Signature=([0-9A-F]{40})$/.exec(authorization) ??
    [];
  if (accessKey === undefined) throw new Refusal(40_100, "username cannot be null");
  if (accessKey !== rocketMqUser.accessKey) throw new Refusal(40_100, `User:${accessKey} is not found`);
  const wanted = createHmac("sha1", rocketMqUser.secretKey).update(at).digest("hex").toUpperCase();
  if (signature !== wanted) throw new Refusal(40_100, "check signature failed");
}

function secondsOf(duration: unknown): number {
  return Number.parseFloat(String(duration));
}

function nameOf(resource: unknown): string {
  return String((resource as { name?: string } | undefined)?.name ?? "");
}

function systemOf(message: Fields): Fields {
  return message["systemProperties"] as Fields;
}

function typesOf(topic: string): readonly number[] {
  if (!/^[%|a-zA-Z0-9_-]+$/.test(topic)) {
    const text = `The specified topic[${topic}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$`;
    throw new Refusal(40_002, text);
  }
  if (topic.startsWith(deadLetters)) return [0];
  const found = Object.entries(rocketMqTopics).find(([name]) => name === topic);
  if (found === undefined) throw new Refusal(40_402, `CODE: 17  DESC: No topic route info in name server: ${topic}`);
  const [, type] = found;
  if (type === undefined) return [0];
  return type === "MIXED" ? Object.values(types) : [types[type]];
}

function queueOf(topic: string, endpoints: Fields[string] | undefined): Fields {
  return {
    topic: { name: topic },
    permission: 4,
    broker: { name: "broker-a", ...(endpoints === undefined ? {} : { endpoints }) },
    acceptMessageTypes: [...typesOf(topic)],
  };
}

/** @throws Refusal */
function accept(message: Fields): Stored {
  const topic = nameOf(message["topic"]);
  const accepted = typesOf(topic);
  const system = systemOf(message);
  const body = Buffer.from(textOf(message["body"]), "base64");
  if (body.length === 0) throw new Refusal(41_302, "message body cannot be empty");
  if (body.length > largestBody) throw new Refusal(41_301, `message body cannot exceed the max ${largestBody}`);
  for (const key of Object.keys((message["userProperties"] as Fields | undefined) ?? {}))
    if (reservedProperties.has(key)) throw new Refusal(40_007, `property is used by system: ${key}`);
  if (textOf(system["tag"]).includes("|")) throw new Refusal(40_004, "tag cannot contain '|'");
  if (textOf(system["messageGroup"]).length > 63) throw new Refusal(40_006, "message group exceed the max size 64");
  const dueAt = Date.parse(textOf(system["deliveryTimestamp"]) || new Date(0).toISOString());
  if (dueAt - Date.now() > longestDelayMs)
    throw new Refusal(40_012, `the max delay time of message is too large, max is ${longestDelayMs}`);
  const actual =
    system["deliveryTimestamp"] === undefined ? (system["messageGroup"] === undefined ? "NORMAL" : "FIFO") : "DELAY";
  if (!accepted.includes(0) && !accepted.includes(types[actual])) {
    const expected = Object.entries(types).find(([, number]) => number === accepted[0])?.[0];
    const text = `TopicMessageType validate failed, the expected type is ${expected}, but actual type is ${actual}.`;
    throw new Refusal(40_014, `org.apache.rocketmq.proxy.common.ProxyException: ${text}`);
  }
  const storeTimestamp = new Date(Math.max(dueAt, Date.now())).toISOString();
  const kept = { ...message, systemProperties: { ...system, storeTimestamp } };
  return { topic, message: kept, dueAt, hiddenUntil: new Map(), attempts: new Map() };
}

async function receive(call: ServerWritableStream<Fields, Fields>, stored: readonly Stored[]): Promise<void> {
  const { group, messageQueue, longPollingTimeout, batchSize } = call.request;
  const topic = nameOf((messageQueue as Fields | undefined)?.["topic"]);
  // A server may answer before the time is up; so every test has polls that find nothing.
  const until = Date.now() + Math.min(longestEmptyPollMs, secondsOf(longPollingTimeout) * 1_000);
  for (;;) {
    const now = Date.now();
    if (call.cancelled) return;
    const found = stored
      .map((entry, at) => ({ entry, at }))
      .filter(({ entry }) => entry.topic === topic && entry.dueAt <= now)
      .filter(({ entry }) => (entry.hiddenUntil.get(nameOf(group)) ?? 0) <= now);
    for (const { entry, at } of found.slice(0, Number(batchSize))) {
      entry.hiddenUntil.set(nameOf(group), now + hiddenMs);
      const deliveryAttempt = (entry.attempts.get(nameOf(group)) ?? 0) + 1;
      entry.attempts.set(nameOf(group), deliveryAttempt);
      const systemProperties = { ...systemOf(entry.message), receiptHandle: String(at), deliveryAttempt };
      call.write({ message: { ...entry.message, systemProperties } });
    }
    if (found.length > 0 || now >= until) {
      call.write({ deliveryTimestamp: new Date(now).toISOString() });
      call.write({ status: found.length > 0 ? ok : { code: 40_404, message: `no new message ${randomUUID()}` } });
      return;
    }
    await new Promise((done) => setTimeout(done, pollMs));
  }
}
