import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { tenantSettingsSchema, changeSettings, settingsCapsSchema, settingsChangeSchema } from "./settings.ts";

describe(`changing settings ${verifies("CHAT-12")}`, () => {
  test("leaves alone what the change does not name", () => {
    const change = settingsChangeSchema().parse({ rounds: 3 });
    expect(change).toEqual({ rounds: 3 });
    expect(changeSettings({ concurrent_tool_calls: 2 }, change)).toEqual({ concurrent_tool_calls: 2, rounds: 3 });
  });

  test("takes a setting back to its default with null", () => {
    expect(changeSettings({ rounds: 3 }, settingsChangeSchema().parse({ rounds: null }))).toEqual({});
  });

  test("refuses unknown names, wrong types and values beyond the schema by name", () => {
    for (const change of [{ round: 3 }, { rounds: "3" }, { rounds: 0 }, { rounds: 101 }, { native_tools: "fetch" }]) {
      expect(settingsChangeSchema().safeParse(change).success).toBe(false);
    }
  });

  test("refuses a value above the operator's cap, naming setting and cap", () => {
    expect(() => changeSettings({}, { rounds: 6 }, { rounds: 5 })).toThrow(
      expect.objectContaining({ code: "invalid_request", details: { param: "rounds", extra: { cap: 5 } } }),
    );
    expect(changeSettings({}, { rounds: 5 }, { rounds: 5 })).toEqual({ rounds: 5 });
  });

  test("stores what was asked for, so that a cap that is raised frees it again", () => {
    expect(changeSettings({}, {}, { requests_per_minute: 60 })).toEqual({});
    expect(changeSettings({ rounds: 9 }, { calls_per_round: 2 }, { rounds: 5 })).toEqual({
      rounds: 9,
      calls_per_round: 2,
    });
    expect(changeSettings({ rounds: 9 }, { rounds: null }, { rounds: 5 })).toEqual({});
  });

  test("takes no cap that is below the least that the setting can be", () => {
    const isCap = (caps: object): boolean => settingsCapsSchema().safeParse(caps).success;
    expect([isCap({ wall_clock_ms: 999 }), isCap({ wall_clock_ms: 1_000 })]).toEqual([false, true]);
    expect([isCap({ approval_wait_s: 0 }), isCap({ rounds: 0 }), isCap({ rounds: 1 })]).toEqual([true, false, true]);
  });

  test("has an entry for every setting", () => {
    expect(Object.keys(settingsChangeSchema().shape).sort()).toEqual(Object.keys(tenantSettingsSchema.shape).sort());
  });
});
