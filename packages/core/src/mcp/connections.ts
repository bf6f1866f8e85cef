/**
 * Sessions with MCP servers, held between calls (MCP-1): one for each tenant, service, version and identity,
 * so that no session is ever two callers'. While one is held, the server's news of changed tools are
 * followed; where none come, the tools are looked at again from time to time.
 */
import { findCredential } from "../blind/credential-resolver.ts";
import type { CallContext } from "../context.ts";
import type { Clock } from "../ports/clock.ts";
import { credentialsOf } from "../services/config-fields.ts";
import type { Held, HeldConnections } from "../services/held-connections.ts";
import type { ToolService } from "../services/service.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { withDelivery } from "../errors/delivery.ts";
import type { InvocationContext } from "../tools/tool-call.ts";
import type { NodeDeps } from "../nodes/work.ts";
import { HttpSse } from "./http-sse.ts";
import type { HttpPeer } from "./http-peer.ts";
import { NewsPace } from "./news-pace.ts";
import type { Era } from "./revisions.ts";
import type { Elicitation } from "./server-requests.ts";
import { McpSession, type SessionOptions } from "./session.ts";
import { StdioOnce, type StdioProgram } from "./stdio-once.ts";
import { StdioOnNode, type NodeProgram } from "./stdio-node.ts";
import { StreamableHttp } from "./streamable-http.ts";
import type { ExchangeOptions, McpTransport } from "./transport.ts";
import { WebSocketLink } from "./websocket.ts";

/** How the server is reached. */
export type McpLink =
  | { readonly kind: "http" | "sse" | "websocket"; readonly peer: HttpPeer }
  | { readonly kind: "stdio"; readonly program: StdioProgram }
  | { readonly kind: "node"; readonly deps: NodeDeps; readonly program: NodeProgram };

export interface McpEndpoint {
  readonly service: ToolService;
  /** `mcp://maps` */
  readonly name: string;
  readonly link: McpLink;
  /** Undefined: it is found out. */
  readonly era: Era | undefined;
  /** What becomes of questions that the server has for people. */
  readonly elicitation: Elicitation;
  /** Acts with its user's own access. */
  readonly isUsersOwn: boolean;
  /** What the server shows is what it shows the whole tenant: its tools are looked at for all. */
  readonly isTenants: boolean;
  /** Looks at the server's tools again; never throws. */
  readonly refresh: (session: McpSession, exchange: ExchangeOptions) => Promise<void>;
}

/** Milliseconds to begin a session. */
const openMs = 15_000;
const refreshMs = 30_000;
/** After so long, tools are looked at again with the next call. */
const staleMs = 600_000;
/** News that broke off are followed again with the next call, not sooner than this. */
const listenAgainMs = 30_000;
const longestListenMs = 86_400_000;
const smallBytes = 1_048_576;
/** Servers of which it is remembered what they speak. */
const mostKnown = 10_000;

/** What was found out of a server. */
interface Known {
  readonly era: Era;
  /** It speaks HTTP with SSE and nothing newer. */
  readonly isOld: boolean;
}

/** A session that is held, with what goes on beside calls. */
interface Live {
  readonly session: McpSession;
  attend(): void;
}

export class McpConnections {
  readonly #held: HeldConnections;
  readonly #clock: Clock;
  /** By tenant, service and version. */
  readonly #known = new Map<string, Known>();

  constructor(held: HeldConnections, clock: Clock) {
    this.#held = held;
    this.#clock = clock;
  }

