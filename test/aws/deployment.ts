/**
 * The product as it stands on AWS, from the bundles that are uploaded: the REST API before `chat` and
 * `api`, the WebSocket API before `ws`, the queues before `worker`, the schedule before `tick`, every
 * function under the runtime client.
 */
import { join } from "node:path";
import { openDatabase } from "@toolyard/db/client";
import { createDatabaseTaskQueue } from "@toolyard/db/queue";
import { openShards } from "@toolyard/db/shards";
import type { QueueName } from "@toolyard/core/ports/task-queue";
import * as z from "zod";
import type { SocketResult } from "../../functions/realtime/lambda.ts";
import { longPaths } from "../../infra/routes.ts";
import { newSigner } from "../support/aws/aws-server.ts";
import type { SqsServer } from "../support/aws/sqs-server.ts";
import { startWebSocketApi, type WebSocketApi } from "../support/websocket-api.ts";
import { startEventSource, startSchedule, type MessageSource, type Trigger } from "./event-source.ts";
import { startRestApi, type Integration } from "./rest-api.ts";
import { createLambdaFunction, type FunctionOptions, type LambdaFunction } from "./runtime-api.ts";

/** What functions/build/functions.ts has made. */
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
  /** Time limit of every function; default: of each as it is deployed. */
  readonly timeoutMs?: number;
  readonly onEnvironmentEnd?: () => void;
}

const names = ["chat", "api", "ws", "worker", "tick"] as const;
type FunctionName = (typeof names)[number];

export interface Deployment {
  /** Of the REST API. */
  readonly url: string;
  /** Its own: who is connected there cannot be reached by another deployment. */
  readonly webSocketApi: WebSocketApi;
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
  api: 330_000,
  ws: 29_000,
  worker: 900_000,
  tick: 60_000,
};
/** A route of the `chat` function. */
const isLong = (path: string): boolean => longPaths.some((long) => path === long || path.startsWith(`${long}/`));

const socketResultSchema = z.strictObject({
  statusCode: z.int(),
  headers: z.record(z.string(), z.string()).optional(),
  body: z.string().optional(),
});

/** @throws Error where the function gives no answer of its own */
async function answerSocket(lambda: LambdaFunction, event: unknown): Promise<SocketResult> {
  const answer = await lambda.invoke(event);
  if (answer.kind !== "whole") throw new Error(`the function answers ${answer.kind}`);
  const { statusCode, headers, body } = socketResultSchema.parse(JSON.parse(answer.body.toString("utf8")));
  return { statusCode, ...(headers === undefined ? {} : { headers }), ...(body === undefined ? {} : { body }) };
}

export async function startDeployment(options: DeploymentOptions): Promise<Deployment> {
  const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey } = options.env;
  const signer =
    accessKeyId === undefined || secretAccessKey === undefined ? newSigner() : { accessKeyId, secretAccessKey };
  const [restApi, webSocketApi] = await Promise.all([
    startRestApi(),
    startWebSocketApi({ signer, handler: () => (event) => answerSocket(functions.ws, event) }),
  ]);
  const common: Omit<FunctionOptions, "name" | "handler" | "timeoutMs"> = {
    taskRoot: options.taskRoot ?? builtFunctions,
    env: {
      AWS_ACCESS_KEY_ID: signer.accessKeyId,
      AWS_SECRET_ACCESS_KEY: signer.secretAccessKey,
      ...options.env,
      TOOLYARD_PUBLIC_URL: options.publicUrl ?? restApi.url,
      PUSH_URL: webSocketApi.managementUrl,
      TOOLYARD_WS_URL: webSocketApi.url,
    },
    concurrency: options.concurrency ?? 2,
    spreads: options.spreads ?? false,
    ...(options.onEnvironmentEnd === undefined ? {} : { onEnvironmentEnd: options.onEnvironmentEnd }),
  };
  const create = (name: FunctionName): LambdaFunction =>
    createLambdaFunction({
      ...common,
      name,
      handler: `${name}.handler`,
      timeoutMs: options.timeoutMs ?? timeoutMs[name],
    });
  const functions = {
    chat: create("chat"),
    api: create("api"),
    ws: create("ws"),
    worker: create("worker"),
    tick: create("tick"),
  };
  restApi.integrate = (_method, path) => ({
    function: isLong(path) ? functions.chat : functions.api,
    responseTransferMode: isLong(path) ? "STREAM" : (options.apiTransferMode ?? "STREAM"),
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
    webSocketApi,
    functions,
    triggers,
    output: () => all.map((one) => one.output()).join("\n"),
    kill,
    async close() {
      await Promise.all([restApi.close(), webSocketApi.close()]);
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
  const queue = createDatabaseTaskQueue(shards);
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
  return { sources: { short: sourceOf("short"), long: sourceOf("long") }, close: () => shards.close() };
}

/** The queues of SQS as Lambda's event source has them. */
export function queuesOf(sqs: SqsServer): Queues {
  const sourceOf = (name: QueueName): MessageSource => ({
    receive: (limit, visibilityMs) => Promise.resolve(sqs.receive(name, { limit, visibilityMs })),
    delete: (receipts) => Promise.resolve(sqs.delete(name, receipts)),
  });
  return { sources: { short: sourceOf("short"), long: sourceOf("long") }, close: () => Promise.resolve() };
}
