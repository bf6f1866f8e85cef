/**
 * RocketMQ itself: a name server, and a proxy with a broker in it, in small Java machines. Its binaries are on no
 * registry, so they are taken from where `ROCKETMQ_HOME` points, as RocketMQ's own scripts do (a distribution of 5.x
 * that was unpacked there).
 */
import { spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { localCertificate, localKey } from "../tls-pair.ts";
import { findProgram, freePortWith, stop, untilListening, untilSilent } from "./programs.ts";
import { untilRouted } from "./rocketmq-reader.ts";

const java = findProgram("java");
const home = process.env["ROCKETMQ_HOME"];

/** Why there is none; undefined: there is one. */
export const noRocketMq =
  java === undefined
    ? "Java is not installed (Debian: apt-get install default-jre-headless)"
    : home === undefined || !existsSync(join(home, "lib"))
      ? "ROCKETMQ_HOME does not name a directory with RocketMQ 5 (its 'lib' is missing)"
      : undefined;

/** What each topic takes. */
export const rocketMqTopics = {
  orders: "NORMAL",
  late: "DELAY",
  ordered: "FIFO",
  anything: "MIXED",
  untyped: undefined,
} as const;

export const rocketMqUser = { accessKey: "toolyard-access", secretKey: "sentinel-of-rocketmq" } as const;

/** Asks for `rocketMqUser`. */
export interface RocketMqServer {
  /** Of the proxy, in clear. */
  readonly port: number;
  /** With `localCertificate`. */
  readonly tlsPort: number;
  /** Killed as by a power cut. */
  kill(): Promise<void>;
  /** Started again with what it had on disk. */
  start(): Promise<void>;
  close(): Promise<void>;
}

/** @returns when publishers and consumers are told where its topics lie */
export async function startRocketMq(): Promise<RocketMqServer> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await startAt(await choosePorts());
    } catch (error) {
      // Somebody may have taken one of the ports between the choice and the start.
      if (attempt === mostStarts) throw error;
    }
  }
}

const mostStarts = 3;