  /**
   * Runs `work` on the session of this service and caller.
   * @throws GatewayError of opening, not sent; what `work` throws
   */
  async use<T>(
    endpoint: McpEndpoint,
    context: InvocationContext,
    work: (session: McpSession) => Promise<T>,
  ): Promise<T> {
    const { service } = endpoint;
    if (bringsItsOwn(context, service)) return this.once(endpoint, context, work);
    const part = endpoint.isUsersOwn ? { part: context.caller.userId ?? "" } : {};
    const open = (unwanted: AbortSignal): Promise<Held<Live>> => this.#openHeld(endpoint, context, unwanted);
    return unlessGivenUp(context.signal, (begin) =>
      this.#held.use({ service, context, ...part, open }, (live) => {
        begin();
        live.attend();
        return work(live.session);
      }),
    );
  }

  /** The same on a session that is nobody else's and ends with it. */
  async once<T>(
    endpoint: McpEndpoint,
    context: InvocationContext,
    work: (session: McpSession) => Promise<T>,
  ): Promise<T> {
    return unlessGivenUp(context.signal, async (begin) => {
      const session = await this.#open({
        endpoint,
        context,
        unwanted: context.signal,
        onToolsChanged: () => undefined,
      });
      try {
        begin();
        return await work(session);
      } finally {
        await session.close();
      }
    });
  }

  async #open({ endpoint, context, unwanted, onToolsChanged }: Begun): Promise<McpSession> {
    const { service } = endpoint;
    const key = `${context.tenant} ${service.id} ${service.version}`;
    const known = this.#known.get(key);
    // Not the call's own signal: others wait for this session, too.
    const exchange = besideCalls(context, AbortSignal.any([unwanted, AbortSignal.timeout(openMs)]), openMs);
    const opened = await open({ endpoint, known, onToolsChanged }, exchange).catch((error: unknown) => {
      if (known === undefined || !(error instanceof GatewayError) || error.code !== "tool_failed") throw error;
      // The server is another than it was.
      this.#known.delete(key);
      return open({ endpoint, known: undefined, onToolsChanged }, exchange);
    });
    this.#remember(key, { era: opened.session.era, isOld: opened.isOld });
    return opened.session;
  }

  #remember(key: string, known: Known): void {
    this.#known.delete(key);
    this.#known.set(key, known);
    const oldest = this.#known.size > mostKnown ? this.#known.keys().next().value : undefined;
    if (oldest !== undefined) this.#known.delete(oldest);
  }

  async #openHeld(endpoint: McpEndpoint, context: CallContext, unwanted: AbortSignal): Promise<Held<Live>> {
    const end = new AbortController();
    let onToolsChanged = (): void => undefined;
    const session = await this.#open({
      endpoint,
      context,
      unwanted,
      onToolsChanged: () => onToolsChanged(),
    });
    const beside = new BesideCalls({ endpoint, session, context, signal: end.signal, clock: this.#clock });
    onToolsChanged = () => {
      if (endpoint.isTenants) beside.hearNews();
    };
    const connection: Live = { session, attend: () => beside.attend() };
    return {
      connection,
      isAlive: () => session.isAlive(),
      close: async () => {
        end.abort();
        await session.close();
      },
    };
  }
}

interface Begun {
  readonly endpoint: McpEndpoint;
  readonly context: CallContext;
  /** Fires where nobody waits for the session any more. */
  readonly unwanted: AbortSignal;
  readonly onToolsChanged: () => void;
}

interface Opening {
  readonly endpoint: McpEndpoint;
  readonly known: Known | undefined;
  readonly onToolsChanged: () => void;
}

interface Opened {
  readonly session: McpSession;
  readonly isOld: boolean;
}

async function open({ endpoint, known, onToolsChanged }: Opening, exchange: ExchangeOptions): Promise<Opened> {
  const { name, link, elicitation } = endpoint;
  const own = { name, elicitation, onToolsChanged };
  if (link.kind === "stdio") return openProgram(() => new StdioOnce(link.program), { own, endpoint, known }, exchange);
  if (link.kind === "node") {
    const { deps, program } = link;
    const make = (): McpTransport => new StdioOnNode(deps, program);
    return openProgram(make, { own, endpoint, known }, exchange);
  }
  const { peer } = link;
  const openOn = async (transport: McpTransport): Promise<McpSession> => {
    try {
      return await McpSession.open(transport, { ...own, era: "session" }, exchange);
    } catch (error) {
      await transport.close();
      throw error;
    }
  };
  const openOld = async (): Promise<Opened> => ({
    session: await openOn(await HttpSse.open(peer, exchange)),
    isOld: true,
  });
  if (link.kind === "websocket") {
    return { session: await openOn(await WebSocketLink.open(peer, exchange)), isOld: false };
  }
  if (link.kind === "sse" || known?.isOld === true) return openOld();
  const era = endpoint.era ?? known?.era;
  try {
    const session = await McpSession.open(new StreamableHttp(peer), { ...own, era }, exchange);
    return { session, isOld: false };
  } catch (error) {
    if (era === "stateless" || !mayBeOld(error)) throw error;
    // What the newer transport was refused with says more than that the older one is not there either.
    return openOld().catch(() => {
      throw error;
    });
  }
}

interface OpeningProgram {
  readonly own: Omit<SessionOptions, "era">;
  readonly endpoint: McpEndpoint;
  readonly known: Known | undefined;
}

/**
 * Programs are asked for a session first: nearly all know it, and some never answer what comes before it. One that
 * refuses it may be of the stateless era alone.
 */
async function openProgram(
  make: () => McpTransport,
  { own, endpoint, known }: OpeningProgram,
  exchange: ExchangeOptions,
): Promise<Opened> {
  const era = endpoint.era ?? known?.era;
  const openAs = async (one: Era): Promise<Opened> => ({
    session: await McpSession.open(make(), { ...own, era: one }, exchange),
    isOld: false,
  });
  if (era !== undefined) return openAs(era);
  return openAs("session").catch((error: unknown) => {
    if (!isRefusal(error)) throw error;
    return openAs("stateless").catch(() => {
      throw error;
    });
  });
}

