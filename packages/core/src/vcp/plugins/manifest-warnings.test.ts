import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { JsonObject } from "../../json.ts";
import { parseManifest } from "./manifest.ts";
import { warningsOfManifest } from "./manifest-warnings.ts";

const least = { name: "Tool", entryPoint: { command: "sh run.sh" } };
const tool = {
  ...least,
  pluginType: "synchronous",
  capabilities: { invocationCommands: [{ command: "go", description: "Goes." }] },
};
const filler = { ...least, pluginType: "static" };

const warnings = (source: JsonObject, filled: Readonly<Record<string, string>> = {}): readonly string[] =>
  warningsOfManifest(parseManifest(source), (name) => filled[name]);

describe(`what a manifest says in vain ${verifies("VCP-24")}`, () => {
  test.each<[string, JsonObject]>([
    ["a tool", { ...tool, communication: { protocol: "stdio", timeout: "5000" } }],
    [
      "commands and placeholders in every form that is read",
      {
        ...filler,
        capabilities: {
          invocationCommands: [{ command: "go" }],
          systemPromptPlaceholders: ["{{A}}", "B", { placeholder: "{{C}}" }],
        },
        webSocketPush: { enabled: false },
      },
    ],
  ])("is nothing in %s", (_what, source) => {
    expect(warnings(source)).toEqual([]);
  });

  test.each<[JsonObject, readonly string[]]>([
    [
      { ...tool, capabilities: { invocationCommands: { command: "go" } } },
      [
        "'capabilities.invocationCommands' is no list and was left out.",
        "Prompts say nothing of it: 'capabilities.invocationCommands' has no command.",
      ],
    ],
    [
      { ...tool, capabilities: { invocationCommands: [{}, "go"] } },
      ["'capabilities.invocationCommands[1]' is no object."],
    ],
    [
      { ...tool, communication: { timeout: "soon" } },
      ["'communication.timeout' is no number of milliseconds; 60000 are used."],
    ],
    [
      { ...tool, webSocketPush: { enabled: "yes" } },
      ["'webSocketPush.enabled' is neither true nor false; nothing is pushed."],
    ],
    [filler, ["It fills nothing: 'capabilities.systemPromptPlaceholders' names no placeholder."]],
    [
      { ...filler, capabilities: { systemPromptPlaceholders: [{ name: "{{A}}" }, "{B}"] } },
      [
        "'capabilities.systemPromptPlaceholders[0]' names no 'placeholder' and was left out.",
        "'capabilities.systemPromptPlaceholders[1]' is no placeholder: a name stands in two braces, '{{Name}}'.",
      ],
    ],
  ])("is told of %j", (source, told) => {
    expect(warnings(source)).toEqual(told);
  });

  test("is a placeholder that another plugin fills, too", () => {
    const source = { ...filler, capabilities: { systemPromptPlaceholders: ["{{VCPNews}}"] } };
    expect(warnings(source, { VCPNews: "Other" })).toEqual([
      "'{{VCPNews}}' is filled by 'Other', too; the last by name counts.",
    ]);
  });
});
