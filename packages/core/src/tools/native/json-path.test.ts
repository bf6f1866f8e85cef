import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { GatewayError } from "../../errors/gateway-error.ts";
import { parseKeepingDigits, type JsonValue } from "../../json.ts";
import { selectJson } from "./json-path.ts";

const store: JsonValue = {
  book: [
    { title: "A", price: 1 },
    { title: "B", price: 2, "odd name": { title: "inner" } },
    { title: "C", price: 3 },
  ],
  中文: { "it's": [true, null] },
};

describe("the JSONPath subset", () => {
  it.each<[string, JsonValue[]]>([
    ["$", [store]],
    ["$.book[0].title", ["A"]],
    ["$['book'][-1]['title']", ["C"]],
    ['$["book"][1]["odd name"].title', ["inner"]],
    ["$.book[*].price", [1, 2, 3]],
    ["$.book[1:].title", ["B", "C"]],
    ["$.book[:-1].title", ["A", "B"]],
    ["$.book[0:1].title", ["A"]],
    ["$..title", ["A", "B", "inner", "C"]],
    ["$..book[1].price", [2]],
    ["$.book[1].*", ["B", 2, { title: "inner" }]],
    ["$.中文['it\\'s'][0]", [true]],
    ["$.中文['it\\'s'][1]", [null]],
    ["$.nothing.at.all", []],
    ["$.book[9]", []],
    ["$.book.title", []],
    ["$.constructor", []],
    ["$.__proto__", []],
    ["$.book.length", []],
    ["$.book[ 0 ].title", ["A"]],
  ])("%s", (path, values) => {
    expect(selectJson(store, path).values).toEqual(values);
  });

  it("knows paths that lead to one place", () => {
    expect(selectJson(store, "$.book[0].title").isSingular).toBe(true);
    for (const path of ["$..title", "$.book[*]", "$.book[0:1]", "$.*"])
      expect(selectJson(store, path).isSingular).toBe(false);
  });

  it.each([
    "",
    "book",
    "$book",
    "$.",
    "$.[0]",
    "$[",
    "$[]",
    "$[0 1]",
    "$[?(@.price>1)]",
    "$.book[0,1]",
    "$..",
    "$['a]",
    `$${".a".repeat(300)}`,
  ])("refuses %s", (path) => {
    expect(() => selectJson(store, path)).toThrow(expect.objectContaining({ code: "invalid_arguments" }));
  });

  it("gives up where a path multiplies", () => {
    const wide: JsonValue = Array.from({ length: 300 }, () => Array.from({ length: 300 }, () => [[0]]));
    expect(() => selectJson(wide, "$..*..*..*")).toThrow(expect.objectContaining({ code: "invalid_arguments" }));
  });

  it("throws nothing else, whatever document and path", () => {
    fc.assert(
      fc.property(
        fc.jsonValue(),
        fc.array(fc.constantFrom("$", ".", "..", "*", "[", "]", "'", '"', "a", "0", ":", "-1", "\\", "?")),
        (value, path) => {
          try {
            return Array.isArray(selectJson(value as JsonValue, path.join("")).values);
          } catch (error) {
            return error instanceof GatewayError;
          }
        },
      ),
    );
  });
});

describe("JSON that keeps its digits", () => {
  it.each([
    '{"id":9007199254740993}',
    "[1.00000000000000000001,123456789012345678901234567890]",
    '{"a":[1e400,-0.10000000000000000555]}',
    '{"small":1,"text":"12345678901234567890"}',
  ])("%s comes out as it went in", (text) => {
    expect(JSON.stringify(parseKeepingDigits(text))).toBe(text);
  });

  it("lets no path look into such a number", () => {
    const document = parseKeepingDigits("[123456789012345678901234567890]") ?? null;
    expect(selectJson(document, "$..rawJSON").values).toEqual([]);
    expect(JSON.stringify(selectJson(document, "$[0]").values)).toBe("[123456789012345678901234567890]");
  });

  it("is undefined for what is no JSON", () => {
    expect(parseKeepingDigits("{")).toBeUndefined();
  });
});
