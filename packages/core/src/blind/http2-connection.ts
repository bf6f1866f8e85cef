/**
 * HTTP/2 on a socket that the door has opened (blind/egress.ts): requests with trailers, many at a time, as
 * gRPC needs them. Loaded at the first use. What is known of a request's fate goes with its error: a stream
 * that the other side refused has not been looked at there.
 */
import {
  constants,
  connect,
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type IncomingHttpHeaders,
} from "node:http2";
import { isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import type { GatewayError } from "../errors/gateway-error.ts";
import type { EgressResponse, Http2Connection, Http2Request, Http2Response } from "../ports/egress.ts";
import { withDelivery } from "../errors/delivery.ts";
import { toGivenUp, toUnreachable, type Peer } from "./egress-errors.ts";

export interface SecureContext {
  readonly rejectUnauthorized: true;
  readonly ca?: string[];
  readonly cert?: string;
  readonly key?: string;
  readonly servername?: string;
}

export interface Http2Options {
  /** Connected, nothing sent yet. */
  readonly socket: Socket;
  readonly host: string;
  readonly port: number;
  /** Undefined: in clear. */
  readonly tls: SecureContext | undefined;
  /** Ends the opening, not what comes after it. */
  readonly signal: AbortSignal | undefined;
}

/** Bytes that the other side may send ahead, on a stream and on the connection. */
const streamWindow = 1_048_576;
const connectionWindow = 4_194_304;
/** After so long without use nobody knows whether the other side still remembers: another is opened. */
const staleAfterMs = 60_000;

/** @throws GatewayError `tool_unreachable`, `call_cancelled`, `tool_timeout`; all `not_sent` */
export async function openHttp2(options: Http2Options): Promise<Http2Connection> {
  const { socket, host, port, tls, signal } = options;
  const authority = `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
  const peer: Peer = { host: authority };
  const giveUp = (): void => void socket.destroy(new GivenUp());
  signal?.addEventListener("abort", giveUp, { once: true });
  try {
    const stream = tls === undefined ? socket : await secure(socket, host, tls);
    const session = connect(`${tls === undefined ? "http" : "https"}://${authority}`, {
      createConnection: () => stream,
      settings: { enablePush: false, initialWindowSize: streamWindow },
    });
    // A certificate that is refused after the handshake is an error of the socket's, which the session does not see.
    stream.on("error", (error: Error) => session.destroy(error));
    await connected(session, stream);
    session.setLocalWindowSize(connectionWindow);
    return new Connection(session, peer);
  } catch (error) {
    socket.destroy();
    if (signal?.aborted === true) throw withDelivery(toGivenUp(signal.reason), "not_sent");
    throw toUnreachable(asError(error), { peer, isSent: false });
  } finally {
    signal?.removeEventListener("abort", giveUp);
  }
}

class GivenUp extends Error {
  override readonly name = "GivenUp";
}

/** Thrown where the other side speaks TLS and no HTTP/2; its code shows in the message. */
class NoHttp2 extends Error {
  override readonly name = "NoHttp2";
  readonly code = "NO_HTTP2";
}

function secure(socket: Socket, host: string, tls: SecureContext): Promise<Socket> {
  return new Promise((resolve, reject) => {
    // Names of certificates are no addresses, so an address is not asked for by name.
    const name = tls.servername ?? (isIP(host) === 0 ? host : undefined);
    const secured = connectTls({
      ...tls,
      socket,
      host,
      ALPNProtocols: ["h2"],
      ...(name === undefined ? {} : { servername: name }),
    });
    secured.once("error", reject);
    secured.once("secureConnect", () => {
      secured.off("error", reject);
      if (secured.alpnProtocol === "h2") resolve(secured);
      else reject(new NoHttp2("no HTTP/2"));
    });
  });
}

function connected(session: ClientHttp2Session, stream: Socket): Promise<void> {
  return new Promise((resolve, reject) => {
    const failed = (error?: Error): void => reject(error ?? new Error("closed"));
    stream.once("error", failed);
    session.on("error", failed);
    session.once("close", failed);
    // The other side's settings: until they are here nobody knows that it speaks HTTP/2 at all.
    session.once("remoteSettings", () => {
      session.off("close", failed);
      resolve();
    });
  });
}

