/** Kafka's protocol as librdkafka's mock cluster speaks it (Debian: librdkafka-dev and a C compiler). */
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { findProgram, runProgram, stop } from "./programs.ts";

const compiler = findProgram("cc") ?? findProgram("gcc");
const header = ["/usr/include", "/usr/local/include"]
  .map((directory) => join(directory, "librdkafka", "rdkafka_mock.h"))
  .find((path) => existsSync(path));

/** Why there is none; undefined: there is one. */
export const noKafka =
  compiler === undefined || header === undefined
    ? "librdkafka's mock cluster cannot be built (Debian: apt-get install gcc librdkafka-dev)"
    : undefined;

export interface KafkaRecord {
  readonly offset: number;
  readonly key: string;
  readonly value: string;
  readonly headers: Readonly<Record<string, string>>;
}

export interface KafkaMock {
  readonly port: number;
  /** Answers the next request to take messages with this error code. */
  failNext(code: number): Promise<void>;
  /** What lies in the topic's only partition. */
  read(topic: string): Promise<readonly KafkaRecord[]>;
  /** Publishes so many messages at once, packed as librdkafka does, with a header that is null. @param value without blanks */
  publishPacked(topic: string, codec: "gzip" | "snappy" | "lz4" | "zstd", count: number, value: string): Promise<void>;
  close(): Promise<void>;
}

export async function startKafka(topics: readonly string[]): Promise<KafkaMock> {
  if (compiler === undefined) throw new Error(noKafka);
  const directory = await mkdtemp(join(tmpdir(), "toolyard-kafka-"));
  const program = join(directory, "kafka-mock");
  const source = fileURLToPath(new URL("kafka-mock.c", import.meta.url));
  await runProgram(compiler, ["-o", program, source, "-lrdkafka"]);
  const child = spawn(program, topics, { stdio: ["pipe", "pipe", "ignore"] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const nextLine = async (): Promise<string> => String((await lines.next()).value ?? "end");
  const servers = await nextLine();
  let asked: Promise<unknown> = Promise.resolve();
  /** One after the other: answers come in the order of questions. */
  const ask = (command: string): Promise<readonly string[]> => {
    const answer = asked.then(async () => {
      child.stdin.write(`${command}\n`);
      const said: string[] = [];
      for (let line = await nextLine(); line !== "end"; line = await nextLine()) said.push(line);
      return said;
    });
    asked = answer;
    return answer;
  };
  return {
    port: Number(servers.split(",")[0]?.split(":")[1]),
    async failNext(code) {
      await ask(`t any ${code}`);
    },
    read: async (topic) => (await ask(`p ${topic}`)).map(toRecord),
    async publishPacked(topic, codec, count, value) {
      const said = await ask(`w ${topic} ${codec} ${count} ${value}`);
      if (said[0] !== "left 0") throw new Error(`Messages packed with ${codec} were not published: ${said.join()}`);
    },
    async close() {
      child.stdin.end("q\n");
      await stop(child);
      await rm(directory, { recursive: true, force: true });
    },
  };
}

function toRecord(line: string): KafkaRecord {
  const [, offset = "", rest = ""] = /^message (\d+) (.*)$/s.exec(line) ?? [];
  const [key = "", value = "", ...headers] = rest.split("|");
  return {
    offset: Number(offset),
    key,
    value,
    headers: Object.fromEntries(headers.map((each) => each.split("=", 2))),
  };
}
