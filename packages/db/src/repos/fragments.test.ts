/** Settings that SQL reads by itself are those that the configuration has. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { tenantSettingsSchema, type TenantSettings, type SettingsCaps } from "@toolyard/core/tenants/settings";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { openDatabase } from "../client.ts";
import { migrate } from "../migrate.ts";
import { openShards, type OpenShards } from "../shards.ts";
import { setting } from "./fragments.ts";
import { createRepos } from "./index.ts";

let directory: string;
let shards: OpenShards;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-fragments-"));
  const database = await openDatabase({ url: `file:${join(directory, "toolyard.db")}` });
  await migrate(database);
  shards = await openShards(database, () => Promise.reject(new Error("there is no other database")));
});
afterAll(async () => {
  await shards.close();
  await rm(directory, { recursive: true });
});

const caps = { requests_per_minute: 60, session_idle_ms: 5_000, calls_archive_days: 0, workspace_bytes: 2_048 };
const names = ["requests_per_minute", "session_idle_ms", "calls_archive_days", "workspace_bytes"] as const;
const most: Partial<TenantSettings> = {
  requests_per_minute: 1_000_000,
  session_idle_ms: 9_000,
  workspace_bytes: 4_096,
};
const least: Partial<TenantSettings> = { requests_per_minute: 1, session_idle_ms: 1_000, workspace_bytes: 1_024 };

describe(`settings in SQL ${verifies("CHAT-12")}`, () => {
  test.for([
    ["defaults", {}],
    ["large ones", most],
    ["small ones", least],
    ["what no setting can be", { requests_per_minute: 0, session_idle_ms: 1 }],
  ] as const)("are those that are loaded, under caps and without: %s", async ([name, settings]) => {
    const id = `ten_${name.replaceAll(" ", "_")}`;
    await createRepos(shards).tenants.create({ id, name, wrappedKey: id, settings });
    for (const under of [{}, caps] satisfies SettingsCaps[]) {
      const loaded = await createRepos(shards, { caps: under }).config.load(id);
      const columns = names.map((each) => `${setting(each, under)} AS ${each}`).join(", ");
      const sql = `SELECT ${columns} FROM tenants AS t WHERE t.id = ?1`;
      const [read] = await shards.directory.batch([{ sql, args: [id] }], { readonly: true });
      expect(read?.rows[0]).toEqual(Object.fromEntries(names.map((each) => [each, loaded?.settings[each]])));
    }
    const defaults = tenantSettingsSchema.parse({});
    expect(defaults.requests_per_minute).toBeGreaterThan(caps.requests_per_minute);
  });
});
