/** One migrated database and two instances at it, as two processes or two functions would be. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openDatabase } from "@toolyard/db/client";
import type { Database, Shards, SqlValue } from "@toolyard/db/database";
import { migrate } from "@toolyard/db/migrate";
import { openShards, type OpenShards } from "@toolyard/db/shards";
import { startDatabaseProxy, type DatabaseProxy } from "./database-proxy.ts";
import { startHranaServer } from "./hrana-server.ts";

export interface TwoInstances {
  readonly first: Shards;
  readonly second: Shards;
  /** Before the first instance, where there is a server; injects faults and counts trips. */
  readonly proxy: DatabaseProxy | undefined;
  /** Behind the repositories' backs: to age rows and to look at them. */
  run(sql: string, ...args: SqlValue[]): Promise<readonly Readonly<Record<string, unknown>>[]>;
  close(): Promise<void>;
}

export async function twoInstancesOfFile(): Promise<TwoInstances> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-file-"));
  const url = `file:${join(directory, "test.db")}`;
  return start({ firstUrl: url, secondUrl: url, proxy: undefined }, () => removeDirectory(directory));
}

export async function twoInstancesOfServer(): Promise<TwoInstances> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-server-"));
  const server = await startHranaServer({ file: join(directory, "test.db") });
  const proxy = await startDatabaseProxy({ target: server.url });
  return start({ firstUrl: proxy.url, secondUrl: server.url, proxy }, async () => {
    await proxy.close();
    await server.close();
    await removeDirectory(directory);
  });
}

async function start(
  urls: { readonly firstUrl: string; readonly secondUrl: string; readonly proxy: DatabaseProxy | undefined },
  cleanUp: () => Promise<void>,
): Promise<TwoInstances> {
  const firstDatabase = await openDatabase({ url: urls.firstUrl });
  await migrate(firstDatabase);
  const first = await toShards(firstDatabase);
  const second = await toShards(await openDatabase({ url: urls.secondUrl }));
  return {
    first,
    second,
    proxy: urls.proxy,
    run: async (sql, ...args) => {
      const [result] = await second.directory.batch([{ sql, args }]);
      return result?.rows ?? [];
    },
    close: async () => {
      await first.close();
      await second.close();
      await cleanUp();
    },
  };
}

async function toShards(database: Database): Promise<OpenShards> {
  return openShards(database, async (url) => openDatabase({ url }));
}

async function removeDirectory(directory: string): Promise<void> {
  await rm(directory, { recursive: true, force: true });
}
