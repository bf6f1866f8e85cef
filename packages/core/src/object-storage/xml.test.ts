import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { elementsOf, escapeXml, isDocument, textOf } from "./xml.ts";

describe("elements", () => {
  const xml =
    '<?xml version="1.0"?><List xmlns="http://s3"><KeyCount>2</KeyCount><Item><Key>a &amp; b</Key></Item><Item at="1"><Key>&#25991;&#x6863;</Key></Item><Empty/><Open></List>';

  test("are found by their whole names, with or without attributes", () => {
    expect(elementsOf(xml, "Item")).toHaveLength(2);
    expect(elementsOf(xml, "Item").map((item) => textOf(item, "Key"))).toEqual(["a & b", "文档"]);
    expect([textOf(xml, "KeyCount"), textOf(xml, "Empty"), textOf(xml, "None"), textOf(xml, "Open")]).toEqual([
      "2",
      "",
      undefined,
      undefined,
    ]);
  });

  test("give back any text that was escaped into one", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        expect(textOf(`<A><Key>${escapeXml(text)}</Key></A>`, "Key")).toBe(text);
      }),
    );
  });

  test("are looked for in anything without an end", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom("<Key", ">", "</Key>", "/", "&#x", "&amp;", "<", "x")), (parts) => {
        expect(Array.isArray(elementsOf(parts.join(""), "Key"))).toBe(true);
      }),
    );
  });

  test("with entities that are none are left as they are", () => {
    expect(textOf("<A>&nbsp; &#xffffff; &#0;</A>", "A")).toBe("&nbsp; &#xffffff; \u0000");
  });
});

describe("a document", () => {
  test.each([
    ["<List/>", true],
    ['\ufeff<?xml version="1.0"?>\n<!-- > --><List xmlns="http://s3"></List>', true],
    ["<List", false],
    ["<Listing/>", false],
    ["<html><List/></html>", false],
    ["<!-- <List/>", false],
    ["", false],
  ])("is known by its root: %j", (xml, isList) => {
    expect(isDocument(xml, "List")).toBe(isList);
  });

  test("is looked at once, whatever stands before the root", () => {
    // Had each way to end a comment its own try, these would take years.
    for (const part of ["<!---->", "<?a?>", "<!--", "<?", " ", "\ufeff"]) {
      expect(isDocument(part.repeat(100_000), "List")).toBe(false);
    }
  });
});
