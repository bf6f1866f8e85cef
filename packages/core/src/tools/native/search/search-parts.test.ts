import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { checkCitations } from "./citations.ts";
import type { DocumentReader } from "../../../ports/document-reader.ts";
import { findingsOf, pageText } from "./documents.ts";
import { readJsonAnswer, readQueries } from "./prompts.ts";

describe("citations", () => {
  test.each([
    ["It is so [1].", "It is so [1].", [1], []],
    ["Both [1, 2] and [2][1].", "Both [1][2] and [2][1].", [1, 2], []],
    ["None [3] of [1][9].", "None of [1].", [1], [3, 9]],
    ["是的【2】，[4]。", "是的[2]，。", [2], [4]],
    ["A [link](http://x) and [0].", "A [link](http://x) and.", [], [0]],
    ["a[1](http://evil) stays as text", "a[1](http://evil) stays as text", [], []],
  ])("%j", (answer, text, cited, dropped) => {
    expect(checkCitations(answer, 2)).toEqual({ text, cited, dropped });
  });

  test("are found among a million blanks in time that grows with them alone", () => {
    const blanks = " ".repeat(1_000_000);
    expect(checkCitations(`a${blanks}[1]${blanks}b`, 1).text).toBe(`a${blanks}[1]${blanks}b`);
  });

  test("never name a source that was not read", () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom("[", "]", "1", "2", "9", ",", " ", "a") }), (answer) => {
        const { cited, text } = checkCitations(answer, 2);
        expect(cited.every((number) => number === 1 || number === 2)).toBe(true);
        expect(checkCitations(text, 2).cited.every((number) => number <= 2)).toBe(true);
      }),
    );
  });
});

describe("findings", () => {
  test.each([
    [
      { results: [{ title: "T", url: "https://a.example/x", snippet: "S" }] },
      { title: "T", url: "https://a.example/x", text: "S" },
    ],
    [
      { data: { items: [{ name: "N", link: "javascript:alert(1)", description: "D" }] } },
      { title: "N", url: undefined, text: "D" },
    ],
    [{ passages: [{ document_name: "d.md", text: "P", score: 1 }] }, { title: "d.md", url: undefined, text: "P" }],
    [[{ title: "only", url: "http://a.example/" }], { title: "only", url: "http://a.example/", text: "" }],
  ])("of %j", (value, finding) => {
    expect(findingsOf(JSON.stringify(value), "tool")).toEqual([finding]);
  });

  test("are the text itself where it is no list", () => {
    expect(findingsOf("plain words", "tool")).toEqual([{ title: "tool", url: undefined, text: "plain words" }]);
    expect(findingsOf("  ", "tool")).toEqual([]);
  });

  test("a page is read as the document that it is, and text as it stands", async () => {
    const documents: DocumentReader = { read: (format, bytes) => Promise.resolve(`${format} of ${bytes.byteLength}`) };
    const read = (text: string, mediaType: string): Promise<string> =>
      pageText(documents, { text, mediaType }, new AbortController().signal);
    expect(await read("<p>One</p>", "text/html")).toBe("html of 10");
    expect(await read("<!doctype html><p>One</p>", "text/plain")).toBe("html of 25");
    expect(await read("One <two>", "text/plain")).toBe("One <two>");
  });
});

test("a plan is read between other words, each query once", () => {
  const answer = readJsonAnswer('Sure!\n```json\n{"queries": ["a", "a", " b ", "", 3, "old"]}\n```');
  expect(readQueries(answer, new Set(["old"]))).toEqual(["a", "b"]);
  expect(readJsonAnswer("no json {")).toBeUndefined();
});
