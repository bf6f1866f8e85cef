/** Descriptors that nothing sensible has made are refused before they fill the memory (SVC-1). */
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { createCodec } from "./codec.ts";
import { readFiles } from "./descriptors.ts";
import { textField } from "./wire.ts";

/** A file with so many fields of two bytes each. */
function fileOf(name: string, number: number, count: number): Buffer {
  return Buffer.concat([textField(1, name), Buffer.alloc(count * 2, Buffer.from([number * 8 + 2, 0]))]);
}

describe(`a file of descriptors ${verifies("SVC-1")}`, () => {
  test.each([
    ["imports", 3],
    ["messages", 4],
    ["enums", 5],
    ["services", 6],
  ])("with more %s than any file has is refused", (_what, number) => {
    expect(() => readFiles([fileOf("a.proto", number, 410_000)])).toThrow(/^there are more than 400000/);
  });

  test("counts with the others of its set", () => {
    const files = ["a.proto", "b.proto", "c.proto"].map((name) => fileOf(name, 3, 150_000));
    expect(readFiles(files.slice(0, 2)).files).toHaveLength(2);
    expect(() => readFiles(files)).toThrow("the files hold more than 400000 parts");
  });

  test.each([
    ["messages", 4],
    ["enums", 5],
    ["services", 6],
  ])("with %s whose names are longer than any, and take long to tell apart, is refused", (_what, number) => {
    const types = Array.from({ length: 8_000 }, (_one, at) => textField(number, textField(1, `T${at}`).toString()));
    const file = Buffer.concat([textField(1, "a.proto"), textField(2, "a".repeat(20_000)), ...types]);
    expect(() => readFiles([file])).toThrow("a name has more than 500 characters");
  });

  test("with more in its messages than any have makes no codec", () => {
    const file = Buffer.concat([textField(1, "a.proto"), textField(4, "\x3a\0".repeat(4) + "\x2a\0".repeat(800_000))]);
    const making = (): unknown => createCodec(readFiles([file]), { emitDefaults: false });
    expect(making).toThrow(
      expect.objectContaining({ code: "invalid_definition", message: expect.stringContaining("too large") }),
    );
  });
});
