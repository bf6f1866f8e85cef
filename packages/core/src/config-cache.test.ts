import { describe, expect, test } from "vitest";
import { emptyConfig } from "../../../test/support/fake-core.ts";
import { verifies } from "../../../test/support/verifies.ts";
import type { PluginRecord } from "./blind/plugin.ts";
import { ConfigCache } from "./config-cache.ts";

const record = (pluginId: number, change: Partial<PluginRecord> = {}): PluginRecord => ({
  pluginId,
  name: `plugin_${pluginId}`,
  title: null,
  description: "A tool.",
  iconUrl: null,
  type: "HTTP",
  parameterSchema: { type: "object" },
  executionConfig: { class_name: "Any" },
  enabled: true,
  requiredCredentials: [],
  sensitive: false,
  roles: [],
  hash: `hash ${pluginId}`,
  createdAt: 1,
  updatedAt: 1,
  ...change,
});

describe(`snapshots of a tenant with many plugins ${verifies("BLIND-9")}`, () => {
  test("keep the plugins that a change did not touch, so that nothing is compiled anew for them", async () => {
    const versions = [
      [record(1), record(2), record(3), record(4)],
      [record(1), record(2, { hash: "other" }), record(3, { enabled: false }), record(4, { updatedAt: 2 }), record(5)],
    ];
    let version = 0;
    const cache = new ConfigCache({
      load: (tenant) => {
        const plugins = structuredClone(versions[version] ?? []);
        version += 1;
        return Promise.resolve({ ...emptyConfig(tenant), version, plugins });
      },
    });
    const before = await cache.get("ten_a", 1);
    const after = await cache.get("ten_a", 2);
    expect(after.version).toBe(2);
    expect(after.plugins).toEqual(versions[1]);
    expect(after.plugins.map((plugin) => before.plugins.includes(plugin))).toEqual([true, false, false, false, false]);
  });
});

describe(`snapshots of many tenants ${verifies("BLIND-9")}`, () => {
  test("are as many as their tools allow, and the one that was not used for longest goes first", async () => {
    const loads: string[] = [];
    const counts: Readonly<Record<string, number>> = { ten_a: 9_000, ten_b: 9_000, ten_c: 9_000, ten_d: 30_000 };
    const cache = new ConfigCache({
      load: (tenant) => {
        loads.push(tenant);
        const plugins = Array.from({ length: counts[tenant] ?? 0 }, (_none, at) => record(at));
        return Promise.resolve({ ...emptyConfig(tenant), version: 1, plugins });
      },
    });
    const use = async (...tenants: readonly string[]): Promise<void> => {
      for (const tenant of tenants) await cache.get(tenant, 1);
    };
    await use("ten_a", "ten_b", "ten_a", "ten_c");
    expect(loads.splice(0)).toEqual(["ten_a", "ten_b", "ten_c"]);
    await use("ten_a", "ten_c");
    expect(loads).toEqual([]);
    await use("ten_b", "ten_c", "ten_a");
    expect(loads.splice(0)).toEqual(["ten_b", "ten_a"]);
    await use("ten_d", "ten_d");
    expect(loads.splice(0)).toEqual(["ten_d"]);
    await use("ten_a", "ten_b", "ten_a");
    expect(loads).toEqual(["ten_a", "ten_b"]);
  });
});
