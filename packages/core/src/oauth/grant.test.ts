import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { callContext } from "../../../../test/support/call-context.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { CallContext } from "../context.ts";
import type { KeyVault } from "../ports/key-vault.ts";
import type { OAuthGrant } from "../ports/oauth.ts";
import type { StoredCredential } from "../secrets/credential.ts";
import { Sealer } from "../secrets/sealer.ts";
import type { OAuthClient } from "./client.ts";
import { isGiven, openToken, ownerOf, sealReply, usableMs } from "./grant.ts";

const vault: KeyVault = {
  currentKeyId: "k1",
  wrap: (_tenant, key) => Promise.resolve(Buffer.from(key).toString("base64")),
  unwrap: (_tenant, wrapped) => Promise.resolve(Buffer.from(wrapped, "base64")),
};
const sealer = new Sealer(vault, { now: () => 0, sleep: () => Promise.resolve() });
const wrappedKey = randomBytes(32).toString("base64");

function contextOf(
  userId: string | undefined,
  credentials: readonly StoredCredential[] = [],
  inline?: object,
): CallContext {
  const context = callContext({ caller: userId === undefined ? {} : { userId } });
  return {
    ...context,
    config: { ...context.config, wrappedKey, credentials },
    ...(inline === undefined ? {} : { runtimeConfig: { plugins: [], credentials: { ...inline } } }),
  };
}

const tenants: OAuthClient = {
  grant: "client_credentials",
  clientId: "id",
  clientSecret: "secret",
  tokenUrl: "https://login.example.com/token",
  sources: { client_id: "ID", client_secret: "SECRET" },
};
const users: OAuthClient = {
  ...tenants,
  grant: "authorization_code",
  authorizationUrl: "https://login.example.com/authorize",
};
const stored = (name: string, version: number, userId?: string): StoredCredential =>
  userId === undefined
    ? { name, level: "tenant", version, sealed: "" }
    : { name, level: "user", userId, version, sealed: "" };

describe(`whose a token is ${verifies("BLIND-3", "BLIND-5")}`, () => {
  const both = [stored("ID", 1), stored("SECRET", 1)];

  test("the tenant's, unless a user's own credential goes into it", async () => {
    const shared = await ownerOf(sealer, contextOf("ann", both), tenants);
    expect(shared).toMatchObject({ userId: null, isInline: false });
    expect(await ownerOf(sealer, contextOf("bob", both), tenants)).toEqual(shared);
    expect(await ownerOf(sealer, contextOf(undefined, both), tenants)).toEqual(shared);
    const own = await ownerOf(sealer, contextOf("ann", [...both, stored("SECRET", 1, "ann")]), tenants);
    expect(own.userId).toBe("ann");
  });

  test("the user's where the tool acts for its user; nobody's without one", async () => {
    expect((await ownerOf(sealer, contextOf("ann", both), users)).userId).toBe("ann");
    expect((await ownerOf(sealer, contextOf(undefined, both), users)).userId).toBeNull();
  });

  test.each([
    ["client", { clientId: "other" }],
    ["secret", { clientSecret: "other" }],
    ["address", { tokenUrl: "https://other.example.com/token" }],
    ["scope", { scope: "more" }],
    ["audience", { audience: "other" }],
    ["resource", { resource: "urn:other" }],
    ["authentication", { clientAuth: "post" as const }],
  ])("another %s makes another token", async (_what, change) => {
    const { identity } = await ownerOf(sealer, contextOf(undefined, both), tenants);
    expect((await ownerOf(sealer, contextOf(undefined, both), { ...tenants, ...change })).identity).not.toBe(identity);
  });

  test("setting a credential again makes another token, but asks no user to consent again", async () => {
    const again = [stored("ID", 1), stored("SECRET", 2)];
    const before = await ownerOf(sealer, contextOf("ann", both), tenants);
    expect((await ownerOf(sealer, contextOf("ann", again), tenants)).identity).not.toBe(before.identity);
    const consent = await ownerOf(sealer, contextOf("ann", both), users);
    expect(await ownerOf(sealer, contextOf("ann", again), { ...users, clientSecret: "rotated" })).toEqual(consent);
    expect((await ownerOf(sealer, contextOf("ann", both), { ...users, scope: "more" })).identity).not.toBe(
      consent.identity,
    );
  });

  test("parts that run together differ", async () => {
    const identities = await Promise.all(
      [
        { clientId: "a", scope: "bc" },
        { clientId: "ab", scope: "c" },
        { clientId: "a", audience: "bc" },
        { clientId: 'a","bc', scope: "" },
      ].map(async (change) => (await ownerOf(sealer, contextOf(undefined), { ...tenants, ...change })).identity),
    );
    expect(new Set(identities).size).toBe(identities.length);
  });

  test("a client that came with the request is marked, and none that users connect to", async () => {
    const context = contextOf("ann", both, { SECRET: "inline" });
    expect((await ownerOf(sealer, context, tenants)).isInline).toBe(true);
    await expect(ownerOf(sealer, context, users)).rejects.toMatchObject({
      code: "credential_invalid",
      details: { param: "SECRET" },
    });
  });
});

