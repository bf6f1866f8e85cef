import fc from "fast-check";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { tokensOfText } from "../budgets/estimate.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { cutText, type CutOptions } from "./chunk.ts";

const options = (size: number, more: Partial<CutOptions> & { readonly overlap?: number } = {}): CutOptions => ({
  chunk: { size, overlap: more.overlap ?? 0, by: "sentence" },
  language: null,
  hasHeadings: false,
  ...more,
});

const cut = (text: string, given: CutOptions): string[] =>
  [...cutText(text, given)].map(({ start, end }) => text.slice(start, end));

/** Pieces of one sentence that is longer than a piece, each measured anew with every word. */
function* brokenUpSlowly(text: string, size: number): Generator<string> {
  let piece = "";
  for (const { segment } of new Intl.Segmenter(undefined, { granularity: "word" }).segment(text)) {
    if (piece !== "" && tokensOfText(piece + segment) > size) {
      yield piece;
      piece = "";
    }
    piece += segment;
    while (tokensOfText(piece) > size) {
      let cut = "";
      for (const character of piece) {
        if (cut !== "" && tokensOfText(cut + character) > size) break;
        cut += character;
      }
      yield cut;
      piece = piece.slice(cut.length);
    }
  }
  if (piece !== "") yield piece;
}

describe(`cutting a text ${verifies("KB-1")}`, () => {
  test("ends pieces where sentences end, in English and in Chinese", () => {
    expect(cut("One is here. Two is there. Three is far away.", options(8))).toEqual([
      "One is here. Two is there.",
      "Three is far away.",
    ]);
    expect(cut("今天天气很好。我们去公园散步。晚上回家吃饭。", options(8))).toEqual([
      "今天天气很好。",
      "我们去公园散步。",
      "晚上回家吃饭。",
    ]);
  });

  test("repeats the end of the piece before", () => {
    expect(cut("Aaaa aaa one. Bbbb bbb two. Cccc ccc three.", options(8, { overlap: 4 }))).toEqual([
      "Aaaa aaa one. Bbbb bbb two.",
      "Bbbb bbb two. Cccc ccc three.",
    ]);
  });

  test("says under which headings a piece stands, and takes no line of code for one", () => {
    const text = "intro\n\n# A\n\nfirst\n\n## B ##\n\nsecond\n\n```sh\n# no heading\n```\n\n# C\nthird\n";
    const pieces = [...cutText(text, options(100, { hasHeadings: true }))];
    expect(pieces.map(({ heading }) => heading)).toEqual(["", "A", "A › B", "C"]);
    expect(text.slice(pieces[2]?.start, pieces[2]?.end)).toContain("# no heading");
  });

  test("keeps paragraphs together where that is asked for", () => {
    const text = "One. Two.\n\nThree. Four.\n\nFive.";
    const by = { chunk: { size: 4, overlap: 0, by: "paragraph" }, language: null, hasHeadings: false } as const;
    expect(cut(text, by)).toEqual(["One. Two.", "Three. Four.", "Five."]);
  });

  test("cuts a word that is longer than a piece between characters", () => {
    const pieces = cut("😀".repeat(100), options(32));
    expect(pieces.join("")).toBe("😀".repeat(100));
    expect(pieces.every((piece) => piece.isWellFormed())).toBe(true);
  });

  test.each([
    ["Chinese", "今天天气很好我们去公园散步"],
    ["English", "some words and no end of a sentence, "],
    ["one word", "a"],
  ])("measures a text without ends of sentences no more for larger pieces: %s", (_what, part) => {
    const text = part.repeat(40_000 / part.length);
    let measured = 0;
    const byteLength = Buffer.byteLength.bind(Buffer);
    const spy = vi.spyOn(Buffer, "byteLength").mockImplementation((what, encoding) => {
      measured += typeof what === "string" ? what.length : 0;
      return byteLength(what, encoding);
    });
    onTestFinished(() => spy.mockRestore());
    for (const size of [32, 4_000]) {
      measured = 0;
      expect(cut(text, options(size)).length).toBeGreaterThan(1);
      // Whole, as a sentence, as words, and as what is put together of them.
      expect(measured).toBeLessThanOrEqual(text.length * 6);
    }
  });

  test("breaks a sentence up at the words where measuring every piece whole would", () => {
    const parts = fc.array(
      fc.constantFrom(
        "字",
        "今天天气",
        "word ",
        "a",
        "é",
        "😀",
        "👩‍👩‍👧",
        " ",
        "  ",
        "1,000 ",
        "ไทยภาษา",
        "\ud83d",
        "\ude00",
        "x".repeat(90),
      ),
      { minLength: 1, maxLength: 300 },
    );
    fc.assert(
      fc.property(parts, fc.integer({ min: 1, max: 80 }), (given, size) => {
        const text = given.join("");
        const slowly = [...brokenUpSlowly(text, size)].map((piece) => piece.trim()).filter((piece) => piece !== "");
        expect(cut(text, options(size))).toEqual(slowly);
      }),
    );
  });

  test("loses nothing but blanks, halves no character and keeps to the size, whatever the text is", () => {
    const texts = fc.array(
      fc.oneof(fc.string({ unit: "grapheme" }), fc.constantFrom("\n\n", "。", ". ", "# 标题\n", "字")),
      {
        maxLength: 80,
      },
    );
    fc.assert(
      fc.property(texts, fc.integer({ min: 32, max: 80 }), fc.boolean(), (parts, size, hasHeadings) => {
        const text = parts.join("").toWellFormed();
        const pieces = [...cutText(text, options(size, { hasHeadings }))];
        let covered = 0;
        for (const { start, end } of pieces) {
          const piece = text.slice(start, end);
          expect(piece.isWellFormed()).toBe(true);
          // Each unit is rounded up by itself.
          expect(tokensOfText(piece)).toBeLessThanOrEqual(size + 1);
          expect(text.slice(covered, start).trim()).toBe("");
          covered = Math.max(covered, end);
        }
        expect(text.slice(covered).trim()).toBe("");
      }),
    );
  });
});
