import { expect, test } from "vitest";
import { knownValues } from "./known-values.ts";

test("names that a later release wrote are left out", () => {
  expect(knownValues(["chat", "tools"]).parse(["chat", "teleport", "tools"])).toEqual(["chat", "tools"]);
  expect(knownValues(["chat"]).parse(["teleport"])).toEqual([]);
});

test("what is no list of names is refused", () => {
  expect(knownValues(["chat"]).safeParse("chat").success).toBe(false);
  expect(knownValues(["chat"]).safeParse([1]).success).toBe(false);
});
