import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { compileArguments } from "../../tools/arguments.ts";
import { Notes } from "../notes.ts";
import { ImportWork } from "../work.ts";
import { ApiDocument } from "./document.ts";
import { SchemaConverter, SchemaTooLarge } from "./schema.ts";

interface Converted {
  readonly schema: JsonObject;
  readonly notes: readonly string[];
}

interface Setup {
  readonly version?: string;
  readonly schemas?: JsonObject;
  readonly required?: boolean;
  readonly depth?: number;
}

function convert(
  schema: JsonValue,
  { version = "3.0.3", schemas = {}, required = false, depth = 16 }: Setup = {},
): Converted {
  const notes = new Notes();
  const root =
    version === "2.0" ? { swagger: "2.0", definitions: schemas } : { openapi: version, components: { schemas } };
  const document = new ApiDocument(root, { url: "https://docs.example.com/openapi.json" });
  const converter = new SchemaConverter({ document, notes, size: { depth, description: 512 }, work: new ImportWork() });
  return { schema: converter.convert({ value: schema, base: "" }, required), notes: notes.texts };
}

const ref = (name: string): JsonObject => ({ $ref: `#/components/schemas/${name}` });

describe(`keywords of OpenAPI as JSON Schema 2020-12 ${verifies("BLIND-1")}`, () => {
  test.each<readonly [string, JsonValue, JsonObject]>([
    ["nullable", { type: "string", nullable: true }, { type: ["string", "null"] }],
    [
      "nullable enumerations",
      { type: "string", enum: ["a"], nullable: true },
      { type: ["string", "null"], enum: ["a", null] },
    ],
    [
      "nullable alternatives",
      { oneOf: [{ type: "string" }, { type: "integer" }], nullable: true, description: "d" },
      { anyOf: [{ type: "string" }, { type: "integer" }, { type: "null" }], description: "d" },
    ],
    ["nullable references", { $ref: "#/components/schemas/S", nullable: true }, { type: ["string", "null"] }],
    ["nullable inclusions", { allOf: [ref("S")], nullable: true }, { type: ["string", "null"] }],
    [
      "exclusive bounds of old",
      { type: "number", minimum: 1, exclusiveMinimum: true },
      { type: "number", exclusiveMinimum: 1 },
    ],
    ["exclusive bounds of today", { type: "number", exclusiveMaximum: 5 }, { type: "number", exclusiveMaximum: 5 }],
    [
      "old exclusive bounds that are off",
      { type: "number", maximum: 5, exclusiveMaximum: false },
      { type: "number", maximum: 5 },
    ],
    [
      "oneOf, whose branches may overlap",
      { oneOf: [{ minimum: 1 }, { maximum: 5 }] },
      { anyOf: [{ minimum: 1 }, { maximum: 5 }] },
    ],
    [
      "a single alternative",
      { type: "object", anyOf: [{ properties: { a: {} } }] },
      { type: "object", properties: { a: {} } },
    ],
    [
      "tuples",
      { type: "array", items: [{ type: "string" }], additionalItems: false },
      { type: "array", prefixItems: [{ type: "string" }], items: false },
    ],
    ["files", { type: "file" }, { type: "string", format: "binary" }],
    [
      "defaults",
      { type: "integer", default: 3, description: "How many." },
      { type: "integer", description: "How many. Default: 3." },
    ],
    ["examples", { type: "string", example: "x-1" }, { type: "string", description: 'For example "x-1".' }],
    [
      "what only documents need",
      { type: "string", title: "T", xml: { name: "x" }, externalDocs: {}, discriminator: {}, "x-a": 1 },
      { type: "string" },
    ],
    [
      "misshapen keywords",
      { type: "string", enum: "a", minLength: "1", required: true, properties: [], items: 7, pattern: 5 },
      { type: "string" },
    ],
    ["empty additional properties", { type: "object", additionalProperties: {} }, { type: "object" }],
    [
      "true and false",
      { type: "object", properties: { a: true, b: false } },
      { type: "object", properties: { a: {}, b: false } },
    ],
    ["no schema at all", "nothing", {}],
  ])("%s", (_what, schema, expected) => {
    expect(convert(schema, { schemas: { S: { type: "string" } } }).schema).toEqual(expected);
  });

  test("what a caller may not send is left out, also of what is required, wherever it is included", () => {
    const schemas = {
      Base: {
        type: "object",
        required: ["id", "name"],
        properties: { id: { type: "string", readOnly: true }, name: { type: "string" } },
      },
      Stamp: { type: "string", readOnly: true },
    };
    const schema = {
      allOf: [ref("Base"), { required: ["id", "at"], properties: { at: ref("Stamp"), more: { type: "integer" } } }],
    };
    expect(convert(schema, { schemas }).schema).toEqual({
      type: "object",
      required: ["name"],
      properties: { name: { type: "string" }, more: { type: "integer" } },
    });
  });

  test("inclusions become one object where that means the same, and stay where it does not", () => {
    const schemas = {
      A: { type: "object", properties: { a: { type: "string" } }, additionalProperties: false },
      B: { properties: { b: {} } },
    };
    expect(convert({ allOf: [ref("A"), ref("B")], description: "Both." }, { schemas }).schema).toEqual({
      type: "object",
      properties: { a: { type: "string" }, b: {} },
      description: "Both.",
    });
    const patterns = { allOf: [{ type: "string", pattern: "^a" }, { pattern: "b$" }] };
    expect(convert(patterns).schema).toEqual({ allOf: [{ type: "string", pattern: "^a" }, { pattern: "b$" }] });
    const same = {
      allOf: [{ properties: { x: { minLength: 1 } } }, { properties: { x: { minLength: 3, maxLength: 5 } } }],
    };
    expect(convert(same).schema).toEqual({ properties: { x: { minLength: 3, maxLength: 5 } } });
  });

  test("defaults stay where a value has to be sent anyway", () => {
    const schema = {
      type: "object",
      required: ["v"],
      properties: { v: { type: "string", default: "1" }, w: { type: "string", default: "2" } },
    };
    expect(convert(schema).schema["properties"]).toEqual({
      v: { type: "string", default: "1" },
      w: { type: "string", description: 'Default: "2".' },
    });
    for (const misfit of [null, 1, {}])
      expect(convert({ type: "string", default: misfit }, { required: true }).schema).toEqual({ type: "string" });
    expect(convert({ type: "integer", default: 0 }, { required: true }).schema).toEqual({
      type: "integer",
      default: 0,
    });
  });

  test("what the gateway cannot check is left out and said: patterns, types, conditions", () => {
    const look = convert({ type: "string", pattern: "^(?!a)" });
    expect(look).toEqual({ schema: { type: "string" }, notes: [expect.stringContaining("(?!a)")] });
    expect(convert({ type: "strnig" })).toEqual({ schema: {}, notes: [expect.stringContaining("strnig")] });
    const not = {
      not: { type: "string", pattern: "(?=a)" },
      if: { enum: Array.from({ length: 200 }, (_none, at) => at) },
      else: { type: "null" },
    };
    const conditions = convert(not, { version: "3.1.0" });
    expect(conditions.schema).toEqual({});
    expect(conditions.notes).toHaveLength(4);
    expect(convert({ not: { required: ["a"] } }).schema).toEqual({ not: { required: ["a"] } });
    expect(convert({ patternProperties: { "^x-": {}, "(?<a": {} } }).schema).toEqual({
      patternProperties: { "^x-": {} },
    });
  });
});

