import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { isAllowedBy, isHeaderText, parseAddress } from "./address.ts";

describe(`mail addresses ${verifies("SVCERR-1")}`, () => {
  test.each([
    ["ann@example.com", "ann@example.com"],
    ["Ann.Lee+news@EXAMPLE.com", "Ann.Lee+news@example.com"],
    ["o'neil@example.co.uk", "o'neil@example.co.uk"],
    ["ann@例え.jp", "ann@xn--r8jz45g.jp"],
    ["ann@müller.de", "ann@xn--mller-kva.de"],
  ])("takes %s", (text, address) => {
    expect(parseAddress(text)).toBe(address);
  });

  test.each([
    "",
    "ann",
    "@example.com",
    "ann@",
    "ann@example",
    "ann@example.com.",
    "ann@-example.com",
    "ann@exa mple.com",
    "ann@127.0.0.1",
    "ann@[127.0.0.1]",
    "ann@example.com,bob@example.com",
    "Ann <ann@example.com>",
    "<ann@example.com>",
    '"ann lee"@example.com',
    "ann(comment)@example.com",
    "a@b@example.com",
    ".ann@example.com",
    "ann..lee@example.com",
    "ann@example.com\r\nRCPT TO:<evil@example.com",
    "ann\u0000@example.com",
    "安@example.com",
    "ann@example.com/../x",
    "ann@example.com#x",
    "ann@exam%70le.com",
    `${"a".repeat(65)}@example.com`,
    `ann@${"a".repeat(64)}.com`,
  ])("refuses %j", (text) => {
    expect(parseAddress(text)).toBeUndefined();
  });

  test("gives out nothing that SMTP or a header could read as more than one address", () => {
    const nearly = fc
      .array(
        fc.constantFrom(
          "a",
          "@",
          "example.com",
          ".",
          "<",
          ">",
          ",",
          ";",
          ":",
          '"',
          "(",
          ")",
          "\r",
          "\n",
          " ",
          "\\",
          "例",
          "ａ",
          "。",
          "\u0000",
          "%0d",
        ),
        {
          maxLength: 12,
        },
      )
      .map((parts) => parts.join(""));
    fc.assert(
      fc.property(fc.oneof(nearly, fc.string({ unit: "binary" })), (text) => {
        const address = parseAddress(text);
        expect(address ?? "a@b").toMatch(/^[^\s<>,;:"()[\]\\@]+@[a-z0-9.-]+$/);
        // What it has given out is itself an address, the same.
        expect(parseAddress(address ?? "")).toBe(address);
      }),
    );
  });
});

test("a header's text holds no line break, of whatever alphabet", () => {
  for (const text of ["a\rb", "a\nb", "a\u0085b", "a\u2028b", "a\u0000b", "a\ud800b"])
    expect(isHeaderText(text)).toBe(false);
  expect(isHeaderText("Grüße, 欢迎 🎉")).toBe(true);
});

test("recipients are allowed by address or by the whole domain, not by a part of it", () => {
  const patterns = ["ann@example.com", "@Shop.example.org"];
  expect(isAllowedBy(patterns, "Ann@example.com")).toBe(true);
  expect(isAllowedBy(patterns, "bob@example.com")).toBe(false);
  expect(isAllowedBy(patterns, "bob@shop.example.org")).toBe(true);
  expect(isAllowedBy(patterns, "bob@evilshop.example.org")).toBe(false);
  expect(isAllowedBy(patterns, "bob@a.shop.example.org")).toBe(false);
});
