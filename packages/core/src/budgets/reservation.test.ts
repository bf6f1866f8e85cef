import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { callContext } from "../../../../test/support/call-context.ts";
import type { Route } from "../chat/providers/route.ts";
import { parseChatRequest } from "../chat/schema.ts";
import type { TenantConfig } from "../tenant-config.ts";
import type { Budget } from "./budget.ts";
import { tokensOfPrompt } from "./estimate.ts";
import { priceSchema, type Price } from "./price.ts";
import { reserveChat, reserveTool } from "./reservation.ts";

const clock = { now: () => 0 };
const { caller, config: plain } = callContext({ settings: { reserve_tokens: 500 } });

const limits = { scope: "tenant", scopeId: "", period: "day", enabled: true, createdAt: 0, name: "B" } as const;
const inTokens: Budget = { id: "bud_t", ...limits, limitTokens: 10, limitMicros: null };
const inMoney: Budget = { id: "bud_m", ...limits, limitTokens: null, limitMicros: 10 };

const prices: readonly Price[] = [
  { kind: "model", pattern: "m", prompt_per_mtok: 1_000_000, completion_per_mtok: 2_000_000, per_request: 3 },
  { kind: "tool", pattern: "look", per_call: 5 },
].map((price) => priceSchema.parse(price));

function configOf(budgets: readonly Budget[], own: readonly Price[] = prices): TenantConfig {
  return { ...plain, budgets, prices: { own, operator: [] } };
}

function routeTo(model: string, requestedModel = model): Route {
  const provider = { id: "p", name: "p", kind: "openai", baseUrl: "", credential: null, models: {} } as const;
  const rest = {
    passthroughModels: true,
    schemaFamily: null,
    priority: 0,
    enabled: true,
    maxAttempts: 1,
    timeoutMs: 1,
  } as const;
  return { provider: { ...provider, ...rest }, model, requestedModel, owner: "tenant" };
}

const messages = [{ role: "user", content: "x".repeat(400) }];
const plan = (body: object = {}, routes: readonly Route[] = [routeTo("m")]) => ({
  request: parseChatRequest({ messages, ...body }),
  tools: undefined,
  routes,
});
const prompt = tokensOfPrompt(messages);

describe(`what a chat reserves ${verifies("CHAT-12")}`, () => {
  test("is nothing where no budget applies", () => {
    const disabled = { ...inTokens, enabled: false };
    const others = { ...inTokens, scope: "key", scopeId: "key_other" } as const;
    expect(reserveChat({ config: configOf([disabled, others]), caller }, plan(), clock)).toBeUndefined();
  });

  test("is its prompt and the answer that it may have", () => {
    const reserve = (body: object): number | undefined =>
      reserveChat({ config: configOf([inTokens]), caller }, plan(body), clock)?.tokens;
    expect(reserve({})).toBe(prompt + 500);
    expect(reserve({ max_tokens: 7 })).toBe(prompt + 7);
    expect(reserve({ max_tokens: 7, max_completion_tokens: 9 })).toBe(prompt + 9);
    expect(reserve({ max_tokens: 7, n: 3 })).toBe(prompt + 21);
  });

  test("is priced by the dearest back end that may answer", () => {
    const dear = priceSchema.parse({
      kind: "model",
      pattern: "dear",
      prompt_per_mtok: 0,
      completion_per_mtok: 9_000_000,
    });
    const config = configOf([inMoney], [...prices, dear]);
    const routes = [routeTo("m", "both"), routeTo("dear", "both")];
    expect(reserveChat({ config, caller }, plan({ max_tokens: 100 }, routes), clock)?.micros).toBe(900);
    expect(reserveChat({ config, caller }, plan({ max_tokens: 100 }), clock)?.micros).toBe(prompt + 200 + 3);
  });

  test("cannot be said in money without a price; then the request is refused, naming the model and the budget", () => {
    const unpriced = plan({}, [routeTo("m"), routeTo("other")]);
    expect(() => reserveChat({ config: configOf([inMoney]), caller }, unpriced, clock)).toThrow(
      "The model 'other' has no price, and budget 'bud_m' limits cost; add one with PUT /v1/prices (0 is a price).",
    );
    expect(reserveChat({ config: configOf([inTokens]), caller }, unpriced, clock)?.tokens).toBe(prompt + 500);
  });
});

describe("what a tool call reserves", () => {
  test("is its price, where a budget applies", () => {
    const reserve = (budgets: readonly Budget[], tool: string) =>
      reserveTool({ config: configOf(budgets), caller }, tool, clock);
    expect(reserve([inMoney], "look")).toEqual({ tokens: 0, micros: 5 });
    expect(reserve([inTokens], "look")).toEqual({ tokens: 0, micros: 5 });
    expect(reserve([inMoney], "free")).toEqual({ tokens: 0, micros: 0 });
    expect(reserve([], "look")).toEqual({ tokens: 0, micros: 0 });
  });
});
