import { describe, expect, test } from "vitest";
import { toPortablePattern } from "./portable-pattern.ts";

describe("toPortablePattern", () => {
  test.each(["^[a-z0-9][a-z0-9_-]{0,63}$", "^https?://", "^[\\w.+-]{1,64}\\/[\\w.+-]{1,64}$", "^\\\\u0041$"])(
    "leaves %s as it is",
    (pattern) => expect(toPortablePattern(pattern)).toBe(pattern),
  );

  test("says which characters of Latin-1 a set with classes leaves out", () => {
    expect(toPortablePattern("^[^{}:/\\\\\\p{Cc}]+$")).toBe("^[^\\x00-\\x1f\\x2f\\x3a\\x5c\\x7b\\x7d\\x7f-\\x9f]+$");
  });

  test("keeps each set to itself", () => {
    expect(toPortablePattern("[a-z][^\\p{Cc}]{2}[0-9]")).toBe("[a-z][^\\x00-\\x1f\\x7f-\\x9f]{2}[0-9]");
  });

  test("spells characters beyond Latin-1 out", () => {
    expect(toPortablePattern("^[^\\p{Cc}\\x5b\\x5d@:\\uff1a]{1,64}$")).toBe(
      "^[^\\x00-\\x1f\\x3a\\x40\\x5b\\x5d\\x7f-\\x9f：]{1,64}$",
    );
    expect(toPortablePattern("^[\\u4e00-\\u9fff\\u005d]$")).toBe("^[一-鿿\\x5d]$");
  });

  test("holds all that the pattern holds, and no sign of ASCII that it does not", () => {
    const pattern = "^[\\p{L}\\p{N}_.:-]{1,128}$";
    const [before, after] = [new RegExp(pattern, "u"), new RegExp(toPortablePattern(pattern), "u")];
    const characters = Array.from({ length: 0xd800 }, (_none, code) => String.fromCharCode(code));
    expect(characters.filter((one) => before.test(one) && !after.test(one))).toEqual([]);
    expect(characters.slice(0, 256).filter((one) => after.test(one) && !before.test(one))).toEqual([]);
  });
});
