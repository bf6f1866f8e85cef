/** What the values of a column are, from the first of them; and values of cells as SQLite keeps them. */
export type ColumnType = "integer" | "real" | "date" | "datetime" | "text" | "json";

/** Null: an empty cell. */
export type Cell = string | number | null;

// No leading zeros: what has them is a number plate, a postal code, a telephone number.
const integer = /^[+-]?(?:0|[1-9]\d{0,17})$/;
const real = /^[+-]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?$/;
const date = /^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])$/;
const datetime =
  /^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?$/;

export function typeOf(value: string | number): ColumnType {
  if (typeof value === "number") return Number.isSafeInteger(value) ? "integer" : "real";
  if (integer.test(value)) return "integer";
  // Longer ones would lose digits.
  if (value.length <= 24 && real.test(value) && !/^[+-]?\d{19,}$/.test(value)) return "real";
  if (date.test(value)) return "date";
  return datetime.test(value) ? "datetime" : "text";
}

/** The narrowest that holds both. */
export function widen(one: ColumnType | undefined, other: ColumnType): ColumnType {
  if (one === undefined || one === other) return other;
  const both = new Set([one, other]);
  if (both.has("integer") && both.has("real")) return "real";
  return both.has("date") && both.has("datetime") ? "datetime" : "text";
}

/** Asked for every cell. */
export function fits(value: string | number, type: ColumnType): boolean {
  if (type === "text" || type === "json") return true;
  if (typeof value === "string" && (type === "integer" || type === "real") && isPlainInteger(value)) return true;
  return widen(type, typeOf(value)) === type;
}

function isPlainInteger(text: string): boolean {
  if (text.length === 0 || text.length > 15) return false;
  for (let at = 0; at < text.length; at += 1) {
    const digit = text.charCodeAt(at) - 48;
    if (digit < 0 || digit > 9) return false;
  }
  return text.length === 1 || text.charCodeAt(0) !== 48;
}

export const affinities: Readonly<Record<ColumnType, string>> = {
  integer: "INTEGER",
  real: "REAL",
  date: "TEXT",
  datetime: "TEXT",
  text: "TEXT",
  json: "TEXT",
};

/** The name of one more column: it is taken once only, and what has none is `column_N`. */
export function columnName(text: string, taken: Set<string>): string {
  const plain = text
    .replaceAll(/\p{Cc}+/gu, " ")
    .trim()
    .slice(0, 200);
  const base = plain === "" ? `column_${taken.size + 1}` : plain;
  let name = base;
  for (let number = 2; taken.has(name.toLowerCase()); number += 1) name = `${base}_${number}`;
  taken.add(name.toLowerCase());
  return name;
}

/** Does a first row name the columns? Names are no numbers, none is missing and none comes twice. */
export function isHeader(row: readonly string[]): boolean {
  const names = row.map((cell) => cell.trim());
  if (names.some((name) => name === "" || typeOf(name) !== "text")) return false;
  return new Set(names.map((name) => name.toLowerCase())).size === names.length;
}
