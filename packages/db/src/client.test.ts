import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startHranaServer, type HranaServer } from "../../../test/support/hrana-server.ts";
import { openDatabase } from "./client.ts";
import type { Database, Statement } from "./database.ts";

let directory = "";
let server: HranaServer;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-client-"));
  server = await startHranaServer({ file: join(directory, "server.db"), authToken: "let me in" });
});
afterAll(async () => {
  await server.close();
  await rm(directory, { recursive: true, force: true });
});

const sql = (text: string, ...args: Statement["args"]): Statement => ({ sql: text, args });

describe("opening a database by URL", () => {
  test.for([":memory:", "file::memory:?cache=shared", "file::memory:"])(
    "refuses %s and names a URL that works",
    async (url) => {
      await expect(openDatabase({ url })).rejects.toMatchObject({
        code: "invalid_request",
        message: expect.stringContaining("'file:/path.db'"),
        details: { param: "DATABASE_URL" },
      });
    },
  );

  test.for([
    "",
    "postgres://host/db",
    "toolyard.db",
    "file:",
    "file:/tmp/",
    "file:/tmp/a.db?mode=ro",
    "file://host/a.db",
  ])("refuses %j", async (url) => {
    await expect(openDatabase({ url })).rejects.toMatchObject({ code: "invalid_request" });
  });

  test.for([
    "libsql://",
    "http://db.example?tls=1",
    "https://db.example?tls=0",
    "libsql://db.example/%zz?authToken=hush",
  ])("refuses the server address %s without quoting it", async (url) => {
    const refusal = await openDatabase({ url }).catch((error: unknown) => error);
    expect(refusal).toMatchObject({ code: "invalid_request", message: expect.not.stringMatching(/example|hush/) });
  });

  test("says which file cannot be opened, and why", async () => {
    await expect(openDatabase({ url: "file:/dev/null/a.db" })).rejects.toMatchObject({
      code: "database_unavailable",
      message: expect.stringMatching(/\/dev\/null\/a\.db.*DATABASE_URL: E[A-Z]+/),
    });
    const path = join(directory, "letter.db");
    await writeFile(path, "Dear database,");
    await expect(openDatabase({ url: `file:${path}` })).rejects.toMatchObject({
      code: "database_unavailable",
      message: expect.stringContaining("SQLITE_NOTADB"),
    });
  });

  test.each([
    ["http://127.0.0.1:1", "ECONNREFUSED"],
    ["libsql://nowhere.invalid", "ENOTFOUND"],
  ])("says of the server %s, which cannot be reached, that it is %s", async (url, reason) => {
    const database = await openDatabase({ url, budgetMs: 400 });
    await expect(database.batch([sql("SELECT 1")], { readonly: true })).rejects.toMatchObject({
      code: "database_unavailable",
      message: expect.stringContaining(reason),
    });
    await database.close();
  });

  test("makes the directory of a new file, and takes spaces and file URLs alike", async () => {
    const path = join(directory, "new place", "a b.db");
    const byPath = await openDatabase({ url: `file:${path}` });
    await byPath.batch([sql("CREATE TABLE t (v text)"), sql("INSERT INTO t VALUES (?)", "kept")]);
    await byPath.close();
    const byUrl = await openDatabase({ url: pathToFileURL(path).href });
    await expect(byUrl.batch([sql("SELECT v FROM t")], { readonly: true })).resolves.toMatchObject([
      { rows: [{ v: "kept" }] },
    ]);
    await byUrl.close();
  });

  test("names the setting when the server refuses the token, without showing it", async () => {
    const database = await openDatabase({ url: server.url, authToken: "wrong-secret" });
    const failure = await database.batch([sql("SELECT 1")], { readonly: true }).catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: "database_unavailable", message: expect.stringContaining("DATABASE_URL") });
    expect(JSON.stringify(failure)).not.toContain("wrong-secret");
    await database.close();
  });
});

describe.for(["file", "server"] as const)("a batch on a %s database", (kind) => {
  let database: Database;
  beforeAll(async () => {
    database =
      kind === "file"
        ? await openDatabase({ url: `file:${join(directory, "same.db")}` })
        : await openDatabase({ url: server.url, authToken: "let me in" });
    await database.batch([sql("CREATE TABLE things (id integer PRIMARY KEY, v, t text UNIQUE)")]);
  });
  afterAll(() => database.close());

  test("gives rows as objects and numbers as numbers", async () => {
    const results = await database.batch([
      sql("INSERT INTO things (id, v, t) VALUES (?, ?, ?)", 1, 2.5, "ä"),
      sql("INSERT INTO things (id, v) VALUES (?, ?), (?, ?) RETURNING id, v", 2, null, 3, new Uint8Array([1, 255])),
      sql("UPDATE things SET t = 'x' WHERE id = 99"),
      sql("SELECT id, v, t, typeof(v) AS kind FROM things WHERE id = 1"),
    ]);
    expect(results.map(({ changes }) => changes)).toEqual([1, 2, 0, 0]);
    expect(results[1]?.rows[0]).toEqual({ id: 2, v: null });
    expect(results[1]?.rows[1]?.["v"]).toEqual(new Uint8Array([1, 255]));
    expect(results[3]?.rows).toEqual([{ id: 1, v: 2.5, t: "ä", kind: "real" }]);
  });

  test("binds whole numbers as integers, so that text made of them has no decimal point", async () => {
    const [result] = await database.batch([sql("SELECT ? || '' AS text, typeof(?) AS kind", 1_795_823_898_500, 7)], {
      readonly: true,
    });
    expect(result?.rows).toEqual([{ text: "1795823898500", kind: "integer" }]);
  });

  test("is one transaction: where a statement fails, none has happened", async () => {
    const failing = database.batch([
      sql("INSERT INTO things (id, t) VALUES (50, 'fifty')"),
      sql("INSERT INTO things (id, t) VALUES (51, 'fifty')"),
    ]);
    await expect(failing).rejects.toMatchObject({ code: "internal_error" });
    const [result] = await database.batch([sql("SELECT count(*) AS n FROM things WHERE id >= 50")], { readonly: true });
    expect(result?.rows).toEqual([{ n: 0 }]);
  });

  test("reports SQL that the database does not understand as a fault of ours, not an outage", async () => {
    await expect(database.batch([sql("SELECT * FROM nowhere")], { readonly: true })).rejects.toMatchObject({
      code: "internal_error",
    });
  });

  test("refuses work after closing", async () => {
    const other = await openDatabase(
      kind === "file" ? { url: `file:${join(directory, "same.db")}` } : { url: server.url, authToken: "let me in" },
    );
    await other.close();
    await other.close();
    await expect(other.batch([sql("SELECT 1")], { readonly: true })).rejects.toMatchObject({
      code: "database_unavailable",
    });
  });
});
