/** Files become tables, part by part, so that memory does not grow with them. */
import type { DatabaseSync } from "node:sqlite";
import type { TableJob, TableSource } from "@toolyard/core/ports/data-tables";
import { CsvReader, findDelimiter } from "./csv.ts";
import { isHeader, type Cell } from "./columns.ts";
import { TableFault } from "./fault.ts";
import { Table } from "./table.ts";
import { TextReader } from "./text.ts";
import { readWorkbook } from "./xlsx.ts";

export type LoadOptions = Pick<TableJob, "delimiter" | "encoding" | "header">;
export type LoadSource = Omit<TableSource, "body">;

/** Takes the parts of one file, one after the other. */
export interface Loader {
  add(part: Uint8Array): void;
  end(): void;
}

/** Where a delimiter is looked for. */
const sampleCharacters = 65_536;
/** Of files that can only be read as a whole. */
const mostWholeBytes = { json: 67_108_864, xlsx: 67_108_864 };

export class Tables {
  readonly #database: DatabaseSync;
  readonly #options: LoadOptions;
  readonly all: Table[] = [];

  constructor(database: DatabaseSync, options: LoadOptions) {
    this.#database = database;
    this.#options = options;
  }

  loaderOf(source: LoadSource): Loader {
    switch (source.format) {
      case "csv":
        return this.#csv(source);
      case "ndjson":
        return this.#lines(source);
      case "json":
        return this.#json(source);
      case "xlsx":
        return this.#workbook(source);
      default:
        return source.format satisfies never;
    }
  }

  #table(file: string, header: readonly string[], sheet = ""): Table {
    const table = new Table(this.#database, { name: this.#nameFor(file, sheet), file, header });
    this.all.push(table);
    return table;
  }

  /** `2024/sales figures.csv` is the table `sales_figures`. */
  #nameFor(file: string, sheet: string): string {
    const base = (file.split("/").at(-1) ?? file).replace(/\.[A-Za-z0-9]{1,8}$/, "");
    const words = [base, sheet].filter((word) => word !== "").join("_");
    const plain = words
      .replaceAll(/[^\p{L}\p{N}_]+/gu, "_")
      .replaceAll(/^_+|_+$/g, "")
      .slice(0, 100);
    const named = plain === "" || /^sqlite_/i.test(plain) ? `table_${plain}` : plain;
    const taken = new Set(this.all.map(({ name }) => name.toLowerCase()));
    let name = named;
    for (let number = 2; taken.has(name.toLowerCase()); number += 1) name = `${named}_${number}`;
    return name;
  }

  #csv({ name: file }: LoadSource): Loader {
    const text = new TextReader(file, this.#options.encoding);
    const rows = this.#rows(file);
    let sample = "";
    let reader: CsvReader | undefined;
    const start = (): CsvReader => {
      const delimiter = this.#options.delimiter ?? findDelimiter(sample.slice(0, sampleCharacters));
      const started = new CsvReader(file, delimiter, ({ cells, line }) => rows.add(cells.map(toCell), line));
      started.add(sample);
      sample = "";
      return started;
    };
    const take = (part: string): void => {
      if (reader !== undefined) return reader.add(part);
      sample += part;
      if (sample.length >= sampleCharacters) reader = start();
    };
    return {
      add: (part) => take(text.read(part)),
      end: () => {
        take(text.end());
        (reader ?? start()).end();
        rows.end();
      },
    };
  }

  /** The first row is the header, or says how many columns there are. */
  #rows(file: string, sheet = ""): { add(cells: readonly Cell[], line: number): void; end(): void } {
    let table: Table | undefined;
    return {
      add: (cells, line) => {
        if (table !== undefined) return table.add(cells, line);
        const words = cells.map((cell) => (cell === null ? "" : String(cell)));
        const named = this.#options.header ?? (cells.every((cell) => typeof cell === "string") && isHeader(words));
        table = this.#table(file, named ? words : words.map(() => ""), sheet);
        if (!named) table.add(cells, line);
      },
      end: () => {
        (table ?? this.#table(file, [""], sheet)).finish();
      },
    };
  }

  #lines({ name: file }: LoadSource): Loader {
    const text = new TextReader(file, this.#options.encoding);
    const table = this.#table(file, []);
    let rest = "";
    let line = 0;
    const take = (part: string): void => {
      const lines = (rest + part).split("\n");
      rest = lines.pop() ?? "";
      if (rest.length > mostWholeBytes.json)
        throw new TableFault(`'${file}': line ${line + 1} is too long for NDJSON.`);
      for (const one of lines) addLine(one);
    };
    const addLine = (one: string): void => {
      line += 1;
      if (one.trim() === "") return;
      table.addNamed(toValues(parse(file, one, line), file, line), line);
    };
    return {
      add: (part) => take(text.read(part)),
      end: () => {
        take(text.end());
        if (rest !== "") addLine(rest);
        table.finish();
      },
    };
  }

  #json(source: LoadSource): Loader {
    const { name: file } = source;
    return whole(file, mostWholeBytes.json, "JSON; write it as NDJSON, one object a line", (bytes) => {
      const text = new TextReader(file, this.#options.encoding);
      const all = text.read(bytes) + text.end();
      // One object a line, by another name.
      if (isLines(all)) {
        const lines = this.#lines(source);
        lines.add(Buffer.from(all, "utf8"));
        lines.end();
        return;
      }
      const table = this.#table(file, []);
      rowsOf(parse(file, all, undefined)).forEach((row, at) => table.addNamed(toValues(row, file, at + 1), at + 1));
      table.finish();
    });
  }

  #workbook({ name: file }: LoadSource): Loader {
    return whole(file, mostWholeBytes.xlsx, "XLSX; save it as CSV", (bytes) => {
      const sheets = readWorkbook(file, bytes);
      for (const sheet of sheets) {
        const rows = this.#rows(file, sheets.length === 1 ? "" : sheet.name);
        for (const { cells, line } of sheet.rows()) {
          if (cells.some((cell) => cell !== null)) rows.add(cells, line);
        }
        rows.end();
      }
    });
  }
}

