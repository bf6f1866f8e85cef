/**
 * Access tokens for tools (BLIND-3): had once, kept sealed in the database, used by every instance. Who
 * finds none, an old or a refused one takes the grant's lease and gets a new one; all others wait, in
 * this process on the same promise, elsewhere by looking at the row. A holder that dies loses the lease
 * with time. A token is only ever replaced or forgotten by its generation, so nothing newer is lost, and
 * what fails without an answer changes nothing.
 */
import type { CredentialContext } from "../blind/credential-resolver.ts";
import type { AdapterDeps } from "../deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { throughOutage } from "../errors/outage.ts";
import { newId } from "../ids.ts";
import type { NewOAuthGrant, OAuthGrant } from "../ports/oauth.ts";
import type { OAuthClient } from "./client.ts";
import { missingGrant, noUser, type ConnectTarget } from "./connect-link.ts";
import { isGiven, openToken, ownerOf, sealReply, usableMs, type GrantOwner, type TokenRecord } from "./grant.ts";
import { egressUnder } from "../traces/egress-under.ts";
import { accessEnded, oauthErrorOf, requestToken, type TokenReply as Reply } from "./token-endpoint.ts";
import { toTooSlow } from "./token-errors.ts";
import { TokenMemory } from "./token-memory.ts";
import type { AccessToken, TokenOptions, TokenSource } from "./access-token.ts";

type TokenDeps = Pick<AdapterDeps, "repos" | "sealer" | "egress" | "clock" | "log" | "timing" | "publicUrl">;

/** A holder that gives no sign of life for so long has lost the lease. */
const leaseMs = 10_000;

const heartbeatMs = 3_000;

/** Waits between two looks at a row that somebody else is working on. */
const firstPollMs = 25;

const longestPollMs = 500;

/** Longest that anybody works or waits for one token: the request, its second form, and a lapsed lease. */
const longestFlightMs = 90_000;

/** Longest that a flight tries to keep what the server has answered: the refresh token before it is spent. */
const keepingMs = 30_000;

/** Answers that could not be kept, for the next flight of their grant in this process. */
const mostUnkept = 1_000;

/** A clear refusal is not asked for again so soon. */
const refusalMs = 1_000;

export function createTokenSource(deps: TokenDeps): TokenSource {
  return new SharedTokens(deps);
}

/** What one flight is about. */
interface Want {
  readonly client: OAuthClient;
  readonly owner: GrantOwner;
  readonly context: CredentialContext;
  readonly target: ConnectTarget;
  /** Only a token newer than this will do. */
  readonly above: number;
}

interface Landed extends AccessToken {
  /** Null: until it is refused. */
  readonly usableForMs: number | null;
}

class SharedTokens implements TokenSource {
  readonly #deps: TokenDeps;
  readonly #memory: TokenMemory;
  readonly #flights = new Map<string, Promise<Landed>>();
  /** By id of the grant. */
  readonly #unkept = new Map<string, Answer>();

  constructor(deps: TokenDeps) {
    this.#deps = deps;
    this.#memory = new TokenMemory(deps.clock);
  }

  async accessToken(client: OAuthClient, options: TokenOptions): Promise<AccessToken> {
    const { context, refused, signal } = options;
    const target = { client, tool: options.tool, toolName: options.toolName };
    const owner = await ownerOf(this.#deps.sealer, context, client);
    if (client.grant === "authorization_code" && owner.userId === null) throw noUser(target.toolName);
    const above = refused?.generation ?? -1;
    const key = keyOf(context, owner);
    const { version } = context.config;
    for (;;) {
      const known = this.#memory.recall(key, version, above);
      if (known !== undefined) return { ...known, cached: true };
      const refusal = this.#memory.refusal(key, version);
      if (refusal !== undefined) throw refusal;
      const others = this.#flights.get(key);
      const flight = others ?? this.#start(key, { client, owner, context, target, above });
      const token = await waitFor(flight, { signal, client });
      // A flight that others started may have come back with what is refused here.
      if (others === undefined || token.generation > above) return token;
    }
  }

  async isConnected(client: OAuthClient, context: CredentialContext): Promise<boolean> {
    const { repos, sealer } = this.#deps;
    const { tenant, config } = context;
    const owner = await ownerOf(sealer, context, client);
    if (owner.userId === null) return false;
    const key = keyOf(context, owner);
    if (this.#memory.recall(key, config.version, -1) !== undefined) return true;
    const grant = await repos.oauth.find(tenant, owner);
    if (grant === undefined || !isGiven(grant)) return false;
    const { generation, usableForMs } = grant;
    const token = await openToken(sealer, context, grant);
    if (token !== undefined) {
      this.#memory.remember(key, config.version, { value: token.access_token, generation, usableForMs });
    }
    return token !== undefined;
  }

  #start(key: string, want: Want): Promise<Landed> {
    this.#memory.forget(key, want.above);
    const { version } = want.context.config;
    const flight = this.#fly(want).then(
      (token) => {
        this.#memory.remember(key, version, token);
        return token;
      },
      (error: unknown) => {
        if (error instanceof GatewayError && oauthErrorOf(error) !== undefined)
          this.#memory.rememberRefusal(key, version, { error, forMs: refusalMs });
        throw error;
      },
    );
    this.#flights.set(key, flight);
    const done = (): void => void this.#flights.delete(key);
    flight.then(done, done);
    return flight;
  }

