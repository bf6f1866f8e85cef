import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { Redactor, redactedText } from "./redactor.ts";

function redactorOf(...secrets: readonly string[]): Redactor {
  const redactor = new Redactor();
  for (const secret of secrets) redactor.add(secret);
  return redactor;
}

const strictPercent = (text: string): string =>
  [...Buffer.from(text)]
    .map((byte) =>
      /[A-Za-z0-9_.-]/.test(String.fromCharCode(byte))
        ? String.fromCharCode(byte)
        : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`,
    )
    .join("");
const json = (text: string): string => JSON.stringify(text).slice(1, -1);
const asciiJson = (text: string): string =>
  json(text).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
const html = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");

/** How servers in the field write a text that they were given. */
const encoders: Readonly<Record<string, (text: string) => string>> = {
  "as it is": (text) => text,
  "a component of a URL": encodeURIComponent,
  "a whole URL": encodeURI,
  "a form field": (text) => new URLSearchParams({ v: text }).toString().slice(2),
  "strict percent-encoding": strictPercent,
  "percent-encoding in lower case": (text) => strictPercent(text).replace(/%../g, (code) => code.toLowerCase()),
  "percent-encoding twice": (text) => encodeURIComponent(encodeURIComponent(text)),
  JSON: json,
  "JSON in ASCII": asciiJson,
  "JSON in ASCII with capitals": (text) =>
    asciiJson(text).replace(/\\u(....)/g, (_all, code: string) => `\\u${code.toUpperCase()}`),
  "JSON with escaped slashes": (text) => json(text).replaceAll("/", "\\/"),
  "JSON for pages": (text) => json(text).replace(/[<>&]/g, (unit) => `\\u00${unit.charCodeAt(0).toString(16)}`),
  "JSON within JSON": (text) => json(json(text)),
  "JSON in ASCII within JSON": (text) => json(asciiJson(text)),
  HTML: html,
  "HTML in numbers": (text) => text.replace(/[^\w .-]/gu, (character) => `&#${character.codePointAt(0)};`),
  "HTML in hexadecimal numbers": (text) =>
    text.replace(/[^\w .-]/gu, (character) => `&#x${character.codePointAt(0)?.toString(16).toUpperCase()};`),
  "UTF-8 read as Latin-1": (text) => Buffer.from(text).toString("latin1"),
  "UTF-8 read as windows-1252": (text) => new TextDecoder("windows-1252").decode(Buffer.from(text)),
  base64: (text) => Buffer.from(text).toString("base64"),
  base64url: (text) => Buffer.from(text).toString("base64url"),
  "base64 of a longer text": (text) => Buffer.from(`u:${text}:more`).toString("base64"),
  "base64 of another longer text": (text) => Buffer.from(`key=${text}`).toString("base64"),
  "base64 in a URL": (text) => encodeURIComponent(Buffer.from(text).toString("base64")),
  "base64 in JSON with escaped slashes": (text) => Buffer.from(text).toString("base64").replaceAll("/", "\\/"),
  "the name of a host": (text) => text.replace(/[A-Z]/g, (letter) => letter.toLowerCase()),
};

const secrets = [
  `Qx7"sentinel"%2B+&=/\\'<k> ~9f3a`,
  `密钥哨兵-"甲乙"%E5+丁戊/😀`,
  "sk-plain_0123.abcdef",
  "??>>~~ÿÿ/+",
  `\\\\"\\x"\\/`,
];

