import { DatabaseSync } from "node:sqlite";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { toFtsQuery, toFtsText } from "./fts-text.ts";

/** The texts that a query finds, in an index of their own. */
function found(texts: readonly string[], query: string): readonly string[] {
  const database = new DatabaseSync(":memory:");
  database.exec("CREATE VIRTUAL TABLE fts USING fts5(text, tokenize = 'unicode61')");
  const insert = database.prepare("INSERT INTO fts (rowid, text) VALUES (?, ?)");
  texts.forEach((text, at) => insert.run(at, toFtsText(text)));
  const match = toFtsQuery(query);
  if (match === undefined) return [];
  const rows = database.prepare("SELECT rowid AS at FROM fts WHERE fts MATCH ? ORDER BY bm25(fts)").all(match);
  database.close();
  return rows.map(({ at }) => texts[Number(at)] ?? "");
}

describe(`texts in a full-text index ${verifies("KB-3")}`, () => {
  it.each([
    ["a word of two characters in a sentence", "我们的知识库支持全文检索。", "检索"],
    ["the last character of a sentence", "这是一座山", "山"],
    ["one character within a word", "长江大桥", "大"],
    ["wide forms by narrow ones", "ＡＢＣ 型号", "abc"],
    ["characters of a compatibility form", "⽆法打开", "无法"],
    ["katakana in half width", "ﾃﾞｰﾀの検索", "データ"],
    ["a word by another case", "The Price is 10", "PRICE"],
    ["a name with a hyphen by a part of it", "model GPT-4o mini", "gpt"],
    ["Korean with an ending", "데이터베이스를 검색한다", "데이터베이스"],
    ["characters beyond the first plane", "𠮷野家の牛丼", "𠮷野"],
    ["a word with an accent by one without", "crème brûlée", "creme"],
  ])("finds %s", (_what, text, query) => {
    expect(found([text, "something else 其他"], query)).toStrictEqual([text]);
  });

  it("puts what has more of the query first", () => {
    const texts = ["向量检索", "全文检索和向量检索都支持", "天气很好"];
    expect(found(texts, "全文检索")[0]).toBe(texts[1]);
    expect(found(texts, "全文检索")).not.toContain(texts[2]);
  });

  it("finds nothing where a query has no word", () => {
    expect(toFtsQuery('…!?  — "" * ()')).toBeUndefined();
    expect(toFtsQuery("")).toBeUndefined();
  });

  it.each([
    'foo" OR "bar',
    "NEAR(a b)",
    "text : x",
    "-a",
    "a* ^b",
    "{text} : a",
    "NOT",
    "a AND (b",
    "\0'; DROP TABLE fts; --",
  ])("takes no part of %j for an operator", (query) => {
    expect(() => found(["bar x b"], query)).not.toThrow();
  });

  it("is asked with any text", () => {
    const texts = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.string({ unit: fc.constantFrom(...Array.from('知识"*(){}:^-+ aA１⽆ﾃﾞ\ud800\udc00')) }),
    );
    fc.assert(
      fc.property(texts, texts, (text, query) => {
        expect(found([text], query).length).toBeLessThanOrEqual(1);
      }),
      { numRuns: 300 },
    );
  });

  it("finds every text by itself where it has a word", () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom("知", "识库", "price", "１０", "データ", "，", " "), { minLength: 1, maxLength: 12 }),
        (parts) => {
          const text = parts.join("");
          expect(found([text], text)).toStrictEqual(toFtsQuery(text) === undefined ? [] : [text]);
        },
      ),
    );
  });

  it("looks for a limited number of terms of a long query", () => {
    expect(toFtsQuery("字".repeat(5) + [...Array(500).keys()].join(" "))?.split(" OR ")).toHaveLength(64);
  });
});
