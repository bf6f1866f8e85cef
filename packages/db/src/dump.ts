/**
 * A whole database as SQL text, and back: for backups, and for moving between a file and a server. What is
 * read is one transaction, so the copy is of one moment; it is held in memory, which suits up to a few
 * hundred megabytes. Larger ones have tools of their server (docs/deploy.md).
 */
import { randomBytes } from "node:crypto";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { Database, Statement } from "./database.ts";

/** A line that ends each statement follows: a comment, so that other programs can read the file as well. */
const header = "-- toolyard dump ";
/** At the end of that line: how many statements there are, so that a file that was cut off is known for one. */
const countMark = / of (\d+)$/;
const statementsInBatch = 200;

interface SchemaEntry {
  readonly type: string;
  readonly name: string;
  readonly sql: string;
}

/**
 * Tables come first, their rows next, and what acts on rows (indexes, triggers) last.
 * @throws GatewayError `not_found` where there is nothing
 */
export async function dumpDatabase(database: Database): Promise<string> {
  const entries = withoutShadows(await readSchema(database));
  const tables = entries.filter(({ type }) => type === "table");
  if (tables.length === 0) {
    throw new GatewayError(
      "not_found",
      "There is nothing in the database; see whether DATABASE_URL, or TOOLYARD_DATA_DIR, names the one that is meant.",
    );
  }
  const columns = await database.batch(
    tables.map(({ name }) => plain(`SELECT name FROM pragma_table_xinfo(${quoted(name)}) WHERE hidden = 0`)),
    { readonly: true },
  );
  const selects = tables.map(({ name, sql }, at) => {
    const named = columns[at]?.rows.map((row) => String(row["name"])) ?? [];
    // Entries of full text are known by the numbers of the rows that they are about.
    return plain(selectInserts(name, isVirtual(sql) ? ["rowid", ...named] : named));
  });
  // Numbers that have been given are not given again, even where their rows are gone.
  const hasSequences = tables.some(({ sql }) => /\bAUTOINCREMENT\b/i.test(sql));
  if (hasSequences) {
    selects.push(plain("SELECT 'DELETE FROM sqlite_sequence' AS sql"));
    selects.push(plain(selectInserts("sqlite_sequence", ["name", "seq"])));
  }
  const read = await database.batch(selects, { readonly: true });
  const inserts = read.flatMap(({ rows }) => rows.map((row) => String(row["sql"])));
  const rest = entries.filter(({ type }) => type !== "table");
  const statements = [...tables.map(({ sql }) => sql), ...inserts, ...rest.map(({ sql }) => sql)];
  const end = `${header}${randomBytes(16).toString("hex")} of ${statements.length}`;
  return [end, ...statements.map((sql) => `${sql};\n${end}`), ""].join("\n");
}

/**
 * Makes an empty database what the dump says. One that is stopped half way has to be thrown away.
 * @returns the number of statements
 * @throws GatewayError `conflict` where there are tables already, `invalid_request` for another file
 */
export async function restoreDatabase(database: Database, dump: string): Promise<number> {
  if (!dump.startsWith(header))
    throw new GatewayError("invalid_request", "This file is no dump of a Toolyard database.");
  if ((await readSchema(database)).length > 0) {
    throw new GatewayError("conflict", "The database is not empty; restore into a new one, then change DATABASE_URL.");
  }
  const end = dump.slice(0, dump.indexOf("\n"));
  const statements = dump
    .split(`\n${end}\n`)
    .map((part) => part.replace(`${end}\n`, ""))
    .filter((sql) => sql !== "")
    .map(plain);
  const count = countMark.exec(end)?.[1] ?? String(statements.length);
  if (!dump.endsWith(`${end}\n`) || statements.length === 0 || String(statements.length) !== count) {
    throw new GatewayError(
      "invalid_request",
      "This dump is not whole: it was cut off while it was written or copied, or made of an empty database. Nothing was restored.",
    );
  }
  for (let at = 0; at < statements.length; at += statementsInBatch) {
    await database.batch(statements.slice(at, at + statementsInBatch));
  }
  return statements.length;
}

async function readSchema(database: Database): Promise<readonly SchemaEntry[]> {
  const [found] = await database.batch(
    [
      plain(
        "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite|_%' ESCAPE '|' ORDER BY rowid",
      ),
    ],
    { readonly: true },
  );
  return (found?.rows ?? []).map((row) => ({
    type: String(row["type"]),
    name: String(row["name"]),
    sql: String(row["sql"]),
  }));
}

function isVirtual(sql: string): boolean {
  return /^\s*CREATE\s+VIRTUAL\s/i.test(sql);
}

/** Tables in which a virtual one keeps what it has: it makes and fills them itself. */
function withoutShadows(entries: readonly SchemaEntry[]): readonly SchemaEntry[] {
  const prefixes = entries.filter(({ sql }) => isVirtual(sql)).map(({ name }) => `${name}_`);
  return entries.filter(({ type, name }) => type !== "table" || !prefixes.some((prefix) => name.startsWith(prefix)));
}

/** Lets the database write its values down by itself, which keeps integers and bytes exact. */
function selectInserts(table: string, columns: readonly string[]): string {
  const names = columns.map(identifier).join(", ");
  const values = columns.map((column) => literalOf(identifier(column))).join(" || ', ' || ");
  return `SELECT ${quoted(`INSERT INTO ${identifier(table)} (${names}) VALUES (`)} || ${values} || ')' AS sql FROM ${identifier(table)}`;
}

/** `quote` ends a text at its first NUL, so such a text goes as bytes. */
function literalOf(column: string): string {
  return `CASE WHEN typeof(${column}) = 'text' AND instr(CAST(${column} AS BLOB), X'00') > 0 THEN 'CAST(X''' || hex(${column}) || ''' AS TEXT)' ELSE quote(${column}) END`;
}

function plain(sql: string): Statement {
  return { sql, args: [] };
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

function identifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
