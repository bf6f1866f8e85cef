/**
 * The whole gateway for tests: the server form in this process over real sockets, with a database file
 * and blobs in a directory of its own, or as a process of its own, as a user would start it.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { tick } from "@toolyard/core/tick";
import { defaultTiming, type Timing } from "@toolyard/core/deps";
import type { CoreDeps } from "@toolyard/core/core-deps";
import type { LogFields, LogLevel } from "@toolyard/core/ports/log";
import type { ReplayTiming } from "@toolyard/core/vcp/nodes/client-session";
import { readEnvironment } from "../../functions/env.ts";
import { startServer } from "../../functions/local.ts";
import { defaultSocketTiming, type SocketTiming } from "../../functions/realtime/socket-server.ts";
import { serverProgram } from "./programs.ts";
import { createDriver, type GatewayDriver } from "./gateway-client.ts";

export interface LogLine {
  readonly level: LogLevel;
  readonly message: string;
  readonly fields: LogFields;
}

export interface GatewayOptions {
  /** Settings, as in the environment of the process; that of the test itself is not read. */
  readonly env?: Readonly<Record<string, string>>;
  readonly timing?: Partial<Timing>;
  /** Of its WebSockets. */
  readonly socketTiming?: Partial<SocketTiming>;
  /** When clients of VCP are told what they have missed. */
  readonly vcpReplay?: ReplayTiming;
  readonly reach?: CoreDeps["reach"];
  /** Without workers and tick. */
  readonly requestsOnly?: boolean;
  /** Milliseconds that what is in hand has to end when it is closed. */
  readonly graceMs?: number;
  /** Milliseconds between two ticks of its own. */
  readonly tickEveryMs?: number;
  /** Of another gateway, to be a second instance beside it. */
  readonly sharedWith?: GatewayHome;
}

/** A gateway in this process. */
export interface Gateway extends GatewayDriver {
  readonly core: CoreDeps;
  readonly dataDir: string;
  readonly databaseUrl: string;
  readonly logged: readonly LogLine[];
  /** What otherwise happens every few seconds. */
  tick(): Promise<void>;
  close(): Promise<void>;
}

export async function startGateway(options: GatewayOptions = {}): Promise<Gateway> {
  const shared = options.sharedWith;
  const { dataDir, adminKey } = shared ?? (await newHome());
  const logged: LogLine[] = [];
  const server = await startServer(readEnvironment(environmentOf({ dataDir, adminKey }, options.env)), {
    join: shared !== undefined,
    timing: { ...defaultTiming, ...options.timing },
    socketTiming: { ...defaultSocketTiming, ...options.socketTiming },
    log: {
      log: (level, message, fields = {}) => void logged.push({ level, message, fields }),
      flush: () => Promise.resolve(),
    },
    ...(options.vcpReplay === undefined ? {} : { vcpReplay: options.vcpReplay }),
    ...(options.reach === undefined ? {} : { reach: options.reach }),
    ...(options.requestsOnly === undefined ? {} : { requestsOnly: options.requestsOnly }),
    ...(options.graceMs === undefined ? {} : { graceMs: options.graceMs }),
    ...(options.tickEveryMs === undefined ? {} : { tickEveryMs: options.tickEveryMs }),
  });
  const { core } = server;
  return {
    ...createDriver(server.url, adminKey),
    core,
    dataDir,
    databaseUrl: `file:${join(dataDir, "toolyard.db")}`,
    logged,
    async tick() {
      await tick(core);
    },
    async close() {
      await server.stop();
      if (shared === undefined) await rm(dataDir, { recursive: true, force: true });
    },
  };
}

interface GatewayHome {
  readonly dataDir: string;
  readonly adminKey: string;
}

async function newHome(): Promise<GatewayHome> {
  const dataDir = await mkdtemp(join(tmpdir(), "toolyard-gateway-"));
  await mkdir(join(dataDir, "plugins"));
  return { dataDir, adminKey: `admin_${randomBytes(24).toString("base64url")}` };
}

function environmentOf(home: GatewayHome, more: Readonly<Record<string, string>> = {}): Record<string, string> {
  return {
    PORT: "0",
    TOOLYARD_DATA_DIR: home.dataDir,
    TOOLYARD_ADMIN_KEY: home.adminKey,
    // The samples are a newcomer's; a test brings its own.
    TOOLYARD_PLUGIN_DIR: join(home.dataDir, "plugins"),
    ...more,
  };
}

export interface ProcessOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** Of another process, to run beside it on its data directory. */
  readonly sharedWith?: GatewayHome;
  /** Further arguments of the program. */
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

const startWithinMs = 60_000;
const root = new URL("../../", import.meta.url);

export async function startGatewayProcess(options: ProcessOptions = {}): Promise<GatewayProcess> {
  const shared = options.sharedWith;
  const { dataDir, adminKey } = shared ?? (await newHome());
  const alongside = shared === undefined ? [] : ["--join"];
  const child = spawn(process.execPath, [serverProgram, ...alongside, ...(options.args ?? [])], {
    cwd: root,
    env: {
      PATH: process.env["PATH"] ?? "",
      HOME: process.env["HOME"] ?? "",
      ...environmentOf({ dataDir, adminKey }, options.env),
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
