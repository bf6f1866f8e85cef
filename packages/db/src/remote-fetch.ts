/**
 * The HTTP trip below the libSQL client. It goes to the one address that the operator configured, so it
 * does not pass the door for tools' traffic; what it adds is to tell apart what the client merges into
 * one error: was the request sent at all, and when may we come back.
 */
import { codeOf } from "./failures.ts";

/** The server, or something before it, answered with a status that is not 200. */
export class RemoteRefusal extends Error {
  override readonly name = "RemoteRefusal";
  readonly status: number;
  readonly retryAfterMs: number | undefined;

  constructor(status: number, retryAfterMs: number | undefined) {
    super(`The database server answered HTTP ${status}.`);
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

/** No answer, or not a whole one. */
export class RemoteLoss extends Error {
  override readonly name = "RemoteLoss";
  /** False where the connection was never made: the server cannot have seen the request. */
  readonly sent: boolean;

  constructor(sent: boolean, cause: unknown) {
    super("The connection to the database server was lost.", { cause });
    this.sent = sent;
  }
}

const neverConnected = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);

/** @throws RemoteRefusal, RemoteLoss */
export async function remoteFetch(request: Request, timeoutMs: number): Promise<Response> {
  try {
    const response = await fetch(request, { signal: AbortSignal.timeout(timeoutMs) });
    // Read here, so that a body that breaks off is known for what it is.
    const body = await response.arrayBuffer();
    if (!response.ok) throw new RemoteRefusal(response.status, retryAfterMs(response.headers.get("retry-after")));
    return new Response(body, { status: response.status, headers: response.headers });
  } catch (error) {
    if (error instanceof RemoteRefusal) throw error;
    throw new RemoteLoss(!isNeverConnected(error), error);
  }
}

function isNeverConnected(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  // A name with several addresses fails with one error for each.
  const causes: readonly unknown[] = cause instanceof AggregateError ? cause.errors : [cause];
  return causes.every((one) => neverConnected.has(codeOf(one) ?? ""));
}

/** Seconds or an HTTP date (RFC 9110, 10.2.3). */
function retryAfterMs(header: string | null): number | undefined {
  if (header === null) return undefined;
  if (/^\d+$/.test(header)) return Number(header) * 1_000;
  const date = Date.parse(header);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
}
