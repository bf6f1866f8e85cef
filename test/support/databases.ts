/** Migrated databases for suites that must hold over a file and over a server alike. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openDatabase } from "@toolyard/db/client";
import type { Database, Shards } from "@toolyard/db/database";
import { migrate } from "@toolyard/db/migrate";
import { openShards } from "@toolyard/db/shards";
import { startHranaServer } from "./hrana-server.ts";
import { remembering, requireIndexed } from "./query-plans.ts";

/** A busy machine is no fault of the database. */
const patienceMs = 60_000;

export interface TestShards {
  readonly url: string;
  readonly shards: Shards;
  /** Statements that must find their rows by an index: looked at as it is closed. */
  readonly asked: Set<string>;
  close(): Promise<void>;
}

/** A new database in a file of its own. */
export async function fileShards(): Promise<TestShards> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-file-"));
  const file = join(directory, "test.db");
  return migrated(`file:${file}`, file, () => rm(directory, { recursive: true, force: true }));
}

/** A new database behind a server on loopback. */
export async function serverShards(): Promise<TestShards> {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-server-"));
  const file = join(directory, "test.db");
  const server = await startHranaServer({ file });
  return migrated(server.url, file, async () => {
    await server.close();
    await rm(directory, { recursive: true, force: true });
  });
}

/** @param file where its tables are, which tells how it is walked through */
async function migrated(url: string, file: string, cleanUp: () => Promise<void>): Promise<TestShards> {
  const open = (each: string): Promise<Database> => openDatabase({ url: each, budgetMs: patienceMs });
  const database = await open(url);
  await migrate(database);
  const asked = new Set<string>();
  const shards = await openShards(remembering(database, asked), open);
  return {
    url,
    shards,
    asked,
    close: async () => {
      await shards.close();
      try {
        await requireIndexed(file, asked);
      } finally {
        await cleanUp();
      }
    },
  };
}