  async #fly(want: Want): Promise<Landed> {
    if (!want.owner.isInline) return new Flight(this.#deps, want, this.#unkept).run();
    const { egress, clock } = this.#deps;
    const started = clock.now();
    const reply = await requestToken(egressUnder(egress, want.context.span), want.client, {
      form: { grant_type: "client_credentials" },
      clientAuth: undefined,
    });
    const usableForMs = usableMs({ expiresIn: reply.expiresIn, renewable: true }, clock.now() - started);
    return { value: reply.accessToken, generation: want.above + 1, cached: false, usableForMs };
  }
}

/** The outcome of a flight, or the end of this one's patience; the flight goes on. */
function waitFor<T>(
  flight: Promise<T>,
  { signal, client }: { readonly signal: AbortSignal; readonly client: OAuthClient },
): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(toTooSlow(client));
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
    const done = (): void => signal.removeEventListener("abort", onAbort);
    flight.then(resolve, reject).then(done, done);
  });
}

/** What the server gave for a grant as it was then. */
interface Answer {
  readonly reply: Reply;
  readonly generation: number;
  readonly askedAt: number;
}

/** One process's way to a token of a stored grant. */
class Flight {
  readonly #deps: TokenDeps;
  readonly #want: Want;
  readonly #unkept: Map<string, Answer>;
  readonly #holder = newId("worker");
  readonly #leaseMs: number;
  readonly #grant: NewOAuthGrant;

  constructor(deps: TokenDeps, want: Want, unkept: Map<string, Answer>) {
    this.#deps = deps;
    this.#want = want;
    this.#unkept = unkept;
    this.#leaseMs = Math.min(leaseMs, deps.timing.leaseMs);
    const { userId, identity } = want.owner;
    const { client, target } = want;
    this.#grant = { id: newId("connection"), kind: client.grant, userId, identity, tool: target.tool };
  }

