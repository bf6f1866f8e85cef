/**
 * The one door for outgoing connections (port: ports/egress.ts). Names are resolved here, every address is
 * checked, the connection goes to exactly the address that was checked and is checked once more when
 * it stands; redirects are followed by hand with the whole check at each hop. Environment proxies are
 * never used. Tool calls and the token streams of models both pass here, so requests go straight to
 * the dispatcher of the transport.
 */
import { createHash } from "node:crypto";
import { lookup } from "node:dns/promises";
import { isIP, type Socket } from "node:net";
import { getCACertificates } from "node:tls";
import { buildConnector, Pool } from "undici";
import { GatewayError } from "../errors/gateway-error.ts";
import type {
  Egress,
  EgressRequest,
  EgressResponse,
  EgressSocket,
  EgressTarget,
  EgressTls,
  EgressUpgrade,
  Http2Connection,
  Http2Target,
} from "../ports/egress.ts";
import type { Attributes } from "../ports/traces.ts";
import { withDelivery } from "../errors/delivery.ts";
import { createAddressPolicy, isSameAddress, type AddressPolicy } from "./address-policy.ts";
import { decodeBody, encodingsOf } from "./content-encoding.ts";
import { EgressRefusal, toEgressDenied, toGivenUp, toTooManyRedirects, toUnreachable } from "./egress-errors.ts";
import { Exchange, type ExchangeHead } from "./exchange.ts";
import type { SecureContext } from "./http2-connection.ts";
import { NameResolver, type LookUp } from "./name-resolver.ts";
import { Upgrade } from "./upgrade.ts";

export interface EgressOptions {
  /** CIDRs that may be reached although they are not public; metadata services stay closed. */
  readonly allowCidrs: readonly string[];
  /** Ports that may be reached; absent: every port. */
  readonly allowedPorts?: readonly number[];
  /** `address:port` pairs that are never reached. */
  readonly deniedEndpoints?: readonly string[];
  /** All A and AAAA records of a name; default: the system's resolver. */
  readonly resolve?: LookUp;
  /** Connections to one origin. */
  readonly connections?: number;
  /** Origins with a pool of connections; the least recently used goes first. */
  readonly origins?: number;
  /** Milliseconds for one attempt to connect, TLS included. */
  readonly connectTimeoutMs?: number;
  /** Milliseconds for which an idle connection is kept. */
  readonly keepAliveMs?: number;
  /** PEM certificates of authorities trusted besides the system's. */
  readonly trustedCa?: readonly string[];
  /** Opens the connection to an address that has been checked; default: undici's. */
  readonly connector?: buildConnector.connector;
}

/** Longest time that a back end's own keep-alive hint can ask for. */
const longestKeepAliveMs = 60_000;
/** Addresses of a name that are tried before giving up. */
const mostAttempts = 3;
/** Most redirects that any request may ask for. */
const mostRedirects = 3;
/** Headers that never follow a redirect to another origin, whatever the caller lists. */
const alwaysSensitive = ["authorization", "cookie", "proxy-authorization"];

/** What is sent at one hop. */
interface Hop {
  readonly url: URL;
  readonly method: string;
  readonly headers: EgressRequest["headers"];
  readonly body: Uint8Array | string | undefined;
  readonly tls: EgressTls | undefined;
}

/** @throws GatewayError `invalid_request` naming a CIDR that cannot be read */
export function createEgress(options: EgressOptions): Egress {
  return new UndiciEgress(options);
}

class UndiciEgress implements Egress {
  readonly #policy: AddressPolicy;
  readonly #resolver: NameResolver;
  readonly #connect: buildConnector.connector;
  readonly #options: EgressOptions;
  /** By origin, and by what TLS is to be where a request says so; least recently used first. */
  readonly #pools = new Map<string, Pool>();
  #isClosed = false;

  constructor(options: EgressOptions) {
    this.#options = options;
    this.#policy = createAddressPolicy(options);
    this.#resolver = new NameResolver(options.resolve ?? ((host) => lookup(host, { all: true, order: "ipv4first" })));
    this.#connect = options.connector ?? createConnector(options);
  }

  checkUrl(url: string): void {
    this.#parse(url);
  }

