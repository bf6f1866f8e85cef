/**
 * The server form: every route, the workers and the tick in one process, on a laptop with nothing to
 * sign up for or as one of N containers on the same services (design "Public contract", settings).
 */
import { randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { relative } from "node:path";
import type { Duplex } from "node:stream";
import { getRequestListener, RequestError } from "@hono/node-server";
import { tick } from "@toolyard/core/tick";
import { handleMessage } from "@toolyard/core/calls/worker";
import type { Reach } from "@toolyard/core/calls/kill-points";
import type { CoreDeps } from "@toolyard/core/core-deps";
import type { Timing } from "@toolyard/core/deps";
import { GatewayError, toGatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import { deliverEvents } from "@toolyard/core/realtime/deliver";
import { deliverWebhooks } from "@toolyard/core/webhooks/deliver";
import type { ReplayTiming } from "@toolyard/core/vcp/nodes/client-session";
import { DataDirInUseError, openDataDir, type DataDir } from "@toolyard/platform/local/data-dir";
import { createPrometheusMetrics } from "@toolyard/platform/local/prometheus-metrics";
import { findProgram } from "@toolyard/platform/local/plugin-wall";
import { startQueueWorkers, type QueueWorkers } from "@toolyard/platform/local/poll-queue";
import { compose, ensureTenant, type Composition } from "./compose.ts";
import { EnvironmentError, readEnvironment, type Environment } from "./env.ts";
import { createApp } from "./http/app.ts";
import { describeThrown } from "./describe-thrown.ts";
import { toErrorReply } from "./http/errors.ts";
import { checkReadiness } from "./http/readiness.ts";
import { refuseOn } from "./http/refuse-on.ts";
import { routes } from "./http/routes/index.ts";
import { stoppingEvent } from "./http/transports.ts";
import { importLocalPlugins } from "./local-plugins.ts";
import { createLog, type FlushableLog } from "./log.ts";
import { originOf } from "./origin-of.ts";
import {
  createSocketServer,
  wantsSocket,
  type SocketOptions,
  type SocketServer,
  type SocketTiming,
} from "./realtime/socket-server.ts";
import { version } from "./version.ts";

/** What tools may reach besides public addresses when an operator says nothing: services on the same machine. */
const loopback = ["127.0.0.0/8", "::1/128"];
const defaultTenant = { id: "ten_default", name: "default" };
const defaultTickEveryMs = 5_000;
/** Between two looks for what is to be told to connections that no process holds. */
const pushEveryMs = 1_000;
/** Request line and headers together. */
const maxHeaderBytes = 32_768;
const defaultGraceMs = 25_000;
/** Signals this close together are one: npm passes on what its whole process group has got already. */
const oneStopMs = 500;
/** After the grace, who is still being answered is told why it ends; this long that may take. */
const lastWordMs = 2_000;
/** Then connections are cut; this long what was cut may put its state in order. */
const settleMs = 1_000;

export interface ServerOptions {
  /** Use a data directory that another process uses too. */
  readonly join?: boolean;
  readonly log?: FlushableLog;
  readonly reach?: Reach;
  readonly timing?: Timing;
  readonly socketTiming?: SocketTiming;
  readonly vcpReplay?: ReplayTiming;
  /** Milliseconds between two ticks. */
  readonly tickEveryMs?: number;
  /** Answer requests only: queue and tick are another process's. */
  readonly requestsOnly?: boolean;
  /** Milliseconds that requests and messages in hand have to end once the process is told to stop. */
  readonly graceMs?: number;
}

export interface RunningServer {
  /** Where it listens, without a slash at the end. */
  readonly url: string;
  readonly core: CoreDeps;
  /** For people: where it listens, the key to use, a line to try. */
  readonly banner: string;
  /** Has what it cannot serve said in the log; it listens all the same, since what is missing may come. */
  sayWhatIsMissing(): Promise<void>;
  /** Takes nothing new, lets what is in hand end, and resolves when all is put away. */
  stop(): Promise<void>;
}

interface Keys {
  readonly adminKey: string;
  readonly masterKey: string;
}

/** @throws EnvironmentError, DataDirInUseError, GatewayError, each saying what to do */
export async function startServer(environment: Environment, options: ServerOptions = {}): Promise<RunningServer> {
  const log = options.log ?? createLog({ level: environment.logLevel });
  const dataDir = await findDataDir(environment, options);
  const requests = new RequestDesk();
  const sockets = Promise.withResolvers<SocketServer>();
  const server = createServer(
    {
      keepAliveTimeout: 65_000,
      maxHeaderSize: maxHeaderBytes,
      shouldUpgradeCallback: wantsSocket,
      // Node's own refusal says nothing; the desk has one.
      requireHostHeader: false,
    },
    requests.listener,
  );
  // Who waits to be told to send a body is told where that is read (http/body.ts). What else is expected may be passed over.
  server.on("checkContinue", requests.listener).on("checkExpectation", requests.listener);
  server.on("connect", (_request, socket: Duplex) => requests.refuseTunnel(socket));
  server.on("upgrade", (request, socket: Duplex, head: Buffer) => {
    // Both would be written to it.
    if (requests.isAnsweringOn(socket)) {
      socket.destroy();
      return;
    }
    sockets.promise.then(
      ({ upgrade }) => upgrade(request, socket, head),
      () => socket.destroy(),
    );
  });
  server.on("clientError", (thrown, socket) => requests.refuseBroken(thrown, socket));
  watchSockets(server);
  try {
    const url = await listen(server, environment);
    const keys = await findKeys(environment, dataDir);
    const metrics = createPrometheusMetrics();
    const composition = await compose(environment, {
      ...keys,
      log,
      metrics,
      metricsText: () => metrics.text(),
      publicUrl: environment.publicUrl ?? url,
      dataDir: dataDir.path,
      egressAllow: loopback,
      migrates: true,
      readsAllSchemes: true,
      sendsTraces: true,
      defaultTenant: defaultTenant.id,
      isDraining: () => requests.isDraining,
      ...(options.reach === undefined ? {} : { reach: options.reach }),
      ...(options.timing === undefined ? {} : { timing: options.timing }),
    });
    await ensureTenant(composition.app.core, defaultTenant);
    await importLocalPlugins(composition.app.core, environment.pluginDir, defaultTenant.id);
    const background =
      options.requestsOnly === true
        ? noBackground
        : startBackground(composition, { log, tickEveryMs: options.tickEveryMs ?? defaultTickEveryMs });
    requests.open(createApp(composition.app, routes).fetch);
    const realtime = startRealtime(composition, {
      timing: options.socketTiming,
      vcpKeyInPath: environment.vcpKeyInPath,
      replay: options.vcpReplay,
    });
    sockets.resolve(realtime);
    return {
      url,
      core: composition.app.core,
      banner: renderBanner(environment, { url, adminKey: keys.adminKey, dataDir: dataDir.path }),
      async sayWhatIsMissing() {
        await checkReadiness(composition.app);
      },
      stop: () =>
        stopServer({
          server,
          requests,
          realtime,
          background,
          composition,
          dataDir,
          log,
          graceMs: options.graceMs ?? defaultGraceMs,
        }),
    };
  } catch (error) {
    requests.refuse();
    sockets.promise.catch(() => undefined);
    sockets.reject(error);
    await closeServer(server);
    await dataDir.release();
    throw error;
  }
}

type Listener = ReturnType<typeof getRequestListener>;
type Fetch = ReturnType<typeof createApp>["fetch"];

/** Takes requests from the moment the port is bound, answers them once the app is there, knows which are in hand. */
class RequestDesk {
  isDraining = false;
  #inHand = 0;
  /** Called when the last of them is answered. */
  #whenIdle: (() => void) | undefined;
  readonly #ready = Promise.withResolvers<Listener>();
  #listener: Listener | undefined;
  /** The newest answer on each connection. */
  readonly #answers = new WeakMap<Duplex, ServerResponse>();

  constructor() {
    // Nobody may be waiting when the start fails.
    this.#ready.promise.catch(() => undefined);
  }

  readonly listener: (incoming: IncomingMessage, outgoing: ServerResponse) => void = (incoming, outgoing) => {
    this.#answers.set(incoming.socket, outgoing);
    // Probes that still speak HTTP/1.0 name no host, and may.
    if (incoming.headers.host === undefined && incoming.httpVersion !== "1.0") {
      refuseNameless(outgoing);
      return;
    }
    if (this.#listener !== undefined) {
      void this.#listener(incoming, outgoing);
      return;
    }
    this.#ready.promise.then(
      (listener) => listener(incoming, outgoing),
      () => outgoing.destroy(),
    );
  };

  open(fetch: Fetch): void {
    const counted = (request: Request, bindings: object): Response | Promise<Response> => {
      const answer = fetch(request, bindings);
      if (answer instanceof Promise) this.#hold(answer);
      return answer;
    };
    this.#listener = getRequestListener(counted, { errorHandler: answerUnreadable, hostname: "localhost" });
    this.#ready.resolve(this.#listener);
  }

  /** What is no HTTP never becomes a request; whoever sent it is told in the one error shape. */
  refuseBroken(thrown: BrokenRequest, socket: Duplex): void {
    const answer = this.#answers.get(socket);
    const isAnswering = this.isAnsweringOn(socket);
    if (thrown.code === "ECONNRESET" || !socket.writable) socket.destroy();
    // What came before it on the connection was no mistake, and is answered first.
    else if (isAnswering && answer?.req.complete === true)
      answer.once("finish", () => this.refuseBroken(thrown, socket));
    else if (isAnswering && answer?.headersSent === true) socket.destroy();
    else refuseOn(socket, toBrokenRequest(thrown), { isHead: thrown.rawPacket?.toString("latin1", 0, 5) === "HEAD " });
  }

  isAnsweringOn(socket: Duplex): boolean {
    return this.#answers.get(socket)?.writableFinished === false;
  }

  /** `CONNECT` is for proxies. */
  refuseTunnel(socket: Duplex): void {
    // Nobody else listens to it any more, and an error that nobody hears ends the process.
    socket.on("error", () => undefined);
    if (this.isAnsweringOn(socket)) {
      socket.destroy();
      return;
    }
    const error = new GatewayError("method_not_allowed", "This is no proxy, and answers no CONNECT.");
    refuseOn(socket, error, { headers: { allow: "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS" } });
  }

  refuse(): void {
    this.#ready.reject(new Error("the server did not start"));
  }

  /** Whoever is still being answered is to be told why that ends. */
  interrupt(sockets: Iterable<Socket>): void {
    for (const socket of sockets) this.#answers.get(socket)?.emit(stoppingEvent);
  }

  allDone(): Promise<void> {
    if (this.#inHand === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenIdle = resolve;
    });
  }

  #hold(answer: Promise<unknown>): void {
    this.#inHand += 1;
    answer.then(this.#done, this.#done);
  }

  readonly #done = (): void => {
    this.#inHand -= 1;
    if (this.#inHand === 0) this.#whenIdle?.();
  };
}

