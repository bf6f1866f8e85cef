/** The repositories of configuration, over a file and over a server: same rows, same refusals. */
import { createHash, randomUUID } from "node:crypto";
import { newId } from "@toolyard/core/ids";
import type { NewPlugin } from "@toolyard/core/ports/plugins";
import type { NewProvider } from "@toolyard/core/ports/providers";
import type { Page, PageRequest } from "@toolyard/core/ports/page";
import type { Repos } from "@toolyard/core/ports/repos";
import type { Tenant } from "@toolyard/core/ports/tenants";
import type { TrustedIssuer } from "@toolyard/core/ports/issuers";
import { afterErasure } from "@toolyard/core/ports/task-queue";
import type { Shards } from "@toolyard/db/database";
import { openDatabase } from "@toolyard/db/client";
import { createDatabaseTaskQueue } from "@toolyard/db/queue";
import { createRepos } from "@toolyard/db/repos/index";
import { openShards } from "@toolyard/db/shards";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fileShards, serverShards, type TestShards } from "../support/databases.ts";
import { newTool } from "./calls-fixture.ts";
import { verifies } from "../support/verifies.ts";

interface Filling {
  readonly count: number;
  readonly bytes: number;
  readonly userId: string;
}

describeRepos("file", fileShards);
describeRepos("server", serverShards);

describe("two instances on one file", () => {
  test("write side by side: nothing is refused, lost or doubled, and the next write works", async () => {
    const first = await fileShards();
    const second = await openShards(await openDatabase({ url: first.url }), async (url) => openDatabase({ url }));
    const instances = [createRepos(first.shards), createRepos(second)];
    const [one, other] = instances;
    const tenant = newId("tenant");
    await one?.tenants.create({ id: tenant, name: "T", wrappedKey: "k", settings: {} });
    const writes = Array.from({ length: 25 }, (_, at) =>
      instances.flatMap((repos, index) => [
        repos.plugins.create(tenant, plugin(`plugin_${index}_${at}`)),
        repos.providers.create(tenant, newId("provider"), provider(`provider_${index}_${at}`, at)),
      ]),
    );
    await Promise.all(writes.flat());
    const config = await other?.config.load(tenant);
    expect(config?.plugins).toHaveLength(50);
    expect(config?.providers).toHaveLength(50);
    expect(config?.version).toBe(101);
    expect(await other?.tenants.update(tenant, { name: "U" })).toMatchObject({ configVersion: 102 });
    await second.close();
    await first.close();
  });
});

