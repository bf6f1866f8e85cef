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
    ["($e := $eval; $e('1'))"],
    ["$lookup(input, 'constructor')('return 1')()"],
    ["function($x) { $x }"],
    ["($f := function($n) { $f($n + 1) + 1 }; $f(0))"],
    ["($f := function($n) { $f($n) }; $f(0))"],
    ["$pad('x', 1000000000)"],
    ["($f := function($s, $n) { $n = 0 ? $s : $f($s & $s, $n - 1) }; $f('x', 60))"],
    ["[1..9999999]"],
    ["$map([1..90000], function($i) { $map([1..90000], function($j) { $j }) })"],
    ["[1..90000].('x' & $pad('y', 100))"],
    ["1/0"],
  ])("are stopped: %s", async (expression) => {
    const wide: FlowScope = { ...scope, input: { big: "x".repeat(1_000) } };
    await expect(evaluate(expression, wide)).rejects.toMatchObject({ code: "flow_expression_failed" });
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
      { numRuns: 600 },
    );
  });
});
