import { describe, expect, test } from "vitest";
import { evaluate, type FlowScope } from "./transform.ts";

const nothing: FlowScope = { input: {}, steps: {}, context: {} };

/** A value of few parts, which has 2^n when it is read whole. */
const doubled = "$f := function($n) { $n = 0 ? 1 : ($v := $f($n - 1); {'a': $v, 'b': $v}) }";

describe("bounds of expressions", () => {
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
    ["$clone(input)"],
    [`(${doubled}; $f(40) = $f(40))`],
    [`(${doubled}; $length($string($f(40))))`],
    ["($f := function($n) { $n = 0 ? {} : ($v := $f($n - 1); {} ~> |$|{'a': $v, 'b': $v}|) }; $string($f(40)))"],
    [`$toMillis('${"1".repeat(40)}x', '${"[f]".repeat(10)}')`],
    [`$toMillis('${"1".repeat(90)}x', '${"[f]1".repeat(10)}')`],
    ["$toMillis($pad('1', 4000000, '1'), '[Y]x')"],
    ["$formatNumber(1, $pad('0', 4000000, '0'))"],
    ["$fromMillis(0, '[Y,1000000000]')"],
    ["$contains($pad('a', 4000000, 'a'), /[ab]{900}c/)"],
    ["$join($split($pad('a', 90000, 'a'), ''), $pad('b', 4000000, 'b'))"],
    ["$count($reduce([1..100000], $append))"],
    ["($t := $pad('a', 4000000, 'a'); $count($map($split($pad('a', 90000, 'a'), ''), $replace($t, 'z', ?))))"],
  ])("are stopped: %s", async (expression) => {
    const scope = { ...nothing, input: { big: "x".repeat(1_000) } };
    await expect(evaluate(expression, scope)).rejects.toMatchObject({ code: "flow_expression_failed" });
  });

  test("are stopped for what all parts together weigh, beside what they are given", async () => {
    const given = { ...nothing, input: { rows: Array.from({ length: 40 }, () => "x".repeat(1_000_000)) } };
    expect(await evaluate("$count(input.rows)", given)).toBe(40);
    await expect(evaluate("$count([input, input])", given)).rejects.toThrow("too large with all its parts");
  });

  test("spread a long list in no more steps than it has items", async () => {
    const given = { ...nothing, input: Array.from({ length: 100_000 }, (_, a) => ({ a })) };
    expect(await evaluate("$count($spread(input))", given)).toBe(100_000);
  });
});