function describeRepos(name: string, makeShards: () => Promise<TestShards>): void {
  describe(`repositories of configuration over a ${name}`, () => {
    let held: TestShards;
    let shards: Shards;
    let repos: Repos;
    const broken: { readonly table: string; readonly id: string; readonly reason: string }[] = [];
    beforeAll(async () => {
      held = await makeShards();
      shards = held.shards;
      repos = createRepos(shards, { onBrokenRow: (row) => broken.push(row) });
    });
    afterAll(() => held.close());

    const newTenant = (settings: Tenant["settings"] = {}): Promise<Tenant> =>
      repos.tenants.create({ id: newId("tenant"), name: "A tenant", wrappedKey: randomUUID(), settings });
    const versionOf = async (tenant: string): Promise<number> =>
      (await repos.tenants.get(tenant))?.configVersion ?? Number.NaN;
    const run = async (sql: string, ...args: (string | number)[]): Promise<readonly Record<string, unknown>[]> => {
      const [result] = await shards.directory.batch([{ sql, args }]);
      return result?.rows ?? [];
    };

    describe("tenants", () => {
      test("are created with their settings and read back", async () => {
        const created = await newTenant({ rounds: 3 });
        expect(created).toMatchObject({
          name: "A tenant",
          status: "active",
          configVersion: 1,
          settings: { rounds: 3 },
        });
        expect(Math.abs(created.createdAt - Date.now())).toBeLessThan(60_000);
        expect(await repos.tenants.get(created.id)).toEqual(created);
        expect(await repos.tenants.get("ten_nobody")).toBeUndefined();
      });

      test("keep the first of two with one id, and take the same creation twice", async () => {
        const first = { id: newId("tenant"), name: "First", wrappedKey: "k1", settings: {} };
        await repos.tenants.create(first);
        expect(await repos.tenants.create(first)).toMatchObject({ name: "First" });
        await expect(repos.tenants.create({ ...first, name: "Second", wrappedKey: "k2" })).rejects.toMatchObject({
          code: "conflict",
          details: { param: "id" },
        });
        expect(await repos.tenants.get(first.id)).toMatchObject({ name: "First", wrappedKey: "k1" });
      });

      test("raise their version with every change and keep what it does not name", async () => {
        const { id, wrappedKey } = await newTenant({ rounds: 3 });
        expect(await repos.tenants.update(id, { status: "suspended" })).toMatchObject({
          status: "suspended",
          configVersion: 2,
          settings: { rounds: 3 },
          wrappedKey,
        });
        expect(await repos.tenants.update(id, { settings: { calls_per_round: 2 }, name: "B" })).toMatchObject({
          name: "B",
          status: "suspended",
          configVersion: 3,
          settings: { calls_per_round: 2 },
        });
        expect(await repos.tenants.update("ten_nobody", { name: "C" })).toBeUndefined();
      });

      test("are held by one who applies a document at a time, until that is given back or the time is over", async () => {
        const { id } = await newTenant();
        const hold = (applier: string, forMs: number) => repos.tenants.holdApply(id, applier, forMs);
        expect(await hold("one", 60_000)).toBe(true);
        expect(await hold("one", 60_000)).toBe(true);
        expect(await hold("two", 60_000)).toBe(false);
        expect(await hold("two", 0)).toBe(false);
        expect(await hold("one", 0)).toBe(true);
        expect(await hold("two", -1)).toBe(true);
        expect(await hold("one", 60_000)).toBe(true);
        expect((await repos.tenants.get(id))?.configVersion).toBe(1);
        expect(await repos.tenants.holdApply("ten_nobody", "one", 60_000)).toBe(false);
      });

      test("are listed in pages", async () => {
        const ids: string[] = [];
        for (let count = 0; count < 3; count += 1) ids.push((await newTenant()).id);
        const listed = await allOf(
          (page) => repos.tenants.list(page),
          (tenant) => tenant.id,
        );
        expect(listed.filter((id) => ids.includes(id))).toEqual(ids);
      });

      test("show some of the keys that each master key has wrapped", async () => {
        const id = randomUUID();
        const wrappedBy = [`${id}.`, `kms.${id}.`, `kms.${id}-2.`] as const;
        for (const by of [wrappedBy[0], ...wrappedBy, wrappedBy[0]]) {
          const wrappedKey = `${by}${randomUUID()}`;
          await repos.tenants.create({ id: newId("tenant"), name: "A tenant", wrappedKey, settings: {} });
        }
        const ofThis = (await repos.tenants.sampleWrappedKeys(2)).filter((sample) => sample.wrappedBy.includes(id));
        const count = (by: string): number => ofThis.filter((sample) => sample.wrappedBy === by).length;
        expect(wrappedBy.map(count)).toEqual([2, 1, 1]);
        for (const sample of ofThis) {
          expect(sample.wrappedKey.startsWith(sample.wrappedBy)).toBe(true);
          expect(await repos.tenants.get(sample.tenant)).toMatchObject({ wrappedKey: sample.wrappedKey });
        }
      });
    });

    describe("trusted issuers", () => {
      const issuer = (id: string, audience: string) => ({
        id,
        issuer: "https://id.example",
        audience,
        jwksUrl: "https://id.example/keys",
        claims: { role: "r", businessUnit: "bu" },
        defaultRole: "member" as const,
        defaultScopes: ["chat"] as const,
      });

      test("are found by issuer and audience over all tenants, and only those", async () => {
        const [a, b] = [await newTenant(), await newTenant()];
        const created = await repos.issuers.create(a.id, issuer("iss_a", "shared"));
        expect(created).toMatchObject({ ...issuer("iss_a", "shared"), tenant: a.id });
        await repos.issuers.create(b.id, issuer("iss_b", "shared"));
        await repos.issuers.create(b.id, issuer("iss_c", "other"));
        const found = await repos.issuers.find("https://id.example", ["shared", "unknown"]);
        expect(found.map(({ id, tenant }) => [id, tenant])).toEqual([
          ["iss_a", a.id],
          ["iss_b", b.id],
        ]);
        expect(await repos.issuers.find("https://id.example", [])).toEqual([]);
        expect(await repos.issuers.find("https://other.example", ["shared"])).toEqual([]);
      });

      test("write ids so that no user is taken for one of another issuer, the one that came first as ever", async () => {
        const [a, b] = [await newTenant(), await newTenant()];
        const make = async ({ id }: { id: string }, name: string, audience = "a"): Promise<TrustedIssuer> =>
          repos.issuers.create(id, { ...issuer(randomUUID(), audience), issuer: name });
        const [short, long] = ["https://login.example", "https://login.example:8443"];
        expect(await make(a, short)).toMatchObject({ escapesIds: false, claims: { role: "r", businessUnit: "bu" } });
        const second = await make(a, long);
        expect(second).toMatchObject({ escapesIds: true, claims: { role: "r", businessUnit: "bu" } });
        // One way for all audiences of an issuer.
        expect(await make(a, long, "b")).toMatchObject({ escapesIds: true });
        expect(await make(a, short, "b")).toMatchObject({ escapesIds: false });
        expect(await make(a, `${long}:x`)).toMatchObject({ escapesIds: true });
        for (const other of ["https://login.example.org", "https://login.exampl", "https://login.example/a:b"]) {
          expect(await make(a, other)).toMatchObject({ escapesIds: false });
        }
        expect(await make(b, long)).toMatchObject({ escapesIds: false });
        expect(await make(b, short)).toMatchObject({ escapesIds: true });
        expect((await repos.issuers.find(long, ["a"])).map(({ tenant, escapesIds }) => [tenant, escapesIds])).toEqual([
          [a.id, true],
          [b.id, false],
        ]);
        // Its users are who they were, once it is trusted again.
        await repos.issuers.delete(
          b.id,
          (await repos.issuers.find(long, ["a"])).find((row) => row.tenant === b.id)?.id ?? "",
        );
        expect(await make(b, long)).toMatchObject({ escapesIds: false });
      });

      test("are changed in place: their users' ids are written as they ever were", async () => {
        const [a, b] = [await newTenant(), await newTenant()];
        const [short, long] = [
          issuer(randomUUID(), "a"),
          { ...issuer(randomUUID(), "a"), issuer: "https://id.example:1" },
        ];
        await repos.issuers.create(a.id, short);
        await repos.issuers.create(a.id, long);
        const change = {
          jwksUrl: "https://id.example/new",
          claims: { scopes: "s" },
          defaultRole: "admin" as const,
          defaultScopes: ["tools"] as const,
        };
        expect(await repos.issuers.update(b.id, long.id, change)).toBeUndefined();
        expect(await repos.issuers.get(b.id, long.id)).toBeUndefined();
        await repos.issuers.delete(a.id, short.id);
        const changed = await repos.issuers.update(a.id, long.id, change);
        expect(changed).toMatchObject({ ...change, issuer: long.issuer, escapesIds: true });
        expect(changed?.claims).toEqual({ scopes: "s" });
        expect(await repos.issuers.get(a.id, long.id)).toEqual(changed);
        expect(await repos.issuers.create(a.id, short)).toMatchObject({ escapesIds: false });
        expect(await repos.issuers.update(a.id, short.id, change)).toMatchObject({ escapesIds: false });
      });

      test("cannot be trusted twice by one tenant, nor removed by another", async () => {
        const [a, b] = [await newTenant(), await newTenant()];
        const first = issuer(randomUUID(), "twice");
        await repos.issuers.create(a.id, first);
        expect(await repos.issuers.create(a.id, first)).toMatchObject({ id: first.id });
        await expect(repos.issuers.create(a.id, issuer(randomUUID(), "twice"))).rejects.toMatchObject({
          code: "conflict",
        });
        expect(await repos.issuers.delete(b.id, first.id)).toBe(false);
        expect((await repos.issuers.list(b.id, { limit: 10, order: "asc" })).data).toEqual([]);
        expect((await repos.issuers.list(a.id, { limit: 10, order: "asc" })).data).toHaveLength(1);
        expect(await repos.issuers.delete(a.id, first.id)).toBe(true);
        expect(await repos.issuers.delete(a.id, first.id)).toBe(false);
      });
    });

    describe("API keys", () => {
      const key = (id: string) => ({
        id,
        hash: createHash("sha256").update(id).digest("hex"),
        name: "CI",
        role: "member" as const,
        scopes: ["chat", "tools"] as const,
        tools: ["weather_*"],
        userId: "u1",
        businessUnit: null,
        requestsPerMinute: 10,
        concurrentRequests: null,
        hint: "ty_ab",
        expiresAt: 1_900_000_000_000,
      });

      test("come back without their hash", async () => {
        const { id: tenant } = await newTenant();
        const { hash, ...given } = key(newId("apiKey"));
        const created = await repos.apiKeys.create(tenant, { ...given, hash });
        expect(created).toEqual({ ...given, revokedAt: null, createdAt: created.createdAt });
        expect(JSON.stringify(created)).not.toContain(hash);
        expect(await repos.apiKeys.get(tenant, given.id)).toEqual(created);
      });

      test("stay revoked since the first time", async () => {
        const { id: tenant } = await newTenant();
        const given = key(newId("apiKey"));
        await repos.apiKeys.create(tenant, { ...given, tools: null });
        expect(await repos.apiKeys.get(tenant, given.id)).toMatchObject({ tools: null });
        expect(await repos.apiKeys.revoke(tenant, given.id)).toBe(true);
        const revoked = await repos.apiKeys.get(tenant, given.id);
        expect(revoked?.revokedAt).toEqual(expect.any(Number));
        expect(await repos.apiKeys.revoke(tenant, given.id)).toBe(true);
        expect(await repos.apiKeys.get(tenant, given.id)).toEqual(revoked);
      });

      test("of another tenant can be neither read, listed nor revoked", async () => {
        const [a, b] = [await newTenant(), await newTenant()];
        const given = key(newId("apiKey"));
        await repos.apiKeys.create(a.id, given);
        expect(await repos.apiKeys.get(b.id, given.id)).toBeUndefined();
        expect(await repos.apiKeys.revoke(b.id, given.id)).toBe(false);
        expect((await repos.apiKeys.list(b.id, { limit: 10, order: "asc" })).data).toEqual([]);
        await expect(repos.apiKeys.create(b.id, given)).rejects.toMatchObject({ code: "conflict" });
        expect(await repos.apiKeys.get(a.id, given.id)).toMatchObject({ revokedAt: null });
      });
    });

    describe(`plugins ${verifies("BLIND-4")}`, () => {
      test("keep every field, with the status that the specification spells", async () => {
        const { id: tenant } = await newTenant();
        const created = await repos.plugins.create(tenant, plugin("keeps_all"));
        const { pluginId, createdAt, updatedAt } = created;
        expect(created).toEqual({ ...plugin("keeps_all"), pluginId, createdAt, updatedAt });
        expect([createdAt, updatedAt]).toEqual([expect.any(Number), createdAt]);
        expect(Number.isInteger(pluginId)).toBe(true);
        expect(await repos.plugins.get(tenant, pluginId)).toEqual(created);
        const status = `SELECT status, json_extract(execution_config, '$.auth_config.type') AS auth FROM sys_ai_plugin WHERE plugin_id = ?`;
        expect(await run(status, pluginId)).toEqual([{ status: "0", auth: "bearer" }]);
        expect(await repos.plugins.setEnabled(tenant, pluginId, false)).toMatchObject({ enabled: false });
        expect(await run(status, pluginId)).toEqual([{ status: "1", auth: "bearer" }]);
      });

      test("raise the configuration version when something has changed, and only then", async () => {
        const { id: tenant } = await newTenant();
        const { pluginId } = await repos.plugins.create(tenant, plugin("versioned"));
        expect(await versionOf(tenant)).toBe(2);
        await repos.plugins.update(tenant, pluginId, { ...plugin("versioned"), description: "New" });
        expect(await versionOf(tenant)).toBe(3);
        await repos.plugins.setEnabled(tenant, pluginId, false);
        expect(await versionOf(tenant)).toBe(4);
        await repos.plugins.delete(tenant, pluginId);
        expect(await versionOf(tenant)).toBe(5);
        expect(await repos.plugins.delete(tenant, pluginId)).toBe(false);
        expect(await repos.plugins.update(tenant, pluginId, plugin("versioned"))).toBeUndefined();
        expect(await repos.plugins.setEnabled(tenant, pluginId, true)).toBeUndefined();
        expect(await versionOf(tenant)).toBe(5);
      });

      test("refuse a taken name on creation and on change, by param", async () => {
        const { id: tenant } = await newTenant();
        const first = await repos.plugins.create(tenant, plugin("taken"));
        const second = await repos.plugins.create(tenant, plugin("free"));
        const refusal = { code: "conflict", details: { param: "name" }, message: expect.stringContaining("'taken'") };
        await expect(repos.plugins.create(tenant, plugin("taken"))).rejects.toMatchObject(refusal);
        await expect(repos.plugins.update(tenant, second.pluginId, plugin("taken"))).rejects.toMatchObject(refusal);
        expect(await repos.plugins.get(tenant, second.pluginId)).toEqual(second);
        expect(await repos.plugins.update(tenant, first.pluginId, plugin("taken"))).toMatchObject({ name: "taken" });
      });

      test("may have one name in two tenants, and neither sees or changes the other's", async () => {
        const [a, b] = [await newTenant(), await newTenant()];
        const ofA = await repos.plugins.create(a.id, plugin("same_name"));
        const ofB = await repos.plugins.create(b.id, { ...plugin("same_name"), description: "B's" });
        expect(await repos.plugins.get(b.id, ofA.pluginId)).toBeUndefined();
        expect(await repos.plugins.update(b.id, ofA.pluginId, plugin("stolen"))).toBeUndefined();
        expect(await repos.plugins.setEnabled(b.id, ofA.pluginId, false)).toBeUndefined();
        expect(await repos.plugins.delete(b.id, ofA.pluginId)).toBe(false);
        expect(await repos.plugins.get(a.id, ofA.pluginId)).toEqual(ofA);
        expect((await repos.config.load(b.id))?.plugins).toEqual([ofB]);
        expect(await versionOf(b.id)).toBe(2);
      });

      test("are listed in pages from both ends", async () => {
        const { id: tenant } = await newTenant();
        const ids: number[] = [];
        for (const name of ["p1", "p2", "p3", "p4", "p5"]) {
          ids.push((await repos.plugins.create(tenant, plugin(name))).pluginId);
        }
        const own = (id: string): boolean => ids.includes(Number(id.slice(4)));
        const list = (page: PageRequest) => repos.plugins.list(tenant, page);
        const wire = ids.map((id) => `plg_${id}`);
        expect((await allOf(list, ({ pluginId }) => `plg_${pluginId}`)).filter(own)).toEqual(wire);
        expect((await allOf(list, ({ pluginId }) => `plg_${pluginId}`, "desc")).filter(own)).toEqual(wire.toReversed());
        await expect(list({ limit: 2, order: "asc", after: "plg_1 OR 1" })).rejects.toMatchObject({
          code: "invalid_request",
          details: { param: "after" },
        });
      });

      test("read a configuration that calls the address 'url'", async () => {
        const { id: tenant } = await newTenant();
        const { pluginId } = await repos.plugins.create(tenant, plugin("aliased"));
        await run(
          `UPDATE sys_ai_plugin SET execution_config = json_remove(
             json_set(execution_config, '$.execution.url', json_extract(execution_config, '$.execution.base_url')),
             '$.execution.base_url') WHERE plugin_id = ?`,
          pluginId,
        );
        const read = await repos.plugins.get(tenant, pluginId);
        expect(read?.executionConfig).toEqual(plugin("aliased").executionConfig);
      });

      test("are changed by the hundreds in one go, keeping ids, times and whether they are enabled", async () => {
        const { id: tenant } = await newTenant();
        const create = Array.from({ length: 600 }, (_, at) => plugin(`many_${at}`));
        const ids = await repos.plugins.upsertMany(tenant, { create, update: [], delete: [] });
        expect(ids.size).toBe(600);
        const made = (await repos.config.load(tenant))?.plugins ?? [];
        const [first] = made;
        expect(first).toEqual({
          ...plugin("many_0"),
          pluginId: ids.get("many_0"),
          createdAt: first?.createdAt,
          updatedAt: first?.createdAt,
        });
        expect(made).toHaveLength(600);
        const version = await versionOf(tenant);
        // One for each batch at most, not one for each row.
        expect(version).toBeLessThanOrEqual(4);

        await repos.plugins.setEnabled(tenant, ids.get("many_1") ?? 0, false);
        const changed = {
          ...plugin("many_1"),
          description: "New \u{1F600} '\"",
          title: null,
          sensitive: true,
          roles: [],
          hash: "h2",
        };
        const update = [{ pluginId: ids.get("many_1") ?? 0, expectedHash: "0123", plugin: changed }];
        const gone = [ids.get("many_0") ?? 0, 999_999];
        expect(await repos.plugins.upsertMany(tenant, { create: [], update, delete: gone })).toEqual(
          new Map([["many_1", ids.get("many_1")]]),
        );
        const after = (await repos.config.load(tenant))?.plugins ?? [];
        expect(after).toHaveLength(599);
        expect(after[0]).toMatchObject({ ...changed, pluginId: ids.get("many_1"), enabled: false });
        expect(after[1]).toEqual(made[2]);
      });

      test("are left as they are where somebody else was faster, and the others are written", async () => {
        const { id: tenant } = await newTenant();
        const taken = await repos.plugins.create(tenant, { ...plugin("taken"), hash: "theirs" });
        const stale = await repos.plugins.create(tenant, plugin("stale"));
        const changes = {
          create: [plugin("taken"), plugin("free")],
          update: [{ pluginId: stale.pluginId, expectedHash: "another", plugin: { ...plugin("stale"), hash: "mine" } }],
          delete: [],
        };
        expect([...(await repos.plugins.upsertMany(tenant, changes)).keys()]).toEqual(["free"]);
        expect(await repos.plugins.get(tenant, taken.pluginId)).toEqual(taken);
        expect(await repos.plugins.get(tenant, stale.pluginId)).toEqual(stale);
      });

      test("are 5,000 of a tenant at most, on whichever way they come; those it has can be changed", async () => {
        const [{ id: tenant }, other] = [await newTenant(), await newTenant()];
        const { pluginId } = await repos.plugins.create(tenant, plugin("first"));
        const fill = (count: number) =>
          run(
            `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
            INSERT INTO sys_ai_plugin (tenant, name, description, type, parameter_schema, execution_config, required_credentials, roles, hash)
              SELECT ?1, 'more_' || ?2 || '_' || i, '', 'HTTP', '{}', '{}', '[]', '[]', 'h' FROM n`,
            tenant,
            count,
          );
        await fill(4_400);
        const create = Array.from({ length: 600 }, (_, at) => plugin(`many_${at}`));
        const before = await versionOf(tenant);
        await expect(repos.plugins.upsertMany(tenant, { create, update: [], delete: [] })).rejects.toMatchObject({
          code: "conflict",
          details: { param: "name", extra: { limit: 5_000 } },
          message: expect.stringContaining("at most 5000 plugins"),
        });
        expect(await run("SELECT 1 FROM sys_ai_plugin WHERE tenant = ? AND name LIKE 'many%'", tenant)).toEqual([]);
        expect(await versionOf(tenant)).toBe(before);
        const rest = create.slice(1);
        const replacing = (wanted: readonly NewPlugin[]) =>
          repos.plugins.upsertMany(tenant, { create: wanted, update: [], delete: [pluginId, 1_000_000] });
        const others = create.concat(plugin("many_more"));
        await expect(replacing(others)).rejects.toMatchObject({ code: "conflict" });
        expect(await repos.plugins.get(tenant, pluginId)).toMatchObject({ name: "first" });
        expect((await repos.plugins.upsertMany(tenant, { create: rest, update: [], delete: [] })).size).toBe(599);
        await expect(repos.plugins.create(tenant, plugin("one_more"))).rejects.toMatchObject({
          code: "conflict",
          message: expect.stringContaining("at most 5000 plugins"),
        });
        await expect(repos.plugins.create(tenant, plugin("first"))).rejects.toMatchObject({
          message: expect.stringContaining("'first' already"),
        });
        expect((await repos.plugins.upsertMany(tenant, { create: rest, update: [], delete: [] })).size).toBe(599);
        const update = [{ pluginId, expectedHash: "0123", plugin: { ...plugin("first"), hash: "next" } }];
        expect((await repos.plugins.upsertMany(tenant, { create: [], update, delete: [] })).size).toBe(1);
        expect(await repos.plugins.update(tenant, pluginId, plugin("renamed"))).toMatchObject({ name: "renamed" });
        await repos.plugins.create(other.id, plugin("first"));
        expect((await replacing([plugin("instead")])).size).toBe(1);
        expect(await repos.plugins.get(tenant, pluginId)).toBeUndefined();
        await expect(repos.plugins.create(tenant, plugin("one_more"))).rejects.toMatchObject({ code: "conflict" });
      });

      test("raise no version where many changes change nothing, and never reach another tenant's", async () => {
        const [a, b] = [await newTenant(), await newTenant()];
        const { pluginId } = await repos.plugins.create(a.id, plugin("of_a"));
        const update = [{ pluginId, expectedHash: "0123", plugin: { ...plugin("of_a"), hash: "stolen" } }];
        expect(await repos.plugins.upsertMany(b.id, { create: [], update, delete: [pluginId] })).toEqual(new Map());
        expect(await repos.plugins.upsertMany(b.id, { create: [], update: [], delete: [] })).toEqual(new Map());
        expect([await versionOf(a.id), await versionOf(b.id)]).toEqual([2, 1]);
        expect(await repos.plugins.get(a.id, pluginId)).toMatchObject({ hash: "0123" });
        // A second time, what is there already is told as done.
        const create = [plugin("of_a")];
        expect(await repos.plugins.upsertMany(a.id, { create, update: [], delete: [] })).toEqual(
          new Map([["of_a", pluginId]]),
        );
        expect(await versionOf(a.id)).toBe(2);
      });

      test("of this release are mirrored for everybody, once, and no tenant can change them", async () => {
        const { id: tenant } = await newTenant();
        const native: NewPlugin = {
          ...plugin("read_a_file"),
          type: "NATIVE",
          executionConfig: { class_name: "ReadAFile" },
          hash: "h1",
        };
        await repos.plugins.mirrorNative([native, { ...native, name: "dropped_later" }]);
        await repos.plugins.mirrorNative([{ ...native, description: "Better", hash: "h2" }]);
        const { data } = await repos.plugins.list(tenant, { limit: 100, order: "asc" });
        expect(data.map(({ name, description, type }) => [name, description, type])).toEqual([
          ["read_a_file", "Better", "NATIVE"],
        ]);
        const id = data[0]?.pluginId ?? 0;
        expect(await repos.plugins.get(tenant, id)).toMatchObject({ executionConfig: { class_name: "ReadAFile" } });
        expect(await repos.plugins.update(tenant, id, plugin("read_a_file"))).toBeUndefined();
        expect(await repos.plugins.setEnabled(tenant, id, false)).toBeUndefined();
        expect(await repos.plugins.delete(tenant, id)).toBe(false);
        expect((await repos.config.load(tenant))?.plugins).toEqual([]);
        await repos.plugins.mirrorNative([]);
        expect(await repos.plugins.get(tenant, id)).toBeUndefined();
      });
    });

    describe(`credentials ${verifies("BLIND-5")}`, () => {
      test("take versions one by one; who comes second is told so", async () => {
        const { id: tenant } = await newTenant();
        expect(await repos.credentials.nextVersion(tenant, "KEY", null)).toBe(1);
        const first = await repos.credentials.put(tenant, { name: "KEY", level: "tenant", version: 1, sealed: "s1" });
        expect(first).toMatchObject({ name: "KEY", level: "tenant", userId: null, version: 1, lastUsedAt: null });
        expect(await repos.credentials.nextVersion(tenant, "KEY", null)).toBe(2);
        const put = (sealed: string) =>
          repos.credentials.put(tenant, { name: "KEY", level: "tenant", version: 2, sealed });
        const second = await put("s2");
        expect(second).toMatchObject({ id: first.id, version: 2 });
        await expect(put("rival")).rejects.toMatchObject({ code: "conflict", details: { param: "name" } });
        expect(await put("s2")).toEqual(second);
        expect(await repos.credentials.all(tenant)).toEqual([
          { name: "KEY", level: "tenant", version: 2, sealed: "s2" },
        ]);
        expect(await versionOf(tenant)).toBe(3);
      });

      test("of a user beat the tenant's, for that user only", async () => {
        const { id: tenant } = await newTenant();
        const put = (name: string, userId: string | undefined, sealed: string) =>
          repos.credentials.put(
            tenant,
            userId === undefined
              ? { name, level: "tenant", version: 1, sealed }
              : { name, level: "user", userId, version: 1, sealed },
          );
        await put("A", "ann", "ann's");
        await put("A", undefined, "shared");
        await put("B", undefined, "b");
        await put("C", "bob", "bob's");
        const fetched = async (userId: string | undefined): Promise<readonly string[]> =>
          (await repos.credentials.fetch(tenant, ["A", "B", "C", "D"], userId)).map(({ sealed }) => sealed).sort();
        expect(await fetched("ann")).toEqual(["ann's", "b"]);
        expect(await fetched("bob")).toEqual(["b", "bob's", "shared"]);
        expect(await fetched(undefined)).toEqual(["b", "shared"]);
        expect(await repos.credentials.fetch(tenant, [], "ann")).toEqual([]);
      });

      test("are marked as used when fetched, and shown without their values", async () => {
        const { id: tenant } = await newTenant();
        await repos.credentials.put(tenant, { name: "USED", level: "tenant", version: 1, sealed: "never shown" });
        await repos.credentials.put(tenant, { name: "IDLE", level: "tenant", version: 1, sealed: "never shown" });
        await repos.credentials.fetch(tenant, ["USED"], undefined);
        const { data } = await repos.credentials.list(tenant, { limit: 10, order: "asc" });
        expect(data.map(({ name, lastUsedAt }) => [name, lastUsedAt])).toEqual([
          ["USED", expect.any(Number)],
          ["IDLE", null],
        ]);
        expect(JSON.stringify(data)).not.toContain("never shown");
        expect(await versionOf(tenant)).toBe(3);
      });

      test("of another tenant can be neither fetched, listed, replaced nor deleted", async () => {
        const [a, b] = [await newTenant(), await newTenant()];
        await repos.credentials.put(a.id, { name: "KEY", level: "tenant", version: 1, sealed: "a's" });
        expect(await repos.credentials.nextVersion(b.id, "KEY", null)).toBe(1);
        expect(await repos.credentials.fetch(b.id, ["KEY"], undefined)).toEqual([]);
        expect((await repos.credentials.list(b.id, { limit: 10, order: "asc" })).data).toEqual([]);
        expect(await repos.credentials.delete(b.id, "KEY", null)).toBe(false);
        await repos.credentials.put(b.id, { name: "KEY", level: "tenant", version: 1, sealed: "b's" });
        expect(await repos.credentials.all(a.id)).toMatchObject([{ sealed: "a's" }]);
        expect(await repos.credentials.delete(b.id, "KEY", null)).toBe(true);
        expect(await repos.credentials.all(a.id)).toHaveLength(1);
        expect(await versionOf(a.id)).toBe(2);
      });

      const fillCredentials = (tenant: string, { count, bytes, userId }: Filling) =>
        run(
          `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
          INSERT INTO sys_user_credential (tenant, name, user_id, version, sealed)
            SELECT ?1, 'FILL_' || i, ?4, 1, printf('%.*c', ?3, 'x') FROM n`,
          tenant,
          count,
          bytes,
          userId,
        );
      const putFor = (tenant: string, userId: string, { name = "MORE", bytes = 100, version = 1 } = {}) => {
        const value = { name, version, sealed: "y".repeat(bytes) };
        return repos.credentials.put(
          tenant,
          userId === "" ? { ...value, level: "tenant" } : { ...value, level: "user", userId },
        );
      };

      test.for([
        ["10000 of a tenant", "", { count: 10_000, bytes: 10 }, 100, "name", 10_000],
        ["200 of a user", "ann", { count: 200, bytes: 10 }, 100, "name", 200],
        ["16777216 bytes of a tenant", "", { count: 255, bytes: 65_536 }, 65_537, "value", 16_777_216],
        ["2097152 bytes of a user", "ann", { count: 31, bytes: 65_536 }, 65_537, "value", 2_097_152],
      ] as const)("are %s at most; those there are can be rotated", async ([, userId, filled, bytes, param, limit]) => {
        const [{ id: tenant }, other] = [await newTenant(), await newTenant()];
        await fillCredentials(tenant, { ...filled, userId });
        const refused = {
          code: "conflict",
          details: { param, extra: { limit } },
          message: expect.stringContaining(`at most ${limit} `),
        };
        const before = await versionOf(tenant);
        await expect(putFor(tenant, userId, { bytes })).rejects.toMatchObject(refused);
        expect(await versionOf(tenant)).toBe(before);
        await putFor(tenant, userId, { name: "FILL_1", version: 2, bytes: filled.bytes });
        await putFor(tenant, userId, { name: "FILL_1", version: 3, bytes: 8_192 });
        await putFor(tenant, userId, { name: "FILL_1", version: 4, bytes: 60_000 });
        await expect(putFor(tenant, userId, { name: "FILL_1", version: 4 })).rejects.toMatchObject({
          message: expect.stringContaining("changed by somebody else"),
        });
        await putFor(other.id, userId, { bytes });
        await repos.credentials.delete(tenant, "FILL_2", userId === "" ? null : userId);
        await putFor(tenant, userId);
      });

      test("of one user leave room for those of others", async () => {
        const { id: tenant } = await newTenant();
        await fillCredentials(tenant, { count: 200, bytes: 10, userId: "ann" });
        expect(await putFor(tenant, "bob")).toMatchObject({ userId: "bob", version: 1 });
        expect(await putFor(tenant, "")).toMatchObject({ userId: null, version: 1 });
      });

      test("take no more room by being replaced", async () => {
        const { id: tenant } = await newTenant();
        await fillCredentials(tenant, { count: 200, bytes: 10, userId: "ann" });
        await run("UPDATE sys_user_credential SET sealed = printf('%.*c', 10400, 'x') WHERE tenant = ?", tenant);
        await expect(putFor(tenant, "ann", { name: "FILL_1", version: 2, bytes: 65_536 })).rejects.toMatchObject({
          code: "conflict",
          details: { param: "value", extra: { limit: 2_097_152 } },
        });
      });

      test("are listed in pages", async () => {
        const { id: tenant } = await newTenant();
        for (const name of ["z", "y", "x"]) {
          await repos.credentials.put(tenant, { name, level: "tenant", version: 1, sealed: "s" });
        }
        const list = (page: PageRequest) => repos.credentials.list(tenant, page);
        const listed = await allOf(list, ({ id }) => id);
        expect(listed).toHaveLength(3);
        expect(await allOf(list, ({ id }) => id, "desc")).toEqual(listed.toReversed());
        await repos.credentials.put(tenant, { name: "x", level: "user", userId: "ann", version: 1, sealed: "s" });
        const { data, hasMore } = await repos.credentials.list(tenant, { limit: 1, order: "asc" }, "ann");
        expect([data.map(({ userId }) => userId), hasMore]).toEqual([["ann"], false]);
      });
    });

    describe("providers", () => {
      test("are 200 of a tenant at most; those it has can be changed", async () => {
        const { id: tenant } = await newTenant();
        const id = newId("provider");
        await repos.providers.create(tenant, id, provider("first", 1));
        await run(
          `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 199)
          INSERT INTO providers (id, tenant, name, kind, base_url, models, passthrough_models, priority, enabled, max_attempts, timeout_ms)
            SELECT 'prv_' || ?1 || i, ?1, 'more_' || i, 'openai', 'https://a', '{}', 0, 1, 1, 1, 1 FROM n`,
          tenant,
        );
        await expect(repos.providers.create(tenant, newId("provider"), provider("more", 1))).rejects.toMatchObject({
          code: "conflict",
          details: { param: "name", extra: { limit: 200 } },
          message: expect.stringContaining("at most 200 providers"),
        });
        await expect(repos.providers.create(tenant, newId("provider"), provider("first", 1))).rejects.toMatchObject({
          message: expect.stringContaining("'first' already"),
        });
        expect(await repos.providers.update(tenant, id, provider("renamed", 2))).toMatchObject({ name: "renamed" });
        await repos.providers.delete(tenant, id);
        await repos.providers.create(tenant, newId("provider"), provider("more", 1));
      });

      test("come back as they were, in the tenant's order of preference", async () => {
        const { id: tenant } = await newTenant();
        const [late, early, same] = [newId("provider"), newId("provider"), newId("provider")];
        const created = await repos.providers.create(tenant, late, provider("late", 20));
        expect(created).toEqual({ ...provider("late", 20), id: late });
        await repos.providers.create(tenant, early, provider("early", 10));
        await repos.providers.create(tenant, same, provider("same", 20));
        const config = await repos.config.load(tenant);
        expect(config?.providers.map(({ name }) => name)).toEqual(["early", "late", "same"]);
        expect(config?.version).toBe(4);
        expect(
          await allOf(
            (page) => repos.providers.list(tenant, page),
            ({ id }) => id,
          ),
        ).toEqual([late, early, same]);
      });

      test("refuse a taken name, and take the same creation twice", async () => {
        const { id: tenant } = await newTenant();
        const [first, second] = [newId("provider"), newId("provider")];
        await repos.providers.create(tenant, first, provider("main", 1));
        expect(await repos.providers.create(tenant, first, provider("main", 1))).toMatchObject({ id: first });
        const refusal = { code: "conflict", details: { param: "name" } };
        await expect(repos.providers.create(tenant, second, provider("main", 1))).rejects.toMatchObject(refusal);
        await repos.providers.create(tenant, second, provider("spare", 1));
        await expect(repos.providers.update(tenant, second, provider("main", 1))).rejects.toMatchObject(refusal);
        expect(await repos.providers.update(tenant, second, provider("spare", 9))).toMatchObject({ priority: 9 });
        expect(await versionOf(tenant)).toBe(4);
      });

      test("of another tenant can be neither read, changed nor deleted", async () => {
        const [a, b] = [await newTenant(), await newTenant()];
        const id = newId("provider");
        const created = await repos.providers.create(a.id, id, provider("main", 1));
        expect(await repos.providers.get(b.id, id)).toBeUndefined();
        expect(await repos.providers.update(b.id, id, provider("stolen", 1))).toBeUndefined();
        expect(await repos.providers.delete(b.id, id)).toBe(false);
        await expect(repos.providers.create(b.id, id, provider("other", 1))).rejects.toMatchObject({
          code: "conflict",
        });
        expect(await repos.providers.get(a.id, id)).toEqual(created);
        expect(await repos.providers.delete(a.id, id)).toBe(true);
        expect(await repos.providers.get(a.id, id)).toBeUndefined();
      });
    });

    describe("a tenant's configuration", () => {
      test("is one snapshot with settings, plugins, providers, budgets, prices and sealed credentials", async () => {
        const { id: tenant, wrappedKey } = await newTenant({ rounds: 4 });
        const on = await repos.plugins.create(tenant, plugin("on"));
        const off = await repos.plugins.create(tenant, { ...plugin("off"), enabled: false });
        const backEnd = await repos.providers.create(tenant, newId("provider"), provider("main", 1));
        const credential = { name: "K", level: "user", userId: "u", version: 1, sealed: "s" } as const;
        await repos.credentials.put(tenant, credential);
        const limits = { limitTokens: 10, limitMicros: null, enabled: false } as const;
        const budget = { name: "B", scope: "user", scopeId: "u", period: "day", ...limits } as const;
        const { id: budgetId, createdAt } = await repos.budgets.create(tenant, newId("budget"), budget);
        const price = { kind: "tool", pattern: "on", effective_from: null, per_call: 5 } as const;
        await repos.prices.put(tenant, [price]);
        const config = await repos.config.load(tenant);
        expect(config).toEqual({
          tenant,
          wrappedKey,
          version: 7,
          settings: expect.objectContaining({ rounds: 4, concurrent_tool_calls: 16 }),
          plugins: [on, off],
          services: [],
          nodes: [],
          tavern: [],
          flows: [],
          variables: [],
          agents: [],
          providers: [backEnd],
          credentials: [credential],
          budgets: [{ ...budget, id: budgetId, createdAt }],
          prices: { own: [price], operator: [] },
          unreadable: [],
        });
        expect(await repos.config.load("ten_nobody")).toBeUndefined();
      });

      test("goes on without a price that cannot be read", async () => {
        const { id: tenant } = await newTenant();
        const price = { kind: "tool", pattern: "on", effective_from: null, per_call: 5 } as const;
        const stored = (prices: string): Promise<unknown> =>
          run(
            "INSERT INTO price_tables (tenant, prices) VALUES (?, ?) ON CONFLICT DO UPDATE SET prices = excluded.prices",
            tenant,
            prices,
          );
        await stored(JSON.stringify([{ kind: "planet" }, price]));
        expect(await repos.config.load(tenant)).toMatchObject({ prices: { own: [price] } });
        await stored("no JSON");
        expect(await repos.config.load(tenant)).toMatchObject({ prices: { own: [] } });
      });

      test("says by name what a newer release has written, and where", async () => {
        const { id: tenant } = await newTenant();
        const newer = await repos.plugins.create(tenant, plugin("of_tomorrow"));
        await run(
          `UPDATE sys_ai_plugin SET execution_config = json_set(execution_config, '$.auth_config',
            json('{"type":"api_key","mapping":[{"source":"KEY","target":"token","location":"orbit"}]}')) WHERE plugin_id = ?`,
          newer.pluginId,
        );
        broken.length = 0;
        await repos.config.load(tenant);
        const place = "'execution_config.auth_config.mapping.0.location' is not valid";
        expect(broken).toEqual([
          {
            table: "sys_ai_plugin",
            tenant,
            id: `plg_${newer.pluginId}`,
            name: "of_tomorrow",
            reason: expect.any(String),
          },
        ]);
        expect(broken[0]?.reason).toContain(place);
        await expect(repos.plugins.get(tenant, newer.pluginId)).rejects.toThrow(
          `${place}: expected one of "header"|"query"|"path"|"body"); a newer release may have written it, else delete it and write it anew.`,
        );
      });

      test("goes on without a row that cannot be read, and says which", async () => {
        const { id: tenant } = await newTenant();
        const good = await repos.plugins.create(tenant, plugin("good"));
        const bad = await repos.plugins.create(tenant, plugin("bad"));
        const provided = await repos.providers.create(tenant, newId("provider"), provider("main", 1));
        await run("UPDATE sys_ai_plugin SET parameter_schema = '{\"secret' WHERE plugin_id = ?", bad.pluginId);
        await run("UPDATE providers SET models = '[\"secret\"]' WHERE id = ?", provided.id);
        await run(`UPDATE tenants SET settings = '{"rounds":3,"calls_per_round":"secret"}' WHERE id = ?`, tenant);
        broken.length = 0;
        const config = await repos.config.load(tenant);
        expect(config?.plugins).toEqual([good]);
        expect(config?.providers).toEqual([]);
        expect(config?.settings).toMatchObject({ rounds: 3, calls_per_round: 32 });
        expect(broken.map(({ table, id }) => `${table} ${id}`).sort()).toEqual([
          `providers ${provided.id}`,
          `sys_ai_plugin plg_${bad.pluginId}`,
          "tenants calls_per_round",
        ]);
        expect(JSON.stringify(broken)).not.toContain("secret");
        await expect(repos.plugins.get(tenant, bad.pluginId)).rejects.toMatchObject({
          code: "internal_error",
          message: expect.stringContaining(`Row 'plg_${bad.pluginId}' of table sys_ai_plugin`),
        });
        expect(await repos.plugins.update(tenant, bad.pluginId, plugin("bad"))).toMatchObject({ name: "bad" });
      });
    });

    describe("erasing a tenant", () => {
      test("leaves no row of it in any table, and none of another's is gone", async () => {
        const [gone, kept] = [await newTenant(), await newTenant()];
        const tables = await tenantTables(run);
        for (const [index, tenant] of [gone.id, kept.id].entries()) {
          for (const table of tables) await fillRow(run, table, tenant, index);
        }
        expect(await rowCounts(run, tables, gone.id)).toEqual(tables.map(() => 1));
        expect(await repos.tenants.erase(gone.id)).toBe(true);
        expect(await rowCounts(run, tables, gone.id)).toEqual(tables.map(() => 0));
        expect(await rowCounts(run, tables, kept.id)).toEqual(tables.map(() => 1));
        expect(await repos.tenants.get(gone.id)).toBeUndefined();
        expect(await repos.tenants.get(kept.id)).toBeDefined();
        expect(await repos.tenants.erase(gone.id)).toBe(false);
      });

      test("leaves the message that has a worker look once more", async () => {
        const { id: gone } = await newTenant();
        const queue = createDatabaseTaskQueue(shards);
        await queue.send("short", [
          { tenant: gone, callId: newId("call") },
          { tenant: gone, callId: afterErasure },
        ]);
        expect(await repos.tenants.erase(gone, { everywhere: true })).toBe(true);
        expect(await rowCounts(run, ["queue_messages"], gone)).toEqual([1]);
      });

      test("goes on to its last row, and nothing comes after it from who has not heard of it", async () => {
        const { id: gone } = await newTenant();
        await run(
          `WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < 2500)
            INSERT INTO rate_windows (tenant, scope, window_start, count) SELECT ?, n, 0, 0 FROM counted`,
          gone,
        );
        expect(await repos.tenants.erase(gone)).toBe(true);
        const key = newId("apiKey");
        const kept = { callerId: key, key: "turn", sealed: "sealed", expiresAt: Date.now() + 60_000 };
        await repos.calls.record(gone, key, [newTool()]);
        await repos.calls.settle(gone, {
          callId: newId("call"),
          attempt: 1,
          finish: { state: "completed" },
          keepTurn: kept,
          calls: [],
          finished: [],
          delivered: [],
        });
        for (const table of ["rate_windows", "calls", "kept_turns"]) {
          expect(await rowCounts(run, [table], gone)).toEqual([0]);
        }
      });
    });

    test("ping reaches every database, and with a write fails where none is taken", async () => {
      await expect(repos.ping()).resolves.toBeUndefined();
      await expect(repos.ping({ writes: true })).resolves.toBeUndefined();
      expect(await rowCounts(run, ["connection_tickets"], "_canary")).toEqual([0]);
      await run(
        "CREATE TRIGGER no_tickets BEFORE INSERT ON connection_tickets BEGIN SELECT RAISE(ABORT, 'no room'); END",
      );
      try {
        await expect(repos.ping({ writes: true })).rejects.toThrow("The database refused a statement");
        await expect(repos.ping()).resolves.toBeUndefined();
      } finally {
        await run("DROP TRIGGER no_tickets");
      }
    });
  });
}

