import { describe, expect, test } from "vitest";
import type { JsonObject } from "../../json.ts";
import { verifies } from "../../../../../test/support/verifies.ts";
import { parseManifest } from "./manifest.ts";
import { describeTool } from "./parameters.ts";
import { allToolsText, noToolText, textOfPlugin } from "./tool-text.ts";

const manifestOf = (invocationCommands: JsonObject[]): ReturnType<typeof parseManifest> =>
  parseManifest({
    name: "Painter",
    displayName: "画家",
    description: "Paints.",
    pluginType: "synchronous",
    entryPoint: { command: "x" },
    capabilities: { invocationCommands },
  });
const textOf = (commands: JsonObject[]): string => {
  const manifest = manifestOf(commands);
  return textOfPlugin({ name: manifest.name, displayName: manifest.displayName, manifest });
};

describe(`what models are told of a plugin ${verifies("VCP-3")}`, () => {
  test("is upstream's text, line by line", () => {
    expect(
      textOf([
        { command: "paint", description: "Paints\na picture.", example: "do\nit" },
        { commandIdentifier: "Look", description: "Looks." },
        { command: "silent", description: "" },
      ]),
    ).toBe(
      "- 画家 (Painter) - 命令: paint:\n    Paints\n    a picture.\n  调用示例:\n    do\n    it\n\n- 画家 (Painter) - 命令: N/A:\n    Looks.",
    );
    expect(allToolsText(["a", "", "b"])).toBe("a\n\n---\n\nb");
    expect(allToolsText([])).toBe(noToolText);
  });

  test("are the arguments that blocks, lists and parameters name, none of them required", () => {
    const { parameters, commands } = describeTool(
      manifestOf([
        {
          commandIdentifier: "PaintPicture",
          description:
            "Paints.\n- size (数字, 可选): edge in pixels\n- **colors**（数组，可选）：names\n<<<[TOOL_REQUEST]>>>\ntool_name:「始」Painter「末」,\ncommand:「始」paint「末」,\nprompt:「始」(必需) what to paint「末」,\narchery:「始」true「末」\n<<<[END_TOOL_REQUEST]>>>",
        },
        {
          command: "look",
          description: "Looks.",
          example: "tool_name:「始」Painter「末」, picture:「始」a.png「末」",
          parameters: [{ name: "depth", type: "integer", description: "How deep.", required: true }],
        },
      ]),
    );
    expect(parameters).toEqual({
      type: "object",
      properties: {
        command: {
          description: "Which command: paint, look.",
          anyOf: [{ type: "string", enum: ["paint", "look"] }, { type: "string" }],
        },
        size: { type: ["number", "string", "boolean"], description: "(数字, 可选) edge in pixels" },
        colors: { type: ["array", "string"], items: {}, description: "（数组，可选） names" },
        prompt: { type: ["string", "number", "boolean"], description: "(必需) what to paint" },
        depth: { type: ["number", "string", "boolean"], description: "(required) How deep." },
        picture: { type: ["string", "number", "boolean"], description: "For example: a.png" },
      },
    });
    expect([...commands]).toEqual([
      ["PaintPicture", "paint"],
      ["paint", "paint"],
      ["look", "look"],
    ]);
  });

  test("is prose without the blocks that the arguments tell already", () => {
    const { description } = describeTool(
      manifestOf([
        { command: "paint", description: "Paints.\n<<<[TOOL_REQUEST]>>>\nx\n<<<[END_TOOL_REQUEST]>>>\nSlow." },
      ]),
    );
    expect(description).toBe("Paints.\n\npaint: Paints.\n\nSlow.");
  });

  test("does not search a hostile description for ever", () => {
    // A quadratic search would not end within the time that a test has.
    for (const piece of ["a:「始」", "- a (", "<<<[TOOL_REQUEST]>>>", "「", " ".repeat(10)]) {
      const commands = [{ command: "x", description: piece.repeat(2_000_000 / piece.length) }];
      expect(describeTool(manifestOf(commands)).parameters["type"]).toBe("object");
    }
  });
});
