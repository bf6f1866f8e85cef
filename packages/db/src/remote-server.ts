/**
 * The HTTP trip to a libSQL server. It goes to the one address that the operator configured, so it does not
 * pass the door for tools' traffic. It tells apart what callers have to know: was the request sent at all,
 * and when may we come back.
 */
import { Pool } from "undici";

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
  /** False where the request never went out: the server cannot have seen it. */
  readonly sent: boolean;

  constructor(sent: boolean, cause: unknown) {
    super("The connection to the database server was lost.", { cause });
    this.sent = sent;
  }
}

export interface RemoteServerOptions {
  /** `http:` or `https:`; its path goes before that of a request. */
  readonly url: URL;
  readonly authToken: string | undefined;
  /** Connections at once; further requests wait here instead of at the server. */
  readonly connections: number;
}

/** A server may have closed a connection that has rested this long, and a frozen process does not hear of it. */
const longestRestMs = 4_000;

export class RemoteServer {
  readonly #options: RemoteServerOptions;
  readonly #headers: Readonly<Record<string, string>>;
  #pool: Pool;
  #usedAt = 0;
  isClosed = false;

  constructor(options: RemoteServerOptions) {
    this.#options = options;
    const { authToken } = options;
    this.#headers = {
      "content-type": "application/json",
      ...(authToken === undefined ? {} : { authorization: `Bearer ${authToken}` }),
    };
    this.#pool = this.#open();
  }

  /** @throws RemoteRefusal, RemoteLoss */
  async post(path: string, body: string, timeoutMs: number): Promise<string> {
    const trip = new Trip(timeoutMs);
    const base = this.#options.url.pathname.replace(/\/+$/, "");
    this.#restedPool().dispatch({ method: "POST", path: base + path, headers: this.#headers, body }, trip);
    try {
      return await trip.answer;
    } finally {
      this.#usedAt = performance.now();
    }
  }

  async close(): Promise<void> {
    this.isClosed = true;
    await this.#pool.destroy();
  }

  #open(): Pool {
    return new Pool(this.#options.url.origin, { connections: this.#options.connections, allowH2: false });
  }

  #restedPool(): Pool {
    const now = performance.now();
    if (now - this.#usedAt > longestRestMs && this.#usedAt > 0) {
      // What may still be under way ends by itself.
      this.#pool.close().catch(() => undefined);
      this.#pool = this.#open();
    }
    this.#usedAt = now;
    return this.#pool;
  }
}

/** What the transport offers to a handler. */
interface Controller {
  abort(reason: Error): void;
}

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/** One request: takes the transport's callbacks and gives the whole answer. */
class Trip {
  readonly answer: Promise<string>;
  readonly #parts: Uint8Array[] = [];
  readonly #timer: NodeJS.Timeout;
  #settle: { readonly resolve: (text: string) => void; readonly reject: (error: Error) => void } | undefined;
  #controller: Controller | undefined;
  #isSent = false;
  #refusal: RemoteRefusal | undefined;

  constructor(timeoutMs: number) {
    this.answer = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    this.#timer = setTimeout(() => {
      const late = new Error(`No answer within ${Math.round(timeoutMs)} ms.`);
      this.#fail(late);
      this.#controller?.abort(late);
    }, timeoutMs);
  }

  onRequestStart(controller: Controller): void {
    // Thrown before a byte is written.
    if (this.#settle === undefined) throw new Error("given up while waiting for a connection");
    this.#controller = controller;
    this.#isSent = true;
  }

  onResponseStart(_controller: Controller, status: number, headers: Headers): void {
    if (status < 200) return;
    if (status !== 200) this.#refusal = new RemoteRefusal(status, retryAfterMs(headers["retry-after"]));
  }

  onResponseData(_controller: Controller, part: Uint8Array): void {
    this.#parts.push(part);
  }

  onResponseEnd(): void {
    if (this.#refusal === undefined) this.#finish()?.resolve(Buffer.concat(this.#parts).toString("utf8"));
    else this.#finish()?.reject(this.#refusal);
  }

  onResponseError(_controller: Controller, error: Error): void {
    if (this.#refusal === undefined) this.#fail(error);
    else this.#finish()?.reject(this.#refusal);
  }

  #fail(cause: Error): void {
    this.#finish()?.reject(new RemoteLoss(this.#isSent, cause));
  }

  #finish(): { readonly resolve: (text: string) => void; readonly reject: (error: Error) => void } | undefined {
    clearTimeout(this.#timer);
    const settle = this.#settle;
    this.#settle = undefined;
    return settle;
  }
}

/** Seconds or an HTTP date (RFC 9110, 10.2.3). */
function retryAfterMs(header: string | string[] | undefined): number | undefined {
  if (typeof header !== "string") return undefined;
  if (/^\d+$/.test(header)) return Number(header) * 1_000;
  const date = Date.parse(header);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
}