describe(`references of schemas ${verifies("BLIND-1")}`, () => {
  test.each<readonly [string, JsonValue, JsonObject, Setup]>([
    [
      "with escapes",
      { $ref: "#/components/schemas/a~1b%20c" },
      { type: "string" },
      { schemas: { "a/b c": { type: "string" } } },
    ],
    [
      "by the document's own address",
      { $ref: "https://docs.example.com/openapi.json#/components/schemas/S" },
      { type: "string" },
      { schemas: { S: { type: "string" } } },
    ],
    [
      "by a relative address",
      { $ref: "openapi.json#/components/schemas/S" },
      { type: "string" },
      { schemas: { S: { type: "string" } } },
    ],
    [
      "to an anchor",
      { $ref: "#here" },
      { type: "string" },
      { version: "3.1.0", schemas: { S: { $anchor: "here", type: "string" } } },
    ],
    [
      "into a schema's own definitions",
      { $ref: "#/components/schemas/P" },
      { properties: { x: { type: "integer" } } },
      {
        version: "3.1.0",
        schemas: { P: { $defs: { X: { type: "integer" } }, properties: { x: { $ref: "#/$defs/X" } } } },
      },
    ],
    [
      "with keywords beside them",
      { $ref: "#/components/schemas/S", maxLength: 5, description: "Mine." },
      { type: "string", maxLength: 5, description: "Mine." },
      { version: "3.1.0", schemas: { S: { type: "string", description: "Theirs." } } },
    ],
    [
      "with a remark beside them, in 3.0",
      { $ref: "#/components/schemas/S", maxLength: 5, description: "Mine." },
      { type: "string", description: "Mine." },
      { schemas: { S: { type: "string", description: "Theirs." } } },
    ],
    [
      "of Swagger 2.0",
      { $ref: "#/definitions/S" },
      { type: "string" },
      { version: "2.0", schemas: { S: { type: "string" } } },
    ],
    [
      "that are the name of a property",
      { properties: { $ref: { type: "string" } } },
      { properties: { $ref: { type: "string" } } },
      {},
    ],
  ])("are followed %s", (_what, schema, expected, setup) => {
    expect(convert(schema, setup)).toEqual({ schema: expected, notes: [] });
  });

  test.each([
    "#/components/schemas/Nobody",
    "#nobody",
    "file:///etc/passwd",
    "http://127.0.0.1/x.json",
    "https://other.example/x.json#/a",
    "#/%E0%A4%A",
    "::",
  ])("to %s take any value, and say so", (reference) => {
    const { schema, notes } = convert({ properties: { x: { $ref: reference } } }, { schemas: {} });
    expect(schema).toEqual({ properties: { x: {} } });
    expect(notes).toHaveLength(1);
  });

  test("that circle end after they were shown twice", () => {
    const schemas = { Tree: { type: "object", properties: { kids: { type: "array", items: ref("Tree") } } } };
    const { schema, notes } = convert(ref("Tree"), { schemas });
    const cut = { type: "object", description: expect.stringContaining("deeper") };
    expect(schema).toEqual({
      type: "object",
      properties: {
        kids: { type: "array", items: { type: "object", properties: { kids: { type: "array", items: cut } } } },
      },
    });
    expect(notes).toHaveLength(1);
    for (const schemas of [
      { A: ref("A") },
      { A: ref("B"), B: ref("A") },
      { A: { allOf: [ref("A")] } },
      { A: { anyOf: [ref("A"), { type: "string" }] } },
    ] as JsonObject[]) {
      expect(JSON.stringify(convert(ref("A"), { schemas }).schema)).not.toContain("$ref");
    }
  });

  test("that multiply are given up, for another try with fewer levels", () => {
    const schemas: JsonObject = { L30: { type: "string" } };
    for (let level = 0; level < 30; level += 1) {
      schemas[`L${level}`] = {
        type: "object",
        properties: { a: ref(`L${level + 1}`), b: ref(`L${level + 1}`), c: ref(`L${level + 1}`) },
      };
    }
    expect(() => convert(ref("L0"), { schemas })).toThrow(SchemaTooLarge);
    expect(convert(ref("L0"), { schemas, depth: 3 }).notes).toHaveLength(1);
  });
});

