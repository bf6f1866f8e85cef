/** Schemas and arguments that would keep a process busy are given up on. */
import { describe, expect, it } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import { checkValue, compileArguments } from "./arguments.ts";

function check(schema: JsonObject, given: JsonValue): ReturnType<ReturnType<typeof compileArguments>["validate"]> {
  return compileArguments(schema).validate(given);
}

function definitionError(schema: JsonObject, given: JsonValue = {}): GatewayError {
  try {
    check(schema, given);
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
  throw new Error("the schema was accepted");
}

describe(`the work of one validation ${verifies("CHAT-18")}`, () => {
  const count = (length: number): number[] => Array.from({ length }, (_none, at) => at);
  const listOf = (items: JsonObject): JsonObject => ({ properties: { a: { items } } });
  const wide = Object.fromEntries(count(10_000).map((at) => [`k${at}`, at]));
  const chain = (links: number, last: JsonObject): JsonObject =>
    Object.fromEntries([
      ...count(links).map((at): [string, JsonObject] => [`d${at}`, { $ref: `#/$defs/d${at + 1}` }]),
      [`d${links}`, last],
    ]);

  // Each takes seconds or minutes where any of it is not counted as what it is.
  it.each<[string, JsonObject, JsonObject]>([
    ["a wide union", listOf({ anyOf: count(180).map(() => ({ type: "null" })) }), { a: count(100_000) }],
    [
      "alternatives that exclude each other",
      listOf({ oneOf: count(180).map((at) => ({ required: [`x${at}`, "y"] })) }),
      { a: count(100_000).map(() => ({ a: 1 })) },
    ],
    ["sizes of one large object", { allOf: count(2_000).map(() => ({ minProperties: 1 })) }, wide],
    ["names of one large object", { allOf: count(2_000).map(() => ({ additionalProperties: {} })) }, wide],
    [
      "names that other names need",
      listOf({ dependentRequired: { a: count(5_000).map((at) => `m${at}`) } }),
      { a: count(10_000).map(() => ({ a: 1 })) },
    ],
    [
      "values that are lists",
      { allOf: count(2_000).map(() => ({ properties: { a: { enum: [[1]] } } })) },
      { a: count(100_000) },
    ],
    ["a long default", listOf({ properties: { x: { default: count(30_000) } } }), { a: count(2_000).map(() => ({})) }],
    [
      "a long text as a default",
      listOf({ properties: { x: { default: "s".repeat(60_000) } } }),
      { a: count(20_000).map(() => ({})) },
    ],
    [
      "a text that might be JSON",
      { allOf: count(1_000).map(() => ({ properties: { a: { type: ["array", "object"] } } })) },
      { a: `[${"1,".repeat(200_000)}x]` },
    ],
    [
      "a chain of references",
      { properties: { a: { items: { $ref: "#/$defs/d0" } } }, $defs: chain(900, { type: "object" }) },
      { a: count(50_000).map(() => ({})) },
    ],
    [
      "a pattern of many states",
      listOf({ pattern: "(?:a|b)*a(?:a|b){900}c" }),
      { a: count(1_000).map((at) => `${"ab".repeat(300)}${"a".repeat(at % 50)}${"ba".repeat(300)}c`) },
    ],
  ])("has an end with %s", (_what, schema, given) => {
    expect(definitionError(schema, given).message).toContain("takes too long");
  });

  it("is a fault of a result that takes too much of it", () => {
    const schema = listOf({ anyOf: count(180).map(() => ({ type: "null" })) });
    expect(checkValue(schema, { a: count(100_000) })).toEqual([
      { pointer: "", message: expect.stringMatching(/^cannot be checked: .* takes too long/) as string },
    ]);
  });

  it("is enough for large arguments of plain schemas", () => {
    const row: JsonObject = {
      type: "object",
      required: ["id", "name"],
      properties: {
        id: { type: "integer", minimum: 0 },
        name: { type: "string", minLength: 1, maxLength: 100, pattern: "^[\\w -]{1,64}$" },
        kind: { anyOf: [{ enum: ["a", "b"] }, { type: "null" }] },
        at: { type: "string", format: "date-time" },
        tags: { type: "array", items: { type: "string" }, uniqueItems: true },
        limit: { type: "integer", default: 5 },
      },
      additionalProperties: false,
    };
    const rows = count(5_000).map((id) => ({
      id,
      name: `name ${id}`,
      kind: null,
      at: "2026-01-01T08:00:00Z",
      tags: ["x"],
    }));
    expect(check(listOf(row), { a: rows })).toMatchObject({ ok: true });
    expect(checkValue(listOf({ type: "integer" }), { a: count(300_000) })).toEqual([]);
    const text = "text ".repeat(100_000);
    expect(check({ properties: { text: { maxLength: 1_000_000, pattern: "^[^\\u0000]*$" } } }, { text }).ok).toBe(true);
  });

  it.each<[string, JsonObject]>([
    [
      "large patterns",
      { patternProperties: Object.fromEntries(count(100).map((at) => [`^(a{1,30}b?){9}${at}[\\p{L}]{3}`, {}])) },
    ],
    ["repetitions in a row", { properties: { a: { pattern: ".{0,1000}".repeat(200) } } }],
    ["long ranges in both cases", { properties: { a: { pattern: `(?i)${"[b-\\u{10ffff}]".repeat(100)}` } } }],
  ])("is not begun for %s", (_what, schema) => {
    expect(definitionError(schema).message).toMatch(/too large when (?:its|their) repetitions are written out/);
  });

  it("has room for many patterns", () => {
    const patterns = count(100).map((at): [string, JsonObject] => [`p${at}`, { pattern: `^[a-z]{2,${at + 2}}-\\d+$` }]);
    expect(check({ properties: Object.fromEntries(patterns) }, { p3: "ab-1" }).ok).toBe(true);
  });

  it("follows references that lead on and on to the end", () => {
    const schema: JsonObject = { properties: { a: { $ref: "#/$defs/d0" } }, $defs: chain(15_000, { type: "text" }) };
    expect(definitionError(schema).message).toContain("unknown type 'text'");
  });

  it.each<[string, JsonObject]>([
    ["values nested without measure", { enum: [JSON.parse(`${"[".repeat(5_000)}${"]".repeat(5_000)}`) as JsonValue] }],
    ["tens of thousands of schemas", { anyOf: count(30_000).map(() => ({})) }],
    ["hundreds of thousands of values", { enum: count(300_000) }],
    ["thousands of addresses", { $defs: Object.fromEntries(count(5_000).map((at) => [`d${at}`, { $id: `d${at}` }])) }],
    ["an address without measure", { $id: `https://example.com/${"x".repeat(5_000)}` }],
    [
      "addresses that add up",
      {
        $id: "https://example.com/a/",
        $defs: { a: { $id: `${"b/".repeat(600)}`, $defs: { c: { $id: "c/".repeat(600) } } } },
      },
    ],
  ])("is not begun for a schema of %s", (_what, schema) => {
    expect(definitionError(schema).code).toBe("invalid_definition");
  });
});