type Run = (sql: string, ...args: (string | number)[]) => Promise<readonly Record<string, unknown>[]>;

/** Asked of the database, not of the schema's code: a table that the code forgot would be found here. */
async function tenantTables(run: Run): Promise<readonly string[]> {
  const rows = await run(
    `SELECT m.name AS name FROM sqlite_master AS m, pragma_table_info(m.name) AS c
     WHERE m.type = 'table' AND c.name = 'tenant' ORDER BY m.name`,
  );
  expect(rows.length).toBeGreaterThan(5);
  return rows.map(({ name }) => String(name));
}

/** A row with something in every column that needs it. */
async function fillRow(run: Run, table: string, tenant: string, index: number): Promise<void> {
  const columns = await run(
    `SELECT name, type FROM pragma_table_info('${table}') WHERE "notnull" = 1 AND dflt_value IS NULL AND name <> 'tenant'`,
  );
  const names = ["tenant", ...columns.map(({ name }) => String(name))];
  const values = columns.map(({ type }) => (/^integer$/i.test(String(type)) ? 900_000 + index : `${tenant}-${index}`));
  await run(
    `INSERT INTO ${table} (${names.map((name) => `"${name}"`).join(", ")}) VALUES (${names.map(() => "?").join(", ")})`,
    tenant,
    ...values,
  );
}

