/**
 * The product as it stands on AWS, from the bundles that are uploaded: the REST API before `chat` and
 * `api`, the queues before `worker`, the schedule before `tick`, every function under the runtime client.
 */
import { join } from "node:path";
import { openDatabase } from "@toolyard/db/client";
import { createDatabaseTaskQueue } from "@toolyard/db/queue";
import { openShards } from "@toolyard/db/shards";
import type { PolledTaskQueue, QueueName } from "@toolyard/core/ports/task-queue";
import { startEventSource, startSchedule, type MessageSource, type Trigger } from "./event-source.ts";
import { startRestApi, type Integration } from "./rest-api.ts";
import { createLambdaFunction, type FunctionOptions, type LambdaFunction } from "./runtime-api.ts";

/** What functions/build.ts has made. */
const builtFunctions = join(import.meta.dirname, "../../functions/dist");

export interface DeploymentOptions {
  /** Settings of every function. */
  readonly env: Readonly<Record<string, string>>;
  readonly queues: Queues;
  /** Where users reach it; default: at its REST API. */
  readonly publicUrl?: string;
  /** Directory with the bundles; default: those of this release. */
  readonly taskRoot?: string;
  /** How its REST API passes on what `api` answers; default: as this release's does. */
  readonly apiTransferMode?: Integration["responseTransferMode"];
  /** Environments of one function at once. Default 2. */
  readonly concurrency?: number;
  /** Each invocation goes to another environment. */
  readonly spreads?: boolean;
  /** Each queued message comes twice. */
  readonly duplicates?: boolean;
  /** How long a message stays hidden while a worker has it. */
  readonly visibilityMs: number;
  readonly tickEveryMs: number;
  readonly onEnvironmentEnd?: () => void;
}

const names = ["chat", "api", "worker", "tick"] as const;
type FunctionName = (typeof names)[number];

export interface Deployment {
  /** Of the REST API. */
  readonly url: string;
  readonly functions: Readonly<Record<FunctionName, LambdaFunction>>;
  /** What starts functions by itself. */
  readonly triggers: readonly Trigger[];
  output(): string;
  /** Kills every environment; from now on the REST API has no function behind it. */
  kill(): Promise<void>;
  close(): Promise<void>;
}

const timeoutMs: Readonly<Record<FunctionName, number>> = {
  chat: 900_000,
  api: 60_000,
  worker: 900_000,
  tick: 60_000,
};
/** Routes of the `chat` function. */
const longPaths: readonly string[] = ["/v1/chat/completions", "/api/chat/completions"];

export async function startDeployment(options: DeploymentOptions): Promise<Deployment> {
  const restApi = await startRestApi();
  const common: Omit<FunctionOptions, "name" | "handler" | "timeoutMs"> = {
    taskRoot: options.taskRoot ?? builtFunctions,
    env: { ...options.env, TOOLYARD_PUBLIC_URL: options.publicUrl ?? restApi.url },
    concurrency: options.concurrency ?? 2,
    spreads: options.spreads ?? false,
    ...(options.onEnvironmentEnd === undefined ? {} : { onEnvironmentEnd: options.onEnvironmentEnd }),
  };
  const create = (name: FunctionName): LambdaFunction =>
    createLambdaFunction({ ...common, name, handler: `${name}.handler`, timeoutMs: timeoutMs[name] });
  const functions = { chat: create("chat"), api: create("api"), worker: create("worker"), tick: create("tick") };
  restApi.integrate = (_method, path) => ({
    function: longPaths.includes(path) ? functions.chat : functions.api,
    responseTransferMode: longPaths.includes(path) ? "STREAM" : (options.apiTransferMode ?? "STREAM"),
  });
  const { visibilityMs, tickEveryMs, duplicates = false } = options;
  const triggers = [
    ...Object.values(options.queues.sources).map((source) =>
      startEventSource({ source, function: functions.worker, visibilityMs, duplicates }),
    ),
    startSchedule(functions.tick, tickEveryMs),
  ];
  const all = Object.values(functions);
  const kill = async (): Promise<void> => void (await Promise.all(all.map((one) => one.close())));
  return {
    url: restApi.url,
    functions,
    triggers,
    output: () => all.map((one) => one.output()).join("\n"),
    kill,
    async close() {
      await restApi.close();
      const stopping = triggers.map((trigger) => trigger.stop());
      await kill();
      await Promise.all(stopping);
    },
  };
}

export interface Queues {
  readonly sources: Readonly<Record<QueueName, MessageSource>>;
  close(): Promise<void>;
}

/** The queues in the database, consumed as SQS's are. */
export async function openQueues({
  DATABASE_URL: url,
  DATABASE_AUTH_TOKEN: authToken,
}: Readonly<Record<string, string>>): Promise<Queues> {
  const open = (at: string): ReturnType<typeof openDatabase> =>
    openDatabase({ url: at, ...(authToken === undefined ? {} : { authToken }) });
  const shards = await openShards(await open(url ?? ""), open);
  return consume(createDatabaseTaskQueue(shards), () => shards.close());
}

/** @param close of what the queue stands on */
export function consume(queue: PolledTaskQueue, close: () => Promise<void>): Queues {
  const sourceOf = (name: QueueName): MessageSource => ({
    async receive(limit, visibilityMs) {
      const messages = await queue.receive(name, { limit, visibilityMs });
      return messages.map(({ receipt, receives, ...message }) => ({
        id: receipt,
        receipt,
        receives,
        body: JSON.stringify(message),
      }));
    },
    delete: (receipts) => queue.delete(name, receipts),
  });
  return { sources: { short: sourceOf("short"), long: sourceOf("long") }, close };
}
