import { describe, expect, it } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { readVectors } from "./embed.ts";

const answer = (data: unknown): string => JSON.stringify({ object: "list", data });
const read = (data: unknown, count = 2): readonly (readonly number[])[] =>
  readVectors("m", answer(data), count).map((vector) => [...vector]);

describe(`answers of embedding models ${verifies("KB-3")}`, () => {
  it("are put in the order of what was asked", () => {
    const data = [
      { index: 1, embedding: [0, 1] },
      { index: 0, embedding: [1, 0] },
    ];
    expect(read(data)).toStrictEqual([
      [1, 0],
      [0, 1],
    ]);
  });

  it("are taken as they come where they have no index", () => {
    expect(read([{ embedding: [1] }, { embedding: [2] }])).toStrictEqual([[1], [2]]);
  });

  it("may be floats in base64", () => {
    const embedding = Buffer.from(Float32Array.of(0.5, -2).buffer).toString("base64");
    expect(read([{ index: 0, embedding }], 1)).toStrictEqual([[0.5, -2]]);
  });

  it.each([
    ["too few", [{ index: 0, embedding: [1] }]],
    [
      "one place twice",
      [
        { index: 0, embedding: [1] },
        { index: 0, embedding: [1] },
      ],
    ],
    [
      "a place that was not asked for",
      [
        { index: 0, embedding: [1] },
        { index: 7, embedding: [1] },
      ],
    ],
    [
      "no numbers",
      [
        { index: 0, embedding: [1] },
        { index: 1, embedding: ["1"] },
      ],
    ],
    [
      "an empty one",
      [
        { index: 0, embedding: [1] },
        { index: 1, embedding: [] },
      ],
    ],
    [
      "half a float",
      [
        { index: 0, embedding: [1] },
        { index: 1, embedding: "AAA=" },
      ],
    ],
    ["nothing", null],
  ])("are refused where they hold %s", (_what, data) => {
    expect(() => read(data)).toThrow(expect.objectContaining({ code: "embedding_invalid" }));
  });

  it.each([
    ["numbers", Array.from({ length: 4_097 }, () => 1)],
    ["base64", Buffer.alloc(4_097 * 4).toString("base64")],
  ])("are refused where a vector has more dimensions than are stored, in %s", (_what, embedding) => {
    expect(read([{ embedding: Array.from({ length: 4_096 }, () => 1) }], 1)[0]).toHaveLength(4_096);
    expect(() => read([{ embedding }], 1)).toThrow(/4097 dimensions, and 4096 at most/);
  });

  it("tell no more of a place than what it is", () => {
    const index = "x".repeat(100_000);
    expect(() => read([{ index, embedding: [1] }], 1)).toThrow(/'index' of the type string, which/);
  });

  it("are refused where they are no JSON", () => {
    expect(() => readVectors("m", "<html>", 1)).toThrow(expect.objectContaining({ code: "embedding_invalid" }));
  });
});
