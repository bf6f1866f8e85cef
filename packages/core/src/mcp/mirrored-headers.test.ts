import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { fromHeaderValue, mirror, mirroredArguments, toHeaderValue } from "./mirrored-headers.ts";

const decode = (value: string): string =>
  value.startsWith("=?base64?") && value.endsWith("?=")
    ? Buffer.from(value.slice(9, -2), "base64").toString("utf8")
    : value;

describe("values of mirrored headers", () => {
  test.each([
    ["us-west1", "us-west1"],
    ["Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="],
    [" padded ", "=?base64?IHBhZGRlZCA=?="],
    ["line1\nline2", "=?base64?bGluZTEKbGluZTI=?="],
    ["=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="],
    ["", ""],
  ])("%j is sent as the revision says", (value, sent) => {
    expect(toHeaderValue(value)).toBe(sent);
  });

  test("are read without the blanks around them, each of which is looked at once", () => {
    expect(fromHeaderValue(" \t a b \t ")).toBe("a b");
    expect(fromHeaderValue(`a${" ".repeat(2_000_000)}b`)?.length).toBe(2_000_002);
  });

  test("any text can be sent and read again, and breaks out of no header", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), (text) => {
        const sent = toHeaderValue(text);
        expect(sent).toMatch(/^[\t\u0020-\u007e]*$/);
        expect(decode(sent)).toBe(text);
      }),
    );
  });
});

describe("arguments that a schema wants mirrored", () => {
  const region = { type: "string", "x-mcp-header": "Region" };

  test("are found at any depth of properties, and left out where they are absent or null", () => {
    const schema = {
      type: "object",
      properties: {
        region,
        where: { type: "object", properties: { zone: { type: "integer", "x-mcp-header": "Zone" } } },
      },
    };
    const mirrored = mirroredArguments(schema);
    if (typeof mirrored === "string") throw new Error(mirrored);
    expect(mirror(mirrored, { region: "eu", where: { zone: 7 } })).toEqual([
      ["mcp-param-Region", "eu"],
      ["mcp-param-Zone", "7"],
    ]);
    expect(mirror(mirrored, { region: null, where: {} })).toEqual([]);
  });

  test.each([
    ["an empty name", { a: { type: "string", "x-mcp-header": "" } }],
    ["a name that is no header's", { a: { type: "string", "x-mcp-header": "A b\r\nX" } }],
    ["a number", { a: { type: "number", "x-mcp-header": "A" } }],
    ["one name twice", { a: region, b: { ...region, "x-mcp-header": "REGION" } }],
    ["a place in a list", { a: { type: "array", items: region } }],
    ["a choice", { a: { anyOf: [region] } }],
  ])("make a tool unusable with %s", (_which, properties) => {
    expect(mirroredArguments({ type: "object", properties })).toEqual(expect.any(String));
  });
});
