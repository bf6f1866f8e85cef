/**
 * The whole gateway for tests: in this process over real sockets, with a database file and blobs in a
 * directory of its own, or as a process of its own, as a user would start it.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createAdaptorServer, type ServerType } from "@hono/node-server";
import { createEgress } from "@toolyard/core/blind/egress";
import { tick } from "@toolyard/core/calls/tick";
import { handleMessage } from "@toolyard/core/calls/worker";
import { ConfigCache } from "@toolyard/core/config-cache";
import { defaultTiming, type AdapterDeps, type CoreDeps, type Timing } from "@toolyard/core/deps";
import type { Log, LogFields, LogLevel } from "@toolyard/core/ports/log";
import { Sealer } from "@toolyard/core/secrets/sealer";
import type { SettingsCaps } from "@toolyard/core/tenants/settings";
import { nativePlugins } from "@toolyard/core/tools/native/index";
import { createAdapters } from "@toolyard/core/tools/schemes/index";
import { openDatabase } from "@toolyard/db/client";
import { migrate } from "@toolyard/db/migrate";
import { createDatabaseTaskQueue } from "@toolyard/db/queue";
import { createRepos } from "@toolyard/db/repos/index";
import { openShards } from "@toolyard/db/shards";
import { createFileBlobStore } from "@toolyard/platform/local/file-blob-store";
import { createLocalKeyVault } from "@toolyard/platform/local/local-key-vault";
import { startQueueWorkers } from "@toolyard/platform/local/poll-queue";
import { createSystemClock } from "@toolyard/platform/system-clock";
import { createApp } from "../../functions/http/app.ts";
import { createDriver, type GatewayDriver } from "./gateway-client.ts";

export interface LogLine {
  readonly level: LogLevel;
  readonly message: string;
  readonly fields: LogFields;
}

export interface GatewayOptions {
  readonly timing?: Partial<Timing>;
  readonly settingsCaps?: SettingsCaps;
  /** CIDRs that tools may reach although private. Default: loopback, where the stubs are. */
  readonly egressAllow?: readonly string[];
  readonly defaultProvider?: CoreDeps["defaultProvider"];
  readonly clock?: CoreDeps["clock"];
  readonly reach?: CoreDeps["reach"];
  /** Work on queued calls. Default true. */
  readonly workers?: boolean;
  /** Of another gateway, to be a second instance beside it. */
  readonly sharedWith?: Gateway;
}

/** A gateway in this process. */
export interface Gateway extends GatewayDriver {
  readonly core: CoreDeps;
  readonly dataDir: string;
  readonly databaseUrl: string;
  readonly masterKey: Buffer;
  readonly logged: readonly LogLine[];
  /** What the tick does every minute. */
  tick(): Promise<void>;
  close(): Promise<void>;
}

export async function startGateway(options: GatewayOptions = {}): Promise<Gateway> {
  const shared = options.sharedWith;
  const dataDir = shared?.dataDir ?? (await mkdtemp(join(tmpdir(), "toolyard-gateway-")));
  const databaseUrl = `file:${join(dataDir, "toolyard.db")}`;
  const masterKey = shared?.masterKey ?? randomBytes(32);
  const adminKey = shared?.adminKey ?? `admin_${randomBytes(24).toString("base64url")}`;
  const database = await openDatabase({ url: databaseUrl });
  if (shared === undefined) await migrate(database);
  const shards = await openShards(database, async (url) => openDatabase({ url }));
  const logged: LogLine[] = [];
  const log: Log = { log: (level, message, fields = {}) => void logged.push({ level, message, fields }) };
  const clock = options.clock ?? createSystemClock();
  const repos = createRepos(shards);
  if (shared === undefined) await repos.plugins.mirrorNative(nativePlugins());
  const queue = createDatabaseTaskQueue(shards);
  const egress = createEgress({ allowCidrs: options.egressAllow ?? ["127.0.0.0/8", "::1/128"] });
  const server = createAdaptorServer({ fetch: (request, env) => app.fetch(request, env) });
  const url = await listen(server);
  const deps: AdapterDeps = {
    repos,
    blobs: createFileBlobStore(join(dataDir, "blobs")),
    queue,
    sealer: new Sealer(createLocalKeyVault({ masterKey }), clock),
    egress,
    clock,
    log,
    configs: new ConfigCache(repos.config),
    reach: options.reach ?? (() => undefined),
    timing: { ...defaultTiming, ...options.timing },
    publicUrl: url,
    ...(options.settingsCaps === undefined ? {} : { settingsCaps: options.settingsCaps }),
    ...(options.defaultProvider === undefined ? {} : { defaultProvider: options.defaultProvider }),
  };
  const core: CoreDeps = { ...deps, adapters: createAdapters(deps) };
  const app = createApp({
    core,
    adminKeyHash: createHash("sha256").update(adminKey, "utf8").digest("hex"),
    version: "test",
  });
  const workers =
    options.workers === false
      ? undefined
      : startQueueWorkers({ queue, handle: (message) => handleMessage(core, message), clock, log });
  return {
    ...createDriver(url, adminKey),
    core,
    dataDir,
    databaseUrl,
    masterKey,
    logged,
    async tick() {
      await tick(core);
    },
    async close() {
      await workers?.stop();
      await closeServer(server);
      await egress.close();
      await shards.close();
      if (shared === undefined) await rm(dataDir, { recursive: true, force: true });
    },
  };
}

