import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { Caller } from "./caller.ts";
import { requireMayGrant, requireMayRunTools, type Grant } from "./grant.ts";

const manager: Caller = { kind: "key", id: "key_1", role: "member", scopes: ["manage", "chat"], tools: null };

function refusedField(caller: Caller, grant: Partial<Grant>): string | undefined {
  try {
    requireMayGrant(caller, { role: "member", scopes: [], tools: null, business_unit: null, ...grant });
    return undefined;
  } catch (error) {
    return (error as { details: { param?: string } }).details.param;
  }
}

describe(`granting ${verifies("CHAT-11")}`, () => {
  test("lets a manager hand on what it has", () => {
    expect(refusedField(manager, { scopes: ["chat", "manage"] })).toBeUndefined();
  });

  test("refuses a scope that the maker lacks", () => {
    expect(refusedField(manager, { scopes: ["chat", "runtime_config"] })).toBe("scopes");
  });

  test("refuses a role above the maker's", () => {
    expect(refusedField(manager, { role: "admin" })).toBe("role");
    expect(refusedField({ ...manager, role: "admin" }, { role: "admin" })).toBeUndefined();
    expect(refusedField({ ...manager, role: "admin" }, { role: "operator" })).toBe("role");
  });

  test("keeps a maker that is bound to tools from making an unbound key", () => {
    const bound: Caller = { ...manager, tools: ["crm_*", "weather"] };
    expect(refusedField(bound, { tools: null })).toBe("tools");
    expect(refusedField(bound, { tools: ["*"] })).toBe("tools");
    expect(refusedField(bound, { tools: ["crm_*"] })).toBeUndefined();
  });

  test("keeps a maker of a business unit within it", () => {
    const ofUnit: Caller = { ...manager, businessUnit: "A" };
    expect(refusedField(ofUnit, { business_unit: "B" })).toBe("business_unit");
    expect(refusedField(ofUnit, { business_unit: null })).toBe("business_unit");
    expect(refusedField(ofUnit, { business_unit: "A" })).toBeUndefined();
    expect(refusedField(manager, { business_unit: "B" })).toBeUndefined();
    expect(refusedField({ ...ofUnit, role: "admin" }, { business_unit: "B" })).toBe("business_unit");
  });

  test("lets the operator grant everything", () => {
    const operator: Caller = { kind: "operator", id: "operator", role: "operator", scopes: [], tools: null };
    expect(refusedField(operator, { role: "admin", scopes: ["runtime_config"] })).toBeUndefined();
  });
});

describe(`making what asks for tools by itself ${verifies("CHAT-11")}`, () => {
  const makes = (caller: Caller) => () => requireMayRunTools(caller, "a hook");

  test("is for keys that may use every tool themselves", () => {
    const maker: Caller = { ...manager, scopes: ["manage", "tools"] };
    expect(makes(maker)).not.toThrow();
    expect(makes({ ...maker, tools: ["crm_*"] })).toThrow(
      /^The caller is bound to crm_\*, and a hook may use every tool/,
    );
    expect(makes(manager)).toThrow(/^The caller lacks the scope 'tools', and a hook may use every tool/);
  });

  test("is for the operator, too", () => {
    expect(makes({ kind: "operator", id: "operator", role: "operator", scopes: [], tools: null })).not.toThrow();
  });
});