function refuseNameless(outgoing: ServerResponse): void {
  const error = new GatewayError("invalid_request", "A request of HTTP/1.1 needs a Host header.", { param: "host" });
  const { status, headers, body } = toErrorReply(error, newId("request"));
  outgoing.writeHead(status, { ...headers, connection: "close", "content-length": Buffer.byteLength(body) }).end(body);
}

interface BrokenRequest extends NodeJS.ErrnoException {
  /** The bytes that could not be read. */
  readonly rawPacket?: Buffer;
}

function toBrokenRequest({ code }: BrokenRequest): GatewayError {
  if (code === "HPE_HEADER_OVERFLOW") {
    return new GatewayError(
      "payload_too_large",
      `The request line and the headers have more than ${maxHeaderBytes} bytes together.`,
    );
  }
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") {
    return new GatewayError("request_timeout", "The request did not arrive in time; send it in one go.");
  }
  return new GatewayError(
    "invalid_request",
    "This is no HTTP/1.1 request: its first line, a header or its framing cannot be read. Percent-encode what is not ASCII in the target.",
  );
}

/** A request that is not even an address and a host name never reaches the app. */
function answerUnreadable(thrown: unknown): Response {
  const error =
    thrown instanceof RequestError
      ? new GatewayError("invalid_request", "The request's target or Host header cannot be read.")
      : toGatewayError(thrown);
  const { status, headers, body } = toErrorReply(error, newId("request"));
  return new Response(body, { status, headers });
}

