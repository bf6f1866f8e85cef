import { Validator, type Schema } from "@cfworker/json-schema";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import { compileArguments, parseToolArguments } from "./arguments.ts";

function check(schema: JsonObject, given: JsonValue): ReturnType<ReturnType<typeof compileArguments>["validate"]> {
  return compileArguments(schema).validate(given);
}

function valueOf(schema: JsonObject, given: JsonObject): JsonObject {
  const checked = check(schema, given);
  if (!checked.ok) throw new Error(JSON.stringify(checked.errors));
  return checked.value;
}

function errorsOf(schema: JsonObject, given: JsonValue): readonly { pointer: string; message: string }[] {
  const checked = check(schema, given);
  return checked.ok ? [] : checked.errors;
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

describe(`tool arguments as a model writes them ${verifies("CHAT-18")}`, () => {
  it.each(["", "  ", "\n\t"])("takes blank text %j as no arguments", (text) => {
    expect(parseToolArguments(text)).toEqual({ ok: true, value: {} });
  });

  it("keeps a complete object as it is", () => {
    expect(parseToolArguments('{"city":"北京","n":[1,2.5,null]}')).toEqual({
      ok: true,
      value: { city: "北京", n: [1, 2.5, null] },
    });
  });

  it.each([
    ["cut off in a string", '{"path":"report.md","content":"# Title\\nsecond li'],
    ["a placeholder before the object", '{}{"city":"x"}'],
    ["a fence around it", '```json\n{"a":1}\n```'],
    ["single quotes", "{'a':1}"],
    ["a trailing comma", '{"a":1,}'],
    ["Python constants", '{"a":None}'],
  ])("repairs nothing: %s", (_what, text) => {
    expect(parseToolArguments(text)).toMatchObject({
      ok: false,
      errors: [{ pointer: "", message: expect.stringContaining("not valid JSON") as string }],
    });
  });

  it.each(["[1]", '"text"', "3", "null", "true"])("refuses %s, which is no object", (text) => {
    expect(parseToolArguments(text)).toEqual({
      ok: false,
      errors: [{ pointer: "", message: "must be a JSON object" }],
    });
  });

  it("takes a whole number that reading would change as the text of its digits", () => {
    expect(parseToolArguments('{"id":9007199254740993,"even":9007199254740992}')).toEqual({
      ok: true,
      value: { id: "9007199254740993", even: 9_007_199_254_740_992 },
    });
  });

  it("refuses nesting that would exhaust the stack", () => {
    const deep = `{"a":${"[".repeat(50_000)}${"]".repeat(50_000)}}`;
    expect(parseToolArguments(deep)).toMatchObject({ ok: false });
  });

  it("never throws, whatever the text", () => {
    fc.assert(fc.property(fc.string({ unit: "binary" }), (text) => typeof parseToolArguments(text).ok === "boolean"));
  });
});

describe(`defaults ${verifies("BLIND-2")}`, () => {
  const schema: JsonObject = {
    type: "object",
    properties: {
      offset: { type: "integer", default: 0 },
      archived: { type: "boolean", default: false },
      prefix: { type: "string", default: "" },
      limit: { type: "integer", default: 20 },
    },
  };

  it("fills in what is absent, zero, false and empty text too", () => {
    expect(valueOf(schema, {})).toEqual({ offset: 0, archived: false, prefix: "", limit: 20 });
  });

  it("never overwrites a given value, falsy or not", () => {
    expect(valueOf(schema, { limit: 0, archived: true })).toEqual({ offset: 0, archived: true, prefix: "", limit: 0 });
  });

  it("leaves the caller's object and the schema untouched", () => {
    const listed: JsonObject = { type: "object", properties: { tags: { type: "array", default: ["a"] } } };
    const given = {};
    const tags = valueOf(listed, given)["tags"];
    expect(given).toEqual({});
    if (Array.isArray(tags)) tags.push("b");
    expect(valueOf(listed, {})).toEqual({ tags: ["a"] });
  });

  it("satisfies `required` with a default", () => {
    expect(valueOf({ ...schema, required: ["offset"] }, {})["offset"]).toBe(0);
  });

  it("reaches nested objects, list items, references and included schemas", () => {
    const nested: JsonObject = {
      type: "object",
      properties: {
        page: { type: "object", properties: { size: { type: "integer", default: 0 } } },
        rows: { type: "array", items: { $ref: "#/$defs/row" } },
        mode: { allOf: [{ $ref: "#/$defs/mode" }] },
        filter: { anyOf: [{ $ref: "#/$defs/row" }, { type: "null" }] },
      },
      additionalProperties: { $ref: "#/$defs/row" },
      $defs: {
        row: { type: "object", properties: { hidden: { type: "boolean", default: false } } },
        mode: { type: "string", default: "fast" },
      },
    };
    expect(valueOf(nested, { page: {}, rows: [{}, { hidden: true }], filter: {}, more: {} })).toEqual({
      page: { size: 0 },
      rows: [{ hidden: false }, { hidden: true }],
      mode: "fast",
      filter: { hidden: false },
      more: { hidden: false },
    });
  });

  it("creates no object that the schema gives no default for", () => {
    expect(valueOf({ properties: { page: { type: "object", properties: { size: { default: 1 } } } } }, {})).toEqual({});
  });

  it("fills in the members of a default that is an object", () => {
    expect(
      valueOf({ properties: { page: { type: "object", default: {}, properties: { size: { default: 1 } } } } }, {}),
    ).toEqual({ page: { size: 1 } });
  });

  it("passes over a default that its own schema refuses", () => {
    expect(valueOf({ properties: { name: { type: "string", default: null } } }, {})).toEqual({});
    expect(valueOf({ properties: { name: { type: ["string", "null"], default: null } } }, {})).toEqual({ name: null });
  });

  it("ends where a default would breed itself", () => {
    const breeding: JsonObject = { type: "object", properties: { child: { $ref: "#", default: {} } } };
    expect(valueOf(breeding, {})).toEqual({ child: {} });
  });

  it("chooses no default among several alternatives", () => {
    const alternatives: JsonObject = {
      properties: {
        shape: {
          oneOf: [
            { type: "object", required: ["r"], properties: { r: { type: "number" }, unit: { default: "cm" } } },
            { type: "object", required: ["w"], properties: { w: { type: "number" }, unit: { default: "px" } } },
          ],
        },
      },
    };
    expect(valueOf(alternatives, { shape: { w: 1 } })).toEqual({ shape: { w: 1 } });
  });
});

describe(`text that spells another type ${verifies("CHAT-18", "BLIND-2")}`, () => {
  const schema: JsonObject = {
    type: "object",
    properties: {
      ids: { type: "array", items: { type: "integer" } },
      meta: { type: "object", properties: { a: { type: "object", properties: { b: { type: "boolean" } } } } },
      note: { type: "string" },
      count: { type: "integer" },
      rate: { type: "number" },
      flag: { type: "boolean" },
      maybe: { anyOf: [{ type: "integer" }, { type: "null" }] },
      either: { type: ["string", "integer"] },
      free: {},
    },
  };

  it("becomes the value that the schema asks for", () => {
    expect(
      valueOf(schema, {
        ids: '[1,"2",3]',
        meta: '{"a":{"b":"true"}}',
        count: "3",
        rate: "-2.5e1",
        flag: "false",
        maybe: "7",
      }),
    ).toEqual({ ids: [1, 2, 3], meta: { a: { b: true } }, count: 3, rate: -25, flag: false, maybe: 7 });
  });

  it("becomes one of the values that there are, where these say what type it has", () => {
    const chosen: JsonObject = {
      type: "object",
      properties: {
        level: { enum: [1, 2, null] },
        version: { const: 3 },
        strict: { enum: [true] },
        size: { oneOf: [{ const: 10 }, { const: 20 }] },
        page: { type: "integer", enum: [1, 2] },
        word: { enum: ["1", 2] },
      },
    };
    const given = { level: "2", version: "3", strict: "true", size: "20", page: "1", word: "1" };
    expect(valueOf(chosen, given)).toEqual({ level: 2, version: 3, strict: true, size: 20, page: 1, word: "1" });
    expect(errorsOf(chosen, { level: "3" })).toMatchObject([{ pointer: "/level" }]);
  });

  it("stays a string where the schema takes a string or says nothing", () => {
    const given = { note: "[1,2]", either: "3", free: "true" };
    expect(valueOf(schema, given)).toEqual(given);
  });

  it("becomes another value where it is none of the strings that there may be", () => {
    const digits = { type: ["string", "integer", "null"], pattern: "^[0-9]{1,20}$" };
    const several = { anyOf: [digits, { type: "array", items: digits }] };
    const chosen: JsonObject = { properties: { id: digits, ids: several, mode: { enum: ["fast", null] } } };
    expect(valueOf(chosen, { id: "7", ids: '["7"]', mode: "null" })).toEqual({ id: "7", ids: ["7"], mode: null });
    expect(valueOf(chosen, { id: "null", ids: "7", mode: "fast" })).toEqual({ id: null, ids: "7", mode: "fast" });
    expect(valueOf(chosen, { id: "7.0" })).toEqual({ id: 7 });
    expect(errorsOf(chosen, { id: "1".repeat(21) })).toMatchObject([{ pointer: "/id" }]);
    expect(errorsOf(chosen, { mode: "slow" })).toMatchObject([{ pointer: "/mode" }]);
  });

  it("keeps lists, objects and booleans as they were given", () => {
    const given = { ids: [1, 2, 3], meta: { a: { b: true } }, note: "[1,2]" };
    expect(valueOf(schema, given)).toEqual(given);
  });

  it.each([
    ["count", "3.5"],
    ["count", "0x10"],
    ["count", "1,000"],
    ["count", ""],
    ["count", "9007199254740993"],
    ["flag", "yes"],
    ["flag", "True"],
    ["flag", 1],
    ["ids", "1,2,3"],
    ["ids", "[1,2"],
    ["ids", '{"0":1}'],
    ["note", 5],
    ["rate", "Infinity"],
  ])("is refused for '%s' where it could mean something else: %j", (name, value) => {
    expect(errorsOf(schema, { [name]: value })).toMatchObject([{ pointer: `/${name}` }]);
  });
});

describe(`the report of what does not fit ${verifies("CHAT-18")}`, () => {
  it("names each place by a JSON pointer and says what to give", () => {
    const schema: JsonObject = {
      type: "object",
      required: ["path"],
      additionalProperties: false,
      properties: {
        path: { type: "string" },
        "a/b~c": { type: "integer", minimum: 1 },
        rows: { type: "array", items: { type: "object", properties: { kind: { enum: ["x", "y"] } } } },
      },
    };
    expect(errorsOf(schema, { "a/b~c": 0, rows: [{ kind: "x" }, { kind: "z" }], extra: 1 })).toEqual([
      { pointer: "/path", message: "is required and missing" },
      { pointer: "/a~1b~0c", message: "must be at least 1, got 0" },
      { pointer: "/rows/1/kind", message: 'must be one of "x", "y"; got "z"' },
      { pointer: "/extra", message: "is not a known property; known: path, a/b~c, rows" },
    ]);
  });

  it("explains the nearest alternative", () => {
    const schema: JsonObject = {
      properties: {
        target: {
          anyOf: [{ type: "string" }, { type: "object", required: ["id"], properties: { id: { type: "integer" } } }],
        },
      },
    };
    expect(errorsOf(schema, { target: { id: "x" } })).toEqual([
      { pointer: "/target", message: "fits none of its 2 alternatives; the nearest one has the errors that follow" },
      { pointer: "/target/id", message: 'must be integer, got the string "x"' },
    ]);
  });

  it("is bounded in number and length", () => {
    const schema: JsonObject = { type: "object", additionalProperties: { type: "integer" } };
    const given = Object.fromEntries(
      Array.from({ length: 5_000 }, (_, index) => [`${"k".repeat(2_000)}${index}`, "text".repeat(1_000)]),
    );
    const errors = errorsOf(schema, given);
    expect(errors).toHaveLength(10);
    expect(JSON.stringify(errors).length).toBeLessThan(8_000);
  });

  it("refuses arguments that are no object", () => {
    expect(errorsOf({}, [])).toEqual([{ pointer: "", message: "must be a JSON object" }]);
  });
});

describe(`schemas of any origin ${verifies("CHAT-18")}`, () => {
  it("follows draft 7's local definitions and keywords", () => {
    const schema: JsonObject = {
      $schema: "http://json-schema.org/draft-07/schema#",
      type: "object",
      definitions: {
        point: { type: "array", items: [{ type: "number" }, { type: "number" }], additionalItems: false },
      },
      properties: { at: { $ref: "#/definitions/point" } },
      dependencies: { at: ["unit"] },
    };
    expect(check(schema, { at: [1, 2], unit: "cm" }).ok).toBe(true);
    expect(errorsOf(schema, { at: [1, 2, 3] }).map((error) => error.pointer)).toEqual(["/unit", "/at/2"]);
  });

  it("follows recursive references as deep as the value goes", () => {
    const tree: JsonObject = {
      type: "object",
      required: ["name"],
      properties: { name: { type: "string" }, children: { type: "array", items: { $ref: "#" } } },
    };
    expect(errorsOf(tree, { name: "a", children: [{ name: "b", children: [{}] }] })).toEqual([
      { pointer: "/children/0/children/0/name", message: "is required and missing" },
    ]);
  });

  it.each(["https://example.com/schema.json", "other.json#/a", "file:///etc/passwd", "#/$defs/nowhere", "#anchor"])(
    "refuses the reference %s, which leads out of the schema",
    (reference) => {
      const error = definitionError({ type: "object", properties: { a: { $ref: reference } } });
      expect(error.code).toBe("invalid_definition");
      expect(error.message).toContain("/properties/a/$ref");
    },
  );

  it.each<[string, JsonObject]>([
    ["an unknown type", { properties: { a: { type: "text" } } }],
    ["`required` as a boolean", { properties: { a: { type: "string", required: true } } }],
    ["a list for `properties`", { properties: [] }],
    ["a negative length", { properties: { a: { minLength: -1 } } }],
    ["an empty `anyOf`", { anyOf: [] }],
    ["a bad pattern", { properties: { a: { pattern: "(" } } }],
    ["look-around", { properties: { a: { pattern: "^(?=.*x).*$" } } }],
    ["a back reference", { properties: { a: { pattern: "(a)\\1" } } }],
    ["a very long pattern", { properties: { a: { pattern: "a".repeat(3_000) } } }],
    ["a bad property pattern", { patternProperties: { "[": {} } }],
    ["an id that is no address", { properties: { a: { $id: "http://[" } } }],
  ])("refuses %s by a definition error that names the place", (_what, schema) => {
    const error = definitionError(schema);
    expect(error.code).toBe("invalid_definition");
    expect(error.details.param).toBe("parameters");
  });

  it("asserts the common formats leniently and passes over others", () => {
    const schema = (format: string): JsonObject => ({ properties: { a: { type: "string", format } } });
    const fits = (format: string, text: string): boolean => check(schema(format), { a: text }).ok;
    expect(fits("date", "2024-02-29")).toBe(true);
    expect(fits("date", "2023-02-29")).toBe(false);
    expect(fits("date-time", "2024-01-01T08:00:00")).toBe(true);
    expect(fits("date-time", "tomorrow")).toBe(false);
    expect(fits("email", "张三@例子.公司")).toBe(true);
    expect(fits("email", "nobody")).toBe(false);
    expect(fits("uuid", "6f1c1f7e-2f8b-4b53-9b53-0b1e6f0d5c11")).toBe(true);
    expect(fits("ipv4", "256.1.1.1")).toBe(false);
    expect(fits("ipv6", "::1")).toBe(true);
    expect(fits("uri", "no scheme")).toBe(false);
    expect(fits("time", "08:30")).toBe(true);
    for (const format of ["password", "int64", "regex", "constructor", "__proto__", "toString"]) {
      expect(fits(format, "anything")).toBe(true);
    }
  });

  it("compiles a schema once", () => {
    const schema: JsonObject = { type: "object" };
    expect(compileArguments(schema)).toBe(compileArguments(schema));
  });
});

describe(`null as OpenAPI 3.0 allows it ${verifies("CHAT-18", "BLIND-2")}`, () => {
  const schema: JsonObject = {
    type: "object",
    properties: {
      count: { type: "integer", nullable: true },
      mode: { type: "string", enum: ["fast", "slow"], nullable: true },
      plain: { type: "integer", nullable: false },
      nullable: { type: "boolean" },
    },
  };

  it("is a value beside the type and its values, and its word stands for it", () => {
    expect(valueOf(schema, { count: null, mode: null })).toEqual({ count: null, mode: null });
    expect(valueOf(schema, { count: "null", nullable: true })).toEqual({ count: null, nullable: true });
  });

  it.each<readonly [string, JsonObject]>([
    ["a reference", { $ref: "#/$defs/count" }],
    ["an inclusion", { allOf: [{ $ref: "#/$defs/count" }] }],
    ["alternatives", { anyOf: [{ type: "integer" }, { type: "boolean" }] }],
    ["one of alternatives", { oneOf: [{ type: "integer" }, { type: "boolean" }] }],
    ["values", { enum: [1, 2] }],
    ["a constant", { const: 1 }],
    ["a type and a constant", { type: "integer", const: 1 }],
  ])("is a value beside %s", (_what, given) => {
    const beside = (more: JsonObject): JsonObject => ({
      type: "object",
      properties: { given: { ...given, ...more } },
      $defs: { count: { type: "integer" } },
    });
    const nullable = beside({ nullable: true });
    expect(valueOf(nullable, { given: null })).toEqual({ given: null });
    expect(valueOf(nullable, { given: "null" })).toEqual({ given: null });
    expect(valueOf(nullable, { given: 1 })).toEqual({ given: 1 });
    expect(errorsOf(nullable, { given: "x" })[0]).toMatchObject({ pointer: "/given" });
    expect(errorsOf(beside({}), { given: null })[0]).toMatchObject({ pointer: "/given" });
  });

  it("is nothing else's", () => {
    expect(errorsOf(schema, { plain: null, nullable: null })).toMatchObject([
      { pointer: "/plain" },
      { pointer: "/nullable" },
    ]);
    expect(errorsOf(schema, { count: "x", mode: "other" })).toMatchObject([
      { pointer: "/count" },
      { pointer: "/mode" },
    ]);
  });
});

describe(`hostile names and schemas ${verifies("CHAT-18")}`, () => {
  const hostile = [
    "__proto__",
    "constructor",
    "const",
    "toString",
    "hasOwnProperty",
    "prototype",
    "$ref",
    "enum",
    "type",
  ];

  it.each(hostile)("takes a parameter called %s like any other", (name) => {
    const schema = JSON.parse(
      `{"type":"object","properties":{"${name}":{"type":"integer","default":5}},"additionalProperties":false}`,
    ) as JsonObject;
    const filled = valueOf(schema, {});
    expect(Object.hasOwn(filled, name)).toBe(true);
    expect(Object.getPrototypeOf(filled)).toBe(Object.prototype);
    expect(valueOf(schema, JSON.parse(`{"${name}":"7"}`) as JsonObject)).toEqual(JSON.parse(`{"${name}":7}`));
    expect(errorsOf(schema, JSON.parse(`{"${name}":"x"}`) as JsonObject)).toMatchObject([{ pointer: `/${name}` }]);
  });

  it.each(hostile)("does not mistake an inherited %s for a given one", (name) => {
    expect(errorsOf({ required: [name] }, {})).toMatchObject([{ pointer: `/${name}` }]);
    expect(check({ type: "object", additionalProperties: false }, {}).ok).toBe(true);
  });

  it("pollutes nothing", () => {
    const schema = JSON.parse(
      '{"properties":{"__proto__":{"properties":{"polluted":{"default":1}},"default":{}}}}',
    ) as JsonObject;
    valueOf(schema, JSON.parse('{"__proto__":{"admin":true}}') as JsonObject);
    valueOf(schema, {});
    expect(Object.getOwnPropertyNames(Object.prototype)).not.toContain("polluted");
    expect(({} as JsonObject)["admin"]).toBeUndefined();
  });

  // A backtracking engine would need 2^length steps; these texts are long enough to never end there.
  it.each([
    ["nested repetition", "^(a+)+$", "a".repeat(50_000)],
    ["overlapping alternatives", "^(a|aa)+$", "a".repeat(50_000)],
    ["repeated wildcards", "^(.*.*.*.*)x$", "a".repeat(50_000)],
  ])("matches %s in linear time, on values and on property names", (_what, pattern, text) => {
    expect(errorsOf({ properties: { a: { pattern } } }, { a: `${text}!` })).toMatchObject([{ pointer: "/a" }]);
    expect(check({ patternProperties: { [pattern]: false } }, { [`${text}!`]: 1 }).ok).toBe(true);
  });

  it("reads JavaScript's pattern syntax", () => {
    const fits = (pattern: string, text: string): boolean => check({ properties: { a: { pattern } } }, { a: text }).ok;
    expect(fits("^[\\u4e00-\\u9fff]+$", "北京")).toBe(true);
    expect(fits("^\\p{Script=Han}+$", "北京")).toBe(true);
    expect(fits("^\\p{Letter}+$", "aé北")).toBe(true);
    expect(fits("^\\\\p{Letter}$", "\\p{Letter}")).toBe(true);
    expect(fits("^(?<year>\\d{4})-\\d{2}$", "2024-05")).toBe(true);
    expect(fits("b", "abc")).toBe(true);
  });

  it("gives up on a schema whose references multiply", () => {
    const definitions: JsonObject = { d30: { type: "integer" } };
    for (let level = 29; level >= 0; level -= 1) {
      const next = { $ref: `#/$defs/d${level + 1}` };
      definitions[`d${level}`] = { allOf: [{ not: { not: next } }, { not: { not: next } }] };
    }
    const error = definitionError({ properties: { a: { $ref: "#/$defs/d0" } }, $defs: definitions }, { a: 1 });
    expect(error.message).toContain("takes too long");
  });

  it("gives up on a schema that circles", () => {
    const schema: JsonObject = {
      properties: { a: { $ref: "#/$defs/x" } },
      $defs: { x: { not: { $ref: "#/$defs/x" } } },
    };
    expect(definitionError(schema, { a: 1 }).message).toContain("without an end");
  });

  it("compares many items in one pass", () => {
    const items = Array.from({ length: 100_000 }, (_, index) => index);
    const schema: JsonObject = { properties: { ids: { type: "array", uniqueItems: true } } };
    expect(check(schema, { ids: items }).ok).toBe(true);
    expect(errorsOf(schema, { ids: [...items, 7] })).toMatchObject([{ pointer: "/ids" }]);
  });

  it("refuses arguments and schemas nested without measure", () => {
    let deep: JsonValue = {};
    for (let level = 0; level < 5_000; level += 1) deep = { a: deep };
    expect(errorsOf({}, deep)).toMatchObject([{ pointer: "" }]);
    expect(definitionError({ not: nest(5_000) }).code).toBe("invalid_definition");
  });

  it("throws nothing but definition errors, whatever schema and arguments", () => {
    fc.assert(
      fc.property(schemaLike(), fc.dictionary(fc.string(), fc.jsonValue()), (schema, given) => {
        try {
          const checked = check(schema, given as JsonObject);
          return checked.ok || checked.errors.length > 0;
        } catch (error) {
          return error instanceof GatewayError && error.code === "invalid_definition";
        }
      }),
    );
  });
});

function nest(levels: number): JsonObject {
  let schema: JsonObject = {};
  for (let level = 0; level < levels; level += 1) schema = { not: schema };
  return schema;
}

/** Schema keywords with anything for values, right and wrong. */
function schemaLike(): fc.Arbitrary<JsonObject> {
  const keywords = [
    "type",
    "properties",
    "required",
    "items",
    "anyOf",
    "$ref",
    "enum",
    "pattern",
    "default",
    "if",
    "format",
    "minLength",
    "allOf",
    "oneOf",
    "not",
    "const",
    "uniqueItems",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "contains",
    "dependencies",
    "$id",
    "$defs",
  ];
  return fc.dictionary(
    fc.constantFrom(...keywords),
    fc.oneof(
      fc.jsonValue(),
      fc.constantFrom<JsonValue>("string", "#", "#/properties/a", ["a"], { a: { type: "integer", default: 1 } }, [
        { type: "object" },
      ]),
    ),
  ) as fc.Arbitrary<JsonObject>;
}

/** Sound schemas over a small vocabulary, so that values hit and miss them. */
function soundSchema(): fc.Arbitrary<JsonObject> {
  const { node } = fc.letrec<{ node: JsonObject }>((tie) => ({
    node: fc.oneof(
      { maxDepth: 3 },
      fc.constantFrom<JsonObject>(
        {},
        { type: "integer" },
        { type: ["array", "null"] },
        { type: "boolean" },
        { type: "object" },
      ),
      fc.constantFrom<JsonObject>({ enum: [1, "a", null] }, { const: [1] }, { const: { a: 1 } }),
      fc.constantFrom<JsonObject>(
        { minimum: 1 },
        { exclusiveMaximum: 2 },
        { multipleOf: 2 },
        { maxLength: 1 },
        { minItems: 1 },
      ),
      fc.constantFrom<JsonObject>(
        { required: ["a"] },
        { maxProperties: 1 },
        { uniqueItems: true },
        { dependentRequired: { a: ["b"] } },
      ),
      fc.record({
        properties: fc.dictionary(fc.constantFrom("a", "b"), tie("node")),
        additionalProperties: fc.oneof(fc.boolean(), tie("node")),
      }),
      fc.record({ patternProperties: fc.dictionary(fc.constantFrom("^a", "b$"), tie("node")) }),
      fc.record({ items: tie("node"), contains: tie("node") }),
      fc.record({
        prefixItems: fc.array(tie("node"), { minLength: 1, maxLength: 2 }),
        items: fc.oneof(fc.boolean(), tie("node")),
      }),
      fc
        .tuple(tie("node"), tie("node"), tie("node"))
        .map(([test, pass, fail]) =>
          Object.fromEntries(Object.entries({ if: test, else: fail }).concat([["then", pass]])),
        ),
      fc.record({ not: tie("node") }),
      ...["allOf", "anyOf", "oneOf"].map((key) =>
        fc.record({ [key]: fc.array(tie("node"), { minLength: 1, maxLength: 3 }) }),
      ),
    ) as fc.Arbitrary<JsonObject>,
  }));
  return node;
}

function smallValue(): fc.Arbitrary<JsonValue> {
  const { value } = fc.letrec<{ value: JsonValue }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 3 },
      fc.constantFrom<JsonValue>(null, true, false, 0, 1, 2, 1.5, "a", "bb"),
      fc.array(tie("value"), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom("a", "b", "ab"), tie("value"), { noNullPrototype: true }),
    ) as fc.Arbitrary<JsonValue>,
  }));
  return value;
}

describe(`agreement with an independent validator ${verifies("CHAT-18")}`, () => {
  it("accepts and refuses the same values", () => {
    fc.assert(
      fc.property(soundSchema(), smallValue(), (schema, value) => {
        // No coercion can happen: texts of the vocabulary spell no other type.
        const ours = check({ properties: { v: schema } }, { v: value }).ok;
        const theirs = new Validator(structuredClone(schema) as Schema, "2020-12").validate(value).valid;
        expect(ours).toBe(theirs);
      }),
    );
  });
});
