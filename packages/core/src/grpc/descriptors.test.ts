/** Descriptors that nothing sensible has made are refused before they fill the memory (SVC-1). */
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { readFiles, toJsonName } from "./descriptors.ts";
import { textField } from "./wire.ts";

/** A file with so many fields of two bytes each. */
function fileOf(name: string, number: number, count: number): Buffer {
  return Buffer.concat([textField(1, name), Buffer.alloc(count * 2, Buffer.from([number * 8 + 2, 0]))]);
}

test.each([
  ["customer_id", "customerId"],
  ["_a__b_c_", "ABC"],
  ["plain", "plain"],
  ["_".repeat(2_000_000), ""],
])("a name becomes that of JSON: %.20s", (name, expected) => {
  expect(toJsonName(name)).toBe(expected);
});

describe(`a file of descriptors ${verifies("SVC-1")}`, () => {
  test.each([
    ["imports", 3],
    ["messages", 4],
    ["enums", 5],
    ["services", 6],
  ])("with more %s than any file has is refused", (_what, number) => {
    expect(() => readFiles([fileOf("a.proto", number, 410_000)])).toThrow(/^there are more than 400000/);
  });

  test("counts with the others of its set", () => {
    const files = ["a.proto", "b.proto", "c.proto"].map((name) => fileOf(name, 3, 150_000));
    expect(readFiles(files.slice(0, 2)).files).toHaveLength(2);
    expect(() => readFiles(files)).toThrow("the files hold more than 400000 parts");
  });
});