const grant: OAuthGrant = {
  id: "conn_1",
  kind: "authorization_code",
  userId: "ann",
  identity: "i",
  tool: "plugin://a",
  generation: 3,
  sealed: null,
  scope: null,
  renewable: false,
  usableForMs: null,
  linkUntil: null,
  createdAt: 0,
  updatedAt: 0,
};
const reply = {
  accessToken: "access",
  refreshToken: "refresh",
  expiresIn: 60,
  scope: "a",
  clientAuth: "post",
} as const;

describe(`what is kept of an answer ${verifies("BLIND-5")}`, () => {
  test("opens again in its row and generation only", async () => {
    const context = contextOf("ann");
    const kept = await sealReply(sealer, context, { grant, reply, elapsedMs: 0 });
    expect(kept).toMatchObject({ generation: 4, scope: "a", renewable: true, usableForMs: 30_000 });
    expect(kept.sealed).not.toMatch(/access|refresh"/);
    const row = { ...grant, ...kept };
    expect(await openToken(sealer, context, row)).toEqual({
      access_token: "access",
      refresh_token: "refresh",
      client_auth: "post",
    });
    const others: Partial<OAuthGrant>[] = [{ userId: "bob" }, { userId: null }, { identity: "j" }, { generation: 5 }];
    for (const moved of others) {
      await expect(openToken(sealer, context, { ...row, ...moved })).rejects.toMatchObject({
        code: "credential_unreadable",
        message: expect.stringContaining("DELETE /v1/oauth/connections/conn_1"),
      });
    }
    expect(await openToken(sealer, context, grant)).toBeUndefined();
  });

  test("counts as given while it can be used or renewed", () => {
    const held = { ...grant, sealed: "x" };
    expect(isGiven(grant)).toBe(false);
    expect(isGiven(held)).toBe(true);
    expect(isGiven({ ...held, usableForMs: 1 })).toBe(true);
    expect(isGiven({ ...held, usableForMs: 0 })).toBe(false);
    expect(isGiven({ ...held, usableForMs: -5, renewable: true })).toBe(true);
  });
});

describe(`how long a token is used ${verifies("BLIND-3")}`, () => {
  test.each([
    [3_600, true, 3_240_000],
    [300, true, 270_000],
    [100, true, 70_000],
    [20, true, 10_000],
    [0, true, 0],
    [-5, true, 0],
    [undefined, true, 270_000],
    [undefined, false, null],
    [Number.POSITIVE_INFINITY, false, 365 * 86_400_000 * 0.9],
  ])("%s s, renewable %s: %s ms", (expiresIn, renewable, expected) => {
    expect(usableMs({ expiresIn, renewable }, 0)).toBe(expected);
  });

  test("never longer than it lives from when it was asked for, never less than nothing", () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true }), fc.boolean(), fc.nat(), (expiresIn, renewable, elapsed) => {
        const ms = usableMs({ expiresIn, renewable }, elapsed);
        expect(ms).toBeGreaterThanOrEqual(0);
        expect(ms).toBeLessThanOrEqual(Math.max(0, expiresIn * 1_000));
        expect(Number.isSafeInteger(ms)).toBe(true);
      }),
    );
  });
});
