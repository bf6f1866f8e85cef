import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { Caller } from "../callers/caller.ts";
import { toOpenAiError } from "../errors/to-openai.ts";
import { budgetsOf, overBudget, windowEnd, type Budget, type BudgetRefusal } from "./budget.ts";

const now = Date.parse("2026-11-27T12:00:00.000Z");

const refusal = (change: Partial<BudgetRefusal> = {}): BudgetRefusal => ({
  budget: { id: "bud_1", scope: "key", scopeId: "key_1", period: "day" },
  measure: "tokens",
  limit: 100,
  used: 90,
  reserved: 5,
  asked: 20,
  now,
  windowEnd: Date.parse("2026-11-28T00:00:00.000Z"),
  ...change,
});

describe(`a budget without room ${verifies("CHAT-12")}`, () => {
  test("is named with its scope, what stands against it, the knob and the end of its window", () => {
    const error = overBudget("budget_exceeded", refusal());
    expect(error.message).toBe(
      "Budget 'bud_1' allows key 'key_1' 100 tokens per day: 90 are used and 5 reserved by calls that run, and this one needs up to 20. Raise it with PATCH /v1/budgets/bud_1, lower 'max_tokens', or wait for the next day (2026-11-28T00:00:00.000Z).",
    );
    expect(error.spec).toMatchObject({ http: 429, type: "rate_limit_error", retryable: false });
    expect(toOpenAiError(error, "req_1").error).toMatchObject({
      code: "budget_exceeded",
      budget: "bud_1",
      scope: "key",
      period: "day",
      measure: "tokens",
      limit: 100,
      used: 90,
      reserved: 5,
      asked: 20,
      retry_after_ms: 12 * 3_600_000,
    });
  });

  test("of the tenant, in money and for good, says so and promises nothing", () => {
    const budget = { id: "bud_1", scope: "tenant", scopeId: "", period: "total" } as const;
    const error = overBudget("budget_exceeded", refusal({ budget, measure: "micros", windowEnd: null }));
    expect(error.message).toContain("allows the tenant 100 micro-units of cost in all");
    expect(error.message).not.toContain("wait");
    expect(error.message).not.toContain("max_tokens");
    expect(error.details.retryAfterMs).toBeUndefined();
  });

  test("is worth asking again soon where only running calls are in the way, and never where the request is too large", () => {
    const soon = overBudget("budget_exceeded", refusal({ used: 50, reserved: 45, asked: 20 }));
    expect(soon.details.retryAfterMs).toBe(1_000);
    expect(soon.message).toMatch(/lower 'max_tokens', or ask again once those calls have ended\.$/);
    const never = overBudget("budget_exceeded", refusal({ asked: 101 }));
    expect(never.details.retryAfterMs).toBeUndefined();
    expect(never.message).not.toContain("wait");
    expect(never.message).toContain("Raise it with PATCH /v1/budgets/bud_1, or lower 'max_tokens'.");
  });
});

describe("windows", () => {
  test("of months end with the month, also at the end of a year and in a leap year", () => {
    const end = (start: string): string => new Date(windowEnd("month", Date.parse(start)) ?? 0).toISOString();
    expect(end("2026-11-01T00:00:00.000Z")).toBe("2026-12-01T00:00:00.000Z");
    expect(end("2026-12-01T00:00:00.000Z")).toBe("2027-01-01T00:00:00.000Z");
    expect(end("2028-02-01T00:00:00.000Z")).toBe("2028-03-01T00:00:00.000Z");
  });

  test("of the others are as long as they say", () => {
    expect(windowEnd("minute", now)).toBe(now + 60_000);
    expect(windowEnd("hour", now)).toBe(now + 3_600_000);
    expect(windowEnd("day", now)).toBe(now + 86_400_000);
    expect(windowEnd("total", 0)).toBeNull();
  });
});

describe("the budgets of a caller", () => {
  const budget = (id: string, change: Partial<Budget>): Budget => {
    const rest = { name: "B", period: "day", limitTokens: 1, limitMicros: null, enabled: true, createdAt: 0 } as const;
    return { id, scope: "tenant", scopeId: "", ...rest, ...change };
  };
  const all = [
    budget("tenant", {}),
    budget("off", { enabled: false }),
    budget("key", { scope: "key", scopeId: "key_1" }),
    budget("other key", { scope: "key", scopeId: "key_2" }),
    budget("user", { scope: "user", scopeId: "ada" }),
    budget("named like the key", { scope: "user", scopeId: "key_1" }),
  ];
  const caller: Caller = { kind: "key", id: "key_1", role: "member", scopes: [], tools: null };

  test("are those of the tenant, of the key and of the user behind it, as far as they are enabled", () => {
    const ids = (who: Caller): string[] => budgetsOf(all, who).map(({ id }) => id);
    expect(ids({ ...caller, userId: "ada" })).toEqual(["tenant", "key", "user"]);
    expect(ids(caller)).toEqual(["tenant", "key"]);
    expect(ids({ ...caller, id: "operator", kind: "operator", role: "operator" })).toEqual(["tenant"]);
  });
});
