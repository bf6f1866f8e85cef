import { describe, expect, test } from "vitest";
import { ChunkForm } from "./chunk-form.ts";

const chunk = (content: string, more: object = {}): string =>
  JSON.stringify({ id: "c", choices: [{ index: 2, delta: { content }, finish_reason: null }], ...more });

function formOf(data: string, text: string): ChunkForm {
  const form = new ChunkForm();
  form.learn(data, { text, choice: 2 });
  return form;
}

describe("the form of chunks", () => {
  test("tells the text of a chunk that differs from the one before in its text alone", () => {
    const form = formOf(chunk("Hel"), "Hel");
    expect([form.textOf(chunk("lo, 世界 😀")), form.choice]).toEqual(["lo, 世界 😀", 2]);
    const spaced = '{"choices": [{"delta": {"content": "a"}}]}';
    expect(formOf(spaced, "a").textOf(spaced.replace('"a"', '"bc"'))).toBe("bc");
  });

  test.each([
    ["nothing has been learnt", new ChunkForm(), chunk("a")],
    ["the text needs escapes", formOf(chunk("a"), "a"), chunk('a "word"')],
    ["the text has a line end", formOf(chunk("a"), "a"), chunk("a\n")],
    ["there is no text", formOf(chunk("a"), "a"), chunk("")],
    ["there is more behind it", formOf(chunk("a"), "a"), chunk("b", { usage: { total_tokens: 3 } })],
    ["its text is cut short, so that its ends overlap", formOf('{"content":"aa"}', "aa"), '{"content":"}'],
    ["the answer is another", formOf(chunk("a"), "a"), chunk("b").replace('"c"', '"d"')],
    [
      "the text might be another's",
      formOf(chunk("a", { x: { content: "a" } }), "a"),
      chunk("b", { x: { content: "a" } }),
    ],
    ["what was learnt had escapes", formOf(chunk("a\n"), "a\n"), chunk("b")],
    [
      "another string begins where the text ends",
      formOf(chunk("a"), "a"),
      chunk("a").replace('"a"', '"a","role":"system"'),
    ],
  ])("does not where %s", (_why, form, data) => {
    expect(form.textOf(data)).toBeUndefined();
  });
});
