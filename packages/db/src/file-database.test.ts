import { chmod, mkdtemp, rename, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { verifies } from "../../../test/support/verifies.ts";
import { openDatabase } from "./client.ts";
import type { BatchOptions, Database, Statement } from "./database.ts";

let directory = "";
let count = 0;
let path = "";
let database: Database;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-file-database-"));
});
afterAll(() => rm(directory, { recursive: true, force: true }));
beforeEach(async () => {
  count += 1;
  path = join(directory, `${count}.db`);
  database = await openDatabase({ url: `file:${path}`, budgetMs: 300 });
  await database.batch([
    sql("CREATE TABLE t (id integer PRIMARY KEY, v text UNIQUE)"),
    sql("CREATE TABLE c (n integer)"),
  ]);
  await database.batch([sql("INSERT INTO c VALUES (0)")]);
  return () => database.close();
});

const sql = (text: string, ...args: Statement["args"]): Statement => ({ sql: text, args });
const increment = sql("UPDATE c SET n = n + 1 RETURNING n");

async function value(query: string): Promise<unknown> {
  const [result] = await database.batch([sql(`SELECT (${query}) AS value`)], { readonly: true });
  return result?.rows[0]?.["value"];
}

/** Another process, as far as locks go. */
function rival(): DatabaseSync {
  return new DatabaseSync(path);
}

describe("the files", () => {
  test("are for the owner alone where they are new; the rights of one that was there stay", async () => {
    const rightsOf = async (file: string): Promise<number> => (await stat(file)).mode & 0o777;
    await database.batch([increment]);
    expect(await Promise.all([path, `${path}-wal`, `${path}-shm`].map(rightsOf))).toEqual([0o600, 0o600, 0o600]);
    await database.close();
    await chmod(path, 0o640);
    database = await openDatabase({ url: `file:${path}` });
    await database.batch([increment]);
    expect(await Promise.all([path, `${path}-wal`].map(rightsOf))).toEqual([0o640, 0o640]);
    const made = await openDatabase({ url: `file:${join(directory, "made", "new.db")}` });
    await made.close();
    expect(await rightsOf(join(directory, "made"))).toBe(0o700);
  });

  test("take nothing while something else, or nothing, lies where they were opened", async () => {
    const away = `${path}.away`;
    await database.batch([increment]);
    await rename(path, away);
    await expect.poll(() => database.batch([increment]).catch(String), { timeout: 3_000 }).toContain("put it back");
    await writeFile(path, "");
    await expect(value("SELECT n FROM c")).rejects.toThrow("moved, removed or replaced");
    await rename(away, path);
    await database.batch([increment]);
    expect(await value("SELECT n FROM c")).toBeGreaterThan(1);
  });
});

