import { describe, expect, test } from "vitest";
import { priceTokens, roundMicros, tokensOf } from "./cost.ts";
import { modelPriceSchema, type ModelPrice } from "./price.ts";

const usage = (change: Readonly<Record<string, number | object>>) => ({
  prompt_tokens: 0,
  completion_tokens: 0,
  total_tokens: 0,
  ...(change as Readonly<Record<string, number>>),
});

describe("billed tokens", () => {
  test("are those of the back end, cached ones among them", () => {
    const told = usage({
      prompt_tokens: 100,
      completion_tokens: 20,
      total_tokens: 120,
      prompt_tokens_details: { cached_tokens: 60 },
    });
    expect(tokensOf(told)).toEqual({ prompt: 100, completion: 20, cached: 60 });
    for (const field of ["prompt_cache_hit_tokens", "cached_tokens"]) {
      expect(tokensOf(usage({ prompt_tokens: 100, total_tokens: 100, [field]: 60 }))).toEqual({
        prompt: 100,
        completion: 0,
        cached: 60,
      });
    }
  });

  test("count thinking that is told in the total only", () => {
    expect(tokensOf(usage({ prompt_tokens: 10, completion_tokens: 5, total_tokens: 40 }))).toMatchObject({
      prompt: 10,
      completion: 30,
    });
  });

  test("are never negative, fractions or more cached than there were", () => {
    expect(tokensOf(usage({ prompt_tokens: -5, completion_tokens: 0.5, total_tokens: Number.NaN }))).toEqual({
      prompt: 0,
      completion: 1,
      cached: 0,
    });
    const boastful = usage({ prompt_tokens: 5, total_tokens: 5, prompt_tokens_details: { cached_tokens: 50 } });
    expect(tokensOf(boastful).cached).toBe(5);
  });
});

describe("the price of tokens", () => {
  const price = (change: Partial<ModelPrice>): ModelPrice => ({
    ...modelPriceSchema.parse({
      kind: "model",
      pattern: "m",
      prompt_per_mtok: 150_000,
      completion_per_mtok: 600_000,
    }),
    ...change,
  });

  test("is that of a million of them, a millionth each", () => {
    expect(priceTokens(price({}), { prompt: 1_000_000, cached: 0, completion: 1_000_000 })).toBe(750_000);
    expect(priceTokens(price({}), { prompt: 10, cached: 0, completion: 1 })).toBeCloseTo(2.1, 9);
  });

  test("of cached ones is their own, or that of others", () => {
    const tokens = { prompt: 1_000_000, cached: 400_000, completion: 0 };
    expect(priceTokens(price({ cached_prompt_per_mtok: 0 }), tokens)).toBe(90_000);
    expect(priceTokens(price({}), tokens)).toBe(150_000);
  });

  test("is rounded up, but not for the last bit of a fraction", () => {
    expect(roundMicros(2.1)).toBe(3);
    expect(roundMicros(2)).toBe(2);
    expect(roundMicros(0.1 + 0.2 + 0.7)).toBe(1);
    expect(roundMicros(3.0000000000000004)).toBe(3);
    expect(roundMicros(0)).toBe(0);
  });
});
