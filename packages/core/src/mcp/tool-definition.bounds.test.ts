import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { JsonValue } from "../json.ts";
import { readToolDefinitions } from "./tool-definition.ts";

/** About 60,000 characters each. */
const large = (at: number, property: JsonValue): JsonValue => ({
  name: `tool_${at}`,
  inputSchema: {
    type: "object",
    properties: Object.fromEntries(Array.from({ length: 2_700 }, (_none, field) => [`p${field}`, property])),
  },
});

describe(`a list of large tools ${verifies("MCP-2")}`, () => {
  test("is read as far as all of them together may go, and the thread is let go in between", async () => {
    let turns = 0;
    const turning = setInterval(() => (turns += 1), 0);
    const listed = Array.from({ length: 100 }, (_none, at) => large(at, { maxItems: 1 }));
    const { tools, warnings } = await readToolDefinitions(listed, String);
    clearInterval(turning);
    expect(tools.length).toBeGreaterThan(30);
    expect(tools.length).toBeLessThan(60);
    expect(warnings.at(0)).toMatch(/all definitions together have more than 2097152 characters/);
    expect(turns).toBeGreaterThan(3);
  });

  test("counts those that cannot be used, too", async () => {
    const listed = Array.from({ length: 100 }, (_none, at) => large(at, { maxItems: -1 }));
    const { tools, warnings } = await readToolDefinitions([...listed, { name: "small" }], String);
    expect(tools).toEqual([]);
    expect(warnings[0]).toContain("cannot be used");
    expect(warnings.filter((warning) => warning.includes("cannot be used")).length).toBeLessThan(60);
  });
});
