import { type CryptoKey, decodeJwt, exportJWK, generateKeyPair, type JWK, SignJWT, UnsecuredJWT } from "jose";
import { afterEach, describe, expect, test } from "vitest";
import { startHttpStub, type HttpStub } from "../../../../test/support/http-stub.ts";
import { createEgress } from "../blind/egress.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { TrustedIssuer } from "../ports/issuers.ts";
import { createTokenVerifier, looksLikeToken, type TokenVerifier } from "./jwt.ts";

const issuer = "https://id.example.com/";
const audience = "toolyard";
const start = Date.UTC(2026, 10, 27);
const second = 1_000;
const minute = 60 * second;

interface Signer {
  readonly kid: string;
  readonly alg: string;
  readonly privateKey: CryptoKey;
  readonly jwk: JWK;
}

async function signer(kid: string, alg = "ES256"): Promise<Signer> {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  return { kid, alg, privateKey, jwk: { ...(await exportJWK(publicKey)), kid, alg, use: "sig" } };
}

/** An issuer with a key server on a real socket, a tenant that trusts it, and a clock that stands still. */
class World {
  now = start;
  published: readonly JWK[] = [];
  lookups = 0;
  trusted: TrustedIssuer[] = [];
  readonly logged: unknown[] = [];
  readonly verify: TokenVerifier;
  readonly stub: HttpStub;
  readonly #egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });

  constructor(stub: HttpStub) {
    this.stub = stub;
    stub.answer = () => ({ body: JSON.stringify({ keys: this.published }) });
    this.trust("ten_a");
    const unused = (): never => {
      throw new Error("not expected to be asked");
    };
    this.verify = createTokenVerifier({
      issuers: {
        find: (wanted, audiences) => {
          this.lookups += 1;
          return Promise.resolve(
            this.trusted.filter((row) => row.issuer === wanted && audiences.includes(row.audience)),
          );
        },
      },
      egress: this.#egress,
      clock: { now: () => this.now, sleep: unused },
      log: { log: (...line) => void this.logged.push(line) },
    });
  }

  trust(tenant: string, change: Partial<TrustedIssuer> = {}): void {
    this.trusted.push({
      id: `iss_${tenant}`,
      tenant,
      issuer,
      audience,
      jwksUrl: `${this.stub.url}/jwks.json`,
      claims: { role: "role", scopes: "scope", tools: "tools", businessUnit: "bu" },
      defaultRole: "member",
      defaultScopes: ["chat"],
      escapesIds: false,
      createdAt: 0,
      ...change,
    });
  }

  token(by: Signer, claims: Record<string, unknown> = {}, header: Record<string, unknown> = {}): Promise<string> {
    return new SignJWT({ sub: "anna", ...claims })
      .setProtectedHeader({ alg: by.alg, kid: by.kid, ...header })
      .setIssuer(issuer)
      .setAudience(audience)
      .setIssuedAt(new Date(this.now))
      .setExpirationTime(new Date(this.now + 10 * minute))
      .sign(by.privateKey);
  }

  get fetches(): number {
    return this.stub.requests.length;
  }

  async close(): Promise<void> {
    await this.#egress.close();
    await this.stub.close();
  }
}

const worlds: World[] = [];

async function world(...published: readonly Signer[]): Promise<World> {
  const made = new World(await startHttpStub());
  made.published = published.map(({ jwk }) => jwk);
  worlds.push(made);
  return made;
}

afterEach(async () => {
  await Promise.all(worlds.splice(0).map((made) => made.close()));
});

async function refusal(promise: Promise<unknown>): Promise<GatewayError> {
  const thrown: unknown = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(thrown instanceof GatewayError)) throw new Error(`expected a GatewayError, not ${String(thrown)}`);
  return thrown;
}