describe("group commit", () => {
  test("writes what comes together with one commit, and gives each caller its own results", async () => {
    const sizeBefore = (await stat(`${path}-wal`)).size;
    const results = await Promise.all(Array.from({ length: 64 }, () => database.batch([increment])));
    expect(results.map(([result]) => result?.rows[0]?.["n"])).toEqual(Array.from({ length: 64 }, (_, at) => at + 1));
    // Each commit appends the page anew; 64 of them would be 64 pages.
    expect((await stat(`${path}-wal`)).size - sizeBefore).toBeLessThan(10 * 4_096);
  });

  test("asks what makes a batch's statements once, when all that came with it is there", async () => {
    const wanted: string[] = [];
    const compose = (): readonly Statement[] =>
      wanted.splice(0).map((text) => sql("INSERT INTO t (v) VALUES (?)", text));
    const written = database.batch({ size: 1, compose });
    wanted.push("first", "second");
    expect(await written).toHaveLength(2);
    expect(await value("SELECT group_concat(v) FROM t")).toBe("first,second");
  });

  test("lets no failing batch fail, undo or repeat another", async () => {
    const outcomes = await Promise.allSettled(
      Array.from({ length: 200 }, (_, at) =>
        database.batch(
          at % 50 === 7
            ? [increment, sql("INSERT INTO t (v) VALUES ('twice'), ('twice')")]
            : [increment, sql("INSERT INTO t (v) VALUES (?)", `row ${at}`)],
        ),
      ),
    );
    const failed = outcomes.flatMap(({ status }, at) => (status === "rejected" ? [at] : []));
    expect(failed).toEqual([7, 57, 107, 157]);
    expect(await value("SELECT n FROM c")).toBe(196);
    expect(await value("SELECT count(*) FROM t")).toBe(196);
  });

  test("lets no batch that fills the disk, or binds what SQL cannot hold, fail another", async () => {
    await database.batch([sql("PRAGMA max_page_count = 16")]);
    const [first, full, unbound, last] = await Promise.allSettled([
      database.batch([increment]),
      database.batch([increment, sql("INSERT INTO t (v) VALUES (hex(zeroblob(100000)))")]),
      database.batch([increment, { sql: "INSERT INTO t (v) VALUES (?)", args: [true as unknown as string] }]),
      database.batch([increment]),
    ]);
    expect(first).toMatchObject({ status: "fulfilled" });
    expect(full).toMatchObject({ reason: { code: "database_unavailable" } });
    expect(unbound).toMatchObject({ reason: { code: "internal_error" } });
    expect(last).toMatchObject({ status: "fulfilled", value: [{ rows: [{ n: 2 }] }] });
  });

  test("is over before the database closes", async () => {
    const writes = Array.from({ length: 100 }, () => database.batch([increment]));
    await database.close();
    await expect(Promise.all(writes)).resolves.toHaveLength(100);
    expect(rival().prepare("SELECT n FROM c").get()).toMatchObject({ n: 100 });
  });
});

describe("reading", () => {
  test("refuses to write in a batch that is marked readonly", async () => {
    for (const text of ["UPDATE c SET n = 9", "WITH x AS (SELECT 1) INSERT INTO c SELECT * FROM x", "DROP TABLE c"]) {
      await expect(database.batch([sql(text)], { readonly: true })).rejects.toMatchObject({ code: "internal_error" });
    }
    expect(await value("SELECT n FROM c")).toBe(0);
  });

  test("takes what only looks like writing for what it is", async () => {
    expect(await value("WITH x AS (SELECT 'a update b' AS v) SELECT replace(v, 'update', '-') FROM x")).toBe("a - b");
  });

  test("sees one state of the database in all statements of a batch", async () => {
    const other = rival();
    const [first, second] = await database.batch([sql("SELECT n FROM c"), sql("SELECT n FROM c")], { readonly: true });
    other.exec("UPDATE c SET n = 5");
    expect(first?.rows).toEqual(second?.rows);
    expect(await value("SELECT n FROM c")).toBe(5);
    other.close();
  });

  test("outlives more different statements than are kept prepared", async () => {
    for (let at = 0; at < 1_100; at += 1) expect(await value(`SELECT ${at}`)).toBe(at);
    expect(await value("SELECT 3")).toBe(3);
  });
});

describe("a long read", () => {
  const long = { readonly: true, long: { owner: "ten_1" } } as const;
  const endless =
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT MAX(i) AS i FROM n";

  test("holds up nobody, and sees what was written before it", async () => {
    await database.batch([sql("INSERT INTO t (v) VALUES ('before')")]);
    const order: string[] = [];
    const reading = database
      .batch([sql(endless), sql("SELECT v FROM t WHERE v = ?", "before")], long)
      .then((results) => (order.push("read"), results));
    for (let turn = 0; turn < 5; turn += 1) await database.batch([increment]);
    order.push("written");
    const [counted, found] = await reading;
    expect(order).toEqual(["written", "read"]);
    expect(counted?.rows).toEqual([{ i: 300_000 }]);
    expect(found?.rows).toEqual([{ v: "before" }]);
  });

  test("measures vectors as a short one does", async () => {
    const vector = new Uint8Array(Float32Array.of(1, 0).buffer);
    const statement = sql("SELECT vector_distance_cos(?1, vector32(?2)) AS distance", vector, vector);
    expect((await database.batch([statement], long))[0]?.rows).toEqual([{ distance: 0 }]);
    expect((await database.batch([statement], { readonly: true }))[0]?.rows).toEqual([{ distance: 0 }]);
  });

  test("that is refused is our fault, and the next one is read", async () => {
    const different = [Float32Array.of(1), Float32Array.of(1, 2)].map(({ buffer }) => new Uint8Array(buffer));
    const refused = database.batch([sql("SELECT vector_distance_cos(?1, vector32(?2))", ...different)], long);
    await expect(refused).rejects.toMatchObject({ code: "internal_error" });
    await expect(database.batch([sql("INSERT INTO t (v) VALUES ('x')")], long)).rejects.toMatchObject({
      code: "database_unavailable",
    });
    expect((await database.batch([sql("SELECT 1 AS one")], long))[0]?.rows).toEqual([{ one: 1 }]);
  });
});

