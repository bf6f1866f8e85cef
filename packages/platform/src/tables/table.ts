/** One table: the first rows decide what its columns are, then all of them go into the database. */
import type { DatabaseSync, StatementSync } from "node:sqlite";
import type { TableColumn, TableDescription } from "@toolyard/core/ports/data-tables";
import { affinities, columnName, fits, typeOf, widen, type Cell, type ColumnType } from "./columns.ts";
import { TableFault } from "./fault.ts";

/** Rows that are looked at before the table is made. */
const sampledRows = 1_000;
/** What SQLite takes in one table, as it is usually built. */
const mostColumns = 2_000;

/** A call into SQLite costs more than a cell. */
const cellsAtOnce = 400;

interface Column {
  readonly name: string;
  type: ColumnType | undefined;
  exceptions: number;
  firstException: number;
}

interface Row {
  readonly cells: readonly Cell[];
  readonly line: number;
}

export class Table {
  readonly name: string;
  readonly #database: DatabaseSync;
  readonly #file: string;
  readonly #columns: Column[];
  /** Names as SQLite compares them. */
  readonly #taken = new Set<string>();
  /** Where the values of named rows go. */
  readonly #places = new Map<string, number>();
  readonly #notes = new Map<string, number>();
  #sample: Row[] | undefined = [];
  /** Of so many rows at once, and of one. */
  #insert: { readonly many: StatementSync; readonly one: StatementSync } | undefined;
  #waiting: Cell[] = [];
  #width = 0;
  rows = 0;

  constructor(
    database: DatabaseSync,
    { name, file, header }: { readonly name: string; readonly file: string; readonly header: readonly string[] },
  ) {
    this.#database = database;
    this.name = name;
    this.#file = file;
    this.#columns = header.map((cell) => toColumn(columnName(cell, this.#taken)));
    this.#refuseWide(0);
  }

