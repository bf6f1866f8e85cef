/** CSV as spreadsheets and exports write it (RFC 4180 and its relatives), row by row from parts of text. */
import { TableFault } from "./fault.ts";

export interface CsvRow {
  readonly cells: readonly string[];
  /** Where it begins, from 1. */
  readonly line: number;
}

const quote = '"';
const quoteCode = 34;
const newline = 10;
const carriageReturn = 13;
/** A quote that is never closed would take the rest of the file for one cell. */
const longestCell = 16_777_216;

export class CsvReader {
  readonly #file: string;
  readonly #delimiterCode: number;
  readonly #onRow: (row: CsvRow) => void;
  #cells: string[] = [];
  #cell = "";
  #state: "start" | "plain" | "quoted" | "closed" = "start";
  #afterReturn = false;
  #line = 1;
  #rowLine = 1;

  constructor(file: string, delimiter: string, onRow: (row: CsvRow) => void) {
    this.#file = file;
    this.#delimiterCode = delimiter.charCodeAt(0);
    this.#onRow = onRow;
  }

  add(text: string): void {
    let at = 0;
    if (this.#afterReturn && text.length > 0) {
      this.#afterReturn = false;
      if (text[0] === "\n") at = 1;
    }
    while (at < text.length) at = this.#state === "quoted" ? this.#inQuotes(text, at) : this.#outside(text, at);
  }

  end(): void {
    if (this.#state === "quoted") {
      throw new TableFault(`'${this.#file}': the quote that opens in line ${this.#rowLine} is never closed.`);
    }
    if (this.#state !== "start" || this.#cells.length > 0) this.#endRow();
  }

  #inQuotes(text: string, from: number): number {
    const end = text.indexOf(quote, from);
    const piece = text.slice(from, end === -1 ? text.length : end);
    for (let at = piece.indexOf("\n"); at !== -1; at = piece.indexOf("\n", at + 1)) this.#line += 1;
    this.#cell += piece;
    if (this.#cell.length > longestCell) {
      throw new TableFault(
        `'${this.#file}': a cell of more than ${longestCell} characters begins in line ${this.#rowLine}; is a quote not closed there?`,
      );
    }
    if (end === -1) return text.length;
    this.#state = "closed";
    return end + 1;
  }

  #outside(text: string, from: number): number {
    const delimiter = this.#delimiterCode;
    for (let at = from; at < text.length; at += 1) {
      const character = text.charCodeAt(at);
      if (character === delimiter) {
        this.#take(text, from, at);
        this.#endCell();
        return at + 1;
      }
      if (character === newline || character === carriageReturn) {
        this.#take(text, from, at);
        return this.#endLine(text, at);
      }
      if (character === quoteCode && at === from && (this.#state === "start" || this.#state === "closed")) {
        // Twice: a quote of the cell's own.
        if (this.#state === "closed") this.#cell += quote;
        this.#state = "quoted";
        return at + 1;
      }
    }
    this.#take(text, from, text.length);
    return text.length;
  }

  #endLine(text: string, at: number): number {
    const isBlank = this.#cells.length === 0 && this.#state === "start";
    if (isBlank) this.#cell = "";
    else this.#endRow();
    this.#line += 1;
    this.#rowLine = this.#line;
    if (text[at] !== "\r") return at + 1;
    if (at + 1 === text.length) this.#afterReturn = true;
    return text[at + 1] === "\n" ? at + 2 : at + 1;
  }

  #take(text: string, from: number, to: number): void {
    if (to === from) return;
    this.#cell += text.slice(from, to);
    if (this.#state === "start") this.#state = "plain";
  }

  #endCell(): void {
    this.#cells.push(this.#cell);
    this.#cell = "";
    this.#state = "start";
  }

  #endRow(): void {
    this.#endCell();
    const cells = this.#cells;
    this.#cells = [];
    this.#onRow({ cells, line: this.#rowLine });
  }
}

const delimiters = [",", ";", "\t", "|"];
const sampledRows = 50;

/** The one by which the first rows have the same number of cells, and most of them. */
export function findDelimiter(sample: string): string {
  let best = { delimiter: ",", score: 0 };
  for (const delimiter of delimiters) {
    const widths: number[] = [];
    const reader = new CsvReader("", delimiter, ({ cells }) => widths.push(cells.length));
    try {
      reader.add(sample);
    } catch {
      continue;
    }
    const rows = widths.slice(0, sampledRows);
    const width = rows[0] ?? sample.split("\n", 1)[0]?.split(delimiter).length ?? 1;
    const equal = rows.filter((other) => other === width).length;
    const score = width < 2 ? 0 : (rows.length === 0 ? 1 : equal / rows.length) * 1_000 + Math.min(width, 500);
    if (score > best.score) best = { delimiter, score };
  }
  return best.delimiter;
}