function listen(server: Server, { port, host }: Environment): Promise<string> {
  return new Promise((resolve, reject) => {
    server.once("error", (error) => {
      const code = "code" in error ? String(error.code) : error.name;
      const problem =
        code === "EADDRINUSE" ? `port ${port} is in use on ${host}` : `cannot listen on ${host} port ${port} (${code})`;
      reject(new EnvironmentError([`PORT, HOST: ${problem}; set another`]));
    });
    server.listen(port, host, () => {
      const address = server.address();
      const bound = typeof address === "object" && address !== null ? address.port : port;
      const reachable = host === "0.0.0.0" || host === "::" ? "127.0.0.1" : host;
      resolve(`http://${reachable.includes(":") ? `[${reachable}]` : reachable}:${bound}`);
    });
  });
}

async function findDataDir({ dataDir }: Environment, { join = false }: ServerOptions): Promise<DataDir> {
  try {
    return await openDataDir(dataDir, { join });
  } catch (error) {
    if (error instanceof DataDirInUseError) throw error;
    const code = error instanceof Error && "code" in error ? ` (${String(error.code)})` : "";
    throw new EnvironmentError([`TOOLYARD_DATA_DIR: '${dataDir}' cannot be used as a directory${code}`]);
  }
}

async function findKeys(environment: Environment, dataDir: DataDir): Promise<Keys> {
  const find = async (given: string | undefined, name: string, make: () => string): Promise<string> =>
    given ?? (await dataDir.secretFile(name, make)).value;
  const secret = (): string => randomBytes(32).toString("base64url");
  return {
    adminKey: await find(environment.adminKey, "admin.key", () => `ty_operator_${secret()}`),
    masterKey: await find(environment.masterKey, "master.key", secret),
  };
}

