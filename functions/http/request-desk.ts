/**
 * HTTP of the server form. Requests are taken from the moment the port is bound and answered once the app is there;
 * what Node would refuse in a way of its own is refused in the one error shape; which are in hand is known.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { getRequestListener, RequestError } from "@hono/node-server";
import { GatewayError, toGatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import type { ServingApp } from "./app-env.ts";
import { isPassedOn } from "./body.ts";
import { toErrorReply } from "./errors.ts";
import { refuseOn } from "./refuse-on.ts";
import { stoppingEvent } from "./transports.ts";

/** Request line and headers together. */
const maxHeaderBytes = 32_768;

type Listener = ReturnType<typeof getRequestListener>;

interface DeskOptions {
  readonly wantsUpgrade: (request: IncomingMessage) => boolean;
  /** What becomes of a request that asks for another protocol. */
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void;
  /** So long a body may take to come that is read whole; looked at every so often. */
  readonly patience?: { readonly wholeMs: number; readonly everyMs: number };
}

const defaultPatience = { wholeMs: 300_000, everyMs: 30_000 };
/** Of a body that is passed on as it comes: a large file, over a slow line. */
const passedOnMs = 3_600_000;

export class RequestDesk {
  readonly server: Server;
  isDraining = false;
  #inHand = 0;
  /** Called when none is any more. */
  #whenIdle: (() => void) | undefined;
  readonly #ready = Promise.withResolvers<Listener>();
  #listener: Listener | undefined;
  /** The newest answer on each connection. */
  readonly #answers = new WeakMap<Duplex, ServerResponse>();
  readonly #open = new Set<Socket>();

  /** Since when a request has been seen whose body had not come whole. */
  readonly #slow = new WeakMap<IncomingMessage, number>();