describe("tokens of trusted issuers", () => {
  test.each(["ES256", "ES384", "RS256", "PS256", "EdDSA"])("a good %s token gives tenant and caller", async (alg) => {
    const by = await signer("k1", alg);
    const at = await world(by);
    const token = await at.token(by);
    const { tenant, caller, until } = await at.verify(token, undefined);
    expect(tenant).toBe("ten_a");
    expect(until).toBe((decodeJwt(token).exp ?? 0) * 1_000);
    expect(caller).toEqual({
      kind: "user",
      id: `user:${issuer}:anna`,
      userId: `user:${issuer}:anna`,
      role: "member",
      scopes: ["chat"],
      tools: null,
    });
  });

  test("an issuer whose users could be taken for another's has its ids written so that they cannot", async () => {
    const by = await signer("k1");
    const at = await world(by);
    const token = await at.token(by, { sub: "8443:an%na" });
    expect((await at.verify(token, undefined)).caller.id).toBe(`user:${issuer}:8443:an%na`);
    at.trusted.splice(0);
    at.trust("ten_b", { escapesIds: true });
    at.now += 30_001;
    const id = "user:https%3A//id.example.com/:8443%3Aan%25na";
    expect((await at.verify(token, undefined)).caller).toMatchObject({ id, userId: id });
  });

  test("claims become role, scopes, tools and business unit", async () => {
    const by = await signer("k1");
    const at = await world(by);
    const claims = { role: ["viewer", "admin"], scope: "chat tools unheard-of", tools: ["get_*"], bu: "north" };
    const { caller } = await at.verify(await at.token(by, claims), undefined);
    expect(caller).toMatchObject({
      role: "admin",
      scopes: ["chat", "tools"],
      tools: ["get_*"],
      businessUnit: "north",
    });
  });

  test("claims are found along a dotted path, and by a literal name with dots first", async () => {
    const by = await signer("k1");
    const at = await world(by);
    at.trusted = [];
    at.trust("ten_a", { claims: { role: "realm_access.roles", scopes: "https://x.example/scopes" } });
    const { caller } = await at.verify(
      await at.token(by, { realm_access: { roles: ["admin"] }, "https://x.example/scopes": ["tools"] }),
      undefined,
    );
    expect(caller).toMatchObject({ role: "admin", scopes: ["tools"] });
  });

  test("an empty scope claim gives no scopes, not the default ones", async () => {
    const by = await signer("k1");
    const at = await world(by);
    expect((await at.verify(await at.token(by, { scope: "" }), undefined)).caller.scopes).toEqual([]);
  });

  test("no token and no issuer makes an operator", async () => {
    const by = await signer("k1");
    const at = await world(by);
    at.trusted = [];
    at.trust("ten_a", { defaultRole: "operator" });
    const claimed = await at.verify(await at.token(by, { role: "operator" }), undefined);
    const byDefault = await at.verify(await at.token(by), undefined);
    expect([claimed.caller.role, byDefault.caller.role]).toEqual(["member", "member"]);
  });

  test("a scope claim that is no list is refused by name instead of being ignored", async () => {
    const by = await signer("k1");
    const at = await world(by);
    for (const claims of [{ scope: { chat: true } }, { tools: 7 }, { scope: [1] }]) {
      const error = await refusal(at.verify(await at.token(by, claims), undefined));
      expect(error.code).toBe("invalid_token");
      expect(error.message).toContain(`'${Object.keys(claims)[0]}'`);
    }
  });
});

