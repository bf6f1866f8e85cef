import { describe, expect, test } from "vitest";
import type { JsonObject } from "../json.ts";
import { projectSchema } from "./schema-projection.ts";

describe("the projection of a schema", () => {
  const long = Array.from({ length: 100_000 }, (_none, at) => `n${at}`);

  // So long that whatever goes through all of it for each reference takes minutes.
  test.each<readonly [string, JsonObject]>([
    ["properties", { type: "object", properties: Object.fromEntries(long.map((name) => [name, true])) }],
    ["required names", { type: "object", required: long, properties: {} }],
    ["values", { type: "string", enum: long }],
    ["alternatives", { anyOf: long.map(() => true) }],
    ["keywords", Object.fromEntries(long.map((name) => [name, true]))],
  ])("goes only so far through %s that are referred to from everywhere", (_what, target) => {
    const references = Array.from({ length: 1_900 }, () => ({ $ref: "#/$defs/long" }));
    for (const given of [{ allOf: references }, { properties: Object.fromEntries(references.entries()) }]) {
      const { schema, warnings } = projectSchema({ type: "object", ...given, $defs: { long: target } }, "gemini");
      expect(JSON.stringify(schema).length).toBeLessThan(2_000_000);
      expect(warnings).toContain("the schema is too large or too deep and is told in part");
    }
  });
});
