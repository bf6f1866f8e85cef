/**
 * The one door for outgoing connections, HTTP above all. Every address is checked where it is connected to, and again at
 * every redirect (design "Blind, and closed by default"). Implementation: blind/egress.ts.
 */
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Span } from "./traces.ts";

/** How one back end is trusted, and how it knows us; connections are shared by requests that say the same. */
export interface EgressTls {
  /** PEM certificates of authorities trusted besides the system's. */
  readonly ca?: readonly string[];
  /** PEM of our own certificate and its key. */
  readonly cert?: string;
  readonly key?: string;
  /** Name that its certificate must be for; absent: the host that is connected to. */
  readonly serverName?: string;
}

export interface EgressRequest {
  readonly method: string;
  readonly url: string;
  /** Name and value pairs, sent in this order and exactly so. `host` and `content-length` are the door's. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body?: Uint8Array | string;
  readonly signal?: AbortSignal;
  /** Milliseconds from the start to the end of the body. */
  readonly timeoutMs: number;
  /** Milliseconds of silence that end a body; absent: only `timeoutMs` counts. */
  readonly idleTimeoutMs?: number;
  /** Redirects followed, each checked anew; credentials in `sensitiveHeaders` go to the first origin only. Default 0. */
  readonly maxRedirects?: number;
  /** Lower-case header names dropped when a redirect leaves the origin. */
  readonly sensitiveHeaders?: readonly string[];
  /** The body holds a credential: a redirect that would take it to another origin is refused. */
  readonly hasSecretBody?: boolean;
  /** Whose host errors speak of ("the host of 'weather'"), for callers who must not learn it; absent: they name the host. */
  readonly peer?: string;
  /** Of the first origin only; absent: the system's authorities and no certificate of our own. */
  readonly tls?: EgressTls;
  /** Called once, when the request's bytes are handed to a connected socket. */
  readonly onSent?: () => void;
  /** Each request sent becomes a span under it, which a `traceparent` among the headers then names. */
  readonly span?: Span | undefined;
}

export interface EgressUpgrade extends Pick<EgressRequest, "url" | "headers" | "peer" | "tls"> {
  /** Name of the protocol. */
  readonly protocol: string;
  /** Ends the attempt, not the socket. */
  readonly signal: AbortSignal;
}

export interface EgressSocket {
  /** Of the answer; lower-case names. */
  readonly headers: EgressResponse["headers"];
  readonly socket: Duplex;
}

export interface EgressResponse {
  readonly status: number;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** Decoded from gzip, deflate or br where the back end compressed. Leaving the loop early closes the connection. */
  readonly body: EgressBody;
  /** Where the answer came from after redirects. */
  readonly url: string;
}

/** A body is read at its reader's pace, piece by piece, or followed as it arrives. */
export interface EgressBody extends AsyncIterable<Uint8Array> {
  /**
   * Gives each piece to `take` at the moment in which it arrives, without a promise for each, until that
   * answers false or the body is over. `take` must not throw. Absent where pieces are decoded on their way.
   * @throws GatewayError as `Egress.request`
   */
  follow?(take: (piece: Uint8Array) => boolean): Promise<void>;
}

/** Where a protocol other than HTTP is spoken. */
export interface EgressTarget {
  /** A name or an address literal. */
  readonly host: string;
  readonly port: number;
  readonly signal?: AbortSignal;
}

/** Where HTTP/2 is spoken, over TLS or in clear with prior knowledge. */
export interface Http2Target extends EgressTarget {
  /** TLS; undefined: in clear. */
  readonly tls: EgressTls | undefined;
}

export interface Http2Request {
  readonly path: string;
  /** Sent with POST. Lower-case names. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Uint8Array;
  /** The other side does not hear that this is all: it would hang up rather than answer. Ends with the reading. */
  readonly staysOpen?: boolean | undefined;
  readonly signal: AbortSignal;
  /** Called once, when the request's bytes are about to leave. */
  readonly onSent?: (() => void) | undefined;
}

export interface Http2Response {
  readonly status: number;
  readonly headers: EgressResponse["headers"];
  /** Leaving the loop early ends this request, not the connection. */
  readonly body: AsyncIterable<Uint8Array>;
  /** What came after the body; empty until it has been read. */
  readonly trailers: () => EgressResponse["headers"];
}

/** A connection that many requests share. */
export interface Http2Connection {
  /** @throws GatewayError as `Egress.request`, from the body, too; refused streams are `not_sent` */
  request(request: Http2Request): Promise<Http2Response>;
  isAlive(): boolean;
  close(): Promise<void>;
}

export interface Egress {
  /**
   * @throws GatewayError `egress_denied` (not sent), `tool_unreachable` (not sent, or uncertain once
   * bytes have left), `tool_timeout`; all marked with `withDelivery`
   */
  request(request: EgressRequest): Promise<EgressResponse>;
  /**
   * A socket for another protocol, by HTTP's upgrade; checked like a request.
   * @throws GatewayError as `request`; `tool_failed` with the status where the peer stays with HTTP
   */
  upgrade(request: EgressUpgrade): Promise<EgressSocket>;
  /** Checks what can be checked without resolving a name; for registration. @throws GatewayError `egress_denied` */
  checkUrl(url: string): void;
  /**
   * A plain TCP connection for protocols other than HTTP, to an address that was checked like those of
   * requests. TLS is its user's affair, who knows the name that the certificate must be for.
   * @throws GatewayError `egress_denied`, `tool_unreachable`, `call_cancelled`; all marked `not_sent`
   */
  connect(target: EgressTarget): Promise<Socket>;
  /**
   * An HTTP/2 connection to an address that was checked like those of requests.
   * @throws GatewayError as `connect`
   */
  connectHttp2(target: Http2Target): Promise<Http2Connection>;
  /** As `checkUrl`, for `connect`. @throws GatewayError `egress_denied` */
  checkTarget(target: Pick<EgressTarget, "host" | "port">): void;
  close(): Promise<void>;
}
