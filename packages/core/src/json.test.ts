import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../test/support/verifies.ts";
import { parseJsonExactly, repeatedNames, type JsonValue } from "./json.ts";

/** By the platform's own means, which are a hundred times slower. */
function byReviver(text: string): JsonValue {
  const watch = (_key: string, value: JsonValue, context?: { readonly source?: string }): JsonValue => {
    const source = context?.source;
    if (typeof value !== "number" || source === undefined || !/^-?\d+$/.test(source)) return value;
    return value.toLocaleString("en", { useGrouping: false, maximumFractionDigits: 0 }) === source ? value : source;
  };
  return JSON.parse(text, watch) as JsonValue;
}

/** JSON as other programs write it, long numbers and odd texts among it. */
const written = fc.letrec<{ readonly value: string; readonly list: string; readonly object: string }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.bigInt({ min: -(2n ** 70n), max: 2n ** 70n }).map(String),
    // Doubles hold these exactly.
    fc.bigInt({ min: 1n, max: 2n ** 40n }).map((high) => String(high << 30n)),
    fc.double({ noNaN: true, noDefaultInfinity: true }).map(String),
    fc.stringMatching(/^[1-9]\d{14,18}(?:[.]\d|e\d|E[+-]\d)?$/),
    fc.string({ unit: "binary" }).map((text) => JSON.stringify(text)),
    fc.stringMatching(/^[\d\\"]{0,24}$/).map((text) => JSON.stringify(text)),
    tie("list"),
    tie("object"),
  ),
  list: fc.array(tie("value"), { maxLength: 4 }).map((values) => `[${values.join(" ,")}]`),
  object: fc
    .array(fc.tuple(fc.stringMatching(/^\d{0,20}$/), tie("value")), { maxLength: 4 })
    .map((members) => `{${members.map(([name, value]) => `"${name}" :${value}`).join()}}`),
})).value;

describe(`JSON of which no number may be changed ${verifies("BLIND-8", "CHAT-18")}`, () => {
  test("is read as it is, but for whole numbers that would become others: they are the text of their digits", () => {
    fc.assert(
      fc.property(written, (text) => {
        expect(parseJsonExactly(text)).toEqual(byReviver(text));
      }),
    );
  });

  test.each([
    "01234567890123456789",
    "{1234567890123456789:1}",
    "[1234567890123456789",
    '"1234567890123456789',
    "[1234567890123456789x]",
  ])("is no JSON where it was none: %s", (text) => {
    expect(parseJsonExactly(text)).toBeUndefined();
  });

  test("may hold what programs write of numbers beyond: the digits come to the same", () => {
    expect(parseJsonExactly("[1764452000123000000,1000000000000000000000,9007199254740993]")).toEqual([
      1_764_452_000_123_000_000,
      1e21,
      "9007199254740993",
    ]);
  });

  test.each(["175928847299117056", "-1725839204837261312", "1180591620717411303424"])(
    "keeps the digits of what a double holds exactly and is written with others: %s",
    (digits) => {
      expect(String(Number(digits))).not.toBe(digits);
      expect(parseJsonExactly(digits)).toBe(digits);
    },
  );
});

describe(`JSON that says something twice ${verifies("CFG-1", "CFG-3")}`, () => {
  const repeatedIn = (text: string): readonly string[] => repeatedNames(text).map((path) => path.join("/"));

  test.each([
    ['{"a":1,"a":1}', ["a"]],
    ['{"a": 1, "\\u0061" : 2}', ["a"]],
    ['{"2":0,"b":{"1":0,"1":0},"2":{"c":1,"c":1}}', ["b/1", "2", "2/c"]],
    ['[{"a":1},{"a":1},{"a":[{"b":1,"c":2,"b":3}]}]', ["2/a/0/b"]],
    ['{"__proto__":1,"__proto__":2}', ["__proto__"]],
    ['{"":{"":1,"":2}}', ["/"]],
    ['{"a\\u00001":1,"a":2,"a\\u00001":3}', ["a\u00001"]],
    [String.raw`{"a\"":1,"b\\":"\": ","a\"":2}`, ['a"']],
    ['{"a":"\\":1,\\"a\\":2","b":": \\"a\\":"}', []],
    ['{"a":{"a":{"a":1}},"b":[{"a":1}]}', []],
    ['"a"', []],
  ])("says where: %s", (text, places) => {
    expect(repeatedIn(text)).toEqual(places);
  });

  test("says nothing of what programs write", () => {
    const value = fc.jsonValue({ maxDepth: 4, stringUnit: "binary" });
    fc.assert(
      fc.property(value, fc.constantFrom(0, 2), (each, indent) => {
        expect(repeatedIn(JSON.stringify(each, null, indent))).toEqual([]);
      }),
    );
  });
});
