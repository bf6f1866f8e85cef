/**
 * Kafka itself: one node that is broker and controller, in a small Java machine, with a listener for each way in.
 * Its jars are Maven's (jars.ts).
 */
import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Kafka, logLevel, type Admin, type Consumer } from "kafkajs";
import { localCertificate, localKey } from "../tls-pair.ts";
import { fetchJars } from "./jars.ts";
import { freePort, runProgram, stop, untilListening, untilSilent } from "./programs.ts";

const jars = await fetchJars("kafka", join(import.meta.dirname, "kafka"));

/** Why there is none; undefined: there is one. */
export const noKafkaServer = typeof jars === "string" ? jars : undefined;

/** For a topic that was just made. */
const knownMs = 20_000;

export const kafkaUser = { name: "shop", password: "sentinel-of-kafka" } as const;

/** One a port: in clear, with `localCertificate`, with a login, with both, and where clients have to show theirs. */
const listeners = ["plain", "tls", "login", "tls_login", "mutual"] as const;
const securityOf = {
  plain: "PLAINTEXT",
  tls: "SSL",
  login: "SASL_PLAINTEXT",
  tls_login: "SASL_SSL",
  mutual: "SSL",
} as const satisfies Record<KafkaListener, string>;
export type KafkaListener = (typeof listeners)[number];

export interface KafkaServerRecord {
  readonly partition: number;
  readonly offset: string;
  readonly key: string | undefined;
  readonly value: string;
  readonly headers: Readonly<Record<string, string>>;
  /** When it was taken. */
  readonly at: number;
}

export interface KafkaServer {
  readonly ports: Readonly<Record<KafkaListener, number>>;
  createTopic(name: string, settings?: Readonly<Record<string, string>>): Promise<void>;
  /** Partitions of the topic, more than it has. */
  growTo(topic: string, partitions: number): Promise<void>;
  append(topic: string, partition: number, values: readonly string[]): Promise<void>;
  /** As when their time is over: what lies before the offset is gone from the topic's first partition. */
  forgetBefore(topic: string, offset: number): Promise<void>;
  /** Makes another member of the group, which has half of the topic and consumes nothing. @returns how it goes */
  join(topic: string, group: string): Promise<() => Promise<void>>;
  /** How many records lie in the topic. */
  count(topic: string): Promise<number>;
  /** All records up to the one of this value, for which it waits. */
  readUntil(topic: string, value: string): Promise<readonly KafkaServerRecord[]>;
  /** Killed as by a power cut. */
  kill(): Promise<void>;
  /** Started again with what it had on disk. */
  start(): Promise<void>;
  close(): Promise<void>;
}

