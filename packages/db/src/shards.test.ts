import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NewPlugin } from "@toolyard/core/ports/plugins";
import { clearAfterErasure } from "@toolyard/core/tenants/erase";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createMemoryBlobStore } from "../../../test/support/memory-ports.ts";
import { openDatabase } from "./client.ts";
import type { Database } from "./database.ts";
import { migrate } from "./migrate.ts";
import { createRepos } from "./repos/index.ts";
import { openShards } from "./shards.ts";

let directory = "";
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-shards-"));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

async function migrated(name: string): Promise<Database> {
  const database = await openDatabase({ url: `file:${join(directory, name)}` });
  await migrate(database);
  return database;
}

const noShard = (url: string): Promise<Database> => Promise.reject(new Error(`Nothing to open at ${url}.`));

async function count(database: Database, table: string, tenant: string): Promise<unknown> {
  const column = table === "tenants" ? "id" : "tenant";
  const [result] = await database.batch(
    [{ sql: `SELECT count(*) AS n FROM ${table} WHERE ${column} = ?`, args: [tenant] }],
    { readonly: true },
  );
  return result?.rows[0]?.["n"];
}

describe("shards", () => {
  test("are one database at first, also for tenants that nobody knows", async () => {
    const database = await migrated("one.db");
    const shards = await openShards(database, noShard);
    expect(shards.directory).toBe(database);
    expect(shards.databaseFor("ten_unknown")).toBe(database);
    expect(shards.all()).toEqual([database]);
    await createRepos(shards).tenants.create({ id: "ten_a", name: "A", wrappedKey: "k", settings: {} });
    await database.batch([{ sql: "UPDATE tenants SET shard = 'default'", args: [] }]);
    const again = await openShards(database, noShard);
    expect(again.databaseFor("ten_a")).toBe(database);
    expect(again.all()).toEqual([database]);
    await again.close();
  });

  test("refuse to start with a tenant on a shard that is not listed", async () => {
    const database = await migrated("unlisted.db");
    await database.batch([
      { sql: "INSERT INTO tenants (id, name, wrapped_key, shard) VALUES ('ten_a', 'A', 'k', 'lost')", args: [] },
    ]);
    await expect(openShards(database, noShard)).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringContaining("'lost'"),
    });
    await database.close();
  });

  test("give a tenant a database of its own, and its rows go nowhere else", async () => {
    const database = await migrated("directory.db");
    const own = await migrated("own.db");
    const tenant = { id: "ten_large", name: "Large", wrappedKey: "k", settings: {} };
    await createRepos(await openShards(own, noShard)).tenants.create(tenant);
    await database.batch([
      { sql: "INSERT INTO shards (id, url) VALUES ('large', 'file:own')", args: [] },
      {
        sql: "INSERT INTO tenants (id, name, wrapped_key, shard) VALUES ('ten_large', 'Old name', 'k', 'large')",
        args: [],
      },
    ]);
    const opened: string[] = [];
    const shards = await openShards(database, async (url) => {
      opened.push(url);
      return own;
    });
    const repos = createRepos(shards);
    expect(opened).toEqual(["file:own"]);
    expect(shards.databaseFor("ten_large")).toBe(own);
    expect(shards.databaseFor("ten_small")).toBe(database);
    expect(shards.all()).toEqual([database, own]);

    await repos.tenants.create({ id: "ten_small", name: "Small", wrappedKey: "k", settings: {} });
    await repos.plugins.create("ten_large", plugin("lookup"));
    await repos.plugins.mirrorNative([{ ...plugin("native_tool"), type: "NATIVE" }]);
    expect(await count(own, "sys_ai_plugin", "ten_large")).toBe(1);
    expect(await count(database, "sys_ai_plugin", "ten_large")).toBe(0);
    const listed = await repos.plugins.list("ten_large", { limit: 10, order: "asc" });
    expect(listed.data.map(({ name }) => name)).toEqual(["lookup", "native_tool"]);
    expect((await repos.config.load("ten_large"))?.version).toBe(2);
    const price = { kind: "tool", pattern: "*", effective_from: null, per_call: 1 } as const;
    await repos.prices.putOperator([price]);
    for (const [id, version] of Object.entries({ ten_large: 3, ten_small: 2 })) {
      expect(await repos.config.load(id)).toMatchObject({ version, prices: { own: [], operator: [price] } });
    }
    expect((await repos.tenants.list({ limit: 10, order: "asc" })).data.map(({ name }) => name)).toEqual([
      "Large",
      "Small",
    ]);
    await repos.tenants.update("ten_large", { wrappedKey: "new.key" });
    const sampled = await repos.tenants.sampleWrappedKeys(10);
    expect(sampled.map(({ tenant: id, wrappedKey }) => `${id} ${wrappedKey}`).sort()).toEqual([
      "ten_large new.key",
      "ten_small k",
    ]);

    expect(await repos.tenants.erase("ten_large")).toBe(true);
    expect(await count(own, "sys_ai_plugin", "ten_large")).toBe(0);
    expect(await count(own, "tenants", "ten_large")).toBe(0);
    expect(await count(database, "tenants", "ten_large")).toBe(0);

    // What a request that was let in before has stored since is looked for by a process that knows of no such tenant.
    await repos.plugins.create("ten_large", plugin("late"));
    expect(await count(own, "sys_ai_plugin", "ten_large")).toBe(1);
    const fresh = createRepos(await openShards(database, async () => own));
    await clearAfterErasure({ repos: fresh, blobs: createMemoryBlobStore() }, "ten_large");
    expect(await count(own, "sys_ai_plugin", "ten_large")).toBe(0);
    expect(await fresh.tenants.get("ten_small")).toBeDefined();
    await repos.ping();
    await shards.close();
  });
});

function plugin(name: string): NewPlugin {
  return {
    name,
    title: null,
    description: "Looks something up",
    iconUrl: null,
    type: "HTTP",
    parameterSchema: { type: "object" },
    executionConfig: { class_name: "Any" },
    enabled: true,
    requiredCredentials: [],
    sensitive: false,
    roles: [],
    hash: "h",
  };
}
