import { describe, expect, test } from "vitest";
import type { JsonValue } from "../json.ts";
import { checkExpression } from "./transform.ts";
import { checkFlow, requireFlow } from "./validate.ts";

const flowOf = (nodes: JsonValue): JsonValue => ({
  schema_version: 1,
  name: "large",
  description: "A lot.",
  start: "first",
  nodes,
});
const problems = async (given: JsonValue): Promise<Record<string, string>> =>
  Object.fromEntries((await checkFlow(given)).problems.map(({ pointer, message }) => [pointer, message]));

describe("bounds of flows", () => {
  test("what is too large is refused before it is read", async () => {
    const message = expect.stringContaining("524288 bytes");
    const wide = flowOf({ first: { kind: "end", output: Array.from({ length: 2_000_000 }, () => []) } });
    expect(await problems(wide)).toEqual({ "": message });
    const escaped = flowOf({ first: { kind: "end", output: "\u0001".repeat(100_000) } });
    expect(await problems(escaped)).toEqual({ "": message });
    await expect(requireFlow(wide)).rejects.toMatchObject({ code: "payload_too_large" });
  });

  test("nodes are counted before anything of them is looked at", async () => {
    const chain = Array.from({ length: 5_000 }, (_, at): [string, JsonValue] => [
      at === 0 ? "first" : `n${at}`,
      { kind: "transform", expression: `steps.zz${at} +`, next: `n${at + 1}` },
    ]);
    const message = "has more than 500 nodes, with those of bodies";
    expect(await problems(flowOf(Object.fromEntries(chain)))).toEqual({ "/nodes": message });
    const body = { start: "n1", nodes: Object.fromEntries(chain.slice(1, 501)) };
    expect(await problems(flowOf({ first: { kind: "map", items: [], body } }))).toEqual({ "/nodes": message });
  });

  test("others have their turn while long expressions are read", async () => {
    await checkExpression("1");
    const output = Array.from({ length: 12 }, (_, at) => ({ $: `[${"a,".repeat(4_900)}${at}]` }));
    let turns = 0;
    const counting = (): void => {
      turns += 1;
      next = setImmediate(counting);
    };
    let next = setImmediate(counting);
    expect(await problems(flowOf({ first: { kind: "end", output } }))).toEqual({});
    clearImmediate(next);
    expect(turns).toBeGreaterThan(2);
  });
});
