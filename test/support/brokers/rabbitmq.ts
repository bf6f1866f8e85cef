/** RabbitMQ as Debian has it (`rabbitmq-server`): a broker of the test's own in a directory of its own. */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AMQPClient, type AMQPChannel } from "@cloudamqp/amqp-client";
import { localCertificate, localKey } from "../tls-pair.ts";
import { findProgram, freePort, stop, untilListening, untilSilent } from "./programs.ts";

// What is on the path of most changes the user first.
const server = findProgram("../lib/rabbitmq/bin/rabbitmq-server");
const epmd = findProgram("epmd");

/** Why there is none; undefined: there is one. */
export const noRabbitMq =
  server === undefined || epmd === undefined
    ? "RabbitMQ is not installed (Debian: apt-get install rabbitmq-server)"
    : undefined;

export const rabbitUser = { name: "shop", password: "sentinel-of-rabbitmq" } as const;

export interface RabbitMq {
  readonly port: number;
  /** With `localCertificate`. */
  readonly tlsPort: number;
  /** A channel of the test's own, with all rights. */
  channel(): Promise<AMQPChannel>;
  /** Killed as by a power cut. */
  kill(): Promise<void>;
  /** Started again with what it had on disk. */
  start(): Promise<void>;
  restart(): Promise<void>;
  /** Ends the test's own connections. */
  hangUp(): Promise<void>;
  close(): Promise<void>;
}

export async function startRabbitMq(): Promise<RabbitMq> {
  if (server === undefined || epmd === undefined) throw new Error(noRabbitMq);
  const directory = await mkdtemp(join(tmpdir(), "toolyard-rabbitmq-"));
  const [port, tlsPort] = [await freePort(), await freePort()];
  const [distributionPort, epmdPort] = [await freePort(), await freePort()];
  const env: NodeJS.ProcessEnv = {
    PATH: process.env["PATH"],
    HOME: directory,
    LANG: "C.UTF-8",
    ERL_EPMD_ADDRESS: "127.0.0.1",
    ERL_EPMD_PORT: String(epmdPort),
    RABBITMQ_NODENAME: `toolyard${port}@localhost`,
    RABBITMQ_NODE_IP_ADDRESS: "127.0.0.1",
    RABBITMQ_NODE_PORT: String(port),
    RABBITMQ_DIST_PORT: String(distributionPort),
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1",
    RABBITMQ_MNESIA_BASE: join(directory, "data"),
    RABBITMQ_LOG_BASE: join(directory, "logs"),
    RABBITMQ_LOGS: "-",
    RABBITMQ_CONFIG_FILE: join(directory, "rabbitmq.conf"),
    RABBITMQ_CONF_ENV_FILE: join(directory, "none"),
    RABBITMQ_ENABLED_PLUGINS_FILE: join(directory, "plugins"),
  };
  await writeFile(
    join(directory, "rabbitmq.conf"),
    [
      `default_user = ${rabbitUser.name}`,
      `default_pass = ${rabbitUser.password}`,
      "loopback_users = none",
      `listeners.ssl.default = 127.0.0.1:${tlsPort}`,
      `ssl_options.certfile = ${join(directory, "cert.pem")}`,
      `ssl_options.keyfile = ${join(directory, "key.pem")}`,
      `ssl_options.cacertfile = ${join(directory, "cert.pem")}`,
    ].join("\n"),
  );
  await writeFile(join(directory, "cert.pem"), localCertificate);
  await writeFile(join(directory, "key.pem"), localKey);
  await writeFile(join(directory, "plugins"), "[].");
  const start = async (): Promise<ChildProcess> => {
    const child = spawn(server, [], { env, stdio: "ignore", detached: true });
    await untilListening(port, child);
    return child;
  };
  const end = async (child: ChildProcess): Promise<void> => {
    // The script is a shell; the broker is one of its group.
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, "SIGKILL");
    await stop(child, "SIGKILL");
    // The broker itself ends a moment after its shell.
    await untilSilent(port);
  };
  // Else the broker starts one that outlives it.
  const names = spawn(epmd, ["-port", String(epmdPort), "-address", "127.0.0.1"], { stdio: "ignore" });
  await untilListening(epmdPort, names);
  let child = await start();
  const clients = new Set<AMQPClient>();
  const hangUp = async (): Promise<void> => {
    for (const client of clients) if (!client.closed) await client.close().catch(() => undefined);
    clients.clear();
  };
  const kill = (): Promise<void> => end(child);
  const startAgain = async (): Promise<void> => {
    child = await start();
  };
  return {
    port,
    tlsPort,
    kill,
    start: startAgain,
    async channel() {
      const client = new AMQPClient(`amqp://${rabbitUser.name}:${rabbitUser.password}@127.0.0.1:${port}`);
      client.onerror = () => undefined;
      clients.add(client);
      await client.connect();
      return client.channel();
    },
    async restart() {
      await kill();
      await startAgain();
    },
    hangUp,
    async close() {
      await hangUp();
      await end(child);
      await stop(names);
      await rm(directory, { recursive: true, force: true });
    },
  };
}
