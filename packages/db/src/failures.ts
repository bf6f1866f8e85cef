/** What a database's refusal means for the batch, and the errors it becomes. */
import { GatewayError } from "@toolyard/core/errors/gateway-error";

/** Results of SQLite that blame the machine or the file, not the statement, by name and number. */
const brokenStores = {
  SQLITE_PERM: 3,
  SQLITE_NOMEM: 7,
  SQLITE_READONLY: 8,
  SQLITE_INTERRUPT: 9,
  SQLITE_IOERR: 10,
  SQLITE_CORRUPT: 11,
  SQLITE_FULL: 13,
  SQLITE_CANTOPEN: 14,
  SQLITE_PROTOCOL: 15,
  SQLITE_AUTH: 23,
  SQLITE_NOTADB: 26,
} as const;
const busy = { SQLITE_BUSY: 5 } as const;

/** `busy`: rolled back, somebody else is writing; `store`: the database cannot work now; `statement`: our SQL or a constraint. */
export type SqlFailure = "busy" | "store" | "statement";

/** @returns undefined for an error that is not SQLite's */
export function sqlFailureOf(error: unknown): SqlFailure | undefined {
  const number = resultOf(error);
  const code = codeOf(error);
  if (number === undefined && code?.startsWith("SQLITE_") !== true) return undefined;
  const isOneOf = (results: Readonly<Record<string, number>>): boolean =>
    Object.entries(results).some(([name, value]) =>
      number === undefined ? code?.startsWith(name) === true : value === number,
    );
  if (isOneOf(busy)) return "busy";
  return isOneOf(brokenStores) ? "store" : "statement";
}

/** Node's own binding tells SQLite's extended result; its lower byte is the result. */
function resultOf(error: unknown): number | undefined {
  if (codeOf(error) !== "ERR_SQLITE_ERROR" || !(error instanceof Error) || !("errcode" in error)) return undefined;
  return typeof error.errcode === "number" ? error.errcode & 0xff : undefined;
}

function codeOf(error: unknown): string | undefined {
  if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}

/** SQLite's own name is what an operator looks up, or knows: that the disk is full is nothing that waiting mends. */
export function storeBroken(what: string, cause: unknown): GatewayError {
  const known = nameOf(cause);
  const name = known?.startsWith("SQLITE_FULL") === true ? `${known}: no space is left for it` : known;
  return unavailable(`${what} (${name})`, cause);
}

/** Where the setting is most likely at fault; the system's or SQLite's own name of the error says how. */
export function wronglySet(what: string, cause: unknown): GatewayError {
  const name = nameOf(cause instanceof Error ? (cause.cause ?? cause) : cause);
  return unavailable(`${what} (DATABASE_URL${name === undefined ? "" : `: ${name}`})`, cause);
}

function nameOf(cause: unknown): string | undefined {
  const number = resultOf(cause);
  return Object.entries(brokenStores).find(([, value]) => value === number)?.[0] ?? codeOf(cause);
}

export function unavailable(reason: string, cause?: unknown, retryAfterMs = 1_000): GatewayError {
  return new GatewayError("database_unavailable", `The database ${reason}; try again.`, { cause, retryAfterMs });
}

/** Statements are written so that none is refused; one that is, is a fault of ours. */
export function statementRefused(cause: unknown): GatewayError {
  return new GatewayError("internal_error", "The database refused a statement; the log names it.", { cause });
}

/** Milliseconds before the next attempt: doubling to a ceiling, spread so that rivals do not meet again. */
export function backoffMs(
  attempt: number,
  { first, ceiling }: { readonly first: number; readonly ceiling: number },
): number {
  return Math.min(ceiling, first * 2 ** attempt) * (0.5 + Math.random() / 2);
}
