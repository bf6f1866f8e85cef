import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { LeadingName } from "./transcript.ts";

const ada = { kind: "agent", name: "ada", displayName: "Ada" } as const;

function shown(parts: readonly string[]): string {
  const name = new LeadingName(ada);
  return parts.map((part) => name.read(part)).join("") + name.end();
}

describe(`the name before an answer ${verifies("VCP-14")}`, () => {
  test.each([
    ["[Ada]: Three.", "Three."],
    ["[Ada] Three.", "Three."],
    ["Ada: Three.", "Three."],
    ["\n[ada]：三。", "三。"],
    ["Ada thinks: three.", "Ada thinks: three."],
    ["[Bob]: Three.", "[Bob]: Three."],
    ["[Ada]:", ""],
    ["", ""],
    ["  Three.", "  Three."],
  ])("is taken off %j: %j", (text, rest) => {
    expect(shown([text])).toBe(rest);
    expect(shown(text.split(""))).toBe(rest);
  });

  test("is the same wherever the answer is cut", () => {
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.string(), fc.constantFrom("[", "Ada", "ada", "]", ":", " "))), (parts) => {
        expect(shown(parts)).toBe(shown([parts.join("")]));
      }),
    );
  });
});
