/**
 * A real authorization server (oauth2-mock-server) that keeps what it was asked, knows one client, and
 * can be slow, forgetful or rude as a test says.
 */
import { createHash, randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { OAuth2Server } from "oauth2-mock-server";

export interface TokenAsk {
  readonly form: Readonly<Record<string, string>>;
  readonly authorization: string | undefined;
}

/** What the server is about to answer; a test may change it. */
export interface TokenAnswer {
  statusCode: number;
  body: Record<string, unknown> | "";
}

export interface AuthorizationServer {
  readonly url: string;
  readonly asks: TokenAsk[];
  readonly revoked: Readonly<Record<string, string>>[];
  /** Changes answers of the token endpoint from now on. */
  onToken: (answer: TokenAnswer, ask: TokenAsk) => void;
  /** Takes a request to the token endpoint before the server sees it; true: it has been answered. */
  before: (request: IncomingMessage, response: ServerResponse) => boolean | Promise<boolean>;
  /** Added to what the browser brings back from the authorization endpoint. */
  onReturn: (url: URL) => void;
  /** Has it given this access token, and not withdrawn it? */
  accepts(token: string): boolean;
  /** Whose token it is: the redemption or client by which it was given. */
  ownerOf(token: string): string | undefined;
  withdrawTokens(): void;
  withdrawRefreshTokens(): void;
  close(): Promise<void>;
}

/** The secret that the server knows of a client. */
export const secretOf = (client: string): string => createHash("sha256").update(client).digest("base64url");

export async function startAuthorizationServer(): Promise<AuthorizationServer> {
  const mock = new OAuth2Server();
  await mock.issuer.keys.generate("RS256");
  const owners = new Map<string, string>();
  const refreshTokens = new Map<string, string>();
  const server: AuthorizationServer = {
    url: "",
    asks: [],
    revoked: [],
    onToken: () => undefined,
    before: () => false,
    onReturn: () => undefined,
    accepts: (token) => owners.has(token),
    ownerOf: (token) => owners.get(token),
    withdrawTokens: () => owners.clear(),
    withdrawRefreshTokens: () => refreshTokens.clear(),
    async close() {
      listener.closeAllConnections();
      await new Promise((done) => listener.close(done));
    },
  };

  // Signed in the same second, two tokens would otherwise be the same.
  mock.service.on("beforeTokenSigning", (token) => void (token.payload["jti"] = randomUUID()));
  mock.service.on("beforeResponse", (answer, request) => {
    const ask = toAsk(request);
    server.asks.push(ask);
    const { grant_type: grant, refresh_token: refreshToken = "" } = ask.form;
    if (!isKnown(ask)) refuse(answer, 401, "invalid_client");
    else if (grant === "refresh_token" && !refreshTokens.has(refreshToken)) refuse(answer, 400, "invalid_grant");
    server.onToken(answer, ask);
    if (answer.statusCode !== 200 || answer.body === "") return;
    const owner = grant === "refresh_token" ? (refreshTokens.get(refreshToken) ?? "") : (ask.form["code"] ?? "client");
    const { access_token: token, refresh_token: next } = answer.body;
    if (typeof token === "string") owners.set(token, owner);
    if (typeof next === "string") {
      refreshTokens.delete(refreshToken);
      refreshTokens.set(next, owner);
    }
  });
  mock.service.on("beforeAuthorizeRedirect", ({ url }) => server.onReturn(url));
  mock.service.on("beforeRevoke", (_answer, request) => void server.revoked.push(toAsk(request).form));

  const listener = createServer((request, response) => {
    void (async () => {
      const isToken = request.url?.startsWith("/token") === true;
      if (isToken && (await server.before(request, response))) return;
      if (request.url === "/revoke") await readForm(request);
      mock.service.requestHandler(request, response);
    })();
  });
  await new Promise<void>((done) => listener.listen(0, "127.0.0.1", done));
  const url = `http://127.0.0.1:${(listener.address() as AddressInfo).port}`;
  mock.issuer.url = url;
  return Object.assign(server, { url });
}

type WithBody = IncomingMessage & { body?: unknown };

/** The mock does not read revocations. */
async function readForm(request: WithBody): Promise<void> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  request.body = Object.fromEntries(new URLSearchParams(Buffer.concat(parts).toString("utf8")));
}

function toAsk(request: WithBody): TokenAsk {
  const form = { ...(request.body as Record<string, string>) };
  return { form, authorization: request.headers.authorization };
}

/** Either way to prove oneself, but not both; clients called `public…` have no secret. */
function isKnown({ form, authorization }: TokenAsk): boolean {
  if (authorization !== undefined) {
    if (form["client_id"] !== undefined) return false;
    const [id = "", secret = ""] = Buffer.from(authorization.slice("Basic ".length), "base64")
      .toString("utf8")
      .split(":")
      .map((part) => decodeURIComponent(part.replaceAll("+", " ")));
    return secret === secretOf(id);
  }
  const { client_id: id = "", client_secret: secret } = form;
  return id.startsWith("public") ? secret === undefined : secret === secretOf(id);
}

export function refuse(answer: TokenAnswer, statusCode: number, error: string, description?: string): void {
  answer.statusCode = statusCode;
  answer.body = { error, ...(description === undefined ? {} : { error_description: description }) };
}