describe("which tenant a token is for", () => {
  test("one trusted by several tenants must name one, and may only name one of them", async () => {
    const by = await signer("k1");
    const at = await world(by);
    at.trust("ten_b");
    const token = await at.token(by);
    expect(await refusal(at.verify(token, undefined))).toMatchObject({ code: "tenant_required" });
    expect((await at.verify(token, "ten_b")).tenant).toBe("ten_b");
    expect(await refusal(at.verify(token, "ten_c"))).toMatchObject({ code: "invalid_token" });
  });

  test("one tenant's trust does not open another tenant named in the header", async () => {
    const by = await signer("k1");
    const at = await world(by);
    expect(await refusal(at.verify(await at.token(by), "ten_b"))).toMatchObject({ code: "invalid_token" });
  });

  test("an audience nobody trusts is refused", async () => {
    const by = await signer("k1");
    const at = await world(by);
    const token = await new SignJWT({ sub: "anna" })
      .setProtectedHeader({ alg: by.alg, kid: by.kid })
      .setIssuer(issuer)
      .setAudience("another-service")
      .setExpirationTime(new Date(start + minute))
      .sign(by.privateKey);
    expect((await refusal(at.verify(token, undefined))).message).toMatch(/trusts the token's issuer/);
  });

  test("trust is remembered for half a minute, and its absence not at all", async () => {
    const by = await signer("k1");
    const at = await world(by);
    const token = await at.token(by);
    await at.verify(token, undefined);
    await at.verify(token, undefined);
    expect(at.lookups).toBe(1);
    at.now += 31 * second;
    at.trusted = [];
    await refusal(at.verify(token, undefined));
    at.trust("ten_a");
    expect((await at.verify(token, undefined)).tenant).toBe("ten_a");
  });
});

test("a tenant's trust counts at once where another tenant's was there before", async () => {
  const by = await signer("k1");
  const at = await world(by);
  const token = await at.token(by);
  expect((await at.verify(token, "ten_a")).tenant).toBe("ten_a");
  expect(await refusal(at.verify(token, "ten_b"))).toMatchObject({ code: "invalid_token" });
  at.trust("ten_b");
  expect((await at.verify(token, "ten_b")).tenant).toBe("ten_b");
  expect((await at.verify(token, "ten_a")).tenant).toBe("ten_a");
});

describe("what is wrong with a token is named", () => {
  test.each([
    ["an expired one", { exp: start / second - 31 }, /expired/],
    ["one not valid yet", { nbf: start / second + 31 }, /not valid yet/],
    ["one without subject", { sub: undefined }, /'sub'/],
    ["one without expiry", { exp: undefined }, /'exp'/],
  ])("%s", async (_what, claims, message) => {
    const by = await signer("k1");
    const at = await world(by);
    const payload = { sub: "anna", iss: issuer, aud: audience, exp: start / second + 600, ...claims };
    const token = await new SignJWT(
      Object.fromEntries(Object.entries(payload).filter(([, value]) => value !== undefined)),
    )
      .setProtectedHeader({ alg: by.alg, kid: by.kid })
      .sign(by.privateKey);
    const error = await refusal(at.verify(token, undefined));
    expect(error.code).toBe("invalid_token");
    expect(error.message).toMatch(message);
  });

  test("clocks may differ by half a minute", async () => {
    const by = await signer("k1");
    const at = await world(by);
    const token = await new SignJWT({
      sub: "anna",
      iss: issuer,
      aud: audience,
      exp: start / second - 29,
      nbf: start / second + 29,
    })
      .setProtectedHeader({ alg: by.alg, kid: by.kid })
      .sign(by.privateKey);
    expect((await at.verify(token, undefined)).tenant).toBe("ten_a");
  });

  test("a signature by another key of the same name", async () => {
    const at = await world(await signer("k1"));
    const error = await refusal(at.verify(await at.token(await signer("k1")), undefined));
    expect(error.message).toMatch(/signature/);
  });

  test("a public key used as a shared secret, and no signature at all", async () => {
    const by = await signer("k1", "RS256");
    const at = await world(by);
    const secret = Buffer.from(JSON.stringify(by.jwk));
    const confused = await new SignJWT({ sub: "anna", iss: issuer, aud: audience, exp: start / second + 600 })
      .setProtectedHeader({ alg: "HS256", kid: "k1" })
      .sign(secret);
    const unsigned = new UnsecuredJWT({ sub: "anna", iss: issuer, aud: audience, exp: start / second + 600 }).encode();
    for (const token of [confused, unsigned]) {
      const error = await refusal(at.verify(token, undefined));
      expect(error.code).toBe("invalid_token");
      expect(error.message).toMatch(/'alg'/);
    }
  });

  test("a shared secret that an issuer published by mistake verifies nothing", async () => {
    const at = await world();
    const secret = Buffer.alloc(32, 7);
    at.published = [{ kty: "oct", k: secret.toString("base64url"), kid: "k1", alg: "HS256" }];
    const token = await new SignJWT({ sub: "anna", iss: issuer, aud: audience, exp: start / second + 600 })
      .setProtectedHeader({ alg: "HS256", kid: "k1" })
      .sign(secret);
    expect((await refusal(at.verify(token, undefined))).code).toBe("invalid_token");
  });

  test("text that only looks like a token, and one too long to read", async () => {
    const at = await world();
    expect((await refusal(at.verify("eyJub3Q.anything.sensible", undefined))).code).toBe("invalid_token");
    expect((await refusal(at.verify(`eyJ${"a".repeat(20_000)}.b.c`, undefined))).message).toMatch(/longer than/);
    expect(at.fetches).toBe(0);
  });

  test("no message repeats the token or the subject", async () => {
    const at = await world(await signer("k1"));
    const token = await at.token(await signer("k1"), { sub: "very-private-person" });
    const error = await refusal(at.verify(token, undefined));
    expect(error.message).not.toContain("very-private-person");
    expect(error.message).not.toContain(token.slice(-20));
  });
});

describe("the issuer's keys", () => {
  test("are fetched once for many tokens, also when these come at the same time", async () => {
    const by = await signer("k1");
    const at = await world(by);
    const token = await at.token(by);
    await Promise.all(Array.from({ length: 20 }, () => at.verify(token, undefined)));
    await at.verify(token, undefined);
    expect(at.fetches).toBe(1);
  });

  test("a rotated key is found by fetching again", async () => {
    const [old, fresh] = [await signer("k1"), await signer("k2")];
    const at = await world(old);
    await at.verify(await at.token(old), undefined);
    at.published = [fresh.jwk];
    at.now += 10 * second;
    expect((await at.verify(await at.token(fresh), undefined)).tenant).toBe("ten_a");
    expect(at.fetches).toBe(2);
  });

  test("an unknown kid is looked for once a minute, invented ones in a row not at all", async () => {
    const by = await signer("k1");
    const at = await world(by);
    await at.verify(await at.token(by), undefined);
    at.now += 10 * second;
    const stranger = await at.token(await signer("nobody"));
    await refusal(at.verify(stranger, undefined));
    await refusal(at.verify(stranger, undefined));
    await refusal(at.verify(await at.token(await signer("nobody-2")), undefined));
    expect(at.fetches).toBe(2);
    at.now += 30 * second;
    await refusal(at.verify(stranger, undefined));
    expect(at.fetches).toBe(2);
    at.now += 31 * second;
    await refusal(at.verify(stranger, undefined));
    expect(at.fetches).toBe(3);
  });

  test("a withdrawn key stops working within ten minutes", async () => {
    const [old, fresh] = [await signer("k1"), await signer("k2")];
    const at = await world(old);
    await at.verify(await at.token(old), undefined);
    at.published = [fresh.jwk];
    at.now += 10 * minute;
    expect((await refusal(at.verify(await at.token(old), undefined))).message).toMatch(/no key that fits/);
  });

  test("known keys outlive an issuer that is away for a while", async () => {
    const by = await signer("k1");
    const at = await world(by);
    await at.verify(await at.token(by), undefined);
    at.stub.answer = () => ({ status: 500 });
    at.now += 30 * minute;
    expect((await at.verify(await at.token(by), undefined)).tenant).toBe("ten_a");
    at.now += 31 * minute;
    expect(await refusal(at.verify(await at.token(by), undefined))).toMatchObject({ code: "issuer_unavailable" });
  });

  test.each([
    ["an error", { status: 404, body: "{}" }, "its address answered with status 404"],
    ["no JSON", { body: "<html>" }, "its address answered with what is no key set (JWKS)"],
    ["another document", { body: '{"keys":"none"}' }, "its address answered with what is no key set (JWKS)"],
    [
      "an endless one",
      { body: JSON.stringify({ keys: [], filler: "x".repeat(300_000) }) },
      "its address answered with more than 262144 bytes",
    ],
    [
      "a redirect",
      { status: 302, headers: { location: "http://127.0.0.1:1/" } },
      "its address answered with status 302",
    ],
  ])("answered with %s are an unavailable issuer, which says why", async (_what, reply, reason) => {
    const by = await signer("k1");
    const at = await world(by);
    at.stub.answer = () => reply;
    const error = await refusal(at.verify(await at.token(by), undefined));
    expect(error.code).toBe("issuer_unavailable");
    expect(error.spec).toMatchObject({ http: 503, retryable: true });
    expect(error.message).toContain(`cannot be used: ${reason}. Check its 'jwks_url'`);
    expect(at.logged).toEqual([["warn", "keys of an issuer cannot be used", { issuer, reason }]]);
  });

  test("whose host nobody answers are an unavailable issuer, which says so", async () => {
    const by = await signer("k1");
    const at = await world(by);
    await at.stub.close();
    const error = await refusal(at.verify(await at.token(by), undefined));
    expect(error.message).toContain(`cannot be used: The host of '${issuer}' refused the connection.`);
  });

  test("at a private address are not fetched unless the operator allows it", async () => {
    const by = await signer("k1");
    const at = await world(by);
    at.trusted = [];
    at.trust("ten_a", { jwksUrl: "http://169.254.169.254/latest/meta-data" });
    const error = await refusal(at.verify(await at.token(by), undefined));
    expect(error.code).toBe("issuer_unavailable");
    expect(error.message).not.toContain("169.254");
  });
});

test("a token is told from an API key by its looks", async () => {
  const by = await signer("k1");
  const at = await world(by);
  expect(looksLikeToken(await at.token(by))).toBe(true);
  for (const other of ["ty_a_b", "a.b.c", "eyJ.x", "eyJh.eyJz.sig extra", ""])
    expect(looksLikeToken(other)).toBe(false);
});
