/**
 * A libSQL server over HTTP: one batch is one transaction and one trip. A batch is sent again only where
 * that cannot do its work twice; else its caller learns that the database is unavailable.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { createClient, type Client, type InValue, type ResultSet } from "@libsql/client/http";
import type { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { BatchOptions, Database, SqlValue, Statement, StatementResult } from "./database.ts";
import { backoffMs, sqlFailureOf, statementRefused, unavailable } from "./failures.ts";
import { remoteFetch, RemoteLoss, RemoteRefusal } from "./remote-fetch.ts";

/** Trips under way at once; more wait here instead of at the server. */
const concurrency = 128;
const backoff = { first: 20, ceiling: 500 };

interface RemoteOptions {
  readonly url: string;
  readonly authToken: string | undefined;
  readonly budgetMs: number;
}

/**
 * No trip is made: a server that is away now is found out by the first batch.
 * @throws LibsqlError for a URL that is none
 */
export function openRemoteDatabase({ url, authToken, budgetMs }: RemoteOptions): Database {
  const client = createClient({
    url,
    ...(authToken === undefined ? {} : { authToken }),
    intMode: "number",
    concurrency,
    fetch: (request: Request) => remoteFetch(request, budgetMs),
  });
  return new RemoteDatabase(client, budgetMs);
}

class RemoteDatabase implements Database {
  readonly #client: Client;
  readonly #budgetMs: number;

  constructor(client: Client, budgetMs: number) {
    this.#client = client;
    this.#budgetMs = budgetMs;
  }

  async batch(statements: readonly Statement[], options: BatchOptions = {}): Promise<readonly StatementResult[]> {
    if (this.#client.closed) throw unavailable("is closed");
    const repeatable = options.readonly === true || options.repeatable === true;
    const deadline = performance.now() + this.#budgetMs;
    for (let attempt = 0; ; attempt += 1) {
      try {
        // On a busy machine the pause may have lasted beyond the deadline.
        return await this.#trip(statements, options, Math.max(1, deadline - performance.now()));
      } catch (error) {
        const failure = failureOf(error);
        if (failure.kind === "final" || (failure.kind === "uncertain" && !repeatable)) throw failure.error;
        const wait = failure.retryAfterMs ?? backoffMs(attempt, backoff);
        if (performance.now() + wait >= deadline) throw failure.error;
        await sleep(wait);
      }
    }
  }

  async close(): Promise<void> {
    this.#client.close();
  }

  async #trip(
    statements: readonly Statement[],
    options: BatchOptions,
    timeoutMs: number,
  ): Promise<readonly StatementResult[]> {
    const batch = statements.map(({ sql, args }) => ({ sql, args: args.map(toBound) }));
    const results = await within(timeoutMs, this.#client.batch(batch, options.readonly === true ? "read" : "write"));
    return results.map(toResult);
  }
}

async function within<T>(timeoutMs: number, work: Promise<T>): Promise<T> {
  const done = new AbortController();
  const timeout = sleep(timeoutMs, undefined, { signal: done.signal }).then(() => {
    throw new RemoteLoss(true, new Error(`No answer within ${Math.round(timeoutMs)} ms.`));
  });
  try {
    return await Promise.race([work, timeout]);
  } finally {
    done.abort();
    timeout.catch(() => undefined);
    // The trip may still fail after we have gone.
    work.catch(() => undefined);
  }
}

/** The client takes every number for a float. */
function toBound(value: SqlValue): InValue {
  return typeof value === "number" && Number.isSafeInteger(value) ? BigInt(value) : value;
}

function toResult({ columns, rows, rowsAffected }: ResultSet): StatementResult {
  return {
    rows: rows.map((row) =>
      Object.fromEntries(
        columns.map((column, index) => {
          const value = row[index];
          return [column, value instanceof ArrayBuffer ? new Uint8Array(value) : value];
        }),
      ),
    ),
    changes: rowsAffected,
  };
}

/** `refused`: nothing was done; `uncertain`: it may have been; `final`: it would fail again. */
interface Failure {
  readonly kind: "refused" | "uncertain" | "final";
  readonly error: GatewayError;
  readonly retryAfterMs?: number;
}

function failureOf(error: unknown): Failure {
  if (error instanceof RemoteRefusal) return refusalFailure(error);
  if (error instanceof RemoteLoss) {
    return error.sent
      ? { kind: "uncertain", error: unavailable("did not answer", error) }
      : { kind: "refused", error: unavailable("server cannot be reached (DATABASE_URL)", error) };
  }
  switch (sqlFailureOf(error)) {
    case "busy":
      return { kind: "refused", error: unavailable("is busy", error) };
    case "store":
      return { kind: "final", error: unavailable("server cannot read or write its data", error) };
    case "statement":
      return { kind: "final", error: statementRefused(error) };
    case undefined:
      return { kind: "uncertain", error: unavailable("gave an answer that is none of libSQL's", error) };
  }
}

function refusalFailure(error: RemoteRefusal): Failure {
  const { status, retryAfterMs } = error;
  if (status === 429) {
    return {
      kind: "refused",
      error: unavailable("server is over its limit", error, retryAfterMs),
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    };
  }
  if (status === 401 || status === 403) {
    return { kind: "final", error: unavailable("server refuses the auth token of DATABASE_URL", error) };
  }
  if (status < 500) return { kind: "final", error: unavailable(`server answered HTTP ${status}`, error) };
  return {
    kind: "uncertain",
    error: unavailable(`server answered HTTP ${status}`, error, retryAfterMs),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  };
}