async function listen(server: ServerType): Promise<string> {
  await new Promise<void>((done) => void server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  return `http://127.0.0.1:${port}`;
}

async function closeServer(server: ServerType): Promise<void> {
  const closed = new Promise((done) => void server.close(done));
  if ("closeAllConnections" in server) server.closeAllConnections();
  await closed;
}

export interface ProcessOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** Of another process, to run beside it on its data directory. */
  readonly sharedWith?: GatewayProcess;
  /** Further arguments of `functions/local.ts`. */
  readonly args?: readonly string[];
}

/** A gateway as a process of its own. */
export interface GatewayProcess extends GatewayDriver {
  readonly pid: number;
  readonly dataDir: string;
  /** Everything it wrote to standard output and standard error so far. */
  output(): string;
  /** Sends a signal and waits for the end. */
  stop(signal?: NodeJS.Signals): Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;
  /** Ends it, whatever it is doing, and removes its data directory. */
  close(): Promise<void>;
}

const startWithinMs = 20_000;
const root = new URL("../../", import.meta.url);

export async function startGatewayProcess(options: ProcessOptions = {}): Promise<GatewayProcess> {
  const shared = options.sharedWith;
  const dataDir = shared?.dataDir ?? (await mkdtemp(join(tmpdir(), "toolyard-process-")));
  const adminKey = shared?.adminKey ?? `admin_${randomBytes(24).toString("base64url")}`;
  const alongside = shared === undefined ? [] : ["--join"];
  const child = spawn(process.execPath, ["functions/local.ts", ...alongside, ...(options.args ?? [])], {
    cwd: root,
    env: {
      PATH: process.env["PATH"] ?? "",
      HOME: process.env["HOME"] ?? "",
      PORT: "0",
      TOOLYARD_DATA_DIR: dataDir,
      TOOLYARD_ADMIN_KEY: adminKey,
      ...options.env,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const output = collectOutput(child);
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((done) => {
    child.once("exit", (code, signal) => done({ code, signal }));
  });
  const url = await addressOf(child, output);
  return {
    ...createDriver(url, adminKey),
    pid: child.pid ?? 0,
    dataDir,
    output,
    async stop(signal = "SIGTERM") {
      child.kill(signal);
      return ended;
    },
    async close() {
      child.kill("SIGKILL");
      await ended;
      if (shared === undefined) await rm(dataDir, { recursive: true, force: true });
    },
  };
}

function collectOutput(child: ChildProcess): () => string {
  let text = "";
  for (const stream of [child.stdout, child.stderr])
    stream?.on("data", (part: Buffer) => (text += part.toString("utf8")));
  return () => text;
}

/** The address that the banner names. @throws Error with all that was written where none comes */
async function addressOf(child: ChildProcess, output: () => string): Promise<string> {
  const until = Date.now() + startWithinMs;
  while (Date.now() < until && child.exitCode === null) {
    const address = /http:\/\/(?:127\.0\.0\.1|localhost|\[::1\]):\d+/.exec(output())?.[0];
    if (address !== undefined && (await isReady(address))) return address;
    await new Promise((done) => setTimeout(done, 25));
  }
  child.kill("SIGKILL");
  throw new Error(`the gateway did not start:\n${output()}`);
}

async function isReady(address: string): Promise<boolean> {
  try {
    return (await fetch(`${address}/health/ready`)).ok;
  } catch {
    return false;
  }
}
