/** Texts of which a rule for cutting would look at everything again and again. */
import { expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { cutText } from "./chunk.ts";

test.each([
  ["headings", "# a\n"],
  ["blanks in a heading", " "],
  ["empty lines", "\n"],
  ["lines of blanks", " \n"],
  ["a word", "a"],
  ["ends of sentences", ". "],
])(`cutting a text of nothing but %s takes time as the text does ${verifies("KB-1")}`, (_what, piece) => {
  // In time that grows with the square none of these would end within the test's.
  const text = `# b${piece.repeat(300_000 / piece.length)}x`;
  const chunk = { size: 500, overlap: 0, by: "sentence" } as const;
  const last = [...cutText(text, { chunk, language: null, hasHeadings: true })].at(-1);
  expect(last?.end).toBe(text.length);
});