interface Background {
  stop(): Promise<void>;
}

const noBackground: Background = { stop: () => Promise.resolve() };

/** What functions are woken for by events: messages of the queue, and the tick. */
function startBackground(
  composition: Composition,
  { log, tickEveryMs }: { readonly log: FlushableLog; readonly tickEveryMs: number },
): Background {
  const {
    app: { core },
    push,
  } = composition;
  const workers: QueueWorkers = startQueueWorkers({
    queue: composition.queue,
    handle: (message) => handleMessage(core, message),
    clock: core.clock,
    log,
  });
  composition.onSent = () => workers.wake();
  const stopping = new AbortController();
  const repeat = async (what: string, work: () => Promise<unknown>, everyMs = tickEveryMs): Promise<void> => {
    while (!stopping.signal.aborted) {
      try {
        await work();
      } catch (thrown) {
        log.log("warn", `the ${what} failed and will run again`, {
          code: toGatewayError(thrown).code,
          ...describeThrown(thrown),
        });
      }
      await core.clock.sleep(everyMs, stopping.signal).catch(() => undefined);
    }
  };
  // Beside the tick, since receivers may take their time.
  const untilStop = (): number => (stopping.signal.aborted ? 0 : Infinity);
  const repeating = [
    repeat("tick", () => tick(core)),
    repeat("webhook delivery", () => deliverWebhooks(core, untilStop)),
  ];
  if (push !== undefined) repeating.push(repeat("event push", () => deliverEvents(core, push), pushEveryMs));
  return {
    async stop() {
      stopping.abort();
      await Promise.all([workers.stop(), ...repeating]);
    },
  };
}

/** Lines are gathered for so long before they are written for those who listen. */
const logLinesMs = 100;

/** The connections of this process. They hear at once of what it does itself. */
function startRealtime({ app, realtime }: Composition, options: SocketOptions): SocketServer {
  const sockets = createSocketServer(app, options);
  const flush = async (): Promise<void> => {
    await realtime.callLogs.flush();
    sockets.wake();
  };
  realtime.listening.onChange = sockets.wake;
  realtime.onTell = sockets.wake;
  realtime.onLogLine = () => void setTimeout(() => void flush(), logLinesMs).unref();
  return sockets;
}

interface Running {
  readonly server: Server;
  readonly requests: RequestDesk;
  readonly realtime: SocketServer;
  readonly background: Background;
  readonly composition: Composition;
  readonly dataDir: DataDir;
  readonly log: FlushableLog;
  readonly graceMs: number;
}

async function stopServer(running: Running): Promise<void> {
  const { server, requests, realtime, background, composition, dataDir, log, graceMs } = running;
  requests.isDraining = true;
  const closed = closeServer(server);
  const working = Promise.all([requests.allDone(), realtime.stop(), background.stop()]);
  const all = Promise.all([closed, working]);
  if (!(await endsWithin(all, graceMs))) {
    log.log("warn", "cutting off what is still in hand; leases and records keep it safe");
    requests.interrupt(openSockets.get(server) ?? []);
    if (!(await endsWithin(all, lastWordMs))) {
      server.closeAllConnections();
      await endsWithin(working, settleMs);
    }
  }
  await composition.close();
  await dataDir.release();
  await log.flush();
}

const openSockets = new WeakMap<Server, Set<Socket>>();

function watchSockets(server: Server): void {
  const sockets = new Set<Socket>();
  openSockets.set(server, sockets);
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
}

/** Takes no new connections; those that are open end as soon as they carry no request. */
function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    const closeIdle = (): void => {
      server.closeIdleConnections();
      // Connections on which nothing was ever sent are not among the idle ones.
      for (const socket of openSockets.get(server) ?? []) if (socket.bytesRead === 0) socket.destroy();
    };
    const closingIdle = setInterval(closeIdle, 50);
    server.close(() => {
      clearInterval(closingIdle);
      resolve();
    });
    closeIdle();
  });
}

