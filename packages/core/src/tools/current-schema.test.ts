import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { JsonObject } from "../json.ts";
import { compileArguments } from "./arguments.ts";
import { currentSchema } from "./current-schema.ts";

const text: JsonObject = { type: "string" };
const number: JsonObject = { type: "number" };
const draft = (name: string): string => `http://json-schema.org/${name}/schema#`;

const older: Readonly<Record<string, readonly [given: JsonObject, told: JsonObject]>> = {
  "a list of items of which nothing is said": [{ type: "array" }, { type: "array", items: {} }],
  "a list that may be null": [{ type: ["array", "null"] }, { type: ["array", "null"], items: {} }],
  "a tuple": [
    { type: "array", items: [text, number] },
    { type: "array", prefixItems: [text, number], items: {} },
  ],
  "a tuple that ends": [
    { type: "array", items: [text], additionalItems: false },
    { type: "array", prefixItems: [text], items: false },
  ],
  "a tuple that goes on, by a reference into it": [
    {
      type: "object",
      properties: { q: { type: "array", items: [text], additionalItems: { $ref: "#/properties/q/items/0" } } },
    },
    {
      type: "object",
      properties: { q: { type: "array", prefixItems: [text], items: { $ref: "#/properties/q/prefixItems/0" } } },
    },
  ],
  "a tuple of this draft": [
    { type: "array", prefixItems: [text] },
    { type: "array", prefixItems: [text], items: {} },
  ],
  "a tuple of nothing": [
    { type: "array", items: [], maxItems: 0 },
    { type: "array", items: {}, maxItems: 0 },
  ],
  "a tuple of nothing that goes on": [
    { type: "array", items: [], additionalItems: text },
    { type: "array", items: text },
  ],
  "a tuple of nothing, of this draft": [
    { type: "array", prefixItems: [], items: false },
    { type: "array", items: false },
  ],
  "bounds that a boolean excludes": [
    { type: "integer", minimum: 0, exclusiveMinimum: true, maximum: 9, exclusiveMaximum: true },
    { type: "integer", exclusiveMinimum: 0, exclusiveMaximum: 9 },
  ],
  "bounds that a boolean does not exclude": [
    { type: "integer", minimum: 0, exclusiveMinimum: false },
    { type: "integer", minimum: 0 },
  ],
  "an excluded bound that is not there": [{ type: "integer", exclusiveMaximum: true }, { type: "integer" }],
  "names and types said twice": [
    { type: ["object", "object"], properties: { a: {} }, required: ["a", "a"] },
    { type: ["object"], properties: { a: {} }, required: ["a"] },
  ],
  "fields that are not set": [
    { type: "string", title: null, description: null, default: null, const: null },
    { type: "string", default: null, const: null },
  ],
  "the name of the draft it is no more": [
    { $schema: draft("draft-07"), type: "object", properties: { q: { type: "array" } } },
    { type: "object", properties: { q: { type: "array", items: {} } } },
  ],
};

describe("a schema of an older draft", () => {
  test.each(Object.entries(older))("is told in the words of today: %s", (_name, [given, told]) => {
    expect(currentSchema(given)).toEqual(told);
  });

  // Of a reference the place in the whole would be another.
  const parts = Object.entries(older).filter(([, [given]]) => given["properties"] === undefined);

  test.each(parts)("is told so wherever it stands: %s", (_name, [given, told]) => {
    const deep = (schema: JsonObject): JsonObject => ({
      type: "object",
      properties: { items: { anyOf: [schema, { type: "array", items: schema }] } },
      $defs: { a: schema },
    });
    expect(currentSchema(deep(given))).toEqual(deep(told));
  });

  test.each(Object.entries(older))("means what it meant: %s", (_name, [given, told]) => {
    const isWhole = given["properties"] !== undefined;
    const [before, after] = [given, told].map((schema) =>
      compileArguments(isWhole ? schema : { type: "object", properties: { q: schema } }),
    );
    const value = fc.oneof(fc.jsonValue(), fc.integer({ min: -1, max: 10 }), fc.array(fc.oneof(fc.string(), fc.nat())));
    fc.assert(
      fc.property(value, (each) => {
        const given = JSON.parse(JSON.stringify({ q: each })) as JsonObject;
        expect(after?.validate(structuredClone(given)).ok).toBe(before?.validate(given).ok);
      }),
    );
  });
});

test("A schema that needs no other words is the very same object", () => {
  const schema: JsonObject = {
    $schema: draft("draft-07"),
    type: "object",
    properties: {
      items: { type: "array", items: { enum: [null, "a"] }, minItems: 1 },
      exclusiveMinimum: { type: "number", exclusiveMinimum: 3 },
      $ref: { $ref: "#/properties/items/items" },
      required: true,
    },
    required: ["items"],
    examples: [{ items: null }],
  };
  expect(currentSchema(schema)).toBe(schema);
});