  async run(): Promise<Landed> {
    const { clock, repos } = this.#deps;
    const { context, above, client } = this.#want;
    const until = clock.now() + longestFlightMs;
    let seen: number | undefined;
    for (let pollMs = firstPollMs; ; pollMs = Math.min(pollMs * 2, longestPollMs)) {
      const { grant, held } = await repos.oauth.claim(context.tenant, this.#grant, {
        holder: this.#holder,
        leaseMs: this.#leaseMs,
        refused: above,
        ...(seen === undefined ? {} : { seen }),
      });
      if (grant === undefined) throw await this.#absent();
      if (held) {
        const token = await this.#renew(grant);
        if (token !== undefined) return token;
      } else if (grant.sealed === null && grant.kind === "authorization_code") {
        throw await this.#missing();
      } else if (isUsable(grant, { above, seen })) {
        const token = await this.#land(grant, { cached: seen === undefined });
        if (token !== undefined) return token;
      }
      seen ??= grant.generation;
      if (clock.now() >= until) throw toTooSlow(client);
      if (!held) await clock.sleep(pollMs);
    }
  }

  /** Undefined: the grant was changed by somebody else meanwhile, and is to be looked at again. */
  async #renew(grant: OAuthGrant): Promise<Landed | undefined> {
    const stopBeating = this.#keepLease(grant);
    try {
      const before = this.#unkept.get(grant.id);
      const answer = before?.generation === grant.generation ? before : await this.#ask(grant);
      return answer === undefined ? undefined : await this.#keep(grant, answer);
    } catch (error) {
      await this.#release(grant);
      throw error;
    } finally {
      stopBeating();
    }
  }

  async #ask(grant: OAuthGrant): Promise<Answer | undefined> {
    const askedAt = this.#deps.clock.now();
    const reply = await this.#request(grant, await this.#open(grant));
    return reply === undefined ? undefined : { reply, generation: grant.generation, askedAt };
  }

  /** Undefined: there is none, or one that cannot be opened where another is easily had. */
  async #open(grant: OAuthGrant): Promise<TokenRecord | undefined> {
    try {
      return await openToken(this.#deps.sealer, this.#want.context, grant);
    } catch (error) {
      const isUnreadable = toGatewayError(error).code === "credential_unreadable";
      if (isUnreadable && grant.kind === "client_credentials") return undefined;
      throw error;
    }
  }

  /** Undefined: the user's access has ended here, and was given anew meanwhile. */
  async #request(grant: OAuthGrant, before: TokenRecord | undefined): Promise<Reply | undefined> {
    const { client, context } = this.#want;
    const egress = egressUnder(this.#deps.egress, context.span);
    const clientAuth = before?.client_auth;
    const refreshToken = before?.refresh_token;
    const isUsers = grant.kind === "authorization_code";
    if (refreshToken === undefined && isUsers) return this.#end(grant);
    if (refreshToken !== undefined) {
      try {
        const form = { grant_type: "refresh_token", refresh_token: refreshToken } as const;
        const reply = await requestToken(egress, client, { form, clientAuth });
        // A server that rotates sends the next one; with one that does not, the old one stays good.
        return { ...reply, refreshToken: reply.refreshToken ?? refreshToken };
      } catch (error) {
        const refusal = oauthErrorOf(error);
        if (isUsers && accessEnded.has(refusal)) return this.#end(grant);
        // A withdrawn refresh token leaves a tenant's client with its own credentials.
        if (isUsers || refusal === undefined) throw error;
      }
    }
    return requestToken(egress, client, { form: { grant_type: "client_credentials" }, clientAuth });
  }

  /** The user's access has ended; unless it was given anew meanwhile, that is so for everybody. */
  async #end(grant: OAuthGrant): Promise<undefined> {
    const { tenant } = this.#want.context;
    if (await this.#deps.repos.oauth.discard(tenant, grant.id, grant.generation)) throw await this.#missing();
    await this.#release(grant);
    return undefined;
  }

  async #keep(grant: OAuthGrant, answer: Answer): Promise<Landed | undefined> {
    const { sealer, repos, clock } = this.#deps;
    const { context } = this.#want;
    const { reply, askedAt } = answer;
    this.#hold(grant, answer);
    // Sealed once: the same text twice is one and the same token to the row.
    const token = await throughOutage(clock, keepingMs, () =>
      sealReply(sealer, context, { grant, reply, elapsedMs: clock.now() - askedAt }),
    );
    const isKept = await throughOutage(clock, keepingMs, () =>
      repos.oauth.store(context.tenant, grant.id, { ...token, raiseConfig: false }),
    );
    this.#unkept.delete(grant.id);
    if (!isKept) return undefined;
    const { generation, usableForMs } = token;
    return { value: reply.accessToken, generation, cached: false, usableForMs };
  }

  #hold(grant: OAuthGrant, answer: Answer): void {
    this.#unkept.delete(grant.id);
    this.#unkept.set(grant.id, answer);
    const oldest = this.#unkept.size > mostUnkept ? this.#unkept.keys().next().value : undefined;
    if (oldest !== undefined) this.#unkept.delete(oldest);
  }

  async #land(grant: OAuthGrant, { cached }: { readonly cached: boolean }): Promise<Landed | undefined> {
    const record = await this.#open(grant);
    const { generation, usableForMs } = grant;
    if (record !== undefined) return { value: record.access_token, generation, cached, usableForMs };
    await this.#deps.repos.oauth.discard(this.#want.context.tenant, grant.id, generation);
    return undefined;
  }

  #keepLease(grant: OAuthGrant): () => void {
    const { repos, timing, log } = this.#deps;
    const { tenant } = this.#want.context;
    const beat = (): void => {
      repos.oauth
        .extendLease(tenant, grant.id, { holder: this.#holder, leaseMs: this.#leaseMs })
        .catch((error: unknown) => {
          log.log("warn", "lease of an access token not extended", {
            connection: grant.id,
            code: toGatewayError(error).code,
          });
        });
    };
    const beats = setInterval(beat, Math.min(heartbeatMs, timing.heartbeatMs));
    beats.unref();
    return () => clearInterval(beats);
  }

  async #release(grant: OAuthGrant): Promise<void> {
    // Whatever keeps it from being given back, it lapses.
    await this.#deps.repos.oauth.releaseLease(this.#want.context.tenant, grant.id, this.#holder).catch(() => undefined);
  }

  /** A user's grant is made by the user; a client's only lacks its row where its tenant is gone. */
  async #absent(): Promise<GatewayError> {
    const { client, context } = this.#want;
    if (client.grant === "authorization_code") return this.#missing();
    return new GatewayError("not_found", `There is no tenant '${context.tenant}'.`);
  }

  #missing(): Promise<GatewayError> {
    return missingGrant(this.#deps, this.#want.context, this.#want.target);
  }
}

function keyOf({ tenant }: CredentialContext, { userId, identity }: GrantOwner): string {
  return [tenant, userId ?? "", identity].join(" ");
}

/** What came while one waited is used even if it lives shorter than it takes to say so. */
function isUsable(
  { sealed, generation, usableForMs }: OAuthGrant,
  { above, seen }: { readonly above: number; readonly seen: number | undefined },
): boolean {
  if (sealed === null || generation <= above) return false;
  return usableForMs === null || usableForMs > 0 || (seen !== undefined && generation > seen);
}