async function endsWithin(work: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), ms);
  });
  const done = await Promise.race([work.then(() => true), late]);
  clearTimeout(timer);
  return done;
}

function renderBanner(
  environment: Environment,
  { url, adminKey, dataDir }: { readonly url: string; readonly adminKey: string; readonly dataDir: string },
): string {
  const isGiven = environment.adminKey !== undefined;
  const reachable = environment.egressAllow ?? loopback;
  const message = 'Call write_file with {"path": "hello.txt", "content": "Hello from Toolyard"}';
  const body = JSON.stringify({ session_id: "hello", messages: [{ role: "user", content: message }] });
  const hasModel = environment.openaiApiKey !== undefined || environment.openaiBaseUrl !== undefined;
  return [
    `Toolyard ${version} listens on ${url}`,
    "",
    isGiven
      ? "Key:    the one in TOOLYARD_ADMIN_KEY"
      : `Key:    ${adminKey}  (kept in ${relative(process.cwd(), dataDir) || "."}/admin.key)`,
    `Docs:   ${url}/docs`,
    hasModel
      ? `Model:  the back end at ${environment.openaiBaseUrl ?? "api.openai.com"}`
      : "Model:  toolyard/scripted, which is no language model; set OPENAI_API_KEY or OPENAI_BASE_URL for one",
    `Tools:  may reach public addresses${reachable.length === 0 ? " only" : ` and ${reachable.join(", ")}`} (TOOLYARD_EGRESS_ALLOW)`,
    findProgram("bwrap", environment.path, "/") === undefined
      ? "Plugins: run with the rights of this user, without a wall; install bubblewrap for one"
      : "Plugins: run behind bubblewrap, where this machine allows it",
    "",
    "Try a real tool call:",
    `curl ${url}/api/chat/completions -H "Authorization: Bearer ${isGiven ? "$TOOLYARD_ADMIN_KEY" : adminKey}" -H 'Content-Type: application/json' -d '${body}'`,
    "",
  ].join("\n");
}

const usage = "Usage: npm start [-- --join]\n  --join  use a data directory that another process uses too\n";

/** The process: starts, says so, and ends cleanly on SIGTERM or SIGINT; a second signal ends it at once. */
async function main(parameters: readonly string[]): Promise<void> {
  const unknown = parameters.filter((parameter) => parameter !== "--join");
  if (unknown.length > 0) {
    process.stderr.write(usage);
    process.exit(2);
  }
  try {
    const environment = readEnvironment();
    const log = createLog({ level: environment.logLevel });
    const running = await startServer(environment, { join: parameters.includes("--join"), log });
    let stoppingSince: number | undefined;
    const stop = (signal: NodeJS.Signals): void => {
      if (stoppingSince !== undefined) {
        if (performance.now() - stoppingSince > oneStopMs) process.exit(1);
        return;
      }
      stoppingSince = performance.now();
      log.log("info", "stopping", { signal });
      void running.stop().then(
        () => process.exit(0),
        (thrown: unknown) => {
          log.log("error", "the end was not clean", { ...describeThrown(thrown) });
          void log.flush().then(() => process.exit(1));
        },
      );
    };
    process.on("SIGTERM", stop).on("SIGINT", stop);
    process.on("unhandledRejection", (thrown) => {
      log.log("error", "a promise nobody waits for failed", { ...describeThrown(thrown) });
    });
    process.on("uncaughtException", (thrown) => {
      log.log("error", "the process cannot go on", { ...describeThrown(thrown) });
      void log.flush().then(() => process.exit(1));
    });
    // A full disk, or nobody at the other end of the pipe, is no reason to end.
    process.stdout.on("error", () => undefined);
    await running.sayWhatIsMissing();
    // Last: whoever has read it may end the process at once.
    process.stdout.write(running.banner);
  } catch (error) {
    process.stderr.write(`${startFailure(error)}\n`);
    process.exit(1);
  }
}

function startFailure(error: unknown): string {
  const isExplained =
    error instanceof EnvironmentError || error instanceof DataDirInUseError || error instanceof GatewayError;
  if (error instanceof GatewayError && error.code === "database_unavailable") return `DATABASE_URL: ${error.message}`;
  const origin = originOf(error);
  if (isExplained && origin === error) return error.message;
  return `Toolyard could not start: ${origin instanceof Error ? (origin.stack ?? origin.message) : String(origin)}`;
}

if (import.meta.main) await main(process.argv.slice(2));
