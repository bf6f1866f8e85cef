/** What a database's refusal means for the batch, and the errors it becomes. */
import { GatewayError } from "@toolyard/core/errors/gateway-error";

/** Codes of SQLite that blame the machine or the file, not the statement. */
const brokenStore = /^SQLITE_(?:FULL|IOERR|READONLY|CANTOPEN|CORRUPT|NOTADB|NOMEM|PROTOCOL|AUTH|PERM|INTERRUPT)/;

/** `busy`: rolled back, somebody else is writing; `store`: the database cannot work now; `statement`: our SQL or a constraint. */
export type SqlFailure = "busy" | "store" | "statement";

/** @returns undefined for an error that is not SQLite's */
export function sqlFailureOf(error: unknown): SqlFailure | undefined {
  const code = codeOf(error);
  if (code === undefined || !code.startsWith("SQLITE_")) return undefined;
  if (code.startsWith("SQLITE_BUSY")) return "busy";
  return brokenStore.test(code) ? "store" : "statement";
}

export function codeOf(error: unknown): string | undefined {
  if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
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