function whole(file: string, most: number, instead: string, read: (bytes: Buffer) => void): Loader {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  return {
    add(part) {
      bytes += part.byteLength;
      if (bytes > most) throw new TableFault(`'${file}' has more than ${most} bytes, too many for ${instead}.`);
      parts.push(part);
    },
    end: () => read(Buffer.concat(parts)),
  };
}

function toCell(text: string): Cell {
  return text === "" ? null : text;
}

function isLines(text: string): boolean {
  const [first = "", second = ""] = text.split("\n", 2);
  return /^\s*\{/.test(first) && /^\s*\{/.test(second) && isObject(tryParse(first));
}

function tryParse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function parse(file: string, text: string, line: number | undefined): unknown {
  try {
    return JSON.parse(quoteLongIntegers(text));
  } catch (cause) {
    const where = line === undefined ? "" : `, line ${line}`;
    const why = cause instanceof Error ? cause.message.slice(0, 200) : "";
    throw new TableFault(`'${file}'${where}: this is no JSON: ${why}`);
  }
}

/**
 * Integers that a double may not hold become texts, digit by digit: they are ids. A reviver would be told of their
 * digits too, but takes several times the memory of the file.
 */
function quoteLongIntegers(text: string): string {
  // Few files have any, and looking at each of their strings takes time.
  if (!/(?:^|[[:,\s-])\d{16}/.test(text)) return text;
  const parts: string[] = [];
  const token = /"|(?<![\w.+-])-?\d{16,}(?![\d.eE])/g;
  let from = 0;
  for (let found = token.exec(text); found !== null; found = token.exec(text)) {
    const [word] = found;
    if (word === '"') token.lastIndex = endOfString(text, token.lastIndex);
    else if (!Number.isSafeInteger(Number(word))) {
      parts.push(text.slice(from, found.index), `"${word}"`);
      from = token.lastIndex;
    }
  }
  return parts.length === 0 ? text : parts.join("") + text.slice(from);
}

/** Behind its closing quote. */
function endOfString(text: string, start: number): number {
  for (let at = text.indexOf('"', start); at >= 0; at = text.indexOf('"', at + 1)) {
    let backslashes = 0;
    while (text[at - 1 - backslashes] === "\\") backslashes += 1;
    if (backslashes % 2 === 0) return at + 1;
  }
  return text.length;
}

/** A list, or an object that has one. */
function rowsOf(value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value;
  if (!isObject(value)) return [value];
  const lists = Object.values(value).filter((part) => Array.isArray(part));
  return lists.length === 1 ? (lists[0] ?? []) : [value];
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function toValues(row: unknown, file: string, line: number): ReadonlyMap<string, Cell> {
  if (isObject(row)) return new Map(Object.entries(row).map(([key, value]) => [key, toJsonCell(value)]));
  if (Array.isArray(row)) return new Map(row.map((value, at) => [`column_${at + 1}`, toJsonCell(value)]));
  if (row === null || ["string", "number", "boolean"].includes(typeof row))
    return new Map([["value", toJsonCell(row)]]);
  throw new TableFault(`'${file}', line ${line}: this is no row.`);
}

function toJsonCell(value: unknown): Cell {
  if (value === null || value === undefined) return null;
  if (typeof value === "string" || typeof value === "number") return value;
  return typeof value === "boolean" ? String(value) : JSON.stringify(value);
}