export async function startKafkaServer(): Promise<KafkaServer> {
  if (typeof jars === "string") throw new Error(jars);
  const { java, classPath } = jars;
  const directory = await mkdtemp(join(tmpdir(), "toolyard-kafka-"));
  const config = join(directory, "server.properties");
  const ports = { plain: 0, tls: 0, login: 0, tls_login: 0, mutual: 0 };
  for (const name of listeners) ports[name] = await freePort();
  await writeFile(config, toProperties(ports, await freePort(), join(directory, "data")));
  const run = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classPath];
  const scram = ["SCRAM-SHA-256", "SCRAM-SHA-512"].flatMap((mechanism) => [
    "--add-scram",
    `${mechanism}=[name=${kafkaUser.name},password=${kafkaUser.password}]`,
  ]);
  const id = randomBytes(16);
  // The program takes one that begins with '-' for an option.
  id[0] = 0;
  const clusterId = id.toString("base64url");
  await runProgram(java, [...run, "kafka.tools.StorageTool", "format", "-t", clusterId, "-c", config, ...scram]);

  let child: ChildProcess;
  const start = async (): Promise<void> => {
    child = spawn(java, [...run, "kafka.Kafka", config], { stdio: "ignore", cwd: directory });
    await untilListening(ports.plain, child);
  };
  const kill = async (): Promise<void> => {
    await stop(child, "SIGKILL");
    await untilSilent(ports.plain);
  };
  await start();
  const client = new Kafka({
    clientId: "test",
    brokers: [`127.0.0.1:${ports.plain}`],
    logLevel: logLevel.NOTHING,
    retry: { retries: 30, maxRetryTime: 1_000 },
  });
  const consumers: Consumer[] = [];
  const withAdmin = async <T>(work: (admin: Admin) => Promise<T>): Promise<T> => {
    const admin = client.admin();
    await admin.connect();
    try {
      return await work(admin);
    } finally {
      await admin.disconnect();
    }
  };
  return {
    ports,
    async createTopic(topic, settings = {}) {
      const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }));
      const topics = [{ topic, numPartitions: 1, replicationFactor: 1, configEntries }];
      await withAdmin(async (admin) => {
        // The client's own waiting takes a broker that does not know its new topic yet for one that has none.
        await admin.createTopics({ topics, waitForLeaders: false });
        const isKnown = (): Promise<boolean> =>
          admin.fetchTopicMetadata({ topics: [topic] }).then(
            () => true,
            () => false,
          );
        for (const until = Date.now() + knownMs; !(await isKnown());) {
          if (Date.now() > until) throw new Error(`Kafka does not know its topic '${topic}'.`);
        }
      });
    },
    growTo: (topic, count) =>
      withAdmin(async (admin) => {
        await admin.createPartitions({ topicPartitions: [{ topic, count }] });
        const partitions = async (): Promise<number | undefined> =>
          (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0]?.partitions.length;
        while ((await partitions()) !== count) await new Promise((done) => setTimeout(done, 20));
      }),
    async append(topic, partition, values) {
      const producer = client.producer({ allowAutoTopicCreation: false });
      await producer.connect();
      try {
        await producer.send({ topic, messages: values.map((value) => ({ partition, value })) });
      } finally {
        await producer.disconnect();
      }
    },
    forgetBefore: (topic, offset) =>
      withAdmin(async (admin) => {
        // Only so it learns who leads the partition.
        await admin.fetchTopicOffsets(topic);
        await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: String(offset) }] });
      }),
    async join(topic, groupId) {
      const consumer = client.consumer({ groupId, allowAutoTopicCreation: false });
      consumers.push(consumer);
      await consumer.connect();
      await consumer.subscribe({ topics: [topic] });
      const joined = new Promise<void>((done) => consumer.on("consumer.group_join", () => done()));
      await consumer.run({ autoCommit: false, eachMessage: () => Promise.resolve() });
      await joined;
      return () => consumer.disconnect();
    },
    async count(topic) {
      const partitions = await withAdmin((admin) => admin.fetchTopicOffsets(topic));
      return partitions.reduce((sum, { high, low }) => sum + Number(high) - Number(low), 0);
    },
    async readUntil(topic, last) {
      const consumer = client.consumer({ groupId: randomBytes(8).toString("hex") });
      consumers.push(consumer);
      await consumer.connect();
      await consumer.subscribe({ topic, fromBeginning: true });
      const records: KafkaServerRecord[] = [];
      await consumer.run({
        eachMessage: ({ partition, message: { offset, key, value, headers = {} } }) => {
          records.push({
            partition,
            offset,
            key: key?.toString(),
            value: value?.toString() ?? "",
            headers: Object.fromEntries(Object.entries(headers).map(([name, text]) => [name, String(text)])),
            at: Date.now(),
          });
          return Promise.resolve();
        },
      });
      while (!records.some(({ value }) => value === last)) await new Promise((done) => setTimeout(done, 20));
      await consumer.disconnect();
      return records;
    },
    kill,
    start,
    async close() {
      for (const consumer of consumers) await consumer.disconnect().catch(() => undefined);
      await kill();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

function toProperties(ports: KafkaServer["ports"], controllerPort: number, data: string): string {
  const addresses = listeners.map((name) => `${name.toUpperCase()}://127.0.0.1:${ports[name]}`);
  const protocols = listeners.map((name) => `${name.toUpperCase()}:${securityOf[name]}`);
  const { name, password } = kafkaUser;
  const plain = "org.apache.kafka.common.security.plain.PlainLoginModule";
  const scram = "org.apache.kafka.common.security.scram.ScramLoginModule";
  const logins = ["login", "tls_login"].flatMap((listener): [string, string][] => [
    [`listener.name.${listener}.sasl.enabled.mechanisms`, "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"],
    [`listener.name.${listener}.plain.sasl.jaas.config`, `${plain} required user_${name}="${password}";`],
    [`listener.name.${listener}.scram-sha-256.sasl.jaas.config`, `${scram} required;`],
    [`listener.name.${listener}.scram-sha-512.sasl.jaas.config`, `${scram} required;`],
  ]);
  const properties: readonly (readonly [string, string | number | boolean])[] = [
    ["process.roles", "broker,controller"],
    ["node.id", 1],
    ["controller.quorum.voters", `1@127.0.0.1:${controllerPort}`],
    ["controller.listener.names", "CONTROLLER"],
    ["listeners", [...addresses, `CONTROLLER://127.0.0.1:${controllerPort}`].join(",")],
    ["advertised.listeners", addresses.join(",")],
    ["listener.security.protocol.map", [...protocols, "CONTROLLER:PLAINTEXT"].join(",")],
    ["inter.broker.listener.name", "PLAIN"],
    ["sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"],
    ...logins,
    ["ssl.keystore.type", "PEM"],
    ["ssl.keystore.certificate.chain", localCertificate],
    ["ssl.keystore.key", localKey],
    ["ssl.truststore.type", "PEM"],
    ["ssl.truststore.certificates", localCertificate],
    ["listener.name.mutual.ssl.client.auth", "required"],
    ["log.dirs", data],
    ["auto.create.topics.enable", false],
    ["offsets.topic.replication.factor", 1],
    ["offsets.topic.num.partitions", 1],
    ["transaction.state.log.replication.factor", 1],
    ["transaction.state.log.min.isr", 1],
    ["group.initial.rebalance.delay.ms", 0],
    // What it has acknowledged is on disk; else a kill would show what a cluster has replicas for.
    ["log.flush.interval.messages", 1],
  ];
  return properties.map(([key, value]) => `${key}=${String(value).replaceAll("\n", "\\n")}\n`).join("");
}
