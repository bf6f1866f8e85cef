import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { toGatewayError } from "../errors/gateway-error.ts";
import type { JsonValue } from "../json.ts";
import { checkExpression, evaluate, resolveValue, type FlowScope } from "./transform.ts";

const scope: FlowScope = {
  input: {
    orders: [
      { id: "O1", total: 3 },
      { id: "O2", total: 4 },
    ],
    text: "a1b22",
    one: [{ id: "X" }],
  },
  steps: { fetch: { output: { rows: [1, 2, 3] } } },
  context: { tenantId: "ten_1", buCode: "B1" },
  line: { id: "L1" },
};
const run = (expression: string): Promise<JsonValue | undefined> => evaluate(expression, scope);

describe("expressions", () => {
  test.each<[string, JsonValue | undefined]>([
    ["$sum(input.orders.total)", 7],
    ["input.orders[total > 3].id", "O2"],
    ["steps.fetch.output.rows", [1, 2, 3]],
    ["$steps.fetch.output.rows[0] + 1", 2],
    ["context.tenantId & '/' & $context.buCode", "ten_1/B1"],
    ["line.id = $line.id", true],
    ["input.missing", undefined],
    ["{'ids': input.orders.id, 'none': input.missing}", { ids: ["O1", "O2"] }],
    ["input.orders.{'k': id}", [{ k: "O1" }, { k: "O2" }]],
    ["$replace(input.text, /\\d+/, '#')", "a#b#"],
    ["$match(input.text, /([a-z])(\\d+)/i).groups", ["a", "1", "b", "22"]],
    ["$split('a, b', /,\\s*/)", ["a", "b"]],
    ["$contains('x\\ny', /^y$/m)", true],
    ["$pad('ab', 4, '-')", "ab--"],
    ["$pad('ab', -5, '12')", "121ab"],
    ["$pad('a', 6, 'xyz')", "axyzxy"],
    ["$distinct([1, '1', 1, {'a': 1, 'b': [2]}, {'b': [2], 'a': 1}, null, null])", [1, "1", { a: 1, b: [2] }, null]],
    ["($f := $sum; $count($distinct([$f, $sum, $count])))", 2],
    ["($d := $distinct(?); [$d([1, 1]), $distinct(input.none)])", [1]],
    ["$count($distinct([1..100000]))", 100_000],
    ["$spread([{'a': 1}, [{'b': 2, 'c': 3}], 'x'])", [{ a: 1 }, { b: 2 }, { c: 3 }, "x"]],
    ["$append([1], [2, 3])", [1, 2, 3]],
    ["$join(['a', 'b'], '-') & $join(['c'])", "a-bc"],
    ["$replace('abab', 'a', '$0') & $replace('abab', 'a', 'x', 1)", "$0b$0bxbab"],
    ["$toMillis('20261129120500123', '[Y0001][M01][D01][H01][m01][s01][f001]')", 1_795_953_900_123],
    ["$toMillis('Sunday, 29th November 2026 12:05 pm', '[FNn], [D1o] [MNn] [Y] [h]:[m01] [P]')", 1_795_953_900_000],
    [
      "$fromMillis($toMillis('2026-11-29T12:05:00Z'), '[D1o] [MNn] [YWw]')",
      "29th November Two Thousand and Twenty-Six",
    ],
    ["$formatNumber(12.5, '#0.00') & $formatInteger(12, 'w') & $parseInteger('12', '#0')", "12.50twelve12"],
    ["$string({'x': [{'y': 1}]} ~> |x|{'z': y + 1}, ['y']|)", '{"x":[{"z":2}]}'],
    ["($f := function($n) { $n < 2 ? 1 : $n * $f($n - 1) }; $f(10))", 3628800],
  ])("%s", async (expression, expected) => {
    expect(await run(expression)).toEqual(expected);
  });

  test("say at which character they cannot be read", async () => {
    expect(await checkExpression("input.(")).toMatchObject({ position: expect.any(Number) });
    expect(await checkExpression("input.a")).toBeUndefined();
    await expect(
      evaluate("$sum(input.text)", scope, { node: "sum", field: "nodes.sum.expression" }),
    ).rejects.toMatchObject({
      code: "flow_expression_failed",
      message: expect.stringContaining("nodes.sum.expression"),
      details: { param: "nodes.sum.expression", extra: { node: "sum", position: expect.any(Number) } },
    });
  });

  test.each([
    ["$eval('1')", "$eval"],
    ["/(a)\\1/", "look-around and back references"],
    ["/(?=a)/", "look-around and back references"],
  ])("are refused before they run: %s", async (expression, words) => {
    expect((await checkExpression(expression))?.message).toContain(words);
  });

  test.each([
    "constructor",
    "__proto__",
    "toString",
    "input.constructor",
    "input.__proto__",
    "input.text.length",
    "input.orders.push",
  ])("reach nothing but the data: %s", async (expression) => {
    expect(await run(expression)).toBeUndefined();
  });

  test("take no time that others would miss for a pattern that explodes elsewhere", async () => {
    const evil: FlowScope = { ...scope, input: `${"a".repeat(5_000)}!` };
    expect(await evaluate("$contains(input, /^(a+)+$/)", evil)).toBe(false);
  });

  test("stand anywhere in a value, and what comes to nothing is left out", async () => {
    const value = { a: [{ $: "input.orders[0].id" }, 1], b: { $: "input.nothing" }, c: { d: { $: "line" } }, e: "{$}" };
    expect(await resolveValue(value, scope)).toEqual({ a: ["O1", 1], c: { d: { id: "L1" } }, e: "{$}" });
    expect(await resolveValue([{ $: "input.nothing" }], scope)).toEqual([null]);
  });

  test("name the place within a value", async () => {
    const failing = resolveValue({ deep: [{ $: "1 + 'a'" }] }, scope, { node: "n", field: "nodes.n.arguments" });
    await expect(failing).rejects.toMatchObject({ details: { param: "nodes.n.arguments.deep.0" } });
  });

  test("whatever is written gives JSON or the one error, and leaves nothing behind", async () => {
    const words = [
      "input",
      "steps",
      "$",
      "$$",
      ".",
      "[",
      "]",
      "(",
      ")",
      "{",
      "}",
      "'a'",
      "1",
      "&",
      "+",
      "-",
      "*",
      "**",
      "%",
      "?",
      ":",
      ":=",
      "$f",
      "function($x)",
      "~>",
      "|",
      "^(",
      "/a+/",
      "@$i",
      "#$j",
      "$map",
      "$sum",
      "$string",
      "$spread",
      "$merge",
      "constructor",
      "__proto__",
      ",",
      ";",
      "..",
      "and",
      "in",
    ];
    const text = fc.oneof(
      fc.array(fc.constantFrom(...words), { maxLength: 14 }).map((parts) => parts.join(" ")),
      fc.string({ maxLength: 60 }),
    );
    await fc.assert(
      fc.asyncProperty(text, async (expression) => {
        const before = JSON.stringify(scope);
        const result = await run(expression).catch((error: unknown) => {
          if (toGatewayError(error).code !== "flow_expression_failed") throw error;
          return null;
        });
        expect(JSON.stringify(JSON.parse(JSON.stringify(result ?? null)))).toBe(JSON.stringify(result ?? null));
        expect(JSON.stringify(scope)).toBe(before);
        expect(Object.keys(Object.prototype)).toEqual([]);
      }),
    );
  });
});
