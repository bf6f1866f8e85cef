import { packZip } from "@toolyard/core/zip";
import { describe, expect, test } from "vitest";
import { readWorkbook } from "./xlsx.ts";

const workbook = `<workbook xmlns:r="r"><sheets><sheet name="One &amp; only" sheetId="1" r:id="rId1"/></sheets></workbook>`;
const relations = `<Relationships><Relationship Id="rId1" Target="worksheets/sheet1.xml"/></Relationships>`;
const styles = `<styleSheet><numFmts><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd hh:mm"/><numFmt numFmtId="165" formatCode="&quot;days&quot; 0"/></numFmts>
  <cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="165"/></cellXfs></styleSheet>`;

async function make(sheet: string, more: Readonly<Record<string, string>> = {}): Promise<Uint8Array> {
  const parts = {
    "xl/workbook.xml": workbook,
    "xl/_rels/workbook.xml.rels": relations,
    "xl/worksheets/sheet1.xml": `<worksheet><sheetData>${sheet}</sheetData></worksheet>`,
    "xl/styles.xml": styles,
    ...more,
  };
  return await packZip(Object.entries(parts).map(([path, text]) => ({ path, body: Buffer.from(text) })));
}

const rowsOf = (archive: Uint8Array): unknown[] => [...(readWorkbook("t.xlsx", archive)[0]?.rows() ?? [])];

describe("a workbook", () => {
  test("has its cells where their references say, of whatever kind they are", async () => {
    const shared = `<sst><si><t>name</t></si><si><r><t>ri</t></r><r><t xml:space="preserve">ch </t></r><rPh><t>x</t></rPh></si></sst>`;
    const sheet = `<row r="1"><c r="A1" t="s"><v>0</v></c><c r="C1" t="inlineStr"><is><t>a &lt; b</t></is></c></row>
      <row r="3"><c r="A3" t="s"><v>1</v></c><c r="B3"><v>1.5</v></c><c r="C3" t="b"><v>1</v></c><c r="D3" s="1"><v>45292</v></c>
      <c r="E3" s="2"><v>45292.5</v></c><c r="F3" s="3"><v>7</v></c><c r="G3" t="str"><f>A1</f><v>formula</v></c><c r="H3"/></row>`;
    expect(readWorkbook("t.xlsx", await make(sheet))[0]?.name).toBe("One & only");
    expect(rowsOf(await make(sheet, { "xl/sharedStrings.xml": shared }))).toEqual([
      { line: 1, cells: ["name", null, "a < b"] },
      { line: 3, cells: ["rich ", 1.5, "TRUE", "2024-01-01", "2024-01-01T12:00:00", 7, "formula", null] },
    ]);
  });

  test.each([
    ["an entity", `<!DOCTYPE x [<!ENTITY a "b">]><workbook/>`],
    ["an outer document", `<!DOCTYPE x SYSTEM "file:///etc/passwd"><workbook/>`],
  ])("with %s is refused", async (_what, text) => {
    const archive = await make("", { "xl/workbook.xml": text });
    expect(() => readWorkbook("t.xlsx", archive)).toThrow(/'t.xlsx'.*document type/);
  });

  test("that is none is refused by name", async () => {
    expect(() => readWorkbook("t.xlsx", Buffer.from("a,b"))).toThrow(/'t.xlsx' is no zip archive/);
    const other = await packZip([{ path: "a", body: Buffer.from("a") }]);
    expect(() => readWorkbook("t.xlsx", other)).toThrow(/no workbook/);
  });

  test("that unpacks to more than it may is refused before it is unpacked", async () => {
    const bomb = Buffer.from(await packZip([{ path: "xl/workbook.xml", body: Buffer.alloc(1_000) }]));
    // The size that its directory tells, which is what decides: nothing so large has to be made here.
    bomb.writeUInt32LE(300_000_000, bomb.indexOf("PK\u0001\u0002") + 24);
    expect(() => readWorkbook("t.xlsx", bomb)).toThrow(/unpacks to more than/);
  });
});
