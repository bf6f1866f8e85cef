import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { JsonObject } from "../../json.ts";
import { keysOf } from "./configuration-names.ts";
import { resolveKeys, type Layers } from "./configuration.ts";
import { parseEnvFile } from "./env-file.ts";
import { parseManifest, type ConfigKey } from "./manifest.ts";

const key = (name: string, type: ConfigKey["type"] = "text", fallback?: string): ConfigKey => ({
  key: name,
  type,
  required: false,
  ...(fallback === undefined ? {} : { default: fallback }),
});
const least = { name: "P", pluginType: "synchronous", entryPoint: { command: "p" } };
const none: Layers = { global: new Map(), files: [], own: new Map() };

describe(`layers of configuration ${verifies("VCP-2")}`, () => {
  test("beat each other in their order", () => {
    const layers: readonly Layers[] = [
      none,
      { ...none, global: new Map([["K", "global"]]) },
      {
        ...none,
        global: new Map([["K", "global"]]),
        files: [{ name: "config.env", values: new Map([["K", "config.env"]]) }],
      },
      {
        ...none,
        files: [
          { name: "config.env", values: new Map([["K", "config.env"]]) },
          { name: ".env", values: new Map([["K", ".env"]]) },
        ],
      },
      {
        ...none,
        files: [{ name: ".env", values: new Map([["K", ".env"]]) }],
        own: new Map([["K", "tenant"]]),
      },
    ];
    const resolved = layers.map((each) => resolveKeys([key("K", "text", "default")], each).get("K"));
    const expected = ["default", "global", "config.env", ".env", "tenant"];
    expect(resolved).toEqual(expected.map((source) => ({ value: source, source })));
  });

  test.for([
    ["is not named", {}],
    ["has a type alone", { DebugMode: "boolean" }],
    ["has a description alone", { DebugMode: { type: "boolean", description: "Tells more." } }],
    ["has a value in place of its type", { DebugMode: false }],
  ])("always say whether to tell more, also where DebugMode %s in the schema", ([, configSchema]) => {
    const keys = keysOf(parseManifest({ ...least, configSchema: configSchema as JsonObject }));
    const files = [{ name: "config.env", values: new Map([["DebugMode", "True"]]) }] as const;
    expect(resolveKeys(keys, none).get("DebugMode")).toEqual({ value: false, source: "default" });
    expect(resolveKeys(keys, { ...none, files }).get("DebugMode")).toEqual({ value: true, source: "config.env" });
  });

  test("give way where they leave a value empty, unless there is none below", () => {
    const files = [{ name: "config.env", values: new Map([["K", ""]]) }] as const;
    const resolve = (layers: Partial<Layers>, fallback?: string): unknown =>
      resolveKeys([key("K", "text", fallback)], { ...none, files, ...layers }).get("K");
    expect(resolve({}, "default")).toEqual({ value: "default", source: "default" });
    expect(resolve({ global: new Map([["K", "global"]]) })).toEqual({ value: "global", source: "global" });
    expect(resolve({})).toEqual({ value: "", source: "config.env" });
    const flag = (fallback?: string): unknown =>
      resolveKeys([key("K", "boolean", fallback)], { ...none, files }).get("K");
    expect([flag("true"), flag()]).toEqual([{ value: true, source: "default" }, undefined]);
  });

  test("have the type of their key; what is no such value is none", () => {
    const own = new Map([
      ["whole", "12abc"],
      ["bad", "many"],
      ["flag", "TRUE"],
      ["off", "yes"],
      ["plain", "1.50"],
    ]);
    const keys = [
      key("whole", "integer"),
      key("bad", "integer", "4"),
      key("flag", "boolean"),
      key("off", "boolean"),
      key("plain"),
    ];
    const resolved = resolveKeys(keys, { ...none, own });
    expect([...resolved].map(([name, { value }]) => [name, value])).toEqual([
      ["whole", 12],
      ["bad", 4],
      ["flag", true],
      ["off", false],
      ["plain", "1.50"],
    ]);
  });

  test("bring keys beside the schema from files only", () => {
    const beside = new Map([["OTHER", "x"]]);
    const resolved = resolveKeys([], { global: beside, own: beside, files: [{ name: ".env", values: beside }] });
    expect([...resolved]).toEqual([["OTHER", { value: "x", source: ".env" }]]);
    expect(resolveKeys([], { ...none, global: beside, own: beside }).size).toBe(0);
  });
});

describe("environment files", () => {
  test.for<readonly [string, Readonly<Record<string, string>>]>([
    ["A=1\nB = two words \n", { A: "1", B: "two words" }],
    ["# note\nexport A=1 # behind\r\n\r\nB=2", { A: "1", B: "2" }],
    [`A="x # y\\nz"\nB='raw \\n'\nC=\`tick\``, { A: "x # y\nz", B: "raw \\n", C: "tick" }],
    ["A.b@c%d&e^f+g_h-i=1", { "A.b@c%d&e^f+g_h-i": "1" }],
    ["A=\nA=later\nnot a line\n=x", { A: "later" }],
    ['A="over\ntwo lines"\nB=1', { A: "over\ntwo lines", B: "1" }],
  ])("%j", ([text, expected]) => {
    expect(Object.fromEntries(parseEnvFile(text))).toEqual(expected);
  });
});
