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
import { remembering, requireIndexed } from "./query-plans.ts";

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
  const file = join(directory, "test.db");
  const url = `file:${file}`;
  return start({ file, firstUrl: url, secondUrl: url, proxy: undefined }, () => removeDirectory(directory));
}

export async function twoInstancesOfServer(): Promise<TwoInstances> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-server-"));
  const file = join(directory, "test.db");
  const server = await startHranaServer({ file });
  const proxy = await startDatabaseProxy({ target: server.url });
  return start({ file, firstUrl: proxy.url, secondUrl: server.url, proxy }, async () => {
    await proxy.close();
    await server.close();
    await removeDirectory(directory);
  });
}

interface Place {
  readonly file: string;
  readonly firstUrl: string;
  readonly secondUrl: string;
  readonly proxy: DatabaseProxy | undefined;
}

async function start({ file, firstUrl, secondUrl, proxy }: Place, cleanUp: () => Promise<void>): Promise<TwoInstances> {
  const firstDatabase = await openDatabase({ url: firstUrl });
  await migrate(firstDatabase);
  const asked = new Set<string>();
  const first = await toShards(remembering(firstDatabase, asked));
  const second = await toShards(await openDatabase({ url: secondUrl }));
  return {
    first,
    second,
    proxy,
    run: async (sql, ...args) => {
      const [result] = await second.directory.batch([{ sql, args }]);
      return result?.rows ?? [];
    },
    close: async () => {
      await first.close();
      await second.close();
      try {
        await requireIndexed(file, asked);
      } finally {
        await cleanUp();
      }
    },
  };
}

async function toShards(database: Database): Promise<OpenShards> {
  return openShards(database, async (url) => openDatabase({ url }));
}

async function removeDirectory(directory: string): Promise<void> {
  await rm(directory, { recursive: true, force: true });
}
