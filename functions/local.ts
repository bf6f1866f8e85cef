/**
 * The server form: every route, the workers and the tick in one process, on a laptop with nothing to
 * sign up for or as one of N containers on the same services (design "Public contract", settings).
 */
import { randomBytes } from "node:crypto";
import type { Server } from "node:http";
import { relative } from "node:path";
import { tick } from "@toolyard/core/tick";
import { handleMessage } from "@toolyard/core/calls/worker";
import type { Reach } from "@toolyard/core/calls/kill-points";
import type { CoreDeps } from "@toolyard/core/core-deps";
import type { Timing } from "@toolyard/core/deps";
import { GatewayError, toGatewayError } from "@toolyard/core/errors/gateway-error";
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
import { checkReadiness } from "./http/readiness.ts";
import { RequestDesk } from "./http/request-desk.ts";
import { routes } from "./http/routes/index.ts";
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
const defaultGraceMs = 25_000;
/** Between the signal and the last connection that is taken: proxies learn meanwhile that this process ends. */
const stopLingerMs = 2_000;
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
  /**
   * Takes nothing new, lets what is in hand end, and resolves when all is put away.
   * @param lingerMs so long whoever keeps a connection may still send on it; 0 unless told otherwise
   */
  stop(lingerMs?: number): Promise<void>;
}

interface Keys {
  readonly adminKey: string;
  readonly masterKey: string;
}

/** @throws EnvironmentError, DataDirInUseError, GatewayError, each saying what to do */
export async function startServer(environment: Environment, options: ServerOptions = {}): Promise<RunningServer> {
  const log = options.log ?? createLog({ level: environment.logLevel });
  const dataDir = await findDataDir(environment, options);
  const sockets = Promise.withResolvers<SocketServer>();
  const requests = new RequestDesk({
    wantsUpgrade: wantsSocket,
    upgrade: (request, socket, head) => {
      sockets.promise.then(
        ({ upgrade }) => upgrade(request, socket, head),
        () => socket.destroy(),
      );
    },
  });
  try {
    const url = await listen(requests.server, environment);
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
      stop: (lingerMs = 0) =>
        stopServer({
          lingerMs,
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
    await requests.close(0);
    await dataDir.release();
    throw error;
  }
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
  readonly requests: RequestDesk;
  readonly realtime: SocketServer;
  readonly background: Background;
  readonly composition: Composition;
  readonly dataDir: DataDir;
  readonly log: FlushableLog;
  readonly lingerMs: number;
  readonly graceMs: number;
}

async function stopServer(running: Running): Promise<void> {
  const { requests, realtime, background, composition, dataDir, log, lingerMs, graceMs } = running;
  const working = Promise.all([requests.close(lingerMs), realtime.stop(), background.stop()]);
  if (!(await endsWithin(working, graceMs))) {
    log.log("warn", "cutting off what is still in hand; leases and records keep it safe");
    requests.interrupt();
    if (!(await endsWithin(working, lastWordMs))) {
      requests.cutOff();
      await endsWithin(working, settleMs);
    }
  }
  await composition.close();
  await dataDir.release();
  await log.flush();
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
      // Who sits at the terminal has no proxy before it.
      void running.stop(signal === "SIGTERM" ? stopLingerMs : 0).then(
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
