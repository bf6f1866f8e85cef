import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { createSampler } from "./sampler.ts";

const ids = Array.from({ length: 4_000 }, () => randomBytes(16).toString("hex"));
const share = (name: "traceidratio" | "parentbased_traceidratio", ratio: number): number =>
  ids.filter((id) => createSampler({ name, ratio })(id, undefined)).length / ids.length;

describe("the sampler", () => {
  test("takes about the share that it is told to, all at 1 and none at 0", () => {
    expect(share("traceidratio", 1)).toBe(1);
    expect(share("traceidratio", 0)).toBe(0);
    expect(share("parentbased_traceidratio", 0.25)).toBeGreaterThan(0.2);
    expect(share("parentbased_traceidratio", 0.25)).toBeLessThan(0.3);
  });

  test("takes with a larger share whatever it takes with a smaller one", () => {
    const [few, many] = [0.1, 0.5].map((ratio) => createSampler({ name: "traceidratio", ratio }));
    expect(ids.filter((id) => few?.(id, undefined) === true && many?.(id, undefined) === false)).toEqual([]);
  });

  test.each([
    ["always_on", true, true, true],
    ["always_off", false, false, false],
    ["parentbased_always_on", true, true, false],
    ["parentbased_always_off", false, true, false],
  ] as const)("%s decides by itself %s, under a sampled parent %s, under another %s", (name, alone, under, other) => {
    const sampler = createSampler({ name, ratio: 1 });
    expect([undefined, true, false].map((parent) => sampler(ids[0] ?? "", parent))).toEqual([alone, under, other]);
  });

  test("that goes by the trace alone does not listen to the parent", () => {
    expect(createSampler({ name: "traceidratio", ratio: 0 })(ids[0] ?? "", true)).toBe(false);
  });
});
