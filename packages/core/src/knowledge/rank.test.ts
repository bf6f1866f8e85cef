import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { fuse } from "./rank.ts";

describe("fusing ranked lists", () => {
  it("prefers what both lists have", () => {
    const fused = fuse(
      [
        { ids: [1, 2, 3], weight: 1 },
        { ids: [4, 2, 5], weight: 1 },
      ],
      3,
    );
    expect(fused.map(({ id }) => id)).toStrictEqual([2, 1, 4]);
  });

  it("gives the first of every list the score 1", () => {
    expect(
      fuse(
        [
          { ids: [7], weight: 2 },
          { ids: [7, 8], weight: 1 },
        ],
        1,
      ),
    ).toStrictEqual([{ id: 7, score: 1 }]);
  });

  it("lets a list of no weight decide nothing but what would be missing", () => {
    const fused = fuse(
      [
        { ids: [1, 2], weight: 1 },
        { ids: [2, 3], weight: 0 },
      ],
      5,
    );
    expect(fused.map(({ id }) => id)).toStrictEqual([1, 2, 3]);
  });

  it("keeps the order of a single list, and its limit", () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat(), { maxLength: 60 }), fc.integer({ min: 0, max: 20 }), (ids, limit) => {
        expect(fuse([{ ids, weight: 1 }], limit).map(({ id }) => id)).toStrictEqual(ids.slice(0, limit));
      }),
    );
  });
});
