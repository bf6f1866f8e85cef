/**
 * A libSQL server over HTTP: one batch is one transaction and one trip. A batch is sent again only where
 * that cannot do its work twice; else its caller learns that the database is unavailable.
 */
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import type { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { BatchContent, BatchOptions, Database, StatementResult } from "./database.ts";
import { backoffMs, sqlFailureOf, statementRefused, storeBroken, unavailable, wronglySet } from "./failures.ts";
import { decodeBatch, encodeBatch, pipelinePath } from "./hrana.ts";
import { RemoteLoss, RemoteRefusal, RemoteServer } from "./remote-server.ts";

/** Trips under way at once; more wait here instead of at the server. */
const connections = 128;
/** Of a batch's time, for the making of a connection: where one hangs, another can still be made. */
const partForConnection = 0.6;
const backoff = { first: 20, ceiling: 500 };

interface RemoteOptions {
  readonly url: string;
  readonly authToken: string | undefined;
  readonly budgetMs: number;
}

/**
 * No trip is made: a server that is away now is found out by the first batch.
 * @throws Error for a URL that is none of a server
 */
export function openRemoteDatabase({ url, authToken, budgetMs }: RemoteOptions): Database {
  const address = readAddress(url);
  const server = new RemoteServer({
    url: address.url,
    authToken: authToken ?? address.authToken,
    connections,
    connectTimeoutMs: budgetMs * partForConnection,
  });
  return new RemoteDatabase(server, budgetMs);
}

/** `libsql:` means TLS, unless `?tls=0` says otherwise, which then needs a port; the others mean what they say. */
function readAddress(text: string): { readonly url: URL; readonly authToken: string | undefined } {
  const isLibsql = /^libsql:/i.test(text);
  const url = new URL(text.replace(/^libsql:/i, "https:"));
  const { searchParams } = url;
  const unknown = [...searchParams.keys()].filter((name) => name !== "authToken" && name !== "tls");
  if (unknown.length > 0) throw new Error("the URL has an unknown option");
  if (url.hash !== "" || url.username !== "") throw new Error("the URL has a fragment or a user");
  // Throws for a path that is not encoded as it should be.
  decodeURIComponent(url.pathname);
  const tls = searchParams.get("tls") ?? (url.protocol === "https:" ? "1" : "0");
  const isPlain = isLibsql && tls === "0" && url.port !== "";
  if (!isPlain && tls !== (url.protocol === "https:" ? "1" : "0")) throw new Error("the URL's option tls does not fit");
  return {
    url: isPlain ? new URL(url.href.replace(/^https:/, "http:")) : url,
    authToken: searchParams.get("authToken") ?? undefined,
  };
}

class RemoteDatabase implements Database {
  readonly #server: RemoteServer;
  readonly #budgetMs: number;

  constructor(server: RemoteServer, budgetMs: number) {
    this.#server = server;
    this.#budgetMs = budgetMs;
  }

  async batch(content: BatchContent, options: BatchOptions = {}): Promise<readonly StatementResult[]> {
    if ("compose" in content) await nextTurn();
    const statements = "compose" in content ? content.compose() : content;
    const isRepeatable = options.readonly === true || options.repeatable === true;
    const body = encodeBatch(statements, { readonly: options.readonly === true });
    const deadline = performance.now() + this.#budgetMs;
    for (let attempt = 0; ; attempt += 1) {
      if (this.#server.isClosed) throw unavailable("is closed");
      try {
        // On a busy machine the pause may have lasted beyond the deadline.
        const answer = await this.#server.post(pipelinePath, body, Math.max(1, deadline - performance.now()));
        return decodeBatch(answer, statements.length);
      } catch (error) {
        const failure = failureOf(error);
        if (failure.kind === "final" || (failure.kind === "uncertain" && !isRepeatable)) throw failure.error;
        const wait = failure.retryAfterMs ?? backoffMs(attempt, backoff);
        if (performance.now() + wait >= deadline) throw failure.error;
        await sleep(wait);
      }
    }
  }

  async close(): Promise<void> {
    await this.#server.close();
  }
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
      : { kind: "refused", error: wronglySet("server cannot be reached", error) };
  }
  switch (sqlFailureOf(error)) {
    case "busy":
      return { kind: "refused", error: unavailable("is busy", error) };
    case "store":
      return { kind: "final", error: storeBroken("server cannot read or write its data", error) };
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
