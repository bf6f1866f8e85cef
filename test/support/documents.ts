/** Small documents of formats that take a program to read, made by hand. */
import { packZip } from "@toolyard/core/zip";

/** A PDF with a page for each text, in whatever script: a font of its own says which character each code is. */
export function pdfOf(...pages: readonly string[]): Uint8Array<ArrayBuffer> {
  const characters = [...new Set(pages.join(""))];
  const code = (character: string): string => (characters.indexOf(character) + 1).toString(16).padStart(4, "0");
  const utf16 = (character: string): string => Buffer.from(character, "utf16le").swap16().toString("hex");
  const mappings = characters.map((character) => `<${code(character)}> <${utf16(character)}>`).join("\n");
  const cmap = `/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /Own def /CMapType 2 def
1 begincodespacerange <0000> <FFFF> endcodespacerange
${characters.length} beginbfchar
${mappings}
endbfchar endcmap CMapName currentdict /CMap defineresource pop end end`;
  const contents = pages.map((page) => `BT /F1 12 Tf 20 700 Td <${Array.from(page, code).join("")}> Tj ET`);
  const stream = (text: string): string => `<< /Length ${Buffer.byteLength(text)} >>\nstream\n${text}\nendstream`;
  const first = 7;
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    `<< /Type /Pages /Count ${pages.length} /Kids [${pages.map((_page, at) => `${first + 2 * at} 0 R`).join(" ")}] >>`,
    "<< /Type /Font /Subtype /Type0 /BaseFont /Own /Encoding /Identity-H /DescendantFonts [4 0 R] /ToUnicode 6 0 R >>",
    "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /Own /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> /FontDescriptor 5 0 R /DW 1000 >>",
    "<< /Type /FontDescriptor /FontName /Own /Flags 4 /FontBBox [0 0 1000 1000] /ItalicAngle 0 /Ascent 800 /Descent -200 /CapHeight 700 /StemV 80 >>",
    stream(cmap),
    ...contents.flatMap((content, at) => [
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources << /Font << /F1 3 0 R >> >> /Contents ${first + 2 * at + 1} 0 R >>`,
      stream(content),
    ]),
  ];
  let body = "%PDF-1.4\n";
  const offsets = objects.map((object, at) => {
    const offset = Buffer.byteLength(body);
    body += `${at + 1} 0 obj\n${object}\nendobj\n`;
    return offset;
  });
  const start = Buffer.byteLength(body);
  const table = offsets.map((offset) => `${String(offset).padStart(10, "0")} 00000 n \n`).join("");
  body += `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${table}`;
  body += `trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`;
  return new Uint8Array(Buffer.from(body));
}

const types = `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>`;
const relations = `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>`;

/** A DOCX of paragraphs; one that begins with `# ` is a heading. `more`: further files in it. */
export async function docxOf(
  paragraphs: readonly string[],
  more: readonly { readonly path: string; readonly body: Uint8Array }[] = [],
): Promise<Uint8Array<ArrayBuffer>> {
  const body = paragraphs.map((text) => {
    const isHeading = text.startsWith("# ");
    const style = isHeading ? '<w:pPr><w:pStyle w:val="Heading1"/></w:pPr>' : "";
    return `<w:p>${style}<w:r><w:t>${isHeading ? text.slice(2) : text}</w:t></w:r></w:p>`;
  });
  const document = `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>${body.join("")}</w:body></w:document>`;
  return new Uint8Array(
    await packZip([
      { path: "[Content_Types].xml", body: Buffer.from(types) },
      { path: "_rels/.rels", body: Buffer.from(relations) },
      { path: "word/document.xml", body: Buffer.from(document) },
      ...more,
    ]),
  );
}
