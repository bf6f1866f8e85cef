/**
 * From drizzle's builders to statements of a batch, and from rows back to typed records. Drizzle only
 * builds the text here; nothing is sent but through `Database.batch`.
 */
import { getTableColumns, type InferSelectModel, type SQL, type Table } from "drizzle-orm";
import { SQLiteSyncDialect } from "drizzle-orm/sqlite-core";
import { drizzle } from "drizzle-orm/sqlite-proxy";
import type { SqlValue, Statement, StatementResult } from "./database.ts";

/** Select, insert, update and delete builders. Awaiting one is a mistake; hand it to `statement`. */
export const build = drizzle(() => {
  throw new Error("Queries are sent through Database.batch, see statement().");
});

const dialect = new SQLiteSyncDialect();

interface Built {
  readonly sql: string;
  readonly params: readonly unknown[];
}

/** Text and arguments of a builder, or of a `sql` template. */
export function statement(query: SQL | { toSQL(): Built }): Statement {
  const { sql, params } = "toSQL" in query ? query.toSQL() : dialect.sqlToQuery(query);
  return { sql, args: params.map(toSqlValue) };
}

function toSqlValue(value: unknown): SqlValue {
  if (value === null || typeof value === "string" || typeof value === "number" || typeof value === "bigint") {
    return value;
  }
  if (typeof value === "boolean") return value ? 1 : 0;
  if (value instanceof Uint8Array) return value;
  throw new TypeError(`A ${typeof value} cannot be bound in SQL.`);
}

/** A column does not hold what its schema says. */
export class BrokenColumn extends Error {
  override readonly name = "BrokenColumn";
  readonly column: string;

  constructor(column: string, cause: unknown) {
    super(`Column '${column}' cannot be read.`, { cause });
    this.column = column;
  }
}

/** What a column holds, beside those that a table has. @throws BrokenColumn */
export function readColumn<T>(column: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new BrokenColumn(column, cause);
  }
}

/**
 * A row as its table's record.
 * @throws BrokenColumn where a JSON column does not hold what its schema says
 */
export function decodeRow<T extends Table>(table: T, row: StatementResult["rows"][number]): InferSelectModel<T> {
  const record: Record<string, unknown> = {};
  for (const [key, column] of Object.entries(getTableColumns(table))) {
    const value = row[column.name] ?? null;
    record[key] = value === null ? null : readColumn(column.name, () => column.mapFromDriverValue(value));
  }
  return record as InferSelectModel<T>;
}

/** The only row of a result, decoded; `undefined` where there is none. */
export function decodeFirst<T extends Table>(
  table: T,
  result: StatementResult | undefined,
): InferSelectModel<T> | undefined {
  const row = result?.rows[0];
  return row === undefined ? undefined : decodeRow(table, row);
}
