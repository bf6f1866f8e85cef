/** What every repository of OAuth grants promises, with two instances at one database (BLIND-3). */
import { randomUUID } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import type { NewOAuthGrant, OAuthGrant, OAuthRepo } from "@toolyard/core/ports/oauth";
import { createRepos } from "@toolyard/db/repos/index";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { DatabaseFault } from "../support/database-proxy.ts";
import type { TwoInstances } from "../support/two-instances.ts";
import { verifies } from "../support/verifies.ts";

const hour = 3_600_000;

export function describeOAuthRepo(name: string, make: () => Promise<TwoInstances>): void {
  describe(`grants of authorization servers: ${name} ${verifies("BLIND-3")}`, () => {
    let instances: TwoInstances;
    let repos: readonly [OAuthRepo, OAuthRepo];
    let oauth: OAuthRepo;
    beforeAll(async () => {
      instances = await make();
      repos = [createRepos(instances.first).oauth, createRepos(instances.second).oauth];
      [oauth] = repos;
    });
    afterAll(() => instances.close());

    const newTenant = async (): Promise<string> => {
      const id = newId("tenant");
      await createRepos(instances.second).tenants.create({ id, name: "t", wrappedKey: randomUUID(), settings: {} });
      return id;
    };
    const versionOf = async (tenant: string): Promise<number | undefined> =>
      (await createRepos(instances.second).tenants.get(tenant))?.configVersion;
    const turn = (index: number): OAuthRepo => repos[index % 2 === 0 ? 0 : 1];
    const tenantsOwn = (change: Partial<NewOAuthGrant> = {}): NewOAuthGrant => ({
      id: newId("connection"),
      kind: "client_credentials",
      userId: null,
      identity: "client-a",
      tool: "plugin://a",
      ...change,
    });
    const usersOwn = (userId = "ann"): NewOAuthGrant => tenantsOwn({ kind: "authorization_code", userId });
    const lease = (holder: string, more: object = {}): Parameters<OAuthRepo["claim"]>[2] => ({
      holder,
      leaseMs: 60_000,
      ...more,
    });
    const token = (generation: number, more: Partial<Parameters<OAuthRepo["store"]>[2]> = {}) => ({
      generation,
      sealed: randomUUID(),
      scope: "read",
      renewable: true,
      usableForMs: hour,
      raiseConfig: false,
      ...more,
    });
    const offer = (change: object = {}): Parameters<OAuthRepo["offerLink"]>[2] => ({
      hash: randomUUID(),
      sealed: randomUUID(),
      lifetimeMs: hour,
      leastMs: hour / 2,
      ...change,
    });
    /** A user's grant with a token. */
    const connected = async (tenant: string, userId = "ann"): Promise<OAuthGrant> => {
      const { grant } = await oauth.offerLink(tenant, usersOwn(userId), offer());
      expect(await oauth.store(tenant, grant.id, token(1))).toBe(true);
      const found = await oauth.get(tenant, grant.id);
      if (found === undefined) throw new Error("not connected");
      return found;
    };
    const age = (column: string, ms: number, id: string): Promise<unknown> =>
      instances.run(`UPDATE oauth_grants SET ${column} = ${column} - ? WHERE id = ?`, ms, id);
    const fail = (fault: DatabaseFault["kind"]): void =>
      void instances.proxy?.faults.push({ kind: fault } as DatabaseFault);

    describe("the lease", () => {
      test("of a tenant's client without a token goes to one of many, on either instance", async () => {
        const tenant = await newTenant();
        const claims = await Promise.all(
          Array.from({ length: 20 }, (_none, index) => turn(index).claim(tenant, tenantsOwn(), lease(`h${index}`))),
        );
        expect(claims.filter(({ held }) => held)).toHaveLength(1);
        expect(new Set(claims.map(({ grant }) => grant?.id)).size).toBe(1);
        expect(claims[0]?.grant).toMatchObject({
          generation: 0,
          sealed: null,
          kind: "client_credentials",
          userId: null,
        });
      });

      test("is its holder's until it is given back, lapses, or its token is stored", async () => {
        const tenant = await newTenant();
        const mine = await oauth.claim(tenant, tenantsOwn(), lease("one"));
        expect(mine.held).toBe(true);
        const id = mine.grant?.id ?? "";
        expect((await oauth.claim(tenant, tenantsOwn(), lease("one"))).held).toBe(true);
        expect((await repos[1].claim(tenant, tenantsOwn(), lease("two"))).held).toBe(false);
        await repos[1].releaseLease(tenant, id, "two");
        expect((await repos[1].claim(tenant, tenantsOwn(), lease("two"))).held).toBe(false);
        await oauth.releaseLease(tenant, id, "one");
        expect((await repos[1].claim(tenant, tenantsOwn(), lease("two"))).held).toBe(true);
        await age("lease_until", 61_000, id);
        expect((await oauth.claim(tenant, tenantsOwn(), lease("three"))).held).toBe(true);
        expect(await repos[1].extendLease(tenant, id, lease("two"))).toBe(false);
        expect(await oauth.extendLease(tenant, id, lease("three"))).toBe(true);
        expect(await oauth.store(tenant, id, token(1))).toBe(true);
        expect(await oauth.extendLease(tenant, id, lease("three"))).toBe(false);
        expect((await oauth.claim(tenant, tenantsOwn(), lease("three"))).held).toBe(false);
      });

      test("is had for a token that ran out or was refused, not for a good one or one from meanwhile", async () => {
        const tenant = await newTenant();
        const { grant } = await oauth.claim(tenant, tenantsOwn(), lease("one"));
        const id = grant?.id ?? "";
        await oauth.store(tenant, id, token(1));
        const good = await oauth.claim(tenant, tenantsOwn(), lease("two"));
        expect(good.held).toBe(false);
        expect(good.grant?.usableForMs).toBeGreaterThan(hour - 60_000);
        expect((await oauth.claim(tenant, tenantsOwn(), lease("two", { refused: 0 }))).held).toBe(false);
        expect((await oauth.claim(tenant, tenantsOwn(), lease("two", { refused: 1 }))).held).toBe(true);
        await oauth.store(tenant, id, token(2, { usableForMs: 0 }));
        expect((await oauth.claim(tenant, tenantsOwn(), lease("three", { seen: 1 }))).held).toBe(false);
        const late = await oauth.claim(tenant, tenantsOwn(), lease("three", { seen: 2 }));
        expect(late.held).toBe(true);
        expect(late.grant?.usableForMs).toBeLessThanOrEqual(0);
        await oauth.store(tenant, id, token(3, { usableForMs: null }));
        expect(await oauth.claim(tenant, tenantsOwn(), lease("four"))).toMatchObject({
          held: false,
          grant: { usableForMs: null },
        });
      });

      test("is not had where only the user can help", async () => {
        const tenant = await newTenant();
        expect(await oauth.claim(tenant, usersOwn(), lease("one"))).toEqual({ grant: undefined, held: false });
        await oauth.offerLink(tenant, usersOwn(), offer());
        expect((await oauth.claim(tenant, usersOwn(), lease("one"))).held).toBe(false);
      });

      test("is not made for a tenant that is gone", async () => {
        const gone = newId("tenant");
        expect(await oauth.claim(gone, tenantsOwn(), lease("one"))).toEqual({ grant: undefined, held: false });
      });

      test.each(["lost-before", "lost-after", "busy"] as const)(
        "is had once although the trip went wrong: %s",
        async (kind) => {
          const tenant = await newTenant();
          fail(kind);
          expect((await oauth.claim(tenant, tenantsOwn(), lease("one"))).held).toBe(true);
          expect((await repos[1].claim(tenant, tenantsOwn(), lease("two"))).held).toBe(false);
        },
      );
    });

    describe("a token", () => {
      test("follows the one before it, or is refused: of two that come at once, one is kept", async () => {
        const tenant = await newTenant();
        const { grant } = await oauth.claim(tenant, tenantsOwn(), lease("one"));
        const id = grant?.id ?? "";
        expect(await oauth.store(tenant, id, token(2))).toBe(false);
        const rivals = await Promise.all([0, 1, 2, 3].map((index) => turn(index).store(tenant, id, token(1))));
        expect(rivals.filter(Boolean)).toHaveLength(1);
        const next = token(2, { scope: null, renewable: false, usableForMs: null });
        expect(await repos[1].store(tenant, id, next)).toBe(true);
        expect(await oauth.find(tenant, tenantsOwn())).toMatchObject({
          generation: 2,
          sealed: next.sealed,
          scope: null,
          renewable: false,
          usableForMs: null,
        });
      });

      test.each(["lost-before", "lost-after", "busy"] as const)(
        "is kept once although the trip went wrong: %s",
        async (kind) => {
          const tenant = await newTenant();
          const { grant } = await oauth.claim(tenant, tenantsOwn(), lease("one"));
          const version = await versionOf(tenant);
          fail(kind);
          expect(await oauth.store(tenant, grant?.id ?? "", token(1, { raiseConfig: true }))).toBe(true);
          expect(await versionOf(tenant)).toBe((version ?? 0) + 1);
        },
      );

      test("raises the version of the configuration only where copies must go", async () => {
        const tenant = await newTenant();
        const { grant } = await oauth.claim(tenant, tenantsOwn(), lease("one"));
        const id = grant?.id ?? "";
        await oauth.store(tenant, id, token(1));
        expect(await versionOf(tenant)).toBe(1);
        await oauth.store(tenant, id, token(1, { raiseConfig: true }));
        expect(await versionOf(tenant)).toBe(1);
        await oauth.store(tenant, id, token(2, { raiseConfig: true }));
        expect(await versionOf(tenant)).toBe(2);
      });

      test("is forgotten by its generation, so that a newer one stays", async () => {
        const tenant = await newTenant();
        const { id } = await connected(tenant);
        await oauth.store(tenant, id, token(2));
        expect(await repos[1].discard(tenant, id, 1)).toBe(false);
        expect((await oauth.get(tenant, id))?.sealed).not.toBeNull();
        expect(await repos[1].discard(tenant, id, 2)).toBe(true);
        expect(await oauth.get(tenant, id)).toMatchObject({ sealed: null, renewable: false, generation: 2 });
        expect(await oauth.store(tenant, id, token(3))).toBe(true);
      });
    });

    describe("a link", () => {
      test("is one for all who need it, until it has too little time left", async () => {
        const tenant = await newTenant();
        const offers = [offer(), offer(), offer(), offer()];
        const given = await Promise.all(offers.map((each, index) => turn(index).offerLink(tenant, usersOwn(), each)));
        expect(new Set(given.map(({ hash }) => hash)).size).toBe(1);
        const [first] = given;
        expect(offers).toContainEqual(expect.objectContaining({ hash: first?.hash, sealed: first?.sealed }));
        expect((first?.until ?? 0) - Date.now()).toBeGreaterThan(hour - 60_000);
        await age("link_until", hour / 2 + 1_000, first?.grant.id ?? "");
        const fresh = offer();
        expect((await oauth.offerLink(tenant, usersOwn(), fresh)).hash).toBe(fresh.hash);
        expect(await oauth.findLink(tenant, first?.hash ?? "")).toBeUndefined();
        expect((await oauth.offerLink(tenant, usersOwn("bob"), offer())).grant.id).not.toBe(first?.grant.id);
      });

      test("is found as often as one likes and taken once, by one of many", async () => {
        const tenant = await newTenant();
        const { hash, grant } = await oauth.offerLink(tenant, usersOwn(), offer());
        for (const repo of repos) {
          expect(await repo.findLink(tenant, hash)).toMatchObject({ hash, grant: { id: grant.id, userId: "ann" } });
        }
        const taken = await Promise.all(
          Array.from({ length: 8 }, (_none, index) => turn(index).takeLink(tenant, hash)),
        );
        expect(taken.filter((link) => link !== undefined)).toMatchObject([{ hash, grant: { id: grant.id } }]);
        expect(await oauth.findLink(tenant, hash)).toBeUndefined();
        expect(await oauth.get(tenant, grant.id)).toMatchObject({ linkUntil: null });
      });

      test("ends with its time and leaves the token alone", async () => {
        const tenant = await newTenant();
        const { id } = await connected(tenant);
        await age("link_until", 2 * hour, id);
        const { hash } = await oauth.offerLink(tenant, usersOwn(), offer());
        await age("link_until", 2 * hour, id);
        expect(await oauth.findLink(tenant, hash)).toBeUndefined();
        expect(await oauth.takeLink(tenant, hash)).toBeUndefined();
        expect(await oauth.get(tenant, id)).toMatchObject({ generation: 1, sealed: expect.any(String) });
      });
    });

    test("users are listed page by page, one or all, and the tenant's own clients are not", async () => {
      const tenant = await newTenant();
      await oauth.claim(tenant, tenantsOwn(), lease("one"));
      const ids: string[] = [];
      for (const userId of ["ann", "bob", "cid"]) ids.push((await connected(tenant, userId)).id);
      const first = await oauth.list(tenant, { limit: 2, order: "asc" });
      expect(first).toMatchObject({ hasMore: true, data: [{ id: ids[0] }, { id: ids[1] }] });
      const rest = await oauth.list(tenant, { limit: 2, order: "asc", after: ids[1] ?? "" });
      expect(rest).toMatchObject({ hasMore: false, data: [{ id: ids[2], userId: "cid" }] });
      expect((await oauth.list(tenant, { limit: 1, order: "desc" })).data).toMatchObject([{ id: ids[2] }]);
      expect((await oauth.list(tenant, { limit: 9, order: "asc" }, "bob")).data).toMatchObject([{ id: ids[1] }]);
    });

    test("of another tenant nothing is found, changed or deleted", async () => {
      const [owner, intruder] = [await newTenant(), await newTenant()];
      const grant = await connected(owner);
      await age("link_until", 2 * hour, grant.id);
      const { hash } = await oauth.offerLink(owner, usersOwn(), offer());
      const before = await oauth.get(owner, grant.id);
      expect(await oauth.get(intruder, grant.id)).toBeUndefined();
      expect(await oauth.find(intruder, grant)).toBeUndefined();
      expect(await oauth.claim(intruder, usersOwn(), lease("one", { refused: 9 }))).toMatchObject({ held: false });
      expect(await oauth.extendLease(intruder, grant.id, lease("one"))).toBe(false);
      expect(await oauth.store(intruder, grant.id, token(2))).toBe(false);
      expect(await oauth.discard(intruder, grant.id, 1)).toBe(false);
      expect(await oauth.findLink(intruder, hash)).toBeUndefined();
      expect(await oauth.takeLink(intruder, hash)).toBeUndefined();
      expect(await oauth.delete(intruder, grant.id)).toBeUndefined();
      expect((await oauth.list(intruder, { limit: 10, order: "asc" })).data).toEqual([]);
      expect({ ...(await oauth.get(owner, grant.id)), usableForMs: 0 }).toEqual({ ...before, usableForMs: 0 });
    });

    test("what is deleted is given back once and raises the version", async () => {
      const tenant = await newTenant();
      const { id, sealed } = await connected(tenant);
      const version = (await versionOf(tenant)) ?? 0;
      expect(await repos[1].delete(tenant, id)).toMatchObject({ id, sealed });
      expect(await versionOf(tenant)).toBe(version + 1);
      expect(await oauth.delete(tenant, id)).toBeUndefined();
      expect(await versionOf(tenant)).toBe(version + 1);
      expect(await oauth.store(tenant, id, token(2))).toBe(false);
    });
  });
}
