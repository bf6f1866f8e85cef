/**
 * A batch in the protocol of libSQL servers: Hrana 2 over HTTP, one pipeline that opens a stream, runs one
 * transaction and closes the stream. Written out here because a batch is all that is ever sent, and the
 * general client costs a function a fifth of its cold start.
 */
import type { SqlValue, Statement, StatementResult } from "./database.ts";

/** Where batches go, below the address of the server. */
export const pipelinePath = "/v2/pipeline";

/** What the server says went wrong with a statement or with the transaction around it. */
class HranaError extends Error {
  override readonly name = "HranaError";
  readonly code: string | undefined;

  constructor(message: string, code: string | undefined) {
    super(message);
    this.code = code;
  }
}

type Condition =
  | { readonly type: "ok"; readonly step: number }
  | { readonly type: "not"; readonly cond: { readonly type: "ok"; readonly step: number } };

/** The body of the request: each statement only runs where the one before it has succeeded. */
export function encodeBatch(statements: readonly Statement[], { readonly }: { readonly readonly: boolean }): string {
  const commit = statements.length + 1;
  const step = (sql: string, condition?: Condition, args: readonly SqlValue[] = []): object => ({
    ...(condition === undefined ? {} : { condition }),
    stmt: { sql, args: args.map(encodeValue), want_rows: true },
  });
  const steps = [
    step(readonly ? "BEGIN TRANSACTION READONLY" : "BEGIN IMMEDIATE"),
    ...statements.map(({ sql, args }, index) => step(sql, { type: "ok", step: index }, args)),
    step("COMMIT", { type: "ok", step: commit - 1 }),
    step("ROLLBACK", { type: "not", cond: { type: "ok", step: commit } }),
  ];
  return JSON.stringify({ baton: null, requests: [{ type: "batch", batch: { steps } }, { type: "close" }] });
}

function encodeValue(value: SqlValue): object {
  if (value === null) return { type: "null" };
  if (typeof value === "string") return { type: "text", value };
  if (typeof value === "bigint" || Number.isSafeInteger(value)) return { type: "integer", value: String(value) };
  if (typeof value === "number") return { type: "float", value };
  return { type: "blob", base64: Buffer.from(value).toString("base64") };
}

/**
 * The results of the statements, in their order.
 * @throws HranaError the first refusal; Error for a text that is no answer to a batch of so many statements
 */
export function decodeBatch(text: string, count: number): readonly StatementResult[] {
  const [first] = listIn(JSON.parse(text), "results");
  const failure = fieldIn(first, "error");
  if (failure !== undefined && failure !== null) throw refusalOf(failure);
  const result = fieldIn(fieldIn(first, "response"), "result");
  const results = listIn(result, "step_results");
  const errors = listIn(result, "step_errors");
  // All but the last one, which only tidies up.
  for (const error of errors.slice(0, count + 2)) if (error !== null && error !== undefined) throw refusalOf(error);
  if (results[count + 1] === null || results.length < count + 2) throw new Error("the transaction did not end");
  return results.slice(1, count + 1).map(decodeResult);
}

function refusalOf(error: unknown): HranaError {
  const [message, code] = [fieldIn(error, "message"), fieldIn(error, "code")];
  return new HranaError(String(message), typeof code === "string" ? code : undefined);
}

function decodeResult(result: unknown): StatementResult {
  const columns = listIn(result, "cols").map((column) => String(fieldIn(column, "name")));
  const rows = listIn(result, "rows").map((row) => {
    if (!Array.isArray(row)) throw new Error("a row is no list");
    const record: Record<string, unknown> = {};
    for (const [index, column] of columns.entries()) record[column] = decodeValue(row[index]);
    return record;
  });
  return { rows, changes: Number(fieldIn(result, "affected_row_count")) };
}

function decodeValue(encoded: unknown): unknown {
  const value = fieldIn(encoded, "value");
  switch (fieldIn(encoded, "type")) {
    case "null":
      return null;
    case "text":
      return String(value);
    case "float":
      return Number(value);
    case "integer": {
      const number = Number(value);
      if (!Number.isSafeInteger(number)) throw new RangeError("an integer is too large for a number");
      return number;
    }
    case "blob":
      return new Uint8Array(Buffer.from(String(fieldIn(encoded, "base64")), "base64"));
    default:
      throw new Error("a value has no type");
  }
}

function fieldIn(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null) return undefined;
  return Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined;
}

function listIn(value: unknown, name: string): readonly unknown[] {
  const list = fieldIn(value, name);
  if (!Array.isArray(list)) throw new Error(`'${name}' is missing`);
  return list;
}