describe(`what a redactor finds ${verifies("BLIND-6")}`, () => {
  test.each(Object.entries(encoders))("a secret written as %s", (_name, encode) => {
    for (const secret of secrets) {
      const written = encode(secret);
      expect(redactorOf(secret).redact(`before ${written}, after ${written}.`)).toMatch(
        /^before \S{0,6}\[redacted\]\S{0,9}, after \S{0,6}\[redacted\]\S{0,9}\.$/,
      );
    }
  });

  test("any secret in any encoding, between any texts", () => {
    const secret = fc.string({ minLength: 6, maxLength: 40, unit: "grapheme" }).filter((text) => text.length >= 6);
    const outside = fc.string({ unit: fc.constantFrom("a", "b", " ", "{", "}", "[", ":", ",", "\n") });
    const exact = Object.entries(encoders).filter(([name]) => !name.startsWith("base64"));
    fc.assert(
      fc.property(secret, outside, outside, fc.constantFrom(...exact), (value, before, after, [, encode]) => {
        const written = encode(value.toWellFormed());
        const result = redactorOf(value.toWellFormed()).redact(`${before}|${written}|${after}`);
        expect(result).toContain(redactedText);
        expect(result.length).toBeLessThanOrEqual(before.length + after.length + redactedText.length + 2);
      }),
    );
  });

  test("a secret in bytes that are no text, and leaves the other bytes as they are", () => {
    for (const secret of secrets) {
      const bytes = Buffer.concat([Buffer.from([0, 255, 128]), Buffer.from(secret), Buffer.from([254, 0])]);
      const result = redactorOf(secret).redactBytes(bytes);
      expect(Buffer.from(result)).toEqual(
        Buffer.concat([Buffer.from([0, 255, 128]), Buffer.from(redactedText), Buffer.from([254, 0])]),
      );
    }
    const innocent = Buffer.from([0, 255, 1]);
    expect(redactorOf("secret").redactBytes(innocent)).toBe(innocent);
  });

  test("each of several secrets, the longer one first where one holds the other", () => {
    const redactor = redactorOf("abcd", "abcd-efgh");
    expect(redactor.redact("abcd-efgh abcd efgh")).toBe("[redacted] [redacted] efgh");
  });

  test("a secret of any length", () => {
    const varied = (unit: string, length: number): string =>
      Array.from({ length }, (_none, index) => `${index}${unit}`).join("");
    for (const long of [varied("k", 10_000), varied("密", 1_000), varied(`"'\\ `, 300)]) {
      expect(redactorOf(long).redact(`<${encodeURIComponent(long)}>`)).toBe("<[redacted]>");
      expect(redactorOf(long).redact(`<${long.slice(0, -1)}>`)).toBe(`<${long.slice(0, -1)}>`);
    }
  });

  test("a secret of many backslashes, in texts of more of them and in any encoding", () => {
    for (const secret of [
      `${"\\".repeat(64)}x1`,
      `a${"\\".repeat(40)}"${"\\".repeat(40)}密z9`,
      `\\"\\"${"\\/".repeat(40)}k7`,
    ]) {
      const redactor = redactorOf(secret);
      for (const encode of Object.values(encoders)) {
        const written = encode(secret);
        expect(redactor.redact(`before ${written}, after`)).toMatch(/^before \S{0,6}\[redacted\]\S{0,9}, after$/);
        const other = `${"\\".repeat(20_000)} ${secret.slice(-2)}`;
        expect(redactor.redact(other)).toBe(other);
      }
    }
  });

  test("a repeated beginning does not hide what follows", () => {
    const long = `${"ab".repeat(200)}c`;
    expect(redactorOf(long).redact(`${"ab".repeat(3)}${long}`)).toBe("ababab[redacted]");
  });
});

describe("what a redactor leaves alone", () => {
  test("texts without a secret, character for character", () => {
    const text = JSON.stringify({ id: 12345678901234567890n.toString(), 中文: 'a "quoted" \\ text %41 &amp; é' });
    expect(redactorOf(...secrets).redact(text)).toBe(text);
  });

  test("secrets so short that words would be cut", () => {
    const redactor = redactorOf("abc", "");
    expect(redactor.isEmpty).toBe(true);
    expect(redactor.redact("abc")).toBe("abc");
  });

  test("words that look a little like the base64 of a short secret", () => {
    expect(redactorOf("abcd").redact("YWJj YWJjZ YWJjZA")).toBe("YWJj YWJjZ [redacted]");
  });

  test("dollar signs around a secret", () => {
    expect(redactorOf("pass$&word").redact("$1 pass$&word $&")).toBe("$1 [redacted] $&");
  });
});
