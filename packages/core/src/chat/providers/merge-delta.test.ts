import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { JsonObject, JsonValue } from "../../json.ts";
import { mergeDelta } from "./merge-delta.ts";

function merged(...deltas: readonly JsonObject[]): JsonObject {
  const target: JsonObject = {};
  for (const delta of deltas) mergeDelta(target, delta);
  return target;
}

const details = (...list: readonly JsonValue[]): JsonObject => ({ details: [...list] });

describe(`fields that arrive in pieces ${verifies("CHAT-3")}`, () => {
  test("items of a list with the same index and type continue each other, others are new", () => {
    expect(
      merged(
        details({ index: 0, type: "text", text: "a" }, { index: 0, type: "summary", text: "s" }),
        details({ index: 0, type: "summary", text: "t" }, { index: 1, type: "text", text: "x" }, "said"),
        details({ index: 0, type: "text", text: "b" }, { index: 1, text: "y" }, "said"),
      ),
    ).toEqual(
      details(
        { index: 0, type: "text", text: "ab" },
        { index: 0, type: "summary", text: "st" },
        { index: 1, type: "text", text: "xy" },
        "said",
        "said",
      ),
    );
  });

  test("an item without a type takes the first that comes at its index, and no other then", () => {
    expect(
      merged(
        details({ index: 0, text: "a" }),
        details({ index: 0, type: "text", text: "b" }),
        details({ index: 0, type: "summary", text: "s" }, { index: 0, text: "c" }),
      ),
    ).toEqual(details({ index: 0, type: "text", text: "abc" }, { index: 0, type: "summary", text: "s" }));
  });

  test("a list that is said anew as something else starts again", () => {
    expect(merged(details({ index: 0, text: "a" }), { details: "none" }, details({ index: 0, text: "b" }))).toEqual(
      details({ index: 0, text: "b" }),
    );
  });

  test("each item is found without a look at all the others", () => {
    let looks = 0;
    const items = Array.from({ length: 500 }, (_none, index) => {
      const item: JsonObject = { type: `t${index}` };
      Object.defineProperty(item, "index", { enumerable: true, get: () => (looks += 1) && index % 2 });
      return item;
    });
    const target = merged(details(...items));
    mergeDelta(target, details(...items));
    expect(target["details"]).toHaveLength(500);
    expect(looks).toBeLessThan(10_000);
  });
});
