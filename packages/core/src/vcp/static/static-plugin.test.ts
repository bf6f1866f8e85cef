import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { parseManifest } from "../plugins/manifest.ts";
import type { VcpPlugin } from "../plugins/plugin.ts";
import { isStale, withoutBraces, type StaticPlugin } from "./static-plugin.ts";

const noon = Date.UTC(2026, 10, 28, 12);
const hour = 3_600_000;

function pluginWith(cron?: string): StaticPlugin {
  const manifest = parseManifest({
    name: "Weather",
    pluginType: "static",
    entryPoint: { command: "sh x.sh" },
    ...(cron === undefined ? {} : { refreshIntervalCron: cron }),
  });
  const plugin = { name: "Weather", manifest } as VcpPlugin;
  return { name: "Weather", displayName: "Weather", placeholders: [], version: "v1", plugin };
}

describe(`a value is stale ${verifies("VCP-20")}`, () => {
  const stored = (refreshedAt: number | null, change: { version?: string; error?: string } = {}) => ({
    version: "v1",
    error: null,
    refreshedAt,
    ...change,
  });
  const at = (now: number, timeZone = "UTC") => ({ now, timeZone });

  test.for<[string, StaticPlugin, Parameters<typeof isStale>[1], number, boolean]>([
    ["where there has never been one", pluginWith(), undefined, noon, true],
    ["where the first run has not ended", pluginWith(), stored(null), noon, true],
    ["not by itself, without a schedule", pluginWith(), stored(0), noon, false],
    ["where the plugin is another one", pluginWith(), stored(noon, { version: "v0" }), noon, true],
    ["a minute after it failed", pluginWith(), stored(noon - 60_000, { error: "no" }), noon, true],
    ["not at once after it failed", pluginWith(), stored(noon - 59_000, { error: "no" }), noon, false],
    ["from the next time of five fields on", pluginWith("0 * * * *"), stored(noon - 1), noon, true],
    ["not before it", pluginWith("0 * * * *"), stored(noon), noon + hour - 1, false],
    ["from the next time of six fields on", pluginWith("*/10 * * * * *"), stored(noon), noon + 10_000, true],
    ["not before that", pluginWith("*/10 * * * * *"), stored(noon), noon + 9_999, false],
  ])("%s", ([, plugin, value, now, expected]) => {
    expect(isStale(plugin, value, at(now))).toBe(expected);
  });

  test("by the clock of the tenant's time zone", () => {
    const daily = pluginWith("0 20 * * *");
    expect(isStale(daily, stored(noon - 1), at(noon, "Asia/Shanghai"))).toBe(true);
    expect(isStale(daily, stored(noon - 1), at(noon, "UTC"))).toBe(false);
  });
});

test("placeholders are named with and without braces", () => {
  expect([" {{VCPNext}} ", "VCPNext", "{{ VCPNext }}"].map(withoutBraces)).toEqual(["VCPNext", "VCPNext", "VCPNext"]);
});
