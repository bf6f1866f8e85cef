/**
 * The HTTP trip to a libSQL server. It goes to the one address that the operator configured, so it does not
 * pass the door for tools' traffic. It tells apart what callers have to know: was the request sent at all,
 * and when may we come back.
 */
import { buildConnector, Client } from "undici";

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
  /** Milliseconds for the making of one, TLS included. */
  readonly connectTimeoutMs: number;
}

/** A server may have closed a connection that has rested this long, and a frozen or busy process does not hear of it. */
const longestRestMs = 4_000;

interface Rested {
  readonly connection: Client;
  /** By the clock on the wall: the others may stand still with the machine. */
  readonly since: number;
}

interface Waiting {
  readonly trip: Trip;
  readonly use: (connection: Client) => void;
}

export class RemoteServer {
  readonly #options: RemoteServerOptions;
  readonly #headers: Readonly<Record<string, string>>;
  /** One for all, which remembers TLS sessions. */
  readonly #connect: buildConnector.connector;
  readonly #connections = new Set<Client>();
  /** Those without a request, whichever rests longest first. */
  readonly #resting: Rested[] = [];
  readonly #waiting: Waiting[] = [];
  isClosed = false;

  constructor(options: RemoteServerOptions) {
    this.#options = options;
    const { authToken, connectTimeoutMs: timeout } = options;
    this.#connect = buildConnector({ allowH2: false, timeout });
    this.#headers = {
      "content-type": "application/json",
      ...(authToken === undefined ? {} : { authorization: `Bearer ${authToken}` }),
    };
  }

  /** @throws RemoteRefusal, RemoteLoss */
  post(path: string, body: string, timeoutMs: number): Promise<string> {
    const trip = new Trip(timeoutMs);
    const base = this.#options.url.pathname.replace(/\/+$/, "");
    const use = (connection: Client): void => {
      connection.dispatch({ method: "POST", path: base + path, headers: this.#headers, body }, trip);
      trip.answer.then(
        () => this.#giveBack(connection),
        // One that is still being made would keep the next request as long.
        (error: unknown) => (error instanceof RemoteLoss ? this.#letGo(connection) : this.#giveBack(connection)),
      );
    };
    const connection = this.#take();
    if (connection === undefined) this.#waiting.push({ trip, use });
    else use(connection);
    return trip.answer;
  }

  async close(): Promise<void> {
    this.isClosed = true;
    await Promise.all([...this.#connections].map((connection) => connection.destroy()));
  }

  /** Undefined where there are as many as there may be, all of them with a request. */
  #take(): Client | undefined {
    const tooLongSince = Date.now() - longestRestMs;
    while (this.#resting[0] !== undefined && this.#resting[0].since < tooLongSince) {
      const { connection } = this.#resting[0];
      this.#resting.shift();
      this.#connections.delete(connection);
      connection.close().catch(() => undefined);
    }
    const last = this.#resting.pop();
    if (last !== undefined) return last.connection;
    return this.#connections.size < this.#options.connections ? this.#open() : undefined;
  }

  #open(): Client {
    const connection = new Client(this.#options.url.origin, { connect: this.#connect, allowH2: false });
    this.#connections.add(connection);
    return connection;
  }

  #giveBack(connection: Client): void {
    const next = this.#nextWaiting();
    if (next === undefined) this.#resting.push({ connection, since: Date.now() });
    else next.use(connection);
  }

  #letGo(connection: Client): void {
    this.#connections.delete(connection);
    connection.destroy().catch(() => undefined);
    const next = this.#nextWaiting();
    // A closed one says so to whoever still asks.
    if (next !== undefined) next.use(this.isClosed ? connection : this.#open());
  }

  /** Who has given up meanwhile needs none. */
  #nextWaiting(): Waiting | undefined {
    for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift())
      if (!next.trip.isOver) return next;
    return undefined;
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

  get isOver(): boolean {
    return this.#settle === undefined;
  }

  onRequestStart(controller: Controller): void {
    // Thrown before a byte is written.
    if (this.isOver) throw new Error("given up while waiting for a connection");
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
