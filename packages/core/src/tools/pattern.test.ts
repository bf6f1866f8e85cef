import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { compilePattern, type Pattern } from "./pattern.ts";

function reasonOf(source: string): string | undefined {
  const pattern = compilePattern(source);
  return "reason" in pattern ? pattern.reason : undefined;
}

/** Instructions, of which a search is counted. */
function sizeOf(pattern: Pattern): number {
  return pattern.cost(128) - 1;
}

describe(`a pattern of anybody's ${verifies("CHAT-18")}`, () => {
  // Each would take the engine from a third of a second to seven seconds.
  it.each([
    ["repetitions in a row", ".{0,1000}".repeat(200)],
    ["repetitions of a group", `(?:${"[^a]".repeat(40)}){1000}`],
    ["repetitions of repetitions", "(?:(?:(?:a{9}){9}){9}){9}b{1000}c{1000}".repeat(12)],
    ["long ranges in both cases", `(?i)${"[b-\\u{10ffff}]".repeat(130)}`],
    ["long ranges, with the flag on a group", `(?s-m:x)(?i:${"[b-\\x{10ffff}]".repeat(130)})`],
    ["classes of Unicode in both cases", `(?i)${"\\P{Lu}".repeat(300)}`],
  ])("is refused before it is compiled for %s", (_what, source) => {
    expect(reasonOf(source)).toBe("is too large when its repetitions are written out");
  });

  it.each([
    "^[A-Za-z0-9_.-]{1,64}$",
    "^.{1,1000}$",
    "^[\\w+=,.@-]{1,256}$",
    "(?i)^[a-z0-9\\u4e00-\\u9fff]+$",
    "^[\\p{L}\\p{N}\\p{P}\\p{S}\\p{Zs}]{1,500}$",
    "^(?:[0-9a-zA-Z+/]{4})*(?:(?:[0-9a-zA-Z+/]{2}==)|(?:[0-9a-zA-Z+/]{3}=))?$",
    "\\{\\d{2}\\}[]\\]{}]?",
  ])("is taken where it is like any other: %s", (source) => {
    expect(reasonOf(source)).toBeUndefined();
  });

  it("is counted as no less than what it comes to", () => {
    const atom = fc.constantFrom(
      "a",
      ".",
      "\\d",
      "[a-z]",
      "[^\\]x]",
      "\\{",
      "[{]",
      "\\u{62}",
      "(?:",
      "(",
      "(?<n>",
      "|",
    );
    const after = fc.constantFrom("", "", "", "*", "+?", "?", "{3}", "{2,5}", "{2,}", ")", "){7}", ")*");
    fc.assert(
      fc.property(fc.array(fc.tuple(atom, after), { maxLength: 12 }), (parts) => {
        const pattern = compilePattern(parts.flat().join(""));
        // Most are none, for their groups.
        return "reason" in pattern || sizeOf(pattern) <= pattern.work + 10;
      }),
      {
        examples: [
          [
            [
              ["(", ""],
              ["(?<n>", "){7}"],
              ["a", "){7}"],
            ],
          ],
          [
            [
              ["(", ""],
              ["|", ""],
              ["|", ""],
              ["|", "){7}"],
            ],
          ],
        ],
      },
    );
  });
});