  async request(request: EgressRequest): Promise<EgressResponse> {
    const deadline = performance.now() + request.timeoutMs;
    const redirects = Math.min(request.maxRedirects ?? 0, mostRedirects);
    let hop: Hop = {
      url: this.#parse(request.url, request.peer),
      method: request.method,
      headers: request.headers,
      body: request.body,
      tls: request.tls,
    };
    let mayHaveHappened = false;
    for (let followed = 0; ; followed += 1) {
      const exchange = this.#send(hop, request, { deadline, followed });
      try {
        const head = await exchange.head;
        if (redirects === 0 || !isRedirect(head)) return toResponse(hop, head, exchange);
        exchange.discard();
        // 307 and 308 come instead of what was asked for; the others may come after a write.
        mayHaveHappened ||= head.status < 307;
        hop = this.#follow(hop, head, { request, isLast: followed === redirects });
      } catch (error) {
        throw mayHaveHappened && error instanceof Error ? withDelivery(error, "uncertain") : error;
      }
    }
  }

  checkTarget({ host, port }: EgressTarget): void {
    const name = withoutDot(host);
    const reason = this.#refuseEndpoint(name, port);
    if (reason !== undefined) throw toEgressDenied({ host: `${name}:${port}` }, reason);
  }

  connect(target: EgressTarget): Promise<Socket> {
    const { port, signal } = target;
    const host = withoutDot(target.host);
    return new Promise((resolve, reject) => {
      this.checkTarget(target);
      const giveUp = (): void => reject(withDelivery(toGivenUp(signal?.reason), "not_sent"));
      if (signal?.aborted === true) {
        giveUp();
        return;
      }
      signal?.addEventListener("abort", giveUp, { once: true });
      const callback: buildConnector.Callback = (...[error, socket]) => {
        signal?.removeEventListener("abort", giveUp);
        if (error !== null) reject(toUnreachable(error, { peer: { host: `${host}:${port}` }, isSent: false }));
        else if (signal?.aborted === true) socket.destroy();
        else resolve(socket);
      };
      this.#open({ hostname: host, host, port: String(port), protocol: "http:" }, callback, this.#connect);
    });
  }

