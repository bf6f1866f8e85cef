import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { usageOf } from "./usage.ts";

const counts = { prompt: 1, completion: 2, total: 3 };

describe(`what a back end says of its tokens ${verifies("CHAT-13")}`, () => {
  test("is kept with its details, two levels of it, without lists", () => {
    const details = { cached_tokens: 4, audio: { deeper: 1 }, pieces: [1] };
    expect(usageOf({ prompt_tokens: "1", details, tier: "flex", of: [1] }, counts)).toEqual({
      prompt_tokens: 1,
      completion_tokens: 2,
      total_tokens: 3,
      details: { cached_tokens: 4 },
      tier: "flex",
    });
  });

  test("is as short as what comes of it: each row of a list of calls holds it", () => {
    const names = Array.from({ length: 10_000 }, (_, at) => [`field_${at}`, at] as const);
    const long = "x".repeat(1_000_000);
    const many = Object.fromEntries([...names, ["inner", Object.fromEntries(names)]]);
    for (const told of [{ long }, { [long]: 1 }, { inner: { long } }, many, { inner: many }]) {
      expect(JSON.stringify(usageOf(told, counts)).length).toBeLessThan(5_000);
    }
  });
});