class Connection implements Http2Connection {
  readonly #session: ClientHttp2Session;
  readonly #peer: Peer;
  #usedAt = Date.now();
  #pending = 0;
  #isSuspect = false;

  constructor(session: ClientHttp2Session, peer: Peer) {
    this.#session = session;
    this.#peer = peer;
    // Each request tells of its own end; without a listener an error would end the process.
    session.on("error", () => {
      this.#isSuspect = true;
    });
    session.on("goaway", () => {
      this.#isSuspect = true;
    });
  }

  isAlive(): boolean {
    if (this.#isSuspect || this.#session.closed || this.#session.destroyed) return false;
    return this.#pending > 0 || Date.now() - this.#usedAt < staleAfterMs;
  }

  request(request: Http2Request): Promise<Http2Response> {
    const { signal } = request;
    if (signal.aborted) return Promise.reject(withDelivery(toGivenUp(signal.reason), "not_sent"));
    let stream: ClientHttp2Stream;
    try {
      stream = this.#session.request(toHeaders(request));
    } catch (error) {
      this.#isSuspect = true;
      return Promise.reject(toUnreachable(asError(error), { peer: this.#peer, isSent: false }));
    }
    return this.#exchange(stream, request);
  }

  close(): Promise<void> {
    if (this.#session.destroyed) return Promise.resolve();
    return new Promise((resolve) => {
      this.#session.once("close", resolve);
      this.#session.close();
      // Nobody uses it any more; a peer that does not answer is not waited for.
      setTimeout(() => this.#session.destroy(), 1_000).unref();
    });
  }

  #exchange(stream: ClientHttp2Stream, { body, staysOpen, signal, onSent }: Http2Request): Promise<Http2Response> {
    const giveUp = (): void => {
      // Silence may be the other side's or the connection's.
      if (!isAnswered) this.#isSuspect = true;
      stream.close(constants.NGHTTP2_CANCEL);
    };
    const fate = (error?: Error): GatewayError => this.#toError(stream, signal, error);
    let trailers: EgressResponse["headers"] = {};
    let failure: Error | undefined;
    let isAnswered = false;
    this.#pending += 1;
    signal.addEventListener("abort", giveUp, { once: true });
    stream.on("trailers", (headers: IncomingHttpHeaders) => {
      trailers = headers;
    });
    stream.on("error", (error: Error) => {
      failure = error;
    });
    stream.once("close", () => {
      this.#pending -= 1;
      this.#usedAt = Date.now();
      signal.removeEventListener("abort", giveUp);
    });
    return new Promise((resolve, reject) => {
      stream.once("close", () => reject(fate(failure)));
      stream.once("response", (headers) => {
        isAnswered = true;
        const { [constants.HTTP2_HEADER_STATUS]: status, ...others } = headers;
        resolve({ status: Number(status), headers: others, body: read(stream, fate), trailers: () => trailers });
      });
      onSent?.();
      if (staysOpen === true) stream.write(body);
      else stream.end(body);
    });
  }

  #toError(stream: ClientHttp2Stream, signal: AbortSignal, error: Error | undefined): GatewayError {
    if (signal.aborted) return withDelivery(toGivenUp(signal.reason), "uncertain");
    const isRefused = stream.rstCode === constants.NGHTTP2_REFUSED_STREAM;
    return toUnreachable(error ?? new Error("closed"), { peer: this.#peer, isSent: !isRefused });
  }
}

function toHeaders({ path, headers }: Http2Request): Record<string, string | string[]> {
  const named: Record<string, string | string[]> = {
    [constants.HTTP2_HEADER_METHOD]: "POST",
    [constants.HTTP2_HEADER_PATH]: path,
  };
  for (const [name, value] of headers) {
    const before = named[name];
    named[name] = before === undefined ? value : [...[before].flat(), value];
  }
  return named;
}

async function* read(stream: ClientHttp2Stream, fate: (error?: Error) => GatewayError): AsyncGenerator<Uint8Array> {
  try {
    // Node types pieces of a readable as anything.
    for await (const piece of stream as AsyncIterable<Uint8Array>) yield piece;
  } catch (error) {
    throw fate(asError(error));
  }
  if (stream.rstCode !== constants.NGHTTP2_NO_ERROR) throw fate();
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error("failed");
}