  async upgrade({ url: text, headers, peer: name, tls, protocol, signal }: EgressUpgrade): Promise<EgressSocket> {
    const url = this.#parse(text, name);
    const upgrade = new Upgrade({ peer: { host: url.host, name }, signal });
    if (!signal.aborted) {
      this.#poolOf(url.origin, tls).dispatch(
        {
          path: url.pathname + url.search,
          method: "GET",
          headers: toFlatHeaders(headers, undefined),
          upgrade: protocol,
        },
        upgrade,
      );
    }
    return upgrade.done;
  }

  async connectHttp2({ tls, ...target }: Http2Target): Promise<Http2Connection> {
    // Node's module for HTTP/2 takes milliseconds to load, which most starts need not spend.
    const { openHttp2 } = await import("./http2-connection.ts");
    const socket = await this.connect(target);
    const host = withoutDot(target.host);
    const trust = tls === undefined ? undefined : toSecureContext(this.#options, tls);
    return openHttp2({ socket, host, port: target.port, tls: trust, signal: target.signal });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const pools = [...this.#pools.values()];
    this.#pools.clear();
    await Promise.all(pools.map((pool) => pool.destroy()));
  }

  /** Everything about a URL that can be checked without resolving its name. */
  #parse(text: string, name?: string): URL {
    const url = URL.parse(text);
    if (url === null) throw toEgressDenied({ host: "the URL", name }, "invalid_url");
    if (url.protocol !== "http:" && url.protocol !== "https:")
      throw toEgressDenied({ host: url.protocol, name }, "scheme_forbidden");
    if (url.username !== "" || url.password !== "")
      throw toEgressDenied({ host: url.hostname, name }, "userinfo_forbidden");
    // One trailing dot means the same host; without it, name checks, certificates and pools agree.
    if (url.hostname.endsWith(".")) url.hostname = url.hostname.slice(0, -1);
    if (this.#pools.has(url.origin)) return url;
    const reason = this.#refuseHost(url);
    if (reason !== undefined) throw toEgressDenied({ host: url.host, name }, reason);
    return url;
  }

  #refuseHost(url: URL): string | undefined {
    return this.#refuseEndpoint(withoutBrackets(url.hostname), portOf(url));
  }

  #refuseEndpoint(host: string, port: number): string | undefined {
    const named = isIP(host) === 0 ? this.#policy.refuseName(host) : this.#policy.refuseAddress(host, port);
    return this.#policy.refusePort(port) ?? (host === "" || host.endsWith(".") ? "invalid_url" : named);
  }

  #send(
    hop: Hop,
    request: EgressRequest,
    { deadline, followed }: { readonly deadline: number; readonly followed: number },
  ): Exchange {
    const pool = this.#poolOf(hop.url.origin, hop.tls);
    const span = request.span?.child(hop.method, "client", toAttributes(hop, followed));
    const exchange = new Exchange({
      peer: { host: hop.url.host, name: request.peer },
      deadline,
      timeoutMs: request.timeoutMs,
      idleTimeoutMs: request.idleTimeoutMs,
      signal: request.signal,
      onSent: request.onSent,
      span,
    });
    if (exchange.isOver) return exchange;
    pool.dispatch(
      {
        path: hop.url.pathname + hop.url.search,
        method: hop.method,
        headers: toFlatHeaders(hop.headers, span?.traceparent),
        body: hop.body ?? null,
      },
      exchange,
    );
    return exchange;
  }

  #poolOf(origin: string, tls: EgressTls | undefined): Pool {
    const key = tls === undefined ? origin : `${origin} ${digestOf(tls)}`;
    const known = this.#pools.get(key);
    if (known !== undefined) {
      // Moved to the end, so that the first is the least recently used.
      this.#pools.delete(key);
      this.#pools.set(key, known);
      return known;
    }
    if (this.#isClosed) throw withDelivery(new GatewayError("shutting_down", "This process is stopping."), "not_sent");
    const connect = tls === undefined ? this.#connect : createConnector(this.#options, tls);
    const pool = new Pool(origin, {
      connect: (target, callback) => this.#open(target, callback, connect),
      connections: this.#options.connections ?? 2_048,
      pipelining: 1,
      keepAliveTimeout: this.#options.keepAliveMs ?? 4_000,
      keepAliveMaxTimeout: longestKeepAliveMs,
      // Time is the exchange's: one timer for the whole, not one for each phase.
      headersTimeout: 0,
      bodyTimeout: 0,
      allowH2: false,
    });
    this.#pools.set(key, pool);
    if (this.#pools.size > (this.#options.origins ?? 1_000)) this.#dropOldest();
    return pool;
  }

  #dropOldest(): void {
    for (const [origin, pool] of this.#pools) {
      this.#pools.delete(origin);
      // Lets its running requests end.
      void pool.close();
      return;
    }
  }

  #open(target: buildConnector.Options, callback: buildConnector.Callback, connect: buildConnector.connector): void {
    this.#checkedAddresses(target).then(
      (addresses) => this.#dial({ target, addresses, connect }, callback),
      (error: unknown) => callback(error instanceof Error ? error : new Error("resolving failed"), null),
    );
  }

  /** One bad address is enough to refuse the name: the next connection might get that one. */
  async #checkedAddresses(target: buildConnector.Options): Promise<readonly string[]> {
    const port = Number(target.port) || (target.protocol === "https:" ? 443 : 80);
    const addresses =
      isIP(target.hostname) === 0
        ? (await this.#resolver.resolve(target.hostname)).map(({ address }) => address)
        : [target.hostname];
    if (addresses.length === 0) throw new EgressRefusal("dns_no_answer");
    for (const address of addresses) {
      const reason = this.#policy.refuseAddress(address, port);
      if (reason !== undefined) throw new EgressRefusal(reason);
    }
    return [...new Set(addresses)].slice(0, mostAttempts);
  }

  #dial({ target, addresses, connect }: Dialling, callback: buildConnector.Callback): void {
    const [address = "", ...others] = addresses;
    // `host` stays the name: the certificate is asked and checked for it.
    connect({ ...target, hostname: address }, (...[error, socket]: Parameters<buildConnector.Callback>) => {
      if (error !== null) {
        if (others.length > 0) this.#dial({ target, addresses: others, connect }, callback);
        else callback(error, null);
        return;
      }
      const peer = socket.remoteAddress ?? "";
      const reason = isSameAddress(peer, address)
        ? this.#policy.refuseAddress(peer, socket.remotePort ?? 0)
        : "other_than_checked";
      if (reason === undefined) {
        callback(null, socket);
        return;
      }
      socket.destroy();
      callback(new EgressRefusal(reason), null);
    });
  }

  /** The request that a redirect asks for, checked like a new one. */
  #follow(hop: Hop, head: ExchangeHead, options: { readonly request: EgressRequest; readonly isLast: boolean }): Hop {
    const { peer: name } = options.request;
    const peer = { host: hop.url.host, name };
    if (options.isLast) throw toTooManyRedirects(peer);
    const location = head.headers["location"];
    const target = typeof location === "string" ? URL.parse(location, hop.url.href) : null;
    if (target === null) throw toEgressDenied(peer, "redirect_invalid");
    const url = this.#parse(target.href, name);
    if (hop.url.protocol === "https:" && url.protocol === "http:")
      throw toEgressDenied({ host: url.host, name }, "downgrade");
    const becomesGet = (head.status === 303 && hop.method !== "HEAD") || (head.status < 303 && hop.method === "POST");
    if (options.request.hasSecretBody === true && !becomesGet && url.origin !== hop.url.origin)
      throw toEgressDenied({ host: url.host, name }, "secret_redirected");
    const sensitive = [...alwaysSensitive, ...(options.request.sensitiveHeaders ?? [])];
    const dropped = new Set(url.origin === hop.url.origin ? [] : sensitive);
    return {
      url,
      method: becomesGet ? "GET" : hop.method,
      body: becomesGet ? undefined : hop.body,
      // Our certificate is for whom the request names.
      tls: url.origin === hop.url.origin ? hop.tls : undefined,
      headers: hop.headers.filter(([name]) => {
        const lower = name.toLowerCase();
        return !dropped.has(lower) && !(becomesGet && lower.startsWith("content-"));
      }),
    };
  }
}