describe(`long reads of several owners ${verifies("KB-3")}`, () => {
  const by = (owner: string, signal?: AbortSignal): BatchOptions => ({ readonly: true, long: { owner, signal } });
  const one = [sql("SELECT 1 AS one")];

  test("are made by turns: who asks for much waits for itself", async () => {
    const order: string[] = [];
    const read = (owner: string): Promise<unknown> => database.batch(one, by(owner)).then(() => order.push(owner));
    await Promise.all(["a", "a", "a", "a", "b", "b", "c"].map(read));
    expect(order.join("")).toBe("abcabaa");
  });

  test("may wait in some number, and are refused beyond it, of one owner alone", async () => {
    const reads = Array.from({ length: 70 }, () => database.batch(one, by("a")));
    const other = database.batch(one, by("b"));
    const outcomes = await Promise.allSettled(reads);
    const refused = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason as unknown] : []));
    expect(refused).toHaveLength(5);
    expect(refused[0]).toMatchObject({ code: "concurrency_limited", spec: { http: 429, retryable: true } });
    await expect(other).resolves.toMatchObject([{ rows: [{ one: 1 }] }]);
    await expect(database.batch(one, by("a"))).resolves.toMatchObject([{ rows: [{ one: 1 }] }]);
  });

  test("that nobody wants any more are not made, and take nobody's place", async () => {
    const left = new AbortController();
    const first = database.batch(one, by("a"));
    const unwanted = Promise.allSettled(Array.from({ length: 64 }, () => database.batch(one, by("a", left.signal))));
    left.abort();
    await expect(database.batch(one, by("a"))).resolves.toMatchObject([{ rows: [{ one: 1 }] }]);
    await first;
    for (const outcome of await unwanted) {
      expect(outcome).toMatchObject({ status: "rejected", reason: { code: "call_cancelled" } });
    }
  });
});

describe("a file that another process writes to", () => {
  test("is waited for asleep, while reads and the rest of the process go on", async () => {
    const other = rival();
    other.exec("BEGIN IMMEDIATE");
    other.exec("UPDATE c SET n = 100");
    const writing = database.batch([increment]);
    let turns = 0;
    const ticking = setInterval(() => (turns += 1), 1);
    expect(await value("SELECT n FROM c")).toBe(0);
    while (turns < 20) await sleep(1);
    clearInterval(ticking);
    other.exec("COMMIT");
    other.close();
    await expect(writing).resolves.toMatchObject([{ rows: [{ n: 101 }] }]);
  });

  test("is given up after the budget with an error that may be retried, and nothing written", async () => {
    const other = rival();
    other.exec("BEGIN IMMEDIATE");
    const refused = await database.batch([increment]).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: "database_unavailable", spec: { http: 503, retryable: true } });
    expect(refused).toMatchObject({ message: expect.not.stringMatching(/SQLITE|locked/) });
    other.exec("ROLLBACK");
    other.close();
    await expect(database.batch([increment])).resolves.toMatchObject([{ rows: [{ n: 1 }] }]);
  });
});

test("a disk that is full is called so, and what can be read is read", async () => {
  await database.batch([sql("PRAGMA max_page_count = 1")]);
  const large = database.batch([sql("INSERT INTO t (v) VALUES (?)", "x".repeat(100_000))]);
  await expect(large).rejects.toMatchObject({
    code: "database_unavailable",
    message: "The database file cannot be read or written (SQLITE_FULL: no space is left for it); try again.",
  });
  expect(await value("SELECT n FROM c")).toBe(0);
});
