/** Redis as Debian has it (`redis-server`): a server of the test's own that keeps nothing. */
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { findProgram, freePort, stop, untilListening } from "./programs.ts";

const server = findProgram("redis-server");

/** Why there is none; undefined: there is one. */
export const noRedis =
  server === undefined ? "Redis is not installed (Debian: apt-get install redis-server)" : undefined;

export const redisPassword = "sentinel-of-redis";

export interface RedisServer {
  readonly port: number;
  /** A client of the test's own. */
  client(): Redis;
  close(): Promise<void>;
}

export async function startRedis(): Promise<RedisServer> {
  if (server === undefined) throw new Error(noRedis);
  const directory = await mkdtemp(join(tmpdir(), "toolyard-redis-"));
  const port = await freePort();
  const settings = { port, bind: "127.0.0.1", dir: directory, requirepass: redisPassword, appendonly: "no" };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const child = spawn(server, [...args, "--save", ""], { stdio: "ignore" });
  await untilListening(port, child);
  const clients: Redis[] = [];
  return {
    port,
    client() {
      const client = new Redis({ host: "127.0.0.1", port, password: redisPassword });
      client.on("error", () => undefined);
      clients.push(client);
      return client;
    },
    async close() {
      for (const client of clients) client.disconnect();
      await stop(child);
      await rm(directory, { recursive: true, force: true });
    },
  };
}