/** An error of the protocol, from a server that is there. */
function isRefusal(error: unknown): boolean {
  return error instanceof GatewayError && typeof error.details.extra?.["rpc_code"] === "number";
}

/** Refused as servers do that know HTTP with SSE alone. */
function mayBeOld(error: unknown): boolean {
  const status = error instanceof GatewayError ? error.details.extra?.["status"] : undefined;
  return status === 400 || status === 404 || status === 405;
}

interface BesideOptions {
  readonly endpoint: McpEndpoint;
  readonly session: McpSession;
  /** Of the call that began the session. */
  readonly context: CallContext;
  /** Ends with the session. */
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

/** What goes on for a held session without anybody waiting for it. */
class BesideCalls {
  readonly #options: BesideOptions;
  readonly #pace: NewsPace;
  #looking: Promise<void> = Promise.resolve();
  /** A look is to come that finds whatever is told now. */
  #isExpected = false;
  #lookedAt: number;
  #listenedAt = Number.NEGATIVE_INFINITY;
  #isListening = false;

  constructor(options: BesideOptions) {
    this.#options = options;
    const { endpoint, clock } = options;
    this.#pace = new NewsPace(clock);
    // What was discovered a moment ago need not be asked again; what is not known yet the first call asks.
    const { discovered } = endpoint.service;
    this.#lookedAt = discovered === null ? clock.now() : discovered.at;
  }

  /** With each call. */
  attend(): void {
    if (!this.#options.endpoint.isTenants) return;
    const now = this.#options.clock.now();
    if (now - this.#lookedAt > staleMs) this.#look();
    if (!this.#isListening && now - this.#listenedAt > listenAgainMs) this.#listen(now);
  }

  /** The server says that its tools are others now, which it may do as often as it likes. */
  hearNews(): void {
    if (this.#isExpected) return;
    this.#isExpected = true;
    void this.#lookInTime();
  }

  async #lookInTime(): Promise<void> {
    const { clock, signal } = this.#options;
    await this.#looking;
    const { waitMs } = this.#pace;
    if (waitMs > 0) await clock.sleep(waitMs, signal).catch(() => undefined);
    this.#isExpected = false;
    if (!signal.aborted) this.#look();
  }

  #look(): void {
    const { endpoint, session, context, signal, clock } = this.#options;
    this.#lookedAt = clock.now();
    this.#pace.look();
    const exchange = besideCalls(context, AbortSignal.any([signal, AbortSignal.timeout(refreshMs)]), refreshMs);
    this.#looking = endpoint.refresh(session, exchange);
  }

  #listen(now: number): void {
    const { session, context, signal } = this.#options;
    this.#isListening = true;
    this.#listenedAt = now;
    const options = { context: { ...context, span: undefined }, signal, timeoutMs: longestListenMs };
    void session
      .listen(options)
      .catch(() => undefined)
      .finally(() => {
        this.#isListening = false;
      });
  }
}

function besideCalls(context: CallContext, signal: AbortSignal, timeoutMs: number): ExchangeOptions {
  return { context: { ...context, span: undefined }, signal, timeoutMs, maxBytes: 8 * smallBytes };
}

/** Credentials of a request's own are not kept beyond it (BLIND-7), so neither is a session begun with them. */
function bringsItsOwn(context: CallContext, service: ToolService): boolean {
  if (context.runtimeConfig === undefined) return false;
  return credentialsOf(service).some((name) => findCredential(context, name)?.level === "inline");
}

/** A call that is given up before its session is there has not been sent, and is not sent afterwards. */
async function unlessGivenUp<T>(signal: AbortSignal, start: (begin: () => void) => Promise<T>): Promise<T> {
  let hasBegun = false;
  let giveUp: (error: Error) => void = () => undefined;
  const givenUp = new Promise<never>((_resolve, reject) => {
    giveUp = reject;
  });
  const onAbort = (): void => {
    if (!hasBegun) giveUp(toGivenUp());
  };
  signal.addEventListener("abort", onAbort, { once: true });
  const running = start(() => {
    if (signal.aborted) throw toGivenUp();
    hasBegun = true;
  });
  try {
    return await Promise.race([running, givenUp]);
  } finally {
    signal.removeEventListener("abort", onAbort);
    running.catch(() => undefined);
  }
}

function toGivenUp(): GatewayError {
  return withDelivery(
    new GatewayError("tool_timeout", "The time for this call was over before a session with the server had begun."),
    "not_sent",
  );
}
