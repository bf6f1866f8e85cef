import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { modelPrice, priceSchema, toolPrice, type Price, type PriceTables } from "./price.ts";

const now = Date.parse("2026-11-27T12:00:00.000Z");

function model(pattern: string, prompt: number, from: string | null = null): Price {
  return priceSchema.parse({
    kind: "model",
    pattern,
    effective_from: from,
    prompt_per_mtok: prompt,
    completion_per_mtok: 0,
  });
}

function tool(pattern: string, perCall: number, from: string | null = null): Price {
  return priceSchema.parse({ kind: "tool", pattern, effective_from: from, per_call: perCall });
}

const tables = (own: readonly Price[], operator: readonly Price[] = []): PriceTables => ({ own, operator });
const promptPrice = (prices: PriceTables, ...names: string[]): number | undefined =>
  modelPrice(prices, names, now)?.prompt_per_mtok;

describe(`the price of a model ${verifies("CHAT-12")}`, () => {
  test("is that of the most exact pattern, in whatever order they stand", () => {
    const all = [model("*", 1), model("gpt-*", 2), model("gpt-4o*", 3), model("gpt-4o", 4)];
    for (const list of [all, all.toReversed()]) {
      expect(promptPrice(tables(list), "gpt-4o")).toBe(4);
      expect(promptPrice(tables(list), "gpt-4o-mini")).toBe(3);
      expect(promptPrice(tables(list), "gpt-5")).toBe(2);
      expect(promptPrice(tables(list), "claude")).toBe(1);
    }
    expect(promptPrice(tables([model("gpt-4o", 4)]), "gpt-4o-mini")).toBeUndefined();
  });

  test("is the newest that is in force", () => {
    const prices = tables([
      model("m", 1),
      model("m", 3, "2026-12-01T00:00:00.000Z"),
      model("m", 2, "2026-11-01T00:00:00.000Z"),
    ]);
    expect(promptPrice(prices, "m")).toBe(2);
    expect(modelPrice(prices, ["m"], Date.parse("2026-12-01T00:00:00.000Z"))?.prompt_per_mtok).toBe(3);
    expect(modelPrice(prices, ["m"], Date.parse("2026-10-01T00:00:00.000Z"))?.prompt_per_mtok).toBe(1);
    expect(promptPrice(tables([model("m", 1, "2026-12-01T00:00:00.000Z")]), "m")).toBeUndefined();
  });

  test("is looked up by the caller's name for it, then by the back end's", () => {
    expect(promptPrice(tables([model("fast", 1), model("gpt-4o-mini", 2)]), "fast", "gpt-4o-mini")).toBe(1);
    expect(promptPrice(tables([model("gpt-4o-mini", 2)]), "fast", "gpt-4o-mini")).toBe(2);
  });

  test("is the tenant's own where it has one, however vague, else the operator's", () => {
    const operator = [model("gpt-4o", 9)];
    expect(promptPrice(tables([model("*", 1)], operator), "gpt-4o")).toBe(1);
    expect(promptPrice(tables([model("claude", 1)], operator), "gpt-4o")).toBe(9);
    expect(promptPrice(tables([], operator), "gpt-4o")).toBe(9);
    expect(promptPrice(tables([], []), "gpt-4o")).toBeUndefined();
  });

  test("has nothing to do with that of a tool of the same name", () => {
    const prices = tables([tool("weather", 5), model("weather", 1)]);
    expect(toolPrice(prices, "weather", now)?.per_call).toBe(5);
    expect(promptPrice(prices, "weather")).toBe(1);
    expect(toolPrice(tables([model("weather", 1)]), "weather", now)).toBeUndefined();
    expect(toolPrice(tables([tool("crm_*", 5), tool("crm_find", 0)]), "crm_find", now)?.per_call).toBe(0);
  });
});
