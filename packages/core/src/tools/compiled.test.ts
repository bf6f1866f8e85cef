import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isJsonObject, type JsonObject } from "../json.ts";
import { compileTool } from "./compiled.ts";
import { projectSchema, schemaFamilies, schemaFamilyOf } from "./schema-projection.ts";

const hostileNames = ["const", "$ref", "type", "anyOf", "properties", "items", "enum", "default", "required", "$defs"];

const hostile: JsonObject = {
  type: "object",
  properties: Object.fromEntries(hostileNames.map((name) => [name, { type: "string", description: `The ${name}` }])),
  required: hostileNames,
};

function propertiesOf(schema: JsonObject): JsonObject {
  const properties = schema["properties"];
  return isJsonObject(properties) ? properties : {};
}

describe("the projection of a schema", () => {
  test.each(schemaFamilies)("keeps properties that are called like keywords, for %s", (family) => {
    const { schema, warnings } = projectSchema(hostile, family);
    expect(schema["type"]).toBe("object");
    expect(Object.keys(propertiesOf(schema)).sort()).toEqual([...hostileNames].sort());
    expect(propertiesOf(schema)["const"]).toEqual({ type: "string", description: "The const" });
    expect(new Set(schema["required"] as string[])).toEqual(new Set(hostileNames));
    expect(warnings).toEqual([]);
  });

  test("keeps a property called __proto__", () => {
    const schema = JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string"}}}') as JsonObject;
    expect(JSON.stringify(projectSchema(schema, "gemini").schema)).toContain('"__proto__":{"type":"string"}');
  });

  test("is the very same object for back ends that read JSON Schema", () => {
    expect(projectSchema(hostile, "openai").schema).toBe(hostile);
  });

  test("rewrites for Gemini what Gemini does not know", () => {
    const { schema, warnings } = projectSchema(
      {
        $schema: "https://json-schema.org/draft/2020-12/schema",
        type: "object",
        additionalProperties: false,
        properties: {
          fixed: { const: "a" },
          maybe: { type: ["integer", "null"], exclusiveMinimum: 3, default: 4 },
          either: { oneOf: [{ type: "string", format: "email" }, { type: "integer" }] },
          optional: { anyOf: [{ type: "string" }, { type: "null" }], description: "or not" },
          numbers: { type: "integer", enum: [1, 2] },
          place: { $ref: "#/$defs/place" },
        },
        required: ["fixed", "gone"],
        $defs: { place: { allOf: [{ $ref: "#/$defs/point" }, { properties: { z: { type: "number" } } }] }, point },
      },
      "gemini",
    );
    expect(schema).toEqual({
      type: "object",
      properties: {
        fixed: { type: "string", enum: ["a"] },
        maybe: { type: "integer", nullable: true },
        either: { anyOf: [{ type: "string" }, { type: "integer" }] },
        optional: { type: "string", nullable: true, description: "or not" },
        numbers: { type: "integer" },
        place: {
          type: "object",
          properties: { x: { type: "number" }, z: { type: "number" } },
          required: ["x"],
        },
      },
      required: ["fixed"],
    });
    expect(warnings).toEqual([
      "'enum' of anything but texts is not told to the model",
      "'exclusiveMinimum' is not told to the model",
      "'format' is not told to the model",
    ]);
  });

  test.each<readonly [JsonObject, JsonObject]>([
    [
      { type: "string", format: "date-time" },
      { type: "string", format: "date-time" },
    ],
    [
      { type: "integer", format: "int64" },
      { type: "integer", format: "int64" },
    ],
    [
      { type: ["number", "null"], format: "double" },
      { type: "number", format: "double", nullable: true },
    ],
    [{ type: "string", format: "int64" }, { type: "string" }],
    [{ type: "integer", format: "double" }, { type: "integer" }],
    [
      { type: "number", format: "float", enum: ["a"] },
      { type: "string", enum: ["a"] },
    ],
    [{ format: "int32" }, {}],
  ])("tells Gemini a format with its own type only: %j", (given, told) => {
    const { schema } = projectSchema({ type: "object", properties: { given } }, "gemini");
    expect(propertiesOf(schema)["given"]).toEqual(told);
  });

  test("brings all parts of allOf together, of which earlier ones win", () => {
    const parts = [
      { properties: { a: { type: "string" }, b: { type: "string" } }, required: ["b"] },
      { properties: { b: { type: "integer" }, c: {} }, required: ["c", "b"], description: "later" },
    ];
    const given = { type: "object", properties: { a: { type: "number" } }, required: ["a"], allOf: parts };
    expect(projectSchema(given, "gemini").schema).toEqual({
      type: "object",
      description: "later",
      properties: { a: { type: "number" }, b: { type: "string" }, c: {} },
      required: ["a", "b", "c"],
    });
  });

  test("tells plain back ends the first of alternatives, and no bounds", () => {
    const given: JsonObject = {
      type: "object",
      properties: { either: { anyOf: [{ type: "string", pattern: "^a" }, { type: "integer" }] } },
    };
    expect(projectSchema(given, "plain")).toEqual({
      schema: { type: "object", properties: { either: { type: "string" } } },
      warnings: ["'pattern' is not told to the model", "of alternatives only the first is told to the model"],
    });
  });

  test("says that alternatives beside properties are left out", () => {
    const given: JsonObject = {
      type: "object",
      properties: { a: { type: "string" }, b: { type: "string" } },
      anyOf: [{ required: ["a"] }, { required: ["b"] }],
    };
    expect(projectSchema(given, "gemini")).toEqual({
      schema: { type: "object", properties: given["properties"] },
      warnings: ["alternatives beside properties are not told to the model"],
    });
  });

  test("takes alternatives from the top for Anthropic's reading, and from nowhere else", () => {
    const inner: JsonObject = { anyOf: [{ type: "string" }, { type: "integer" }] };
    const given: JsonObject = { properties: { inner }, oneOf: [{ required: ["inner"] }] };
    expect(projectSchema(given, "anthropic-compatible")).toEqual({
      schema: { type: "object", properties: { inner } },
      warnings: ["'oneOf' is not told to the model"],
    });
  });

  describe("of what stands at the top, which most back ends want to be one object", () => {
    const text: JsonObject = { type: "string" };
    const byId: JsonObject = { properties: { id: text, kind: { const: "id" } }, required: ["id", "kind"] };
    const byName: JsonObject = { properties: { name: text, kind: { const: "name" } }, required: ["name", "kind"] };
    const given: JsonObject = {
      type: "object",
      properties: { limit: { type: "integer" } },
      allOf: [{ properties: { tenant: text, limit: text }, required: ["tenant"] }],
      oneOf: [{ $ref: "#/$defs/byId" }, byName],
      $defs: { byId },
    };

    test.each(["openai", "anthropic-compatible"] as const)("tells %s the properties of all parts", (family) => {
      expect(projectSchema(given, family)).toEqual({
        schema: {
          type: "object",
          properties: {
            limit: { type: "integer" },
            tenant: text,
            id: text,
            kind: { anyOf: [{ const: "id" }, { const: "name" }] },
            name: text,
          },
          required: ["tenant"],
          $defs: { byId },
        },
        warnings: [
          "of 'allOf' at the top the properties are told to the model",
          "of 'oneOf' at the top the properties are told to the model",
        ],
      });
    });

    test("tells the others as well, in their words", () => {
      const { schema } = projectSchema(given, "gemini");
      expect(Object.keys(propertiesOf(schema))).toEqual(["id", "kind", "limit", "name", "tenant"]);
      expect(propertiesOf(schema)["kind"]).toEqual({
        anyOf: [
          { type: "string", enum: ["id"] },
          { type: "string", enum: ["name"] },
        ],
      });
      const plain = projectSchema({ type: "object", anyOf: [byId, byName] }, "plain").schema;
      expect(Object.keys(propertiesOf(plain))).toEqual(["id", "kind", "name"]);
      expect(plain["required"]).toBeUndefined();
    });

    test("ends for parts that multiply and circle, and takes names for nothing but names", () => {
      const circle: JsonObject = { anyOf: [{ $ref: "#" }, { allOf: [{ $ref: "#" }, { $ref: "#" }] }] };
      expect(projectSchema(circle, "openai").schema).toEqual({ type: "object", properties: {} });
      const odd = JSON.parse('{"oneOf":[{"properties":{"__proto__":{},"oneOf":{}}},true,{"$ref":7}]}') as JsonObject;
      const { schema } = projectSchema(odd, "openai");
      expect(JSON.stringify(schema)).toBe('{"properties":{"__proto__":{},"oneOf":{}},"type":"object"}');
      const large: JsonObject = {
        properties: { p: { enum: Array.from({ length: 50_000 }, (_none, at) => `v${at}`) } },
      };
      const everywhere = { anyOf: Array.from({ length: 4_000 }, () => ({ $ref: "#/$defs/large" })), $defs: { large } };
      expect(propertiesOf(projectSchema(everywhere, "openai").schema)).toEqual(large["properties"]);
    });

    test("leaves all others as they stand", () => {
      const plain: JsonObject = { type: "object", properties: { a: { oneOf: [text, { type: "null" }] } } };
      expect(projectSchema(plain, "openai").schema).toBe(plain);
    });
  });

  test("cuts circles of references and references that lead nowhere", () => {
    const { schema, warnings } = projectSchema(
      {
        type: "object",
        properties: { tree: { $ref: "#/$defs/node" }, lost: { $ref: "#/$defs/none" }, away: { $ref: "https://x.y/z" } },
        $defs: { node: { type: "object", properties: { child: { $ref: "#/$defs/node" } } } },
      },
      "gemini",
    );
    expect(schema).toEqual({
      type: "object",
      properties: {
        tree: { type: "object", properties: { child: { type: "object", properties: {} } } },
        lost: {},
        away: {},
      },
    });
    expect(warnings).toEqual(["a circle of references is cut", "a reference leads nowhere and is left open"]);
  });

  test("ends for references that multiply and for circles of allOf", () => {
    const levels = Array.from({ length: 40 }, (_, at): [string, JsonObject] => [
      `l${at}`,
      {
        type: "object",
        properties: { a: { $ref: `#/$defs/l${at + 1}` }, b: { $ref: `#/$defs/l${at + 1}` } },
      },
    ]);
    const bomb: JsonObject = { type: "object", properties: { a: { $ref: "#/$defs/l0" } } };
    bomb["$defs"] = Object.fromEntries(levels);
    const { schema, warnings } = projectSchema(bomb, "gemini");
    expect(warnings).toContain("the schema is too large or too deep and is told in part");
    expect(JSON.stringify(schema).length).toBeLessThan(300_000);
    const circle: JsonObject = {
      type: "object",
      allOf: [{ $ref: "#/$defs/a" }],
      $defs: { a: { allOf: [{ $ref: "#/$defs/a" }, { $ref: "#/$defs/a" }] } },
    };
    expect(projectSchema(circle, "gemini").schema).toEqual({ type: "object", properties: {} });
  });

  test("gives an object schema for whatever it is given, and equal bytes for equal schemas in any key order", () => {
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom(...hostileNames, "a"), fc.jsonValue()), (value) => {
        const given = JSON.parse(JSON.stringify(value)) as JsonObject;
        const turned = Object.fromEntries(Object.entries(given).reverse());
        for (const family of ["gemini", "plain"] as const) {
          const { schema } = projectSchema(given, family);
          expect(schema["type"]).toBe("object");
          expect(JSON.stringify(projectSchema(turned, family).schema)).toBe(JSON.stringify(schema));
        }
      }),
    );
  });
});

