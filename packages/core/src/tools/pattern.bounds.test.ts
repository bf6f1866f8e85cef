/** Patterns as large as anybody may have them, more of them than are kept at a time. */
import { expect, it } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { compilePattern, type Pattern } from "./pattern.ts";

function patternOf(source: string): Pattern {
  const pattern = compilePattern(source);
  if ("reason" in pattern) throw new Error(pattern.reason);
  return pattern;
}

it(`a pattern finds the same however many others were used meanwhile ${verifies("CHAT-18")}`, () => {
  const first = patternOf("^(?:ab){2,100}$");
  for (let at = 0; at < 100; at += 1) expect(patternOf(`^.{1,1000}.{1,900}${at}`).test("x")).toBe(false);
  expect([first.test("abab"), first.test("aba"), first.find("abab"), first.match("abab", 0)?.groups]).toEqual([
    true,
    false,
    0,
    ["abab"],
  ]);
});
