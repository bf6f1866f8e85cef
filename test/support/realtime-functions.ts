/**
 * Functions as they stand side by side on AWS (`api`, `chat`, `ws`, `worker`, `tick`), each composed by
 * itself on one database server, behind a WebSocket API: what one of them does, another has to tell.
 */
import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { tick } from "@toolyard/core/tick";
import { handleMessage } from "@toolyard/core/calls/worker";
import { openDatabase } from "@toolyard/db/client";
import type { SqlValue } from "@toolyard/db/database";
import { migrate } from "@toolyard/db/migrate";
import { createConnectionsPush } from "@toolyard/platform/aws/connections-push";
import { compose, type Composition } from "../../functions/compose.ts";
import { readEnvironment } from "../../functions/env.ts";
import { createApp } from "../../functions/http/app.ts";
import { createStreamingHandler } from "../../functions/http/lambda.ts";
import { createQueueHandler } from "../../functions/queue-handler.ts";
import { routes } from "../../functions/http/routes/index.ts";
import { streamedRoutes } from "../../functions/http/routes/streamed.ts";
import { tellClients, type Telling } from "../../functions/realtime/after-invocation.ts";
import { createSocketHandler } from "../../functions/realtime/lambda.ts";
import { startDatabaseProxy, type DatabaseProxy } from "./database-proxy.ts";
import type { Json } from "./gateway-client.ts";
import { startHranaServer } from "./hrana-server.ts";
import { FakeResponseStream, installRuntime } from "./response-stream.ts";
import { startWebSocketApi, type WebSocketApi } from "./websocket-api.ts";

export interface RealtimeFunctions {
  readonly api: WebSocketApi;
  /** Before the database as `api` and `chat` see it. */
  readonly proxy: DatabaseProxy;
  readonly operatorKey: string;
  /** A request to `api`. @throws Error where its answer is not 2xx */
  request(request: FunctionRequest): Promise<Json>;
  /** A streamed chat. */
  chat(key: string, body: unknown): Promise<string>;
  /** Gives the worker what is in the queue; returns how many messages there were. */
  work(): Promise<number>;
  tick(): Promise<void>;
  run(sql: string, ...args: SqlValue[]): Promise<readonly Readonly<Record<string, unknown>>[]>;
  close(): Promise<void>;
}

export interface FunctionRequest {
  readonly key: string;
  readonly method: string;
  readonly path: string;
  readonly body?: unknown;
  /** On which the operator acts. */
  readonly tenant?: string;
}

const context = { getRemainingTimeInMillis: () => 60_000 };

export async function startRealtimeFunctions(): Promise<RealtimeFunctions> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-realtime-"));
  const server = await startHranaServer({ file: join(directory, "server.db") });
  const proxy = await startDatabaseProxy({ target: server.url });
  const operatorKey = randomBytes(24).toString("base64url");
  const masterKey = "ab".repeat(32);
  const beside = await openDatabase({ url: server.url });
  await migrate(beside);
  const handlers = Promise.withResolvers<ReturnType<typeof createSocketHandler>>();
  const api = await startWebSocketApi({ handler: () => async (event) => (await handlers.promise)(event) });
  const push = createConnectionsPush({
    url: api.managementUrl,
    client: { region: "eu-west-1", credentials: { accessKeyId: "AKID", secretAccessKey: "secret" } },
  });
  const compositions: Composition[] = [];

  /** As functions/api.ts, and the others, which read a scheme when a tenant or a call has it. */
  const composeOne = async (telling: Telling, databaseUrl = server.url, readsAllSchemes = false) => {
    const environment = readEnvironment({
      DATABASE_URL: databaseUrl,
      BLOBS_URL: pathToFileURL(join(directory, "blobs")).href,
      TOOLYARD_EGRESS_ALLOW: "127.0.0.0/8",
      TOOLYARD_WS_URL: api.url,
    });
    const composition = await compose(environment, {
      log: { log: () => undefined },
      metrics: { count: () => undefined, observe: () => undefined },
      publicUrl: "https://tools.example.com",
      adminKey: operatorKey,
      masterKey,
      dataDir: undefined,
      egressAllow: [],
      migrates: false,
      readsAllSchemes,
      sendsTraces: false,
      push,
    });
    compositions.push(composition);
    const { app, queue } = composition;
    return { app, queue, finish: () => tellClients(composition, telling) };
  };

  const [whole, streamed, ws, worker] = await Promise.all([
    composeOne("handed-on", proxy.url, true),
    composeOne("own", proxy.url),
    composeOne("all"),
    composeOne("all"),
  ]);
  const log = { log: () => undefined };
  const removeRuntime = installRuntime();
  const wholeHandler = createStreamingHandler(createApp(whole.app, routes), log, { after: whole.finish });
  const chatHandler = createStreamingHandler(createApp(streamed.app, streamedRoutes), log, { after: streamed.finish });
  const workerHandler = createQueueHandler((message) => handleMessage(worker.app.core, message), log, worker.finish);
  handlers.resolve(createSocketHandler(ws.app, push, ws.finish));

  const eventOf = ({ key, method, path, body, tenant }: FunctionRequest) => ({
    httpMethod: method,
    path,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json", "x-toolyard-tenant": tenant },
    body: body === undefined ? null : JSON.stringify(body),
  });

  return {
    api,
    proxy,
    operatorKey,
    async request(request) {
      const answer = new FakeResponseStream();
      await wholeHandler(eventOf(request), answer, context);
      const { head, text } = answer;
      if (head === undefined || head.statusCode >= 300) {
        throw new Error(`${request.path} answered ${head?.statusCode}: ${text}`);
      }
      return text === "" ? undefined : JSON.parse(text);
    },
    async chat(key, body) {
      const answer = new FakeResponseStream();
      await chatHandler(eventOf({ key, method: "POST", path: "/v1/chat/completions", body }), answer, context);
      return answer.text;
    },
    async work() {
      const messages = await worker.queue.receive("short", { limit: 100, visibilityMs: 60_000 });
      const records = messages.map(({ tenant, callId, receipt }) => ({
        messageId: receipt,
        body: JSON.stringify({ tenant, callId }),
      }));
      if (records.length > 0) await workerHandler({ Records: records });
      await worker.queue.delete(
        "short",
        messages.map(({ receipt }) => receipt),
      );
      return messages.length;
    },
    async tick() {
      await tick(worker.app.core);
      await worker.finish();
    },
    async run(sql, ...args) {
      const [result] = await beside.batch([{ sql, args }]);
      return result?.rows ?? [];
    },
    async close() {
      removeRuntime();
      await api.close();
      await Promise.all(compositions.map((composition) => composition.close()));
      await beside.close();
      await proxy.close();
      await server.close();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
