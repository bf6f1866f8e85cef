import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { decodeDocument, hasHeadings, kindOf } from "./kind.ts";

async function outcomeOf(all: Uint8Array, name: string): Promise<string> {
  try {
    await kindOf(all, { name, mediaType: "" });
    decodeDocument(all, "");
    return "told";
  } catch (error) {
    return error instanceof GatewayError ? error.code : String(error);
  }
}

const bytes = (text: string): Uint8Array => Buffer.from(text);

describe(`the kind of a document ${verifies("KB-1")}`, () => {
  test.each([
    ["%PDF-1.7 …", "a.txt", "text/plain", "pdf"],
    ["  <!DOCTYPE html><p>x", "x", "", "html"],
    ["<p>x", "page.htm", "application/octet-stream", "html"],
    ["# x", "x", "text/markdown; charset=utf-8", "markdown"],
    ["# x", "README.MD", "text/plain", "markdown"],
    ["a,b", "t.csv", "", "csv"],
    ["{}", "x", "application/json", "json"],
    ["plain", "x", "", "text"],
  ])("%j called %j and said to be %j is %s", async (text, name, mediaType, kind) => {
    expect((await kindOf(bytes(text), { name, mediaType })).kind).toBe(kind);
  });

  test("keeps what is said of a text that is nothing else", async () => {
    expect(await kindOf(bytes("x"), { name: "x.yaml", mediaType: "text/yaml" })).toEqual({
      kind: "text",
      mediaType: "text/yaml",
    });
    expect([hasHeadings("text/markdown"), hasHeadings("text/plain")]).toEqual([true, false]);
  });

  test("is told, or refused with a reason, whatever the bytes are", async () => {
    const starts = ["", "%PDF-", "PK\u0003\u0004", "<html>"].map((start) => Buffer.from(start, "latin1"));
    const given = fc.tuple(fc.constantFrom(...starts), fc.uint8Array({ maxLength: 200 }), fc.string({ maxLength: 20 }));
    await fc.assert(
      fc.asyncProperty(given, async ([start, rest, name]) => {
        const all = Buffer.concat([start, rest]);
        expect(["told", "document_unreadable"]).toContain(await outcomeOf(all, name));
      }),
    );
  });
});

describe(`text of a document ${verifies("KB-1")}`, () => {
  test("is read in the charset that it is in", () => {
    expect(decodeDocument(Buffer.from("\uFEFF中文"), "")).toBe("中文");
    expect(decodeDocument(Buffer.from("\uFEFF中文", "utf16le"), "")).toBe("中文");
    expect(decodeDocument(Buffer.from([0xd6, 0xd0, 0xce, 0xc4]), "")).toBe("中文");
    expect(decodeDocument(Buffer.from([0xe9]), "text/plain; charset=latin1")).toBe("é");
    expect(() => decodeDocument(Buffer.from([0x41, 0x00]), "")).toThrow(/no text has/);
    expect(() => decodeDocument(Buffer.from([0xff, 0xff]), "")).toThrow(/no text in UTF-8/);
  });
});
