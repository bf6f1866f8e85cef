import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { startDatabaseProxy, type DatabaseFault, type DatabaseProxy } from "../../../test/support/database-proxy.ts";
import { startHranaServer, type HranaServer } from "../../../test/support/hrana-server.ts";
import { openDatabase } from "./client.ts";
import type { Database, Statement } from "./database.ts";

let directory = "";
let server: HranaServer;
let proxy: DatabaseProxy;
let database: Database;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-remote-database-"));
  server = await startHranaServer({ file: join(directory, "remote.db") });
  proxy = await startDatabaseProxy({ target: server.url });
  database = await openDatabase({ url: proxy.url, budgetMs: 1_500 });
  await database.batch([sql("CREATE TABLE c (n integer)"), sql("INSERT INTO c VALUES (0)")]);
});
afterAll(async () => {
  await database.close();
  await proxy.close();
  await server.close();
  await rm(directory, { recursive: true, force: true });
});
beforeEach(async () => {
  proxy.faults.length = 0;
  proxy.latencyMs = 0;
  await database.batch([sql("UPDATE c SET n = 0")]);
});

const sql = (text: string, ...args: Statement["args"]): Statement => ({ sql: text, args });
const increment = sql("UPDATE c SET n = n + 1 RETURNING n");
const read = sql("SELECT n FROM c");
const outage = { code: "database_unavailable", spec: { http: 503, retryable: true } };

async function count(): Promise<unknown> {
  const [result] = await database.batch([read], { readonly: true });
  return result?.rows[0]?.["n"];
}

/** Trips that `work` makes. */
async function tripsOf(work: () => Promise<unknown>): Promise<number> {
  const before = proxy.trips();
  await work();
  return proxy.trips() - before;
}

describe("a batch over HTTP", () => {
  test("is one trip from the first one on, whatever it holds", async () => {
    const fresh = await openDatabase({ url: proxy.url });
    expect(await tripsOf(() => fresh.batch([read], { readonly: true }))).toBe(1);
    expect(await tripsOf(() => fresh.batch(Array.from({ length: 10 }, () => increment)))).toBe(1);
    await fresh.close();
  });

  test("runs beside others instead of behind them", async () => {
    proxy.latencyMs = 200;
    const before = proxy.trips();
    const reads = Array.from({ length: 10 }, () => database.batch([read], { readonly: true }));
    await Promise.race(reads);
    expect(proxy.trips() - before).toBe(10);
    await Promise.all(reads);
  });
});

test("a connection that has rested for long carries nothing any more, whatever the others do", async () => {
  const fresh = await openDatabase({ url: proxy.url });
  const clock = vi.spyOn(Date, "now");
  const later = (ms: number): void => {
    const then = Date.now() + ms;
    clock.mockReset().mockImplementation(() => then);
  };
  const before = proxy.connections();
  const opened = async (batches: number): Promise<number> => {
    await Promise.all(Array.from({ length: batches }, () => fresh.batch([increment])));
    return proxy.connections() - before;
  };
  try {
    expect(await opened(2)).toBe(2);
    later(3_000);
    expect(await opened(1)).toBe(2);
    later(3_000);
    expect(await opened(2)).toBe(3);
    later(5_000);
    expect(await opened(1)).toBe(4);
  } finally {
    clock.mockRestore();
    await fresh.close();
  }
});

test("more batches than connections wait for one", async () => {
  proxy.latencyMs = 50;
  const patient = await openDatabase({ url: proxy.url, budgetMs: 30_000 });
  const before = proxy.connections();
  const many = await Promise.all(Array.from({ length: 200 }, () => patient.batch([increment])));
  expect(many.map(([result]) => Number(result?.rows[0]?.["n"])).toSorted((a, b) => a - b)).toEqual(
    Array.from({ length: 200 }, (_one, at) => at + 1),
  );
  expect(proxy.connections() - before).toBe(128);
  await patient.close();
});

