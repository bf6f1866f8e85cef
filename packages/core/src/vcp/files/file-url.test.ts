import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isWithin, mentionsFile, pathOfFileUrl } from "./file-url.ts";

describe("an address of a file", () => {
  test.each([
    ["file:///a/b.txt", "/a/b.txt"],
    ["FILE://localhost/a//b%20c.txt", "/a/b c.txt"],
    ["file:///C:/Users/x.png", "C:/Users/x.png"],
    ["file:///a\\b", "/a/b"],
  ])("leads to a path: %s", (url, path) => {
    expect(pathOfFileUrl(url)).toBe(path);
  });

  test.each([
    "file://server/share",
    "file://",
    "file:///a/../b",
    "file:///a/%2e%2e/b",
    "file:///a/%5c..%5cb",
    "file:///a%00",
    "file:///%zz",
    "http://x/a",
  ])("leads nowhere: %s", (url) => {
    expect(pathOfFileUrl(url)).toBeUndefined();
  });

  test("is within a directory only below it", () => {
    expect(isWithin("file:///data/a", ["/data"])).toBe(true);
    expect(isWithin("file:///data/a", ["/data/"])).toBe(true);
    expect(isWithin("file:///c:/Data/a", ["C:\\data"])).toBe(true);
    for (const url of ["file:///database/a", "file:///data", "file:///Data/a", 7, undefined])
      expect(isWithin(url, ["/data"])).toBe(false);
    expect(isWithin("file:///data/a", [])).toBe(false);
  });

  test("never leaves the directory, however it is written", () => {
    const piece = fc.constantFrom("..", ".", "/", "\\", "%2e", "%2f", "%5c", "a", "%00", "data", "//");
    fc.assert(
      fc.property(fc.array(piece), (pieces) => {
        const url = `file:///data/${pieces.join("")}`;
        if (!isWithin(url, ["/data"])) return;
        const path = pathOfFileUrl(url) ?? "";
        expect(path.split("/")).not.toContain("..");
        expect(new URL(`file://${encodeURI(path)}`).pathname.startsWith("/data/")).toBe(true);
      }),
    );
  });

  test("is found wherever it stands in arguments", () => {
    expect(mentionsFile({ a: [{ b: "see file:///x" }] })).toBe(true);
    expect(mentionsFile({ a: ["x", 1, null, { b: "look:file://x" }] })).toBe(true);
    expect(mentionsFile({ a: ["x", 1, null, { b: "profile://x" }], "file://": 1 })).toBe(false);
  });
});
