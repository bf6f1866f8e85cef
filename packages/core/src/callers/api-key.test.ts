import { describe, expect, test } from "vitest";
import { newId } from "../ids.ts";
import { hashApiKey, newApiKey, tenantOfApiKey } from "./api-key.ts";

describe("API keys", () => {
  test("a new key names its tenant and hides 256 random bits", () => {
    const tenant = newId("tenant");
    const { key, hash, hint } = newApiKey(tenant);
    expect(key).toMatch(/^ty_[0-9a-z]{26}_[A-Za-z0-9_-]{43}$/);
    expect(tenantOfApiKey(key)).toBe(tenant);
    expect(hash).toBe(hashApiKey(key));
    expect(hash).toMatch(/^[0-9a-f]{64}$/);
    expect(key.startsWith(hint)).toBe(true);
    expect(key.length - hint.length).toBe(39);
  });

  test("two keys of one tenant have nothing secret in common", () => {
    const tenant = newId("tenant");
    expect(newApiKey(tenant).hash).not.toBe(newApiKey(tenant).hash);
  });

  test.each([
    ["", "empty"],
    ["sk-abc", "a key of another product"],
    [`ty__${"a".repeat(43)}`, "no tenant"],
    [`ty_abc_${"a".repeat(42)}`, "cut off"],
    [`ty_abc_${"a".repeat(44)}`, "too long"],
    [`ty_ABC_${"a".repeat(43)}`, "upper case tenant"],
    [`ty_../x_${"a".repeat(43)}`, "a path as tenant"],
    [` ty_abc_${"a".repeat(43)}`, "space before"],
    [`ty_abc_${"a".repeat(43)}\n`, "line end after"],
  ])("%j names no tenant (%s)", (key) => {
    expect(tenantOfApiKey(key)).toBeUndefined();
  });
});
