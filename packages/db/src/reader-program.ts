/**
 * The program of a reading thread (thread-reader.ts): a connection of its own to the same file, which cannot write.
 * Whoever asks waits, so this one may wait for a writer asleep.
 */
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { parentPort, workerData } from "node:worker_threads";
import type { StatementResult } from "./database.ts";
import type { ReaderAnswer, ReaderData, ReaderOrder } from "./reader-order.ts";
import { defineVectorFunctions } from "./vectors.ts";

const preparedLimit = 100;
const { path, budgetMs } = workerData as ReaderData;
const connection = new DatabaseSync(path, { readOnly: true, timeout: budgetMs, enableForeignKeyConstraints: false });
defineVectorFunctions(connection);
// Pages are read where the system has them. A scan reads more of them than a cache of SQLite's own holds, and copying
// each from the file was half of what it took. As far as SQLite maps; what is beyond is read as usual.
connection.exec("PRAGMA mmap_size = 2147418112");
const prepared = new Map<string, StatementSync>();

parentPort?.on("message", ({ statements }: ReaderOrder) => {
  parentPort?.postMessage(answer(statements));
});

function answer(statements: ReaderOrder["statements"]): ReaderAnswer {
  try {
    connection.exec("BEGIN");
    try {
      const results = statements.map(({ sql, args }): StatementResult => ({
        rows: prepare(sql).all(...args),
        changes: 0,
      }));
      return { results };
    } finally {
      connection.exec("COMMIT");
    }
  } catch (thrown) {
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    const hasResult = thrown instanceof Error && "errcode" in thrown && typeof thrown.errcode === "number";
    return { failure: { message, errcode: hasResult ? Number(thrown.errcode) : undefined } };
  }
}

function prepare(sql: string): StatementSync {
  const known = prepared.get(sql);
  if (known !== undefined) return known;
  const statement = connection.prepare(sql);
  if (prepared.size >= preparedLimit) prepared.clear();
  prepared.set(sql, statement);
  return statement;
}
