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
