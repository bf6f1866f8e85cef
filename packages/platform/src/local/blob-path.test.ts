import { join, normalize } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { blobPath, keyOfPath, prefixDirectory } from "./blob-path.ts";

const keys = fc.oneof(
  fc.string({ unit: "grapheme", maxLength: 60 }),
  fc.string({ unit: fc.constantFrom("a", "A", "/", ".", "=", "+", "&", "%", "\\", "\0", "中"), maxLength: 400 }),
);

describe("paths of blobs", () => {
  test("lead back to their key, whatever it contains", () => {
    fc.assert(fc.property(keys, (key) => keyOfPath(blobPath(key).split("/")) === key));
  });

  test("stay inside the directory and are made of names that file systems take", () => {
    fc.assert(
      fc.property(keys, (key) => {
        const path = blobPath(key);
        expect(normalize(join("/store", path))).toBe(`/store/${path}`);
        for (const name of path.split("/")) expect(name).toMatch(/^[a-z0-9_%+=&-]{1,201}(\.blob)?$/);
      }),
    );
  });

  test("differ where only the case of the keys differs", () => {
    expect(blobPath("t/Draw-1").toLowerCase()).not.toBe(blobPath("t/draw-1").toLowerCase());
  });

  test("lie in the directory of every prefix of their key", () => {
    fc.assert(
      fc.property(keys, fc.nat(400), (key, length) => {
        const directory = prefixDirectory(key.slice(0, length));
        expect(directory === "." || blobPath(key).startsWith(`${directory}/`)).toBe(true);
      }),
    );
  });

  test("no other file is taken for a blob", () => {
    expect(keyOfPath(["a", ".DS_Store"])).toBeUndefined();
  });
});
