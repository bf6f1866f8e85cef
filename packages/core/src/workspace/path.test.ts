import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { directoryPrefix, filePath } from "./path.ts";

describe(`workspace paths ${verifies("CHAT-9")}`, () => {
  it.each([
    ["/tmp/data.txt", "tmp/data.txt"],
    ["weather.txt", "weather.txt"],
    ["./a//b/./c.txt", "a/b/c.txt"],
    ["a/../b.txt", "b.txt"],
    ["//etc/passwd", "etc/passwd"],
    ["dir\\sub\\f.txt", "dir/sub/f.txt"],
    ["C:\\Users\\me\\f.txt", "C:/Users/me/f.txt"],
    ["报告/二月 (终).md", "报告/二月 (终).md"],
    ["cafe\u0301.txt", "caf\u00e9.txt"],
    ["...", "..."],
    ["%2e%2e/secret", "%2e%2e/secret"],
    ["__proto__", "__proto__"],
  ])("reads %j as the file %j", (given, path) => {
    expect(filePath(given)).toBe(path);
  });

  it.each([
    "",
    "/",
    ".",
    "a/..",
    "..",
    "../x",
    "/../x",
    "a/../../x",
    "..\\..\\windows",
    "a\\..\\..\\x",
    "notes/",
    "notes\\",
    "notes/.",
    "a\0b",
    "a\nb",
    "a\u2028b",
    "\ud800",
    "a".repeat(256),
    "名".repeat(100),
    `${"d/".repeat(33)}f`,
    `${"directory/".repeat(110)}f`,
  ])("refuses %j", (given) => {
    expect(() => filePath(given)).toThrow(expect.objectContaining({ code: "invalid_arguments" }));
  });

  it.each([
    ["/", ""],
    ["", ""],
    [".", ""],
    ["a", "a/"],
    ["/a/b/", "a/b/"],
    ["a/../", ""],
  ])("reads %j as the directory %j", (given, prefix) => {
    expect(directoryPrefix(given)).toBe(prefix);
  });

  it("never leaves the root, whatever the text", () => {
    const piece = fc.oneof(
      fc.constantFrom("..", ".", "/", "\\", "", "a", "．．", "‥", "%2e", "\0"),
      fc.string({ unit: "binary" }),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
        let path: string;
        try {
          path = filePath(pieces.join(""));
        } catch (error) {
          return error instanceof GatewayError && error.code === "invalid_arguments";
        }
        // Reading the result as a disk would must stay below the root at every step.
        const names = path.split("/");
        return names.length > 0 && names.every((name) => !["", ".", ".."].includes(name)) && !/[\\\0]/.test(path);
      }),
      { numRuns: 2_000 },
    );
  });

  it("has one spelling: normal paths stay as they are", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), (text) => {
        try {
          const path = filePath(text);
          expect(filePath(path)).toBe(path);
          expect(filePath(`/${path}`)).toBe(path);
        } catch (error) {
          if (!(error instanceof GatewayError)) throw error;
        }
      }),
    );
  });
});