const point: JsonObject = { type: "object", properties: { x: { type: "number" } }, required: ["x"] };

describe("the family of a model", () => {
  test.each([
    ["gemini-2.5-pro", "gemini"],
    ["google/gemini-2.5-pro", "gemini"],
    ["models/Gemini-2.5-flash", "gemini"],
    ["anthropic/claude-sonnet-5", "anthropic-compatible"],
    ["anthropic.claude-3-5-sonnet-20241022-v2:0", "anthropic-compatible"],
    ["us.anthropic.claude-sonnet-4-v1:0", "anthropic-compatible"],
    ["bedrock/anthropic.claude-3", "anthropic-compatible"],
    ["command-a-03-2025", "plain"],
    ["cohere.command-r-v1:0", "plain"],
    ["gpt-5", "openai"],
    ["my-gemini-like", "openai"],
    ["", "openai"],
  ])("of %s is %s", (model, family) => {
    expect(schemaFamilyOf(model)).toBe(family);
  });
});

describe("a compiled tool", () => {
  const tool = () => ({ name: "find", description: "Finds.", parameters: structuredClone(hostile) });

  test("is made once for a tool object, and of equal bytes for an equal one", () => {
    const one = tool();
    expect(compileTool(one)).toBe(compileTool(one));
    for (const family of schemaFamilies) {
      expect(compileTool(one).wireFor(family)).toBe(compileTool(one).wireFor(family));
      expect(JSON.stringify(compileTool(tool()).wireFor(family))).toBe(
        JSON.stringify(compileTool(one).wireFor(family)),
      );
    }
  });

  test("counts its tokens and warns by family", () => {
    const { tokens, warnings } = compileTool({
      name: "find",
      description: "",
      parameters: { type: "object", properties: { n: { type: "integer", multipleOf: 2 } } },
    });
    expect(tokens).toBeGreaterThan(20);
    expect(warnings()).toEqual([
      "gemini: 'multipleOf' is not told to the model",
      "plain: 'multipleOf' is not told to the model",
    ]);
  });
});
