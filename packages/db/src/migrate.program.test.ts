import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { getTableConfig, type SQLiteTable } from "drizzle-orm/sqlite-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openDatabase } from "./client.ts";
import type { Database } from "./database.ts";
import { checkSchema, migrate } from "./migrate.ts";
import { migrations, schemaVersion } from "./migrations.ts";
import * as schema from "./schema/index.ts";

let directory = "";
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-migrate-"));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

async function withDatabase(name: string, use: (database: Database) => Promise<void>): Promise<void> {
  const database = await openDatabase({ url: `file:${join(directory, name)}` });
  try {
    await use(database);
  } finally {
    await database.close();
  }
}

async function rowsOf(database: Database, sql: string): Promise<readonly unknown[]> {
  const [result] = await database.batch([{ sql, args: [] }], { readonly: true });
  return result?.rows ?? [];
}

describe("migration", () => {
  test("lists the steps that drizzle-kit wrote, each working with some code up to itself", async () => {
    const journal = JSON.parse(
      await readFile(new URL("../migrations/meta/_journal.json", import.meta.url), "utf8"),
    ) as { readonly entries: readonly { readonly tag: string }[] };
    expect(migrations.map(({ name }) => name)).toEqual(journal.entries.map(({ tag }) => tag));
    expect(migrations.map(({ version }) => version)).toEqual(migrations.map((_step, index) => index + 1));
    for (const { version, oldestCode } of migrations) expect(oldestCode).toBeLessThanOrEqual(version);
  });

  test("makes every table once; a second run finds nothing to do", () =>
    withDatabase("twice.db", async (database) => {
      await expect(migrate(database)).resolves.toEqual(migrations.map(({ version }) => version));
      await expect(migrate(database)).resolves.toEqual([]);
      await checkSchema(database);
      expect(await rowsOf(database, "SELECT id, url FROM shards")).toEqual([{ id: "default", url: null }]);
      expect(await rowsOf(database, "SELECT version, oldest_code FROM schema_versions ORDER BY version")).toEqual(
        migrations.map(({ version, oldestCode }) => ({ version, oldest_code: oldestCode })),
      );
    }));

  test("gives the tables that the schema's code describes; otherwise run 'npm run db:generate'", () =>
    withDatabase("described.db", async (database) => {
      await migrate(database);
      for (const table of Object.values<SQLiteTable>(schema)) {
        const { name, columns, indexes } = getTableConfig(table);
        expect(
          await rowsOf(
            database,
            `SELECT name, type, "notnull" AS required FROM pragma_table_info('${name}') ORDER BY name`,
          ),
        ).toEqual(
          columns
            .map((column) => ({
              name: column.name,
              type: expect.stringMatching(new RegExp(`^${column.getSQLType()}$`, "i")),
              required: Number(column.notNull),
            }))
            .sort((a, b) => (a.name < b.name ? -1 : 1)),
        );
        expect(
          await rowsOf(
            database,
            `SELECT name, "unique" AS one, partial FROM pragma_index_list('${name}') WHERE origin = 'c' ORDER BY name`,
          ),
        ).toEqual(
          indexes
            .map(({ config }) => ({
              name: config.name,
              one: Number(config.unique),
              partial: Number(config.where !== undefined),
            }))
            .sort((a, b) => (a.name < b.name ? -1 : 1)),
        );
      }
    }));

  test("serves on while newer code has added what old code need not know, and refuses once it does", () =>
    withDatabase("newer.db", async (database) => {
      await migrate(database);
      const record = (version: number, oldest: number): Promise<unknown> =>
        database.batch([
          {
            sql: "INSERT INTO schema_versions (version, name, oldest_code) VALUES (?, 'later', ?)",
            args: [version, oldest],
          },
        ]);
      await record(schemaVersion + 1, schemaVersion);
      await expect(migrate(database)).resolves.toEqual([]);
      await checkSchema(database);
      await record(schemaVersion + 2, schemaVersion + 1);
      const refusal = {
        code: "conflict",
        message: `This release knows schema ${schemaVersion}, but the database needs one that knows ${schemaVersion + 1}; start a newer release.`,
      };
      await expect(migrate(database)).rejects.toMatchObject(refusal);
      await expect(checkSchema(database)).rejects.toMatchObject(refusal);
    }));

  test("tells a function that its database still has to be migrated", () =>
    withDatabase("empty.db", async (database) => {
      await expect(checkSchema(database)).rejects.toMatchObject({
        code: "conflict",
        message: expect.stringContaining("npm run migrate"),
      });
    }));

  test("leaves nothing of a step that fails half way, and can be run again", () =>
    withDatabase("half.db", async (database) => {
      const files = join(directory, "half");
      await mkdir(files);
      const options = { directory: pathToFileURL(`${files}/`), steps: [{ version: 1, name: "step", oldestCode: 1 }] };
      await writeFile(join(files, "step.sql"), "CREATE TABLE a (v);\n--> statement-breakpoint\nCREATE TABL b (v);");
      await expect(migrate(database, options)).rejects.toMatchObject({ code: "internal_error" });
      await writeFile(join(files, "step.sql"), "CREATE TABLE a (v);\n--> statement-breakpoint\nCREATE TABLE b (v);");
      await expect(migrate(database, options)).resolves.toEqual([1]);
    }));

  test("is done once by two processes that start together", async () => {
    const url = `file:${join(directory, "together.db")}`;
    const starters = [1, 2].map(() => fork(join(import.meta.dirname, "../test/migrate-process.ts"), [url]));
    await Promise.all(starters.map((starter) => once(starter, "message")));
    const applied = await Promise.all(starters.map(start));
    expect(applied.flat().sort((a, b) => a - b)).toEqual(migrations.map(({ version }) => version));
    await withDatabase("together.db", async (database) => {
      expect(await rowsOf(database, "SELECT count(*) AS n FROM shards")).toEqual([{ n: 1 }]);
    });
  });
});

/** Lets a waiting process go and gives what it says it has applied. */
async function start(child: ChildProcess): Promise<readonly number[]> {
  const exit = once(child, "exit");
  child.send("go");
  const [applied] = (await once(child, "message")) as [readonly number[]];
  expect(await exit).toEqual([0, null]);
  return applied;
}
