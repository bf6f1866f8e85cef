import { expect, test } from "vitest";
import { RunPurse } from "./run-purse.ts";

const used =
  (tokens: number, micros = 0) =>
  () => ({ tokens, micros });

test("what is used below counts above", () => {
  const boss = new RunPurse("boss", { tokens: 100, until: 1_000 });
  const worker = new RunPurse("worker", { tokens: 60, until: 5_000 }, boss);
  boss.meteredBy(used(50));
  worker.meteredBy(used(50));
  expect(boss.spent).toEqual({ tokens: 100, micros: 0 });
  expect(() => worker.check()).not.toThrow();
  boss.meteredBy(used(51));
  expect(() => worker.check()).toThrow(
    expect.objectContaining({ code: "cost_exceeded", details: { extra: { agent: "boss", limit: "tokens" } } }),
  );
});

test("each has limits of its own, and never more time than the one above", () => {
  const boss = new RunPurse("boss", { until: 1_000 });
  const worker = new RunPurse("worker", { cost_micros: 5, until: 5_000 }, boss);
  worker.meteredBy(used(1, 6));
  expect(worker.until).toBe(1_000);
  expect(() => worker.check()).toThrow(expect.objectContaining({ code: "cost_exceeded" }));
  expect(() => boss.check()).not.toThrow();
});