describe(`whatever a document holds as a schema ${verifies("BLIND-1", "CHAT-18")}`, () => {
  const keywords = `type nullable enum const default example description properties required items allOf anyOf oneOf
    not if else additionalProperties patternProperties minimum exclusiveMinimum pattern format $ref readOnly
    dependentRequired minLength`.split(/\s+/);
  const { schema: anySchema } = fc.letrec((tie) => ({
    schema: fc.oneof(
      { maxDepth: 4 },
      fc.constantFrom<JsonValue>(
        { $ref: "#/components/schemas/A" },
        { type: "string" },
        { type: ["integer", "null"] },
        true,
        false,
        null,
        "x",
        7,
      ),
      fc.dictionary(
        fc.constantFrom(...keywords),
        fc.oneof(
          tie("schema"),
          fc.array(tie("schema"), { maxLength: 3 }),
          fc.dictionary(fc.constantFrom("a", "__proto__", "$ref", "const", "constructor"), tie("schema"), {
            noNullPrototype: true,
          }),
          fc.constantFrom<JsonValue>(
            "string",
            "object",
            "array",
            ["string"],
            "(?=x)",
            "#/components/schemas/A",
            -1,
            3,
            true,
            ["a", "a"],
          ),
        ),
        { noNullPrototype: true },
      ),
    ),
  }));

  test("comes out as a schema that compiles, holds no reference, and is the same every time", () => {
    fc.assert(
      fc.property(anySchema, anySchema, fc.constantFrom("3.0.3", "3.1.0"), (value, other, version) => {
        const [schema, component] = [JSON.parse(JSON.stringify(value)), JSON.parse(JSON.stringify(other))] as [
          JsonValue,
          JsonValue,
        ];
        const setup = { version, schemas: { A: component }, depth: 7 };
        const converted = convertOrGiveUp(schema, setup);
        expect(references(converted)).toEqual([]);
        compileArguments({ type: "object", properties: { value: converted } });
        expect(JSON.stringify(convertOrGiveUp(schema, setup))).toBe(JSON.stringify(converted));
      }),
    );
  });
});

/** An empty schema stands for one that is too large. */
function convertOrGiveUp(schema: JsonValue, setup: Setup): JsonObject {
  try {
    return convert(schema, setup).schema;
  } catch (error) {
    if (error instanceof SchemaTooLarge) return {};
    throw error;
  }
}

/** Values of the keyword `$ref`, where it is one. */
function references(schema: JsonValue): readonly JsonValue[] {
  if (!isJsonObject(schema)) return [];
  const maps: ReadonlySet<string> = new Set(["properties", "patternProperties", "dependentSchemas"]);
  const data: ReadonlySet<string> = new Set(["enum", "const", "default", "dependentRequired", "required"]);
  return Object.entries(schema).flatMap(([key, part]) => {
    if (key === "$ref") return [part];
    if (data.has(key)) return [];
    const children = Array.isArray(part) ? part : maps.has(key) && isJsonObject(part) ? Object.values(part) : [part];
    return children.flatMap(references);
  });
}