  constructor({ wantsUpgrade, upgrade, patience = defaultPatience }: DeskOptions) {
    // Nobody may be waiting when the start fails.
    this.#ready.promise.catch(() => undefined);
    this.server = createServer(
      {
        keepAliveTimeout: 65_000,
        // Headers have their minute.
        requestTimeout: passedOnMs,
        maxHeaderSize: maxHeaderBytes,
        shouldUpgradeCallback: wantsUpgrade,
        // Node's own refusal says nothing; ours is below.
        requireHostHeader: false,
      },
      this.#take,
    );
    this.server
      // Who waits to be told to send a body is told where that is read (body.ts). What else is expected may be passed over.
      .on("checkContinue", this.#take)
      .on("checkExpectation", this.#take)
      .on("connect", (_request, socket: Duplex) => this.#refuseTunnel(socket))
      .on("upgrade", (request, socket: Duplex, head: Buffer) => {
        // Both would be written to it.
        if (this.#isAnsweringOn(socket)) socket.destroy();
        else upgrade(request, socket, head);
      })
      .on("clientError", (thrown, socket) => this.#refuseBroken(thrown, socket))
      .on("connection", (socket: Socket) => {
        this.#open.add(socket);
        socket.once("close", () => this.#open.delete(socket));
      });
    // No timer for each request: nearly all are there at once.
    const looking = setInterval(() => this.#endSlow(patience.wholeMs), patience.everyMs).unref();
    this.server.once("close", () => clearInterval(looking));
  }

  /** From now on requests are answered, those that wait as well. */
  open(fetch: ServingApp["fetch"]): void {
    const counted = (request: Request, bindings: object): Response | Promise<Response> => {
      const answer = fetch(request, bindings);
      if (answer instanceof Promise) this.#hold(answer);
      return answer;
    };
    this.#listener = getRequestListener(counted, { errorHandler: answerUnreadable, hostname: "localhost" });
    this.#ready.resolve(this.#listener);
  }

  /** There will be no app. */
  refuse(): void {
    this.#ready.reject(new Error("the server did not start"));
  }

  /**
   * Takes no new connections, and ends those that are open. A proxy that keeps one may be sending on it just now, so it
   * has `lingerMs` to do so, in which it may also connect and hear that this process ends: what comes is answered, and
   * the answer says that it was the connection's last one.
   */
  async close(lingerMs: number): Promise<void> {
    this.isDraining = true;
    for (const socket of this.#open) this.#endAfterUse(socket, lingerMs);
    if (this.#open.size > 0) await sleep(lingerMs);
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    for (const socket of this.#open) if (socket.bytesRead === 0) this.#endUnused(socket, lingerMs);
    await closed;
    await this.#allDone();
  }

  #endAfterUse(socket: Socket, lingerMs: number): void {
    const answer = this.#answers.get(socket);
    if (answer === undefined || answer.writableFinished) this.#endUnused(socket, lingerMs);
    else if (answer.headersSent) answer.once("finish", () => this.#endUnused(socket, lingerMs));
    else answer.shouldKeepAlive = false;
  }

  /** Ends the connection, unless it is used within that time. */
  #endUnused(socket: Socket, ms: number): void {
    const bytes = socket.bytesRead;
    const ending = setTimeout(() => {
      if (socket.bytesRead === bytes) socket.destroy();
    }, ms);
    socket.once("close", () => clearTimeout(ending));
  }

  /** Whoever is still being answered is to be told why that ends. */
  interrupt(): void {
    for (const socket of this.#open) this.#answers.get(socket)?.emit(stoppingEvent);
  }

  /** Connections that are still open. */
  cutOff(): void {
    this.server.closeAllConnections();
  }

  /** The app holds no request any more. */
  #allDone(): Promise<void> {
    if (this.#inHand === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenIdle = resolve;
    });
  }

  readonly #take = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    this.#answers.set(incoming.socket, outgoing);
    if (this.isDraining) outgoing.shouldKeepAlive = false;
    // Probes that still speak HTTP/1.0 name no host, and may.
    if (incoming.headers.host === undefined && incoming.httpVersion !== "1.0") {
      refuseNameless(outgoing);
      return;
    }
    if (this.#listener !== undefined) {
      void this.#listener(incoming, outgoing);
      return;
    }
    this.#ready.promise.then(
      (listener) => listener(incoming, outgoing),
      () => outgoing.destroy(),
    );
  };

  /** What is no HTTP never becomes a request; whoever sent it is told in the one error shape. */
  #refuseBroken(thrown: BrokenRequest, socket: Duplex): void {
    const answer = this.#answers.get(socket);
    const isAnswering = this.#isAnsweringOn(socket);
    if (thrown.code === "ECONNRESET" || !socket.writable) socket.destroy();
    // What came before it on the connection was no mistake, and is answered first.
    else if (isAnswering && answer?.req.complete === true)
      answer.once("finish", () => this.#refuseBroken(thrown, socket));
    else if (isAnswering && answer?.headersSent === true) socket.destroy();
    else refuseOn(socket, toBrokenRequest(thrown), { isHead: thrown.rawPacket?.toString("latin1", 0, 5) === "HEAD " });
  }

  /** What has come of a body that is read whole is held in memory, so it has an end. */
  #endSlow(wholeMs: number): void {
    const now = performance.now();
    for (const socket of this.#open) {
      const incoming = this.#answers.get(socket)?.req;
      if (incoming === undefined || incoming.complete || isPassedOn(incoming)) continue;
      const since = this.#slow.get(incoming) ?? now;
      this.#slow.set(incoming, since);
      if (now - since >= wholeMs) this.#refuseBroken(tookTooLong(), socket);
    }
  }

  #isAnsweringOn(socket: Duplex): boolean {
    return this.#answers.get(socket)?.writableFinished === false;
  }

  /** `CONNECT` is for proxies. */
  #refuseTunnel(socket: Duplex): void {
    // Nobody else listens to it any more, and an error that nobody hears ends the process.
    socket.on("error", () => undefined);
    if (this.#isAnsweringOn(socket)) {
      socket.destroy();
      return;
    }
    const error = new GatewayError("method_not_allowed", "This is no proxy, and answers no CONNECT.");
    refuseOn(socket, error, { headers: { allow: "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS" } });
  }

  #hold(answer: Promise<unknown>): void {
    this.#inHand += 1;
    answer.then(this.#done, this.#done);
  }

  readonly #done = (): void => {
    this.#inHand -= 1;
    if (this.#inHand === 0) this.#whenIdle?.();
  };
}

function refuseNameless(outgoing: ServerResponse): void {
  const error = new GatewayError("invalid_request", "A request of HTTP/1.1 needs a Host header.", { param: "host" });
  const { status, headers, body } = toErrorReply(error, newId("request"));
  outgoing.writeHead(status, { ...headers, connection: "close", "content-length": Buffer.byteLength(body) }).end(body);
}

interface BrokenRequest extends NodeJS.ErrnoException {
  /** The bytes that could not be read. */
  readonly rawPacket?: Buffer;
}

/** As Node says it of what takes longer than `requestTimeout`. */
const timedOut = "ERR_HTTP_REQUEST_TIMEOUT";

function tookTooLong(): BrokenRequest {
  return Object.assign(new Error("the body took too long"), { code: timedOut });
}

function toBrokenRequest({ code }: BrokenRequest): GatewayError {
  if (code === "HPE_HEADER_OVERFLOW") {
    return new GatewayError(
      "payload_too_large",
      `The request line and the headers have more than ${maxHeaderBytes} bytes together.`,
    );
  }
  if (code === timedOut) {
    return new GatewayError("request_timeout", "The request did not arrive in time; send it in one go.");
  }
  return new GatewayError(
    "invalid_request",
    "This is no HTTP/1.1 request: its first line, a header or its framing cannot be read. Percent-encode what is not ASCII in the target.",
  );
}

/** A request that is not even an address and a host name never reaches the app. */
function answerUnreadable(thrown: unknown): Response {
  const error =
    thrown instanceof RequestError
      ? new GatewayError("invalid_request", "The request's target or Host header cannot be read.")
      : toGatewayError(thrown);
  const { status, headers, body } = toErrorReply(error, newId("request"));
  return new Response(body, { status, headers });
}
