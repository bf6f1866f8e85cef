import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { ProviderEvent, ProviderRecord } from "../chat/providers/provider.ts";
import type { Route } from "../chat/providers/route.ts";
import type { Amount, BudgetRefusal } from "./budget.ts";
import { ChatMeter } from "./chat-meter.ts";
import { type Spent, toolCost } from "./cost.ts";
import { priceSchema, type Price } from "./price.ts";

const provider: ProviderRecord = {
  id: "prv_1",
  name: "main",
  kind: "openai",
  baseUrl: "https://models.example/v1",
  credential: null,
  models: {},
  passthroughModels: true,
  schemaFamily: null,
  priority: 0,
  enabled: true,
  maxAttempts: 1,
  timeoutMs: 1_000,
};
const routeTo = (model: string): Route => ({ provider, model, requestedModel: "m", owner: "tenant" });
const usage = (prompt: number, completion: number) =>
  ({
    type: "usage",
    usage: { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion },
  }) as const;
const says = (text: string): ProviderEvent => ({ type: "text-delta", text, choice: 0 });

/** A unit for a prompt token, two for one that is written, ten for the request, five for a call of `look`. */
const prices: readonly Price[] = [
  { kind: "model", pattern: "m", prompt_per_mtok: 1_000_000, completion_per_mtok: 2_000_000, per_request: 10 },
  { kind: "tool", pattern: "look", per_call: 5 },
].map((price) => priceSchema.parse(price));

interface Asked {
  readonly amount: Amount;
  readonly spent: Spent;
}

class Scene {
  readonly asked: Asked[] = [];
  readonly meter: ChatMeter;
  /** What the budgets hold for this chat. */
  room: Amount = { tokens: 1_000, micros: 1_000 };

  constructor(change: { readonly reserved?: Amount | undefined; readonly prices?: readonly Price[] } = {}) {
    this.meter = new ChatMeter({
      prices: { own: change.prices ?? prices, operator: [] },
      clock: { now: () => 0 },
      routes: [routeTo("m")],
      reserved: "reserved" in change ? change.reserved : { tokens: 100, micros: 100 },
      answerTokens: 20,
      reserve: (amount, spent) => {
        this.asked.push({ amount, spent });
        const fits = amount.tokens <= this.room.tokens && amount.micros <= this.room.micros;
        return Promise.resolve(fits ? undefined : refusal(amount));
      },
    });
  }

  /** One model call. */
  round(events: readonly ProviderEvent[], { prompt = 40, begins = true, model = "m" } = {}): void {
    const round = this.meter.startRound(() => prompt);
    if (begins) round.answeredBy(routeTo(model));
    for (const event of events) round.see(event);
    round.end();
  }
}

function refusal({ tokens }: Amount): BudgetRefusal {
  const budget = { id: "bud_1", scope: "tenant", scopeId: "", period: "total" } as const;
  return { budget, measure: "tokens", limit: 9, used: 9, reserved: 0, asked: tokens, now: 0, windowEnd: null };
}

describe(`the bill of a chat ${verifies("CHAT-2", "CHAT-12")}`, () => {
  test("is the sum of its rounds, each with the back end's count", () => {
    const { meter, round } = bound(new Scene());
    round([says("a"), usage(10, 3)]);
    round([usage(20, 4)]);
    expect(meter.reported).toEqual({
      usage: { prompt_tokens: 30, completion_tokens: 7, total_tokens: 37 },
      rounds: [usage(10, 3).usage, usage(20, 4).usage],
    });
    expect(meter.usage).toEqual(meter.reported?.usage);
    expect(meter.cost).toMatchObject({ tokens: 37, micros: 30 + 14 + 20, estimated: false });
    expect(meter.spent).toEqual({ cost: meter.cost, usage: meter.usage });
  });

  test("holds an estimate where the back end's count is none that can be", () => {
    for (const told of [
      usage(1e308, 3),
      usage(10, 1e20),
      { ...usage(10, 3), usage: { ...usage(10, 3).usage, total_tokens: 1e10 } },
    ]) {
      const { meter, round } = bound(new Scene());
      round([says("abcdefgh"), told]);
      expect(meter.cost).toMatchObject({ tokens: 42, micros: 40 + 4 + 10, estimated: true });
      expect(meter.reported).toBeUndefined();
    }
  });

  test("holds an estimate, and says so, where the back end told nothing or was cut off", () => {
    const { meter, round } = bound(new Scene());
    round([says("twelve bytes"), { type: "tool-call-delta", index: 0, arguments: "four", choice: 0 }], { prompt: 40 });
    expect(meter.reported).toBeUndefined();
    expect(meter.usage).toEqual({ prompt_tokens: 40, completion_tokens: 4, total_tokens: 44, estimated: true });
    round([usage(10, 3)]);
    expect(meter.reported).toMatchObject({ usage: { total_tokens: 13 }, rounds: { length: 1 } });
    expect(meter.usage).toMatchObject({ total_tokens: 57, estimated: true });
    expect(meter.cost).toMatchObject({ tokens: 57, estimated: true });
  });

  test("holds nothing for a back end that never began to answer", () => {
    const { meter, round } = bound(new Scene());
    round([], { begins: false });
    expect(meter.usage).toBeUndefined();
    expect(meter.spent).toBeUndefined();
    expect(meter.cost).toMatchObject({ tokens: 0, micros: 0 });
  });

  test("shows the round under way to whoever keeps it, and counts it once", () => {
    const { meter } = new Scene();
    const round = meter.startRound(() => 40);
    expect(meter.spent).toBeUndefined();
    round.answeredBy(routeTo("m"));
    round.see(says("twelve bytes"));
    expect(meter.spent).toMatchObject({ usage: { total_tokens: 43, estimated: true }, cost: { tokens: 43 } });
    expect(meter.cost.tokens).toBe(0);
    round.see(usage(30, 4));
    round.end();
    expect(meter.spent).toMatchObject({ usage: { total_tokens: 34 }, cost: { tokens: 34, estimated: false } });
  });

  test("is priced by the back end that answered", () => {
    const dear = priceSchema.parse({
      kind: "model",
      pattern: "dear",
      prompt_per_mtok: 9_000_000,
      completion_per_mtok: 0,
    });
    const { meter, round } = bound(new Scene({ prices: [dear] }));
    round([usage(10, 0)], { model: "cheap" });
    expect(meter.cost.micros).toBe(0);
    round([usage(10, 0)], { model: "dear" });
    expect(meter.cost.micros).toBe(90);
  });

  test("is rounded once and not for every round", () => {
    const price = priceSchema.parse({
      kind: "model",
      pattern: "m",
      prompt_per_mtok: 250_000,
      completion_per_mtok: 0,
    });
    const { meter, round } = bound(new Scene({ prices: [price] }));
    for (let count = 0; count < 4; count += 1) round([usage(1, 0)]);
    expect(meter.cost.micros).toBe(1);
  });

  test("has calls on it that have no row yet, until the chat is settled", () => {
    const { meter, round } = bound(new Scene());
    round([usage(10, 0)]);
    meter.addCall(toolCost(5), "deferred");
    meter.addCall(toolCost(7), "recorded");
    meter.addCall(undefined, "deferred");
    expect(meter.spent?.cost.micros).toBe(20 + 5);
    expect(meter.cost.micros).toBe(20);
    expect(meter.totalMicros).toBe(20 + 5 + 7);
  });
});