  add(cells: readonly Cell[], line: number): void {
    if (cells.length > this.#columns.length && cells.slice(this.#columns.length).some((cell) => cell !== null)) {
      this.#note(
        `line ${line} has ${cells.length} cells, more than the ${this.#columns.length} columns; the rest is left out`,
      );
    } else if (cells.length < this.#columns.length) {
      this.#note(
        `line ${line} has ${cells.length} cells, fewer than the ${this.#columns.length} columns; the others are empty`,
      );
    }
    this.#put({ cells, line });
  }

  /** A row of named values; names that are new become columns. */
  addNamed(values: ReadonlyMap<string, Cell>, line: number): void {
    for (const name of values.keys()) {
      if (!this.#places.has(name)) this.#places.set(name, this.#addColumn(name, line));
    }
    const cells = this.#columns.map((): Cell => null);
    for (const [name, cell] of values) cells[this.#places.get(name) ?? 0] = cell;
    this.#put({ cells, line });
  }

  #put(row: Row): void {
    this.rows += 1;
    if (this.#sample === undefined) {
      this.#write(row);
      return;
    }
    this.#sample.push(row);
    if (this.#sample.length >= sampledRows) this.#make();
  }

  /** A kind of remark is kept once, with how often it was to be made. */
  #note(text: string): void {
    const kind = text.includes("more than") ? "wide" : "narrow";
    const known = [...this.#notes.keys()].find((note) => note.startsWith(kind));
    this.#notes.set(known ?? `${kind}:${text}`, (this.#notes.get(known ?? "") ?? 0) + 1);
  }

  /** Says where it is. */
  #addColumn(text: string, line: number): number {
    const column = toColumn(columnName(text, this.#taken));
    const place = this.#columns.push(column) - 1;
    this.#refuseWide(line);
    if (this.#insert === undefined) return place;
    this.#flush();
    this.#database.exec(`ALTER TABLE ${quoted(this.name)} ADD COLUMN ${quoted(column.name)} TEXT`);
    column.type = "text";
    this.#prepare();
    return place;
  }

  #refuseWide(line: number): void {
    if (this.#columns.length <= mostColumns) return;
    const where = line === 0 ? "" : ` in line ${line}`;
    throw new TableFault(`'${this.#file}' has more than ${mostColumns} columns${where}.`);
  }

  #make(): void {
    const sample = this.#sample ?? [];
    this.#sample = undefined;
    // SQLite has no table without one.
    if (this.#columns.length === 0) this.#addColumn("", 0);
    this.#columns.forEach((column, at) => {
      for (const { cells } of sample) {
        const cell = cells[at] ?? null;
        if (cell !== null && column.type !== "text") {
          column.type = isJson(cell) ? widenJson(column.type) : widen(column.type, typeOf(cell));
        }
      }
      column.type ??= "text";
    });
    const columns = this.#columns.map(({ name, type = "text" }) => `${quoted(name)} ${affinities[type]}`);
    this.#database.exec(`CREATE TABLE ${quoted(this.name)} (${columns.join(", ")})`);
    this.#prepare();
    for (const row of sample) this.#write(row);
  }

  #prepare(): void {
    this.#flush();
    this.#width = this.#columns.length;
    const row = `(${this.#columns.map(() => "?").join(", ")})`;
    const insert = (rows: number): StatementSync =>
      this.#database.prepare(
        `INSERT INTO ${quoted(this.name)} VALUES ${Array.from({ length: rows }, () => row).join(", ")}`,
      );
    this.#insert = { many: insert(this.#rowsAtOnce), one: insert(1) };
  }

  get #rowsAtOnce(): number {
    return Math.max(1, Math.min(100, Math.trunc(cellsAtOnce / Math.max(1, this.#width))));
  }

  /** What waits and is not enough for a statement of many rows. */
  #flush(): void {
    for (let at = 0; at < this.#waiting.length; at += this.#width) {
      this.#insert?.one.run(...this.#waiting.slice(at, at + this.#width));
    }
    this.#waiting = [];
  }

  #write({ cells, line }: Row): void {
    for (let at = 0; at < this.#width; at += 1) {
      const cell = cells[at] ?? null;
      const column = this.#columns[at];
      // SQLite would write a number as one with a fraction where it keeps text.
      const isText = typeof cell === "number" && affinities[column?.type ?? "text"] === "TEXT";
      this.#waiting.push(isText ? String(cell) : cell);
      if (cell === null || column === undefined || fits(cell, column.type ?? "text")) continue;
      column.exceptions += 1;
      if (column.exceptions === 1) column.firstException = line;
    }
    if (this.#waiting.length < this.#rowsAtOnce * this.#width) return;
    this.#insert?.many.run(...this.#waiting);
    this.#waiting = [];
  }

  finish(): void {
    if (this.#sample !== undefined) this.#make();
    this.#flush();
  }

  /** Its columns as a query would name them, and what is in them where that is wanted. */
  describe(wantsStats: boolean): TableDescription {
    const notes = [...this.#notes].map(([note, count]) => {
      const text = note.slice(note.indexOf(":") + 1);
      return count === 1 ? text : `${text} (and ${count - 1} more such lines)`;
    });
    return {
      name: this.name,
      file: this.#file,
      rows: this.rows,
      columns: this.#columns.map((column) => this.#describeColumn(column, wantsStats)),
      ...(notes.length === 0 ? {} : { notes }),
    };
  }

  #describeColumn({ name, type = "text", exceptions, firstException }: Column, wantsStats: boolean): TableColumn {
    return {
      name,
      type,
      ...(exceptions === 0 ? {} : { exceptions: { count: exceptions, first_line: firstException } }),
      ...(wantsStats ? { stats: this.#stats(name, type) } : {}),
    };
  }

  #stats(name: string, type: ColumnType): Record<string, string | number | null> {
    const column = quoted(name);
    const isNumber = type === "integer" || type === "real";
    const row = this.#database
      .prepare(
        `SELECT count(*) - count(${column}) AS nulls, count(DISTINCT ${column}) AS "distinct",
          min(${column}) AS min, max(${column}) AS max${isNumber ? `, avg(${column}) AS mean` : ""} FROM ${quoted(this.name)}`,
      )
      .get();
    return Object.fromEntries(
      Object.entries(row ?? {}).map(([key, value]) => [
        key,
        typeof value === "string" ? value.slice(0, 200) : plain(value),
      ]),
    );
  }
}

function toColumn(name: string): Column {
  return { name, type: undefined, exceptions: 0, firstException: 0 };
}

function isJson(cell: Cell): boolean {
  return typeof cell === "string" && /^[[{]/.test(cell);
}

function widenJson(type: ColumnType | undefined): ColumnType {
  return type === undefined || type === "json" ? "json" : "text";
}

function plain(value: unknown): number | null {
  if (typeof value === "bigint") return Number(value);
  return typeof value === "number" ? value : null;
}

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