async function startAt({ names, port, remoting, broker, replication }: Ports): Promise<RocketMqServer> {
  if (java === undefined || home === undefined || noRocketMq !== undefined) throw new Error(noRocketMq);
  const directory = await mkdtemp(join(tmpdir(), "toolyard-rocketmq-"));
  const nameServer = `127.0.0.1:${names}`;
  const proxyConfig = join(directory, "conf", "rmq-proxy.json");
  const brokerConfig = join(directory, "conf", "broker.conf");
  await mkdir(join(directory, "conf", "tls"), { recursive: true });
  await mkdir(join(directory, "store", "config"), { recursive: true });
  await writeFile(join(directory, "conf", "tls", "rocketmq.crt"), localCertificate);
  await writeFile(join(directory, "conf", "tls", "rocketmq.key"), localKey);
  await writeFile(join(directory, "conf", "namesrv.conf"), `listenPort=${names}\n`);
  await writeFile(join(directory, "store", "config", "topics.json"), JSON.stringify(toTopics()));
  await writeFile(
    proxyConfig,
    JSON.stringify({
      rocketMQClusterName: "DefaultCluster",
      namesrvAddr: nameServer,
      grpcServerPort: port,
      remotingListenPort: remoting,
      tlsTestModeEnable: false,
      // Seconds that others wait for what it did not answer; tests do not.
      grpcShutdownTimeSeconds: 1,
      grpcClientConsumerMinLongPollingTimeoutMillis: 1_000,
      ...login,
      authenticationMetadataProvider: `${proxyAuth}ProxyAuthenticationMetadataProvider`,
    }),
  );
  await writeFile(
    brokerConfig,
    toProperties({
      brokerClusterName: "DefaultCluster",
      brokerName: "broker-a",
      brokerId: 0,
      brokerIP1: "127.0.0.1",
      listenPort: broker,
      haListenPort: replication,
      storePathRootDir: join(directory, "store"),
      storePathCommitLog: join(directory, "store", "commitlog"),
      mappedFileSizeCommitLog: 16_777_216,
      mappedFileSizeTimerLog: 1_048_576,
      autoCreateTopicEnable: false,
      flushDiskType: "SYNC_FLUSH",
      ...login,
      authenticationMetadataProvider: `${brokerAuth}LocalAuthenticationMetadataProvider`,
      authConfigPath: join(directory, "accounts"),
    }),
  );
  const run = (main: string, args: readonly string[]): ChildProcess =>
    spawn(java, [...javaOptions(directory), "-cp", join(home, "lib", "*"), main, ...args], {
      env: { PATH: process.env["PATH"], HOME: directory, ROCKETMQ_HOME: directory },
      stdio: "ignore",
    });
  const startProxy = async (): Promise<ChildProcess> => {
    const child = run("org.apache.rocketmq.proxy.ProxyStartup", [
      "-pm",
      "local",
      "-n",
      nameServer,
      "-bc",
      brokerConfig,
      "-pc",
      proxyConfig,
    ]);
    await untilUp(child, async () => {
      await untilListening(port, child);
      await untilRouted(Object.keys(rocketMqTopics), { port, login: rocketMqUser });
    });
    return child;
  };
  const nameServerProcess = run("org.apache.rocketmq.namesrv.NamesrvStartup", [
    "-c",
    join(directory, "conf", "namesrv.conf"),
  ]);
  await untilUp(nameServerProcess, () => untilListening(names, nameServerProcess));
  let proxy = await startProxy().catch(async (error: unknown) => {
    await stop(nameServerProcess, "SIGKILL");
    throw error;
  });
  return {
    port,
    // It tells by the first bytes which of both is meant.
    tlsPort: port,
    async kill() {
      await stop(proxy, "SIGKILL");
      await untilSilent(port);
    },
    async start() {
      proxy = await startProxy();
    },
    async close() {
      await stop(proxy, "SIGKILL");
      await stop(nameServerProcess, "SIGKILL");
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** Ends what does not come up. @throws Error where it ends by itself before */
async function untilUp(child: ChildProcess, isUp: () => Promise<void>): Promise<void> {
  const ended = new Promise<never>((_resolve, reject) => {
    child.once("exit", (code) => reject(new Error(`It ended with ${code} before it was up.`)));
  });
  ended.catch(() => undefined);
  try {
    await Promise.race([isUp(), ended]);
  } catch (error) {
    await stop(child, "SIGKILL");
    throw error;
  }
}

const brokerAuth = "org.apache.rocketmq.auth.authentication.provider.";
const proxyAuth = "org.apache.rocketmq.proxy.auth.";
const { accessKey, secretKey } = rocketMqUser;
const login = {
  authenticationEnabled: true,
  authenticationProvider: `${brokerAuth}DefaultAuthenticationProvider`,
  initAuthenticationUser: JSON.stringify({ username: accessKey, password: secretKey }),
  innerClientAuthenticationCredentials: JSON.stringify({ accessKey, secretKey }),
};

interface Ports {
  readonly names: number;
  readonly port: number;
  readonly remoting: number;
  readonly broker: number;
  readonly replication: number;
}

/** Of the broker for those in a hurry, below its own. */
const fastBroker = -2;

async function choosePorts(): Promise<Ports> {
  const taken = new Set<number>();
  const choose = async (neighbours: readonly number[] = []): Promise<number> => {
    const port = await freePortWith(neighbours, taken);
    for (const far of [0, ...neighbours]) taken.add(port + far);
    return port;
  };
  return {
    names: await choose(),
    port: await choose(),
    remoting: await choose(),
    broker: await choose([fastBroker]),
    replication: await choose(),
  };
}

function javaOptions(directory: string): readonly string[] {
  return [
    "-Xms64m",
    "-Xmx256m",
    "-XX:MaxDirectMemorySize=256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    `-Drocketmq.home.dir=${directory}`,
    `-Duser.home=${directory}`,
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
  ];
}

function toProperties(properties: Readonly<Record<string, string | number | boolean>>): string {
  return Object.entries(properties)
    .map(([name, value]) => `${name}=${value}\n`)
    .join("");
}

function toTopics(): unknown {
  const table = Object.entries(rocketMqTopics).map(([topicName, type]) => [
    topicName,
    {
      topicName,
      readQueueNums: 1,
      writeQueueNums: 1,
      perm: 6,
      topicFilterType: "SINGLE_TAG",
      topicSysFlag: 0,
      order: false,
      attributes: type === undefined ? {} : { "message.type": type },
    },
  ]);
  return { topicConfigTable: Object.fromEntries(table), dataVersion: { counter: 1, stateVersion: 0, timestamp: 1 } };
}
