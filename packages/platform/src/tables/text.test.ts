import { describe, expect, test } from "vitest";
import { TextReader } from "./text.ts";

function read(bytes: Uint8Array, size: number): { readonly text: string; readonly encoding: string | undefined } {
  const reader = new TextReader("t.csv", undefined);
  let text = "";
  for (let at = 0; at < bytes.byteLength; at += size) text += reader.read(bytes.subarray(at, at + size));
  text += reader.end();
  return { text, encoding: reader.encoding };
}

const gbk = Buffer.from([0x61, 0x2c, 0xc4, 0xe3, 0xba, 0xc3, 0x0a, 0xca, 0xc0, 0xbd, 0xe7]);

describe.each([1, 2, 3, 5, 1_000])("the encoding of a file read in parts of %i bytes", (size) => {
  test.each([
    ["UTF-8", Buffer.from("a,你好\n世界"), "utf-8", "a,你好\n世界"],
    ["UTF-8 with a mark", Buffer.from("\uFEFFa,é"), "utf-8", "a,é"],
    ["UTF-16 with a mark", Buffer.from("\uFEFFa,你", "utf16le"), "utf-16le", "a,你"],
    ["ASCII", Buffer.from("a,b"), undefined, "a,b"],
  ])("%s is found", (_what, bytes, encoding, text) => {
    expect(read(bytes, size)).toEqual({ text, encoding });
  });
});

test("GBK is found where the bytes are no UTF-8", () => {
  expect(read(gbk, 1_000)).toEqual({ text: "a,你好\n世界", encoding: "gbk" });
});

test("bytes that are not what the file began with name the encoding", () => {
  const reader = new TextReader("t.csv", "utf-8");
  expect(() => reader.read(Buffer.from([0x61, 0x62, 0x63, 0xff, 0xff]))).toThrow(/'t.csv'.*utf-8.*'encoding'/);
});
