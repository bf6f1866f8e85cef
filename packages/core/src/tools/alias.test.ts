import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { aliasOf, looksLikeAlias } from "./alias.ts";

describe(`an alias ${verifies("CHAT-4")}`, () => {
  test("is the name itself where back ends take it", () => {
    expect(aliasOf("search_company-2")).toBe("search_company-2");
    expect(aliasOf("x".repeat(64))).toBe("x".repeat(64));
    expect(aliasOf("_1")).toBe("_1");
  });

  test("of other names is legal, always the same, and tells names apart that look alike", () => {
    expect(aliasOf("crm.find customer")).toMatch(/^crm_find_customer_[0-9a-f]{12}$/);
    expect(aliasOf("1c-reload")).toMatch(/^_1c-reload_[0-9a-f]{12}$/);
    const long = "a".repeat(70);
    expect(aliasOf(`${long}1`)).not.toBe(aliasOf(`${long}2`));
    expect(aliasOf("a.b")).not.toBe(aliasOf("a b"));
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 200 }), (name) => {
        expect(aliasOf(name)).toMatch(/^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$/);
        expect(aliasOf(name)).toBe(aliasOf(name));
        expect(aliasOf(name) === name || looksLikeAlias(aliasOf(name))).toBe(true);
      }),
    );
  });
});
