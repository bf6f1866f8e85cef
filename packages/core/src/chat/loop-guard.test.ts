import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { tenantSettingsSchema } from "../tenants/settings.ts";
import { LoopGuard } from "./loop-guard.ts";

const call = (name: string, args = "{}") => ({ id: "x", name, arguments: args, extra: {} });
const guardWith = (settings: object): LoopGuard => new LoopGuard(tenantSettingsSchema.parse(settings));
const usage = (total: number) => ({ prompt_tokens: total, completion_tokens: 0, total_tokens: total });

describe(`hard limits of a chat ${verifies("CHAT-12")}`, () => {
  test("rounds", () => {
    const guard = guardWith({ rounds: 2 });
    guard.admitRound([call("a")], undefined);
    guard.admitRound([call("b")], undefined);
    expect(() => guard.admitRound([call("c")], undefined)).toThrow(
      expect.objectContaining({ code: "rounds_exceeded" }),
    );
  });

  test("calls of one round, before any of them runs", () => {
    expect(() => guardWith({ calls_per_round: 2 }).admitRound([call("a"), call("b"), call("c")], undefined)).toThrow(
      expect.objectContaining({ code: "calls_exceeded" }),
    );
  });

  test("tokens of all rounds", () => {
    expect(() => guardWith({ tokens_per_request: 100 }).admitRound([call("a")], usage(101))).toThrow(
      expect.objectContaining({ code: "cost_exceeded" }),
    );
  });

  test("the same call again and again, however its arguments are spelled", () => {
    const guard = guardWith({ identical_calls: 2, rounds: 100 });
    guard.admitRound([call("a", '{"x":1,"y":2}')], undefined);
    guard.admitRound([call("a", '{ "y":2, "x":1 }')], undefined);
    guard.admitRound([call("a", '{"x":1,"y":3}')], undefined);
    expect(() => guard.admitRound([call("a", '{"y":2,"x":1}')], undefined)).toThrow(
      expect.objectContaining({ code: "repeated_call" }),
    );
  });
});
