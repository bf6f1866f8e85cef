import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { isWanted } from "./filters.ts";

const operation = { method: "GET", path: "/users/{id}", operationId: "users/get-one", tags: ["users", "admin"] };

describe(`choosing operations ${verifies("BLIND-1")}`, () => {
  test.each([
    ["tag:users", true],
    ["tag:use", false],
    ["tag:*min", true],
    ["GET /users/*", true],
    ["get  /users/{id}", true],
    ["* /users/*", true],
    ["POST /users/*", false],
    ["/users/*", true],
    ["/users", false],
    ["users/*", true],
    ["*get*one", true],
    ["users/get-one", true],
    ["users/get-one*one", false],
    ["*", true],
    ["", false],
  ])("%s: %s", (pattern, isWantedNow) => {
    expect(isWanted(operation, { include: [pattern] })).toBe(isWantedNow);
    expect(isWanted(operation, { exclude: [pattern] })).toBe(!isWantedNow);
  });

  test("reads a pattern as a regular expression would, in one pass", () => {
    const texts = fc.string({ unit: fc.constantFrom("a", "b", "*"), maxLength: 12 });
    fc.assert(
      fc.property(texts, fc.string({ unit: fc.constantFrom("a", "b"), maxLength: 12 }), (pattern, text) => {
        const expected = new RegExp(`^${pattern.replaceAll("*", ".*")}$`).test(text);
        expect(isWanted({ ...operation, operationId: text }, { include: [pattern] })).toBe(expected);
      }),
    );
    const nasty = `${"*a".repeat(2_000)}*b`;
    expect(isWanted({ ...operation, operationId: "a".repeat(20_000) }, { include: [nasty] })).toBe(false);
  });
});
