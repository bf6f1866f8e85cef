import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CsvReader, findDelimiter, type CsvRow } from "./csv.ts";

function read(parts: readonly string[], delimiter = ","): CsvRow[] {
  const rows: CsvRow[] = [];
  const reader = new CsvReader("t.csv", delimiter, (row) => rows.push(row));
  for (const part of parts) reader.add(part);
  reader.end();
  return rows;
}

const cellsOf = (text: string, delimiter?: string): (readonly string[])[] =>
  read([text], delimiter).map(({ cells }) => cells);

describe("CSV", () => {
  test.each([
    [
      "a,b\n1,2",
      [
        ["a", "b"],
        ["1", "2"],
      ],
    ],
    [
      'a,"b,c"\r\n"d""e",\r\n',
      [
        ["a", "b,c"],
        ['d"e', ""],
      ],
    ],
    ['"two\nlines","x\r\ny"\n', [["two\nlines", "x\r\ny"]]],
    ['6" pipe,b\n', [['6" pipe', "b"]]],
    [
      "a,b\r1,2\r",
      [
        ["a", "b"],
        ["1", "2"],
      ],
    ],
    ["a\n\n\nb\n", [["a"], ["b"]]],
    [",\n", [["", ""]]],
  ])("%j is read as people mean it", (text, rows) => {
    expect(cellsOf(text)).toEqual(rows);
  });

  test("says in which line a row begins", () => {
    expect(read(['a\n"b\nc"\nd']).map(({ line }) => line)).toEqual([1, 2, 4]);
  });

  test("names the line of a quote that is never closed", () => {
    expect(() => read(['a,b\n1,"2\n3,4\n'])).toThrow(/'t.csv'.*line 2/);
  });

  test("is the same wherever the text is cut in parts", () => {
    const cell = fc.string({ unit: fc.constantFrom("a", ",", '"', "\n", "\r", "é", "") });
    fc.assert(
      fc.property(
        fc.array(fc.array(cell, { minLength: 2, maxLength: 4 }), { maxLength: 8 }),
        fc.nat(9),
        (rows, size) => {
          const text = rows.map((row) => row.map((one) => `"${one.replaceAll('"', '""')}"`).join(",")).join("\r\n");
          const parts = text.match(new RegExp(`[^]{1,${size + 1}}`, "g")) ?? [];
          expect(read(parts).map(({ cells }) => cells)).toEqual(rows);
        },
      ),
    );
  });

  test.each([
    ["a;b;c\n1,5;2;3\n", ";"],
    ["a\tb\n1\t2\n", "\t"],
    ["a|b\n1|2\n", "|"],
    ['a,b\n"1;2;3",2\n', ","],
    ["one\ntwo\n", ","],
  ])("the delimiter of %j is found", (text, delimiter) => {
    expect(findDelimiter(text)).toBe(delimiter);
  });
});
