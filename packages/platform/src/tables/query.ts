/** One statement over the tables: it reads, and nothing else; its answer has an end. */
import { constants, type DatabaseSync } from "node:sqlite";
import type { TableAnswer } from "@toolyard/core/ports/data-tables";
import { TableFault } from "./fault.ts";
import type { Table } from "./table.ts";

type Result = NonNullable<TableAnswer["result"]>;

const reads: ReadonlySet<number> = new Set([
  constants.SQLITE_SELECT,
  constants.SQLITE_READ,
  constants.SQLITE_FUNCTION,
  constants.SQLITE_RECURSIVE,
]);
/** Functions that reach beyond the database, should this SQLite have them. */
const outward = /^(?:load_extension|readfile|writefile|edit|fts3_tokenizer|sqlite_\w+_(?:pointer|config))$/i;

/** From here on nothing can be changed, attached or loaded. */
export function closeForWriting(database: DatabaseSync): void {
  database.exec("PRAGMA query_only = 1");
  database.setAuthorizer((action, _argument, name) => {
    const isAllowed = reads.has(action) && !(action === constants.SQLITE_FUNCTION && outward.test(name ?? ""));
    return isAllowed ? constants.SQLITE_OK : constants.SQLITE_DENY;
  });
}

export interface QueryLimits {
  readonly maxRows: number;
  readonly maxBytes: number;
}

export function runQuery(
  database: DatabaseSync,
  sql: string,
  { tables, limits }: { readonly tables: readonly Table[]; readonly limits: QueryLimits },
): Result {
  try {
    const statement = database.prepare(sql);
    requireNothingAfter(sql.slice(statement.sourceSQL.length));
    statement.setReadBigInts(true);
    statement.setReturnArrays(true);
    const names = statement.columns().map(({ name }) => name);
    const rows: Result["rows"][number][] = [];
    let bytes = 0;
    let truncated = false;
    for (const row of statement.iterate() as Iterable<unknown>) {
      const values = (row as readonly unknown[]).map(toJson);
      bytes += JSON.stringify(values).length;
      if (rows.length >= limits.maxRows || bytes > limits.maxBytes) {
        truncated = true;
        break;
      }
      rows.push(values);
    }
    return { columns: names.map((name, at) => ({ name, type: typeOfValues(rows, at) })), rows, truncated };
  } catch (thrown) {
    throw thrown instanceof TableFault ? thrown : toFault(thrown, tables);
  }
}

/** SQLite takes the first statement and passes over the others: whoever wrote several would take its answer for all. */
function requireNothingAfter(rest: string): void {
  if (rest.replaceAll(/--.*|\/\*[^]*?(?:\*\/|$)|[\s;]/g, "") === "") return;
  throw new TableFault(
    "The SQL must be one SELECT over the tables; ask for each of several with a call of its own.",
    "sql",
  );
}

function toJson(value: unknown): string | number | null {
  if (typeof value === "bigint") {
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : String(value);
  }
  if (typeof value === "number") return Number.isFinite(value) ? value : String(value);
  if (value instanceof Uint8Array) return Buffer.from(value).toString("hex");
  return typeof value === "string" ? value : null;
}

function typeOfValues(rows: readonly (readonly unknown[])[], at: number): string {
  const kinds = new Set(
    rows
      .map((row) => row[at])
      .filter((value) => value !== null)
      .map(kindOf),
  );
  if (kinds.size === 0) return "null";
  if (kinds.size === 1) return [...kinds][0] ?? "text";
  return kinds.has("text") ? "text" : "real";
}

function kindOf(value: unknown): string {
  if (typeof value !== "number") return "text";
  return Number.isInteger(value) ? "integer" : "real";
}

function toFault(thrown: unknown, tables: readonly Table[]): TableFault {
  const said = thrown instanceof Error ? thrown.message : "it cannot be run";
  if (/not authorized|readonly|prohibited/i.test(said)) {
    return new TableFault(`The SQL must be one SELECT over the tables: ${said}.`, "sql");
  }
  const known = tables.map((table) => {
    const { columns } = table.describe(false);
    return `${table.name}(${columns
      .slice(0, 60)
      .map(({ name }) => name)
      .join(", ")})`;
  });
  return new TableFault(`The SQL cannot be run (SQLite): ${said}. Tables: ${known.join("; ").slice(0, 4_000)}`, "sql");
}
