/**
 * The vector functions of libSQL for SQLite of Node, which has none, so that a search is one text of SQL for both.
 * A vector is a blob of 32 bit floats, little endian.
 */
import type { DatabaseSync } from "node:sqlite";

interface QueryVector {
  readonly values: Float32Array;
  readonly squares: number;
}

/** Of one statement; it is made and used without a turn of the event loop between. */
const mostQueries = 64;

/**
 * `vector32(blob)` is asked for once a statement and gives a number that stands for the vector:
 * a value that goes from SQLite to a function is copied for each row, and the query would be half of that.
 */
export function defineVectorFunctions(connection: DatabaseSync): void {
  const queries: (QueryVector | undefined)[] = Array.from({ length: mostQueries });
  let next = 0;
  connection.function("vector32", { deterministic: true }, (value) => {
    const values = floatsOf(value).slice();
    const place = next;
    next = (next + 1) % mostQueries;
    queries[place] = { values, squares: values.reduce((sum, one) => sum + one * one, 0) };
    return place;
  });
  connection.function("vector_distance_cos", { deterministic: true }, (value, place) => {
    if (value === null) return null;
    const query = typeof place === "number" ? queries[place] : undefined;
    if (query === undefined) throw new TypeError("vector_distance_cos: the second vector is not made by vector32()");
    return cosineDistance(floatsOf(value), query);
  });
}

function floatsOf(value: unknown): Float32Array {
  if (!(value instanceof Uint8Array) || value.byteLength % 4 !== 0)
    throw new TypeError("not a vector of 32 bit floats");
  // Every value that SQLite hands over has memory of its own, which is aligned.
  return new Float32Array(value.buffer, value.byteOffset, value.byteLength / 4);
}

/** Null as in libSQL: a vector without a direction has no angle. */
function cosineDistance(values: Float32Array, query: QueryVector): number | null {
  const { length } = query.values;
  if (values.length !== length) {
    throw new TypeError(`vectors must have the same length: ${values.length} != ${length}`);
  }
  // Read once for both sums, and in pairs, since each addition waits for the one before it.
  let product = 0;
  let otherProduct = 0;
  let squares = 0;
  let otherSquares = 0;
  let at = 0;
  for (; at + 1 < length; at += 2) {
    const value = values[at] ?? 0;
    const other = values[at + 1] ?? 0;
    product += value * (query.values[at] ?? 0);
    otherProduct += other * (query.values[at + 1] ?? 0);
    squares += value * value;
    otherSquares += other * other;
  }
  if (at < length) {
    const value = values[at] ?? 0;
    product += value * (query.values[at] ?? 0);
    squares += value * value;
  }
  const lengths = Math.sqrt((squares + otherSquares) * query.squares);
  return lengths === 0 || Number.isNaN(lengths) ? null : 1 - (product + otherProduct) / lengths;
}
