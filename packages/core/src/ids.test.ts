import { describe, expect, test } from "vitest";
import { isId, newId } from "./ids.ts";

describe("identifiers", () => {
  test("of one kind are different and sort by creation, those of one millisecond too", () => {
    const ids = Array.from({ length: 50_000 }, () => newId("call"));
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.toSorted()).toEqual(ids);
    expect(ids.every((id) => isId("call", id))).toBe(true);
  });

  test("begin with their time", () => {
    const before = Date.now();
    const [, text = ""] = newId("chat").split("_");
    const digits = "0123456789abcdefghjkmnpqrstvwxyz";
    const time = text
      .slice(0, 10)
      .split("")
      .reduce((sum, digit) => sum * 32 + digits.indexOf(digit), 0);
    expect(time).toBeGreaterThanOrEqual(before);
    expect(time).toBeLessThanOrEqual(Date.now());
  });

  test("say what they are", () => {
    expect(isId("call", newId("chat"))).toBe(false);
    expect(isId("call", "call_0000000000000000000000000u")).toBe(false);
  });
});