describe("the share of a tool call in the prompts", () => {
  const look = { name: "look", description: "", parameters: { type: "object" } };
  const schema = 6;

  test("is its schema for each round in which it was offered, and its result", () => {
    const { meter, round } = bound(new Scene());
    round([usage(1, 1)]);
    round([usage(1, 1)]);
    expect(meter.contextOf(look, { text: "x".repeat(40), pictures: 2 })).toEqual({
      context_tokens: 2 * schema + 2_010,
      context_micros: 2 * schema + 2_010,
    });
    // Called again in the same round: the schema is on the first one's bill.
    expect(meter.contextOf(look, { text: "", pictures: 0 })).toEqual({ context_tokens: 0, context_micros: 0 });
    round([usage(1, 1)]);
    expect(meter.contextOf(look, { text: "", pictures: 0 })).toEqual({
      context_tokens: schema,
      context_micros: schema,
    });
  });
});

describe(`the reservation of a chat ${verifies("CHAT-12")}`, () => {
  test("is not asked about where no budget applies", async () => {
    const scene = new Scene({ reserved: undefined });
    scene.room = { tokens: 0, micros: 0 };
    scene.round([usage(1_000, 1_000)]);
    await scene.meter.admitTurn(() => 1_000);
    await scene.meter.admitTools(["look"]);
    expect(scene.asked).toEqual([]);
    expect(scene.meter.isLimited).toBe(false);
  });

  test("covers what comes next without asking, as long as it does", async () => {
    const scene = new Scene({ reserved: { tokens: 100, micros: 200 } });
    scene.round([usage(30, 10)]);
    await scene.meter.admitTools(["look", "free"]);
    await scene.meter.admitTurn(() => 40);
    expect(scene.asked).toEqual([]);
  });

  test("is taken to what was spent and what comes next, once", async () => {
    const scene = new Scene({ reserved: { tokens: 60, micros: 100 } });
    scene.round([usage(30, 10)]);
    scene.meter.addCall(toolCost(5), "deferred");
    await scene.meter.admitTurn(() => 45);
    const spentMicros = 30 + 20 + 10;
    expect(scene.asked).toEqual([
      {
        amount: { tokens: 40 + 45 + 20, micros: spentMicros + (10 + 45 + 40) + 5 },
        spent: { cost: { ...scene.meter.cost, micros: spentMicros + 5 }, usage: scene.meter.usage },
      },
    ]);
    await scene.meter.admitTurn(() => 45);
    expect(scene.asked).toHaveLength(1);
  });

  test("that has no room ends the chat with the budget's name", async () => {
    const scene = new Scene({ reserved: { tokens: 60, micros: 1_000 } });
    scene.room = { tokens: 80, micros: 1_000 };
    scene.round([usage(30, 10)]);
    await expect(scene.meter.admitTurn(() => 45)).rejects.toMatchObject({
      code: "cost_exceeded",
      details: { extra: { budget: "bud_1" } },
    });
  });

  test("holds the prices of the tools that are about to run", async () => {
    const scene = new Scene({ reserved: { tokens: 1_000, micros: 62 } });
    scene.round([usage(30, 10)]);
    await scene.meter.admitTools(["free"]);
    expect(scene.asked).toEqual([]);
    await scene.meter.admitTools(["look", "look"]);
    expect(scene.asked.map(({ amount }) => amount)).toEqual([{ tokens: 40, micros: 70 }]);
  });
});

/** The parts of a scene that may be taken out of it. */
function bound(scene: Scene): Pick<Scene, "meter" | "round"> {
  return { meter: scene.meter, round: scene.round.bind(scene) };
}