interface Dialling {
  readonly target: buildConnector.Options;
  readonly addresses: readonly string[];
  readonly connect: buildConnector.connector;
}

const digests = new WeakMap<EgressTls, string>();

/** Tells connections apart without keeping a key as text. */
function digestOf(tls: EgressTls): string {
  const known = digests.get(tls);
  if (known !== undefined) return known;
  const digest = createHash("sha256")
    .update(JSON.stringify([tls.ca, tls.cert, tls.key, tls.serverName]))
    .digest("base64url");
  digests.set(tls, digest);
  return digest;
}

function createConnector(options: EgressOptions, tls: EgressTls = {}): buildConnector.connector {
  return buildConnector({
    // HTTP/2 would let the transport repeat a request after a GOAWAY; over HTTP/1.1 it never does.
    allowH2: false,
    timeout: options.connectTimeoutMs ?? 10_000,
    ...toSecureContext(options, tls),
  });
}

/** Whom we trust, and who we are. */
function toSecureContext({ trustedCa = [] }: EgressOptions, tls: EgressTls): SecureContext {
  const authorities = [...trustedCa, ...(tls.ca ?? [])];
  return {
    rejectUnauthorized: true,
    ...(authorities.length === 0 ? {} : { ca: [...getCACertificates("default"), ...authorities] }),
    ...(tls.cert === undefined ? {} : { cert: tls.cert }),
    ...(tls.key === undefined ? {} : { key: tls.key }),
    ...(tls.serverName === undefined ? {} : { servername: tls.serverName }),
  };
}

function toResponse(hop: Hop, head: ExchangeHead, exchange: Exchange): EgressResponse {
  const { status, headers } = head;
  const encodings = encodingsOf(headers["content-encoding"]);
  const url = hop.url.href;
  if (encodings === undefined) return { status, headers, body: exchange, url };
  const { "content-encoding": _encoding, "content-length": _length, ...plain } = headers;
  return { status, headers: plain, body: decodeBody(exchange, encodings), url };
}

function isRedirect({ status, headers }: ExchangeHead): boolean {
  return (
    (status === 301 || status === 302 || status === 303 || status === 307 || status === 308) &&
    headers["location"] !== undefined
  );
}

/**
 * Name, value, name, value …: what the transport takes without copying again. A trace goes to those only
 * whom its caller tells of one.
 */
function toFlatHeaders(pairs: EgressRequest["headers"], traceparent: string | undefined): string[] {
  const flat: string[] = [];
  for (const [name, value] of pairs) {
    if (isDoorsOwn(name)) continue;
    flat.push(name, traceparent !== undefined && name === "traceparent" ? traceparent : value);
  }
  return flat;
}

/** Path and query stay out: both may hold what somebody said, and credentials. */
function toAttributes({ url, method }: Hop, followed: number): Attributes {
  return {
    "http.request.method": method,
    "url.scheme": url.protocol.slice(0, -1),
    "server.address": withoutBrackets(url.hostname),
    "server.port": portOf(url),
    "http.request.resend_count": followed === 0 ? undefined : followed,
  };
}

/** `host` follows from the checked URL and `content-length` from the body; a caller's would split the two. */
function isDoorsOwn(name: string): boolean {
  if (name.length !== 4 && name.length !== 14) return false;
  const lower = name.toLowerCase();
  return lower === "host" || lower === "content-length";
}

/** One trailing dot means the same host. */
function withoutDot(host: string): string {
  return host.endsWith(".") ? host.slice(0, -1) : host;
}

function withoutBrackets(hostname: string): string {
  return hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
}

function portOf(url: URL): number {
  if (url.port !== "") return Number(url.port);
  return url.protocol === "https:" ? 443 : 80;
}
