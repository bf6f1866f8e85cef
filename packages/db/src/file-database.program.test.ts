import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { openDatabase } from "./client.ts";
import type { Statement } from "./database.ts";

const sql = (text: string): Statement => ({ sql: text, args: [] });
const increment = sql("UPDATE c SET n = n + 1 RETURNING n");

test("a file takes the writes of several processes at once, each exactly once", async () => {
  const directory = await mkdtemp(join(tmpdir(), "toolyard-file-database-"));
  const url = `file:${join(directory, "shared.db")}`;
  const database = await openDatabase({ url, budgetMs: 300 });
  onTestFinished(async () => {
    await database.close();
    await rm(directory, { recursive: true, force: true });
  });
  await database.batch([
    sql("CREATE TABLE t (id integer PRIMARY KEY, v text UNIQUE)"),
    sql("CREATE TABLE c (n integer)"),
  ]);
  await database.batch([sql("INSERT INTO c VALUES (0)")]);

  const writers = [1, 2, 3].map(() => fork(join(import.meta.dirname, "../test/write-process.ts"), [url, "150"]));
  await Promise.all(writers.map((writer) => once(writer, "message")));
  const ends = writers.map((writer) => once(writer, "exit"));
  for (const writer of writers) writer.send("go");
  const own = Array.from({ length: 25 }, () => database.batch([increment]));
  await Promise.all(own);
  expect(await Promise.all(ends)).toEqual(writers.map(() => [0, null]));
  const counted = sql("SELECT (SELECT n FROM c) AS n, (SELECT count(*) FROM t) AS rows");
  await expect(database.batch([counted], { readonly: true })).resolves.toMatchObject([
    { rows: [{ n: 3 * 150 + 25, rows: 3 * 150 }] },
  ]);
  await expect(database.batch([increment])).resolves.toHaveLength(1);
}, 20_000);
