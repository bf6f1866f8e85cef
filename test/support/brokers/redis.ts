/** Redis as Debian has it (`redis-server`): a server of the test's own that keeps nothing. */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { localCertificate, localKey } from "../tls-pair.ts";
import { findProgram, freePort, stop, untilListening, untilSilent } from "./programs.ts";

const server = findProgram("redis-server");

/** Why there is none; undefined: there is one. */
export const noRedis =
  server === undefined ? "Redis is not installed (Debian: apt-get install redis-server)" : undefined;

export const redisPassword = "sentinel-of-redis";

/** May publish to channels that begin with `shop.`, and nothing else. */
export const redisUser = { name: "shop", password: "sentinel-of-redis-user" } as const;

export interface RedisServer {
  readonly port: number;
  /** With `localCertificate`. */
  readonly tlsPort: number;
  /** Killed as by a power cut. */
  kill(): Promise<void>;
  start(): Promise<void>;
  /** A client of the test's own. */
  client(): Redis;
  /** Ends the test's own connections. */
  hangUp(): void;
  close(): Promise<void>;
}

export async function startRedis(): Promise<RedisServer> {
  if (server === undefined) throw new Error(noRedis);
  const directory = await mkdtemp(join(tmpdir(), "toolyard-redis-"));
  const [port, tlsPort] = [await freePort(), await freePort()];
  const [certificate, key] = [join(directory, "cert.pem"), join(directory, "key.pem")];
  await writeFile(certificate, localCertificate);
  await writeFile(key, localKey);
  const config = join(directory, "redis.conf");
  const { name, password } = redisUser;
  await writeFile(
    config,
    [
      `port ${port}`,
      `tls-port ${tlsPort}`,
      `tls-cert-file ${certificate}`,
      `tls-key-file ${key}`,
      `tls-ca-cert-file ${certificate}`,
      "tls-auth-clients no",
      "bind 127.0.0.1",
      `dir ${directory}`,
      "appendonly no",
      'save ""',
      `requirepass ${redisPassword}`,
      `user ${name} on >${password} resetchannels &shop.* -@all +publish`,
    ].join("\n"),
  );
  let child: ChildProcess;
  const start = async (): Promise<void> => {
    child = spawn(server, [config], { stdio: "ignore" });
    await untilListening(port, child);
  };
  await start();
  const clients: Redis[] = [];
  const hangUp = (): void => {
    for (const client of clients.splice(0)) client.disconnect();
  };
  return {
    port,
    tlsPort,
    start,
    async kill() {
      await stop(child, "SIGKILL");
      await untilSilent(port);
    },
    client() {
      const client = new Redis({ host: "127.0.0.1", port, password: redisPassword });
      client.on("error", () => undefined);
      clients.push(client);
      return client;
    },
    hangUp,
    async close() {
      hangUp();
      await stop(child);
      await rm(directory, { recursive: true, force: true });
    },
  };
}
