import { tenantSettingsSchema } from "@toolyard/core/tenants/settings";
import { describe, expect, test } from "vitest";
import { parseOwnSettings, parseSettings } from "./settings.ts";

const defaults = tenantSettingsSchema.parse({});

describe("stored settings", () => {
  test("are completed by the defaults for use, and left as they are for show", () => {
    const stored = '{"rounds":3,"untrusted_write_approval":false}';
    expect(parseSettings(stored, {})).toEqual({ ...defaults, rounds: 3, untrusted_write_approval: false });
    expect(parseOwnSettings(stored)).toEqual({ rounds: 3, untrusted_write_approval: false });
    expect(parseOwnSettings("{}")).toEqual({});
  });

  test("count as the operator's cap where they are above it, the tenant's and the defaults alike", () => {
    const caps = { rounds: 5, requests_per_minute: 60 };
    const capped = { ...defaults, ...caps };
    expect(parseSettings('{"rounds":9,"calls_per_round":2}', caps)).toEqual({ ...capped, calls_per_round: 2 });
    expect(parseSettings('{"rounds":3}', caps)).toEqual({ ...capped, rounds: 3 });
    expect(parseOwnSettings('{"rounds":9}')).toEqual({ rounds: 9 });
  });

  test.for([
    ['{"rounds":3,"from_a_newer_release":1}', []],
    ['{"rounds":3,"calls_per_round":100000}', ["calls_per_round"]],
    ['{"rounds":3,"native_tools":"fetch"}', ["native_tools"]],
  ] as const)("%s keep what can be read", ([stored, broken]) => {
    const reported: string[] = [];
    expect(parseSettings(stored, {}, (key) => reported.push(key))).toEqual({ ...defaults, rounds: 3 });
    expect(parseOwnSettings(stored)).toEqual({ rounds: 3 });
    expect(reported).toEqual(broken);
  });

  test.for(["", "null", "[]", "{", null])("%j count as none set, and are reported", (stored) => {
    const reported: string[] = [];
    expect(parseSettings(stored, {}, (key) => reported.push(key))).toEqual(defaults);
    expect(reported).toEqual(["settings"]);
  });
});
