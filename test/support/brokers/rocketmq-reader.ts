/** Takes messages from RocketMQ as its own consumers do ("simple consumer"), by grpc-js. */
import { createHmac, randomUUID } from "node:crypto";
import { Client, credentials, Metadata, type ServiceError } from "@grpc/grpc-js";
import { rocketMqMethod, textOf, type Fields } from "./rocketmq-wire.ts";

export interface RocketMqRecord {
  readonly id: string;
  readonly body: string;
  readonly tag: string | undefined;
  readonly keys: readonly string[];
  readonly group: string | undefined;
  readonly properties: Readonly<Record<string, string>>;
  /** When it was taken. */
  readonly at: number;
}

export interface RocketMqReader {
  /** All that came so far. */
  readonly taken: readonly RocketMqRecord[];
  /** Waits for all of these messages; what came of them, in the order in which it came. */
  take(ids: readonly string[]): Promise<readonly RocketMqRecord[]>;
  /** Takes what there is; how many came so far. */
  count(): Promise<number>;
  close(): void;
}

export interface ReaderOptions {
  readonly port: number;
  readonly topic: string;
  readonly login?: { readonly accessKey: string; readonly secretKey: string };
}

const simpleConsumer = 3;
/** No shorter than `startRocketMq`'s proxy lets anybody ask for. */
const shortPollMs = 1_000;

/** Calls of its API by a client of its own. */
interface ApiClient {
  readonly client: Client;
  metadata(): Metadata;
  ask(name: string, request: Fields): Promise<Fields>;
}

function openApi({ port, login }: Pick<ReaderOptions, "port" | "login">): ApiClient {
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
  const clientId = randomUUID();
  function metadata(): Metadata {
    const at = new Date().toISOString().replaceAll(/[-:]|\.\d+/g, "");
    const entries = new Metadata();
    const headers = {
      "x-mq-client-id": clientId,
      "x-mq-client-version": "5.0.3",
      "x-mq-language": "HTTP",
      "x-mq-protocol": "v2",
      "x-mq-date-time": at,
    };
    for (const [name, value] of Object.entries(headers)) entries.set(name, value);
    if (login !== undefined) {
      const signature = createHmac("sha1", login.secretKey).update(at).digest("hex").toUpperCase();
      entries.set(
        "authorization",
        `MQv2-HMAC-SHA1 Credential=${login.accessKey}, SignedHeaders=x-mq-date-time, Signature=${signature}`,
      );
    }
    return entries;
  }
  return {
    client,
    metadata,
    ask(name, request) {
      const { path, requestSerialize, responseDeserialize } = rocketMqMethod(name, "none");
      return new Promise((resolve, reject) => {
        client.makeUnaryRequest(
          path,
          requestSerialize,
          responseDeserialize,
          request,
          metadata(),
          { deadline: Date.now() + 30_000 },
          (error: ServiceError | null, answer?: Fields) => (error === null ? resolve(answer ?? {}) : reject(error)),
        );
      });
    },
  };
}

/** Waits until whoever asks is told where each of the topics lies, which is a while after the proxy listens. */
export async function untilRouted(topics: readonly string[], at: Pick<ReaderOptions, "port" | "login">): Promise<void> {
  const api = openApi(at);
  try {
    for (const topic of topics) await untilRoute(api, topic, at.port);
  } finally {
    api.client.close();
  }
}

async function untilRoute({ ask }: ApiClient, topic: string, port: number): Promise<void> {
  const route = { topic: { name: topic }, endpoints: { scheme: 1, addresses: [{ host: "127.0.0.1", port }] } };
  while (!hasQueue(await ask("QueryRoute", route).catch((): Fields => ({}))))
    await new Promise((done) => setTimeout(done, 50));
}

function hasQueue({ messageQueues }: Fields): boolean {
  return Array.isArray(messageQueues) && messageQueues.length > 0;
}

/** @returns once the broker knows it, and the topic, which it may not right after its start */
export async function readRocketMq({ port, topic, login }: ReaderOptions): Promise<RocketMqReader> {
  const api = openApi({ port, ...(login === undefined ? {} : { login }) });
  const { client, metadata, ask } = api;
  const group = { name: `reader-${randomUUID()}` };
  const everything = { type: 1, expression: "*" };

  async function receive(forMs: number): Promise<readonly Fields[]> {
    const { path, requestSerialize, responseDeserialize } = rocketMqMethod("ReceiveMessage", "answers");
    const request = {
      group,
      messageQueue: { topic: { name: topic }, id: -1, broker: { name: "broker-a" } },
      filterExpression: everything,
      batchSize: 16,
      invisibleDuration: "30s",
      longPollingTimeout: `${forMs / 1_000}s`,
    };
    const stream = client.makeServerStreamRequest(path, requestSerialize, responseDeserialize, request, metadata(), {
      deadline: Date.now() + 30_000,
    });
    const messages: Fields[] = [];
    for await (const answer of stream as AsyncIterable<{ message?: Fields }>)
      if (answer.message !== undefined) messages.push(answer.message);
    return messages;
  }

  const telemetry = rocketMqMethod("Telemetry", "both");
  const settings = client.makeBidiStreamRequest(
    telemetry.path,
    telemetry.requestSerialize,
    telemetry.responseDeserialize,
    metadata(),
  );
  settings.on("error", () => undefined);
  const subscription = { group, subscriptions: [{ topic: { name: topic }, expression: everything }] };
  const known = new Promise((done) => settings.once("data", done));
  settings.write({ settings: { clientType: simpleConsumer, requestTimeout: "10s", subscription } });
  await known;
  await ask("Heartbeat", { group, clientType: simpleConsumer });
  await untilRoute(api, topic, port);
  const taken: RocketMqRecord[] = [];

  /** @returns how many came */
  async function takeSome(forMs: number): Promise<number> {
    const messages = await receive(forMs);
    for (const message of messages) {
      const record = toRecord(message);
      taken.push(record);
      const { receiptHandle = "" } = propertiesOf(message);
      await ask("AckMessage", {
        group,
        topic: { name: topic },
        entries: [{ messageId: record.id, receiptHandle }],
      });
    }
    return messages.length;
  }

  return {
    taken,
    async take(ids) {
      const wanted = new Set(ids);
      while (ids.some((id) => !taken.some((record) => record.id === id))) await takeSome(5_000);
      return taken.filter(({ id }) => wanted.has(id));
    },
    async count() {
      while ((await takeSome(shortPollMs)) > 0);
      return taken.length;
    },
    close() {
      settings.end();
      client.close();
    },
  };
}

interface Properties {
  readonly messageId?: string;
  readonly tag?: string;
  readonly keys?: readonly string[];
  readonly messageGroup?: string;
  readonly receiptHandle?: string;
}

function propertiesOf(message: Fields): Properties {
  return message["systemProperties"] as Properties;
}

function toRecord(message: Fields): RocketMqRecord {
  const { messageId = "", tag, keys = [], messageGroup } = propertiesOf(message);
  return {
    id: messageId,
    body: Buffer.from(textOf(message["body"]), "base64").toString(),
    tag,
    keys,
    group: messageGroup,
    properties: message["userProperties"] as Record<string, string>,
    at: Date.now(),
  };
}
