import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { startHranaServer, type HranaServer } from "../../../test/support/hrana-server.ts";
import { openDatabase } from "./client.ts";
import type { Database } from "./database.ts";
import { dumpDatabase, restoreDatabase } from "./dump.ts";
import { checkSchema, migrate } from "./migrate.ts";

let directory: string;
let server: HranaServer;
const open: Database[] = [];

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-dump-"));
  server = await startHranaServer({ file: join(directory, "server.db") });
});
afterEach(async () => {
  for (const database of open.splice(0)) await database.close();
  await server.close();
  await rm(directory, { recursive: true, force: true });
});

async function opened(url: string): Promise<Database> {
  const database = await openDatabase({ url });
  open.push(database);
  return database;
}
const file = (name: string): Promise<Database> => opened(`file:${join(directory, name)}`);

const run = (database: Database, sql: string, args: readonly (string | number | bigint | null | Uint8Array)[] = []) =>
  database.batch([{ sql, args }]);

async function rowsOf(database: Database, sql: string): Promise<unknown> {
  const [result] = await run(database, sql);
  return result?.rows.map((row) => ({ ...row }));
}

/** What a backup must not change. */
const awkward = [
  "plain",
  "it's; two\nlines -- and a comment",
  "-- toolyard dump 00\n",
  "nul \u0000 inside",
  "日本語 🧰",
  "",
];

describe("a dump", () => {
  test("carries every value, index and trigger from a file to a server and back to a file", async () => {
    const source = await file("a.db");
    await run(
      source,
      'CREATE TABLE odd (id integer PRIMARY KEY AUTOINCREMENT, "a ""name" text, b blob, r real, n integer)',
    );
    await run(source, "CREATE INDEX odd_n ON odd (n)");
    await run(source, "CREATE TABLE seen (n integer)");
    await run(source, "CREATE TRIGGER odd_seen AFTER INSERT ON odd BEGIN INSERT INTO seen VALUES (new.id); END");
    for (const text of awkward) {
      await run(source, 'INSERT INTO odd ("a ""name", b, r, n) VALUES (?, ?, ?, ?)', [
        text,
        new Uint8Array([0, 255, 39]),
        0.1,
        9_007_199_254_740_993n,
      ]);
    }
    await run(source, "DELETE FROM odd WHERE id = 6");
    const dump = await dumpDatabase(source);
    const remote = await opened(server.url);
    await restoreDatabase(remote, dump);
    const back = await file("b.db");
    await restoreDatabase(back, await dumpDatabase(remote));

    const everything = `SELECT id, hex("a ""name") AS a, hex(b) AS b, typeof(b) AS tb, r, typeof(r) AS tr, CAST(n AS text) AS n FROM odd ORDER BY id`;
    expect(await rowsOf(back, everything)).toEqual(await rowsOf(source, everything));
    // Rows came without their triggers, which are there again afterwards; numbers go on where they were.
    expect(await rowsOf(back, "SELECT count(*) AS n FROM seen")).toEqual([{ n: awkward.length }]);
    await run(back, "INSERT INTO odd (n) VALUES (1)");
    expect(await rowsOf(back, "SELECT max(n) AS n FROM seen")).toEqual([{ n: awkward.length + 1 }]);
    const schema = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name";
    expect(await rowsOf(back, schema)).toEqual(await rowsOf(source, schema));
  });

  test("of this release's schema is one that this release works with", async () => {
    const source = await file("c.db");
    await migrate(source);
    const copy = await opened(server.url);
    await restoreDatabase(copy, await dumpDatabase(source));
    await checkSchema(copy);
    expect(await migrate(copy)).toEqual([]);
  });

  test("is not put over what is there, and no other file is taken for one", async () => {
    const source = await file("d.db");
    await migrate(source);
    const dump = await dumpDatabase(source);
    await expect(restoreDatabase(source, dump)).rejects.toMatchObject({ code: "conflict" });
    await expect(restoreDatabase(await file("e.db"), "DROP TABLE x")).rejects.toMatchObject({
      code: "invalid_request",
    });
  });

  test("of an empty database is none, and nobody takes it for a backup", async () => {
    await expect(dumpDatabase(await file("f.db"))).rejects.toMatchObject({ code: "not_found" });
  });

  test("that was cut off anywhere is known for it before anything is restored", async () => {
    const source = await file("g.db");
    await run(source, "CREATE TABLE kept (name text)");
    for (const name of ["one", "two", "three"]) await run(source, "INSERT INTO kept VALUES (?)", [name]);
    const dump = await dumpDatabase(source);
    const copy = await file("h.db");
    for (let length = "-- toolyard dump ".length; length < dump.length; length += 1) {
      await expect(restoreDatabase(copy, dump.slice(0, length))).rejects.toMatchObject({ code: "invalid_request" });
    }
    expect(await restoreDatabase(copy, dump)).toBe(4);
    expect(await rowsOf(copy, "SELECT name FROM kept")).toEqual([{ name: "one" }, { name: "two" }, { name: "three" }]);
  });

  test("of a release that did not yet count its statements is taken", async () => {
    const source = await file("i.db");
    await run(source, "CREATE TABLE kept (name text)");
    const dump = (await dumpDatabase(source)).replaceAll(/ of \d+$/gm, "");
    expect(await restoreDatabase(await file("j.db"), dump)).toBe(1);
  });
});