async function rowCounts(run: Run, tables: readonly string[], tenant: string): Promise<readonly unknown[]> {
  const counts = tables.map((table) => run(`SELECT count(*) AS n FROM ${table} WHERE tenant = ?`, tenant));
  return (await Promise.all(counts)).map((rows) => rows[0]?.["n"]);
}

/** Ids of all pages of two, walked as a client does. */
async function allOf<T>(
  list: (page: PageRequest) => Promise<Page<T>>,
  idOf: (item: T) => string,
  order: "asc" | "desc" = "asc",
): Promise<string[]> {
  const ids: string[] = [];
  for (;;) {
    const after = ids.at(-1);
    const page = await list({ limit: 2, order, ...(after === undefined ? {} : { after }) });
    expect(page.data.length).toBeLessThanOrEqual(2);
    ids.push(...page.data.map(idOf));
    if (!page.hasMore) return ids;
    expect(page.data).toHaveLength(2);
  }
}

function plugin(name: string): NewPlugin {
  return {
    name,
    title: "标题",
    description: "Looks something up",
    iconUrl: "https://icons.example/a.png",
    type: "HTTP",
    parameterSchema: { type: "object", properties: { q: { type: "string", default: "" } } },
    executionConfig: {
      schema_version: "v1",
      execution: {
        method: "GET",
        base_url: "https://api.example/search",
        content_type: "application/json",
        param_placement: "query",
      },
      auth_config: { type: "bearer", mapping: [{ source: "API_KEY", location: "header" }] },
    },
    enabled: true,
    requiredCredentials: ["API_KEY"],
    sensitive: false,
    roles: ["admin"],
    hash: "0123",
  };
}

function provider(name: string, priority: number): NewProvider {
  return {
    name,
    kind: "openai",
    baseUrl: "https://models.example/v1",
    credential: "MODEL_KEY",
    models: { small: "vendor/small-1" },
    passthroughModels: true,
    schemaFamily: null,
    priority,
    enabled: true,
    maxAttempts: 2,
    timeoutMs: 30_000,
  };
}
