import { expect, test } from "vitest";
import { toJsonName } from "./descriptors.ts";

test.each([
  ["customer_id", "customerId"],
  ["_a__b_c_", "ABC"],
  ["plain", "plain"],
  ["_".repeat(2_000_000), ""],
])("a name becomes that of JSON: %.20s", (name, expected) => {
  expect(toJsonName(name)).toBe(expected);
});