test("asks what makes a batch's statements once and later, and sends the same again after a fault", async () => {
  proxy.faults.push({ kind: "busy" });
  let asked = 0;
  const statements: Statement[] = [];
  const compose = (): readonly Statement[] => {
    asked += 1;
    return statements;
  };
  const written = database.batch({ size: 1, compose });
  statements.push(increment, increment);
  expect(await written).toHaveLength(2);
  expect([asked, await count()]).toEqual([1, 2]);
});

describe("what was certainly not done", () => {
  test.for<DatabaseFault>([{ kind: "busy" }, { kind: "rate-limited", retryAfterS: 0 }, { kind: "rate-limited" }])(
    "$kind is sent again, and happens once",
    async (fault) => {
      proxy.faults.push(fault, fault);
      expect(await tripsOf(() => database.batch([increment]))).toBe(3);
      expect(await count()).toBe(1);
    },
  );

  test("is sent again when the server could not even be reached, once it can", async () => {
    const port = await freePort();
    const later = await openDatabase({ url: `http://127.0.0.1:${port}`, budgetMs: 5_000 });
    const waiting = later.batch([increment]);
    const late = await startHranaServer({ file: join(directory, "remote.db"), port });
    await expect(waiting).resolves.toMatchObject([{ rows: [{ n: 1 }] }]);
    await later.close();
    await late.close();
  });

  test("fails within the budget when it stays so", async () => {
    const nowhere = await openDatabase({ url: `http://127.0.0.1:${await freePort()}`, budgetMs: 200 });
    await expect(nowhere.batch([increment])).rejects.toMatchObject({
      ...outage,
      message: expect.stringContaining("DATABASE_URL"),
    });
    await nowhere.close();
  });

  test("fails at once, with the time to wait, when the server asks for more than the budget", async () => {
    proxy.faults.push({ kind: "rate-limited", retryAfterS: 30 });
    await expect(database.batch([read], { readonly: true })).rejects.toMatchObject({
      ...outage,
      details: { retryAfterMs: 30_000 },
    });
    expect(await tripsOf(count)).toBe(1);
  });
});

describe("what may or may not have been done", () => {
  const faults: readonly (DatabaseFault & { readonly done: number })[] = [
    { kind: "lost-before", done: 0 },
    { kind: "lost-after", done: 1 },
    { kind: "cut-answer", done: 1 },
    { kind: "status", status: 502, done: 0 },
  ];

  test.for(faults)("$kind: a write is not sent again, and its caller is told", async ({ done, ...fault }) => {
    proxy.faults.push(fault);
    const before = proxy.trips();
    await expect(database.batch([increment])).rejects.toMatchObject(outage);
    expect(proxy.trips() - before).toBe(1);
    expect(await count()).toBe(done);
  });

  test.for(faults)("$kind: reads and repeatable writes are sent again", async ({ done: _done, ...fault }) => {
    proxy.faults.push(fault);
    expect(await tripsOf(() => database.batch([read], { readonly: true }))).toBe(2);
    proxy.faults.push(fault);
    expect(await tripsOf(() => database.batch([sql("UPDATE c SET n = 7")], { repeatable: true }))).toBe(2);
    expect(await count()).toBe(7);
  });

  test("ends with the budget when no answer comes at all", async () => {
    const hasty = await openDatabase({ url: proxy.url, budgetMs: 100 });
    proxy.latencyMs = 600_000;
    await expect(hasty.batch([read], { readonly: true })).rejects.toMatchObject(outage);
    await hasty.close();
  });
});

describe("a server that is there but refuses", () => {
  test.for([400, 404])("with HTTP %i is not asked again", async (status) => {
    proxy.faults.push({ kind: "status", status });
    const before = proxy.trips();
    await expect(database.batch([read], { readonly: true })).rejects.toMatchObject({
      code: "database_unavailable",
      message: expect.stringContaining(String(status)),
    });
    expect(proxy.trips() - before).toBe(1);
  });
});

async function freePort(): Promise<number> {
  const holder = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => holder.once("listening", resolve));
  const { port } = holder.address() as AddressInfo;
  await new Promise((resolve) => holder.close(resolve));
  return port;
}
