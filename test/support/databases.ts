/** Migrated databases for suites that must hold over a file and over a server alike. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openDatabase } from "@toolyard/db/client";
import type { Database, Shards } from "@toolyard/db/database";
import { migrate } from "@toolyard/db/migrate";
import { openShards } from "@toolyard/db/shards";
import { startHranaServer } from "./hrana-server.ts";

/** A busy machine is no fault of the database. */
const patienceMs = 60_000;

export interface TestShards {
  readonly url: string;
  readonly shards: Shards;
  close(): Promise<void>;
}

/** A new database in a file of its own. */
export async function fileShards(): Promise<TestShards> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-file-"));
  return migrated(`file:${join(directory, "test.db")}`, () => rm(directory, { recursive: true, force: true }));
}

/** A new database behind a server on loopback. */
export async function serverShards(): Promise<TestShards> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-server-"));
  const server = await startHranaServer({ file: join(directory, "test.db") });
  return migrated(server.url, async () => {
    await server.close();
    await rm(directory, { recursive: true, force: true });
  });
}

async function migrated(url: string, cleanUp: () => Promise<void>): Promise<TestShards> {
  const open = (each: string): Promise<Database> => openDatabase({ url: each, budgetMs: patienceMs });
  const database = await open(url);
  await migrate(database);
  const shards = await openShards(database, open);
  return {
    url,
    shards,
    close: async () => {
      await shards.close();
      await cleanUp();
    },
  };
}
