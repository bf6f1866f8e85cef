/**
 * The web address of an MCP server and who is calling it (MCP-5): every request gets the credentials of
 * the call that it is sent for, through the guarded door. Nothing of a caller is kept between requests.
 */
import { placeSecrets, type PlacedSecret } from "../blind/auth-mapping.ts";
import { acceptedEncodings } from "../blind/content-encoding.ts";
import type { CredentialResolver } from "../blind/credential-resolver.ts";
import { leave } from "../blind/reply.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { CallContext } from "../context.ts";
import type { AccessToken, TokenSource } from "../oauth/access-token.ts";
import { randomHex } from "../random-hex.ts";
import type { Egress, EgressRequest, EgressResponse, EgressSocket, EgressTls } from "../ports/egress.ts";
import { withLiterals, type HttpAuth } from "../services/http-auth.ts";
import { withDelivery } from "../errors/delivery.ts";

export interface HttpPeerDeps {
  readonly egress: Egress;
  readonly credentials: CredentialResolver;
  readonly tokens: Pick<TokenSource, "accessToken">;
}

export interface HttpPeerOptions {
  readonly url: string;
  /** `mcp://maps`: what errors call it. */
  readonly name: string;
  /** Stands for all of its tools where a user has to give access. */
  readonly tool: string;
  readonly auth: HttpAuth;
  readonly headers: Readonly<Record<string, string>>;
  readonly tls: (context: CallContext) => Promise<EgressTls | undefined>;
}

/** For whom, and for how long, something is sent. */
export interface SendOptions {
  readonly context: CallContext;
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
  /** Told when the first byte is about to leave. */
  readonly onSent?: (() => void) | undefined;
}

export interface HttpMessage {
  readonly method: "GET" | "POST" | "DELETE";
  /** Absent: the peer's address. Of the same origin. */
  readonly url?: string;
  readonly headers: EgressRequest["headers"];
  readonly body?: string;
}

/** FastMCP and others send `/mcp` on to `/mcp/`. */
const maxRedirects = 3;

interface Authorized {
  readonly placed: readonly PlacedSecret[];
  readonly token: AccessToken | undefined;
}

export class HttpPeer {
  readonly name: string;
  readonly url: string;
  readonly #deps: HttpPeerDeps;
  readonly #options: HttpPeerOptions;
  readonly #credentials: CredentialResolver;
  /** Of credentials that go with every message. */
  readonly #names: readonly string[];

  constructor(deps: HttpPeerDeps, options: HttpPeerOptions) {
    const { authConfig, literals } = options.auth;
    this.#deps = deps;
    this.#options = options;
    this.#credentials = withLiterals(deps.credentials, literals);
    this.#names = authConfig?.mapping.map(({ source }) => source) ?? [];
    this.name = options.name;
    this.url = options.url;
  }

  /**
   * A server that no longer takes an access token from before has done nothing, so the message is sent
   * again, once, with a new one.
   * @throws GatewayError as the door, the token source and the credentials do, with its delivery
   */
  async send(message: HttpMessage, options: SendOptions): Promise<EgressResponse> {
    const first = await this.#authorize(options);
    const response = await this.#request(message, options, first);
    if (response.status !== 401 || first.token?.cached !== true || !this.#isOurs(response.url)) return response;
    await leave(response.body);
    return this.#request(message, options, await this.#authorize(options, first.token));
  }

  /** @throws GatewayError as `send`; `tool_failed` with the status where the server does not take the protocol */
  async upgrade(headers: HttpMessage["headers"], options: SendOptions): Promise<EgressSocket> {
    const open = async ({ placed }: Authorized): Promise<EgressSocket> => {
      const tls = await this.#options.tls(options.context);
      return this.#deps.egress.upgrade({
        protocol: "websocket",
        url: withQuery(this.url, placed),
        headers: [...this.#callersHeaders(placed), ...headers],
        peer: this.name,
        signal: options.signal,
        ...(tls === undefined ? {} : { tls }),
      });
    };
    const first = await this.#authorize(options);
    try {
      return await open(first);
    } catch (error) {
      const status = error instanceof GatewayError ? error.details.extra?.["status"] : undefined;
      if (status !== 401 || first.token?.cached !== true) throw error;
      return open(await this.#authorize(options, first.token));
    }
  }

  #callersHeaders(placed: readonly PlacedSecret[]): EgressRequest["headers"] {
    const secretHeaders = placed.filter(({ location }) => location === "header");
    return [
      ...ownHeaders(this.#options.headers, secretHeaders),
      ...secretHeaders.map(({ name, value }) => [name, value] as const),
    ];
  }

  /** An address that the server itself names: of its own origin, or none. */
  resolve(reference: string): string | undefined {
    const url = URL.parse(reference, this.url);
    return url !== null && this.#isOurs(url.href) ? url.href : undefined;
  }

  #isOurs(url: string): boolean {
    return new URL(url).origin === new URL(this.url).origin;
  }

  async #authorize({ context, signal }: SendOptions, refused?: AccessToken): Promise<Authorized> {
    const { auth, name, tool } = this.#options;
    let token: AccessToken | undefined;
    try {
      const placed = await placeSecrets(auth.authConfig, {
        values: this.#names.length === 0 ? new Map() : await this.#credentials.resolve(context, this.#names),
        accessToken: async (client) => {
          token = await this.#deps.tokens.accessToken(client, { context, signal, tool, toolName: name, refused });
          return token.value;
        },
        hide: (secret) => context.redactor.add(secret),
      });
      return { placed, token };
    } catch (error) {
      throw error instanceof Error ? withDelivery(error, "not_sent") : error;
    }
  }

  async #request(message: HttpMessage, options: SendOptions, { placed }: Authorized): Promise<EgressResponse> {
    const { context, signal, timeoutMs, onSent } = options;
    const tls = await this.#options.tls(context);
    const secretHeaders = placed.filter(({ location }) => location === "header");
    return this.#deps.egress.request({
      method: message.method,
      url: withQuery(message.url ?? this.url, placed),
      headers: [
        ...this.#callersHeaders(placed),
        ["accept-encoding", acceptedEncodings],
        ["traceparent", `00-${context.traceId}-${randomHex(8)}-01`],
        ...message.headers,
      ],
      ...(message.body === undefined ? {} : { body: message.body }),
      signal,
      timeoutMs,
      maxRedirects,
      peer: this.name,
      sensitiveHeaders: [...secretHeaders.map(({ name }) => name.toLowerCase()), "mcp-session-id"],
      ...(tls === undefined ? {} : { tls }),
      ...(onSent === undefined ? {} : { onSent }),
      span: context.span,
    });
  }
}

/** A credential beats a fixed header of its name. */
function ownHeaders(
  fixed: Readonly<Record<string, string>>,
  secrets: readonly PlacedSecret[],
): EgressRequest["headers"] {
  const taken = new Set(secrets.map(({ name }) => name.toLowerCase()));
  return Object.entries(fixed).filter(([name]) => !taken.has(name.toLowerCase()));
}

/** An address that the server names may say the key itself already: twice, many would read it as a list. */
function withQuery(url: string, placed: readonly PlacedSecret[]): string {
  const { searchParams: said } = new URL(url);
  const query = placed
    .filter(({ location, name, value }) => location === "query" && !said.getAll(name).includes(value))
    .map(({ name, value }) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`)
    .join("&");
  if (query === "") return url;
  return `${url}${url.includes("?") ? "&" : "?"}${query}`;
}
