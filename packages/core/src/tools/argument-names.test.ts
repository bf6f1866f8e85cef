import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { isJsonObject, type JsonObject } from "../json.ts";
import { withOwnNames } from "./argument-names.ts";
import { compileTool } from "./compiled.ts";
import type { schemaFamilies } from "./schema-projection.ts";

function propertiesOf(schema: JsonObject): JsonObject {
  const properties = schema["properties"];
  return isJsonObject(properties) ? properties : {};
}

describe(`names of arguments that Claude would refuse the whole request for ${verifies("CHAT-18")}`, () => {
  const parameters: JsonObject = {
    type: "object",
    properties: { 关键词: { type: "string" }, "page[size]": { title: "Size", type: "integer" }, $any: true, "a.b": {} },
    required: ["a.b", "关键词"],
    dependentRequired: { 关键词: ["a.b"] },
    additionalProperties: false,
  };
  const told = (family: (typeof schemaFamilies)[number], given = parameters): JsonObject =>
    (compileTool({ name: "find", description: "", parameters: given }).wireFor(family)["function"] as JsonObject)[
      "parameters"
    ] as JsonObject;

  test("are told as others, with their own as title, and what comes by those is theirs", () => {
    const schema = told("anthropic-compatible");
    const [keyword = "", size = "", any = "", ...rest] = Object.keys(propertiesOf(schema));
    for (const name of [keyword, size, any, ...rest]) expect(name).toMatch(/^[a-zA-Z0-9_.-]{1,64}$/);
    expect(schema).toEqual({
      type: "object",
      properties: {
        [keyword]: { title: "关键词", type: "string" },
        [size]: { title: "Size", type: "integer" },
        [any]: { title: "$any" },
        "a.b": {},
      },
      required: ["a.b", keyword],
      additionalProperties: false,
    });
    const given = { [keyword]: "字节", [size]: 2, "a.b": 1, other: 3 };
    expect(withOwnNames({ parameters }, given)).toEqual({ 关键词: "字节", "page[size]": 2, "a.b": 1, other: 3 });
    expect(compileTool({ name: "find", description: "", parameters }).warnings()).toContain(
      `anthropic-compatible: '关键词' is told as '${keyword}'`,
    );
  });

  test("stay for the others, and so does all else for Claude", () => {
    expect(told("openai")).toBe(parameters);
    const plain: JsonObject = { type: "object", properties: { "a.b": {}, "x-y": {}, Z_1: {} } };
    expect(told("anthropic-compatible", plain)).toBe(plain);
    const args = { "a.b": 1 };
    expect(withOwnNames({ parameters: plain }, args)).toBe(args);
  });

  test("are told so where something refers to them, too", () => {
    const refer = (name: string): JsonObject => ({ $ref: `#/properties/${name}` });
    const properties = { 开始: { type: "object", properties: { 日: {} } }, "a/b": {}, end: {} };
    const more = { x: refer("开始"), y: { items: refer("%E5%BC%80%E5%A7%8B/properties/日") }, z: refer("a~1b") };
    const given: JsonObject = { type: "object", properties: { ...properties, ...more, all: refer("end") } };
    const schema = told("anthropic-compatible", given);
    const [start = "", slashed = ""] = Object.keys(propertiesOf(schema));
    expect(propertiesOf(schema)).toMatchObject({
      x: refer(start),
      y: { items: refer(`${start}/properties/日`) },
      z: refer(slashed),
      all: refer("end"),
    });
  });

  test("that stand in alternatives at the top are told so, too", () => {
    const given: JsonObject = { type: "object", oneOf: [{ properties: { 城市: {} } }, { properties: { 省: {} } }] };
    const names = Object.keys(propertiesOf(told("anthropic-compatible", given)));
    expect(names).toHaveLength(2);
    const [city = "", province = ""] = names;
    expect(withOwnNames({ parameters: given }, { [city]: 1, [province]: 2 })).toEqual({ 城市: 1, 省: 2 });
  });
});
