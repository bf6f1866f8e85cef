/**
 * Public keys of token issuers, fetched through the guarded door and kept in memory. A `kid` that is
 * not there makes one new fetch per minute, so that rotation is followed and nobody can make us hammer an issuer.
 */
import { createLocalJWKSet, errors, type CryptoKey, type JSONWebKeySet, type JWSHeaderParameters } from "jose";
import * as z from "zod";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import { parseJson } from "../json.ts";
import type { Clock } from "../ports/clock.ts";
import type { Egress } from "../ports/egress.ts";
import type { Log } from "../ports/log.ts";
import type { TrustedIssuer } from "../ports/issuers.ts";
import type { Traces } from "../ports/traces.ts";
import { readWithin } from "../read-body.ts";

/** Fetched anew after this long, so that keys which the issuer withdrew stop working. */
const freshMs = 10 * 60_000;
/** Used this long where the issuer cannot be reached. */
const usableMs = 60 * 60_000;
const unknownKidMs = 60_000;
/** Invented kids in a row must not become fetches in a row. */
const refetchGapMs = 5_000;
const fetchTimeoutMs = 5_000;
const largestDocument = 262_144;
const capacity = 500;

const documentSchema = z.looseObject({ keys: z.array(z.looseObject({ kty: z.string() })).max(200) });

interface KeySet {
  readonly resolve: ReturnType<typeof createLocalJWKSet>;
  readonly fetchedAt: number;
}

interface Entry {
  current: KeySet | undefined;
  loading: Promise<KeySet> | undefined;
  triedAt: number;
  readonly unknownKids: Map<string, number>;
}

export interface KeyDeps {
  readonly egress: Egress;
  readonly clock: Clock;
  readonly log: Log;
  readonly traces?: Traces | undefined;
}

/** Whose keys, and where they are. */
export type KeySource = Pick<TrustedIssuer, "issuer" | "jwksUrl">;

export class JwksCache {
  readonly #egress: Egress;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #traces: Traces | undefined;
  readonly #entries = new Map<string, Entry>();

  constructor({ egress, clock, log, traces }: KeyDeps) {
    this.#egress = egress;
    this.#clock = clock;
    this.#log = log;
    this.#traces = traces;
  }

  /** @throws GatewayError `issuer_unavailable`; jose's errors where no key fits */
  async keyFor(source: KeySource, header: JWSHeaderParameters): Promise<CryptoKey> {
    const entry = this.#entry(source.jwksUrl);
    const set = await this.#fresh(source, entry);
    try {
      return await set.resolve(header);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey) || !this.#mayRefetch(entry, header.kid ?? "")) throw error;
      return (await this.#load(source, entry)).resolve(header);
    }
  }

  #entry(url: string): Entry {
    const known = this.#entries.get(url);
    const entry: Entry = known ?? { current: undefined, loading: undefined, triedAt: 0, unknownKids: new Map() };
    this.#entries.delete(url);
    this.#entries.set(url, entry);
    const oldest = this.#entries.size > capacity ? this.#entries.keys().next().value : undefined;
    if (oldest !== undefined) this.#entries.delete(oldest);
    return entry;
  }

  async #fresh(source: KeySource, entry: Entry): Promise<KeySet> {
    const now = this.#clock.now();
    const { current } = entry;
    if (current !== undefined && now - current.fetchedAt < freshMs) return current;
    const usable = current !== undefined && now - current.fetchedAt < usableMs;
    if (usable && now - entry.triedAt < refetchGapMs && entry.loading === undefined) return current;
    try {
      return await this.#load(source, entry);
    } catch (error) {
      if (usable) return current;
      throw error;
    }
  }

  #mayRefetch(entry: Entry, kid: string): boolean {
    const now = this.#clock.now();
    for (const [known, at] of entry.unknownKids) if (now - at >= unknownKidMs) entry.unknownKids.delete(known);
    if (entry.unknownKids.has(kid) || now - entry.triedAt < refetchGapMs) return false;
    entry.unknownKids.set(kid, now);
    return true;
  }

  /** One fetch at a time per address. */
  #load(source: KeySource, entry: Entry): Promise<KeySet> {
    entry.triedAt = this.#clock.now();
    entry.loading ??= this.#fetch(source).then(
      (set) => {
        entry.current = set;
        entry.loading = undefined;
        return set;
      },
      (error: unknown) => {
        entry.loading = undefined;
        throw error;
      },
    );
    return entry.loading;
  }

  /** In a trace of its own: all who wait for the keys share them. */
  async #fetch({ issuer, jwksUrl: url }: KeySource): Promise<KeySet> {
    const span = this.#traces?.begin("fetch signing keys", { kind: "internal" });
    try {
      const response = await this.#egress.request({
        method: "GET",
        url,
        headers: [["accept", "application/json"]],
        timeoutMs: fetchTimeoutMs,
        peer: issuer,
        span,
      });
      const text = (await readWithin(response.body, largestDocument, tooLarge)).toString("utf8");
      if (response.status !== 200) throw new UnusableAnswer(`with status ${response.status}`);
      const document = documentSchema.safeParse(parseJson(text));
      if (!document.success) throw new UnusableAnswer("with what is no key set (JWKS)");
      return { resolve: createLocalJWKSet(toPublicKeys(document.data)), fetchedAt: this.#clock.now() };
    } catch (cause) {
      span?.fail("issuer_unavailable");
      const reason = cause instanceof UnusableAnswer ? cause.message : toGatewayError(cause).message.replace(/\.$/, "");
      this.#log.log("warn", "keys of an issuer cannot be used", { issuer, reason });
      throw new GatewayError(
        "issuer_unavailable",
        `The keys of the token's issuer cannot be used: ${reason}. Check its 'jwks_url' (GET /v1/issuers).`,
        { cause },
      );
    } finally {
      span?.end();
    }
  }
}

/** The address answered, with something else than keys. */
class UnusableAnswer extends Error {
  override readonly name = "UnusableAnswer";

  constructor(how: string) {
    super(`its address answered ${how}`);
  }
}

/** Keys that can only verify; a shared secret published by mistake must not become one. */
function toPublicKeys(document: z.infer<typeof documentSchema>): JSONWebKeySet {
  return { keys: document.keys.filter((key) => key.kty === "RSA" || key.kty === "EC" || key.kty === "OKP") };
}

function tooLarge(): UnusableAnswer {
  return new UnusableAnswer(`with more than ${largestDocument} bytes`);
}
