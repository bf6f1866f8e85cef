import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { importLimits } from "../limits.ts";
import { readCurl, type ReadCurl } from "./read-curl.ts";

const read = (command: string): ReadCurl => readCurl(command, { prefix: "" });

describe(`a command as long as one may be ${verifies("BLIND-1")}`, () => {
  const filled = (part: (at: number) => string): string => {
    let text = "";
    for (let at = 0; text.length < importLimits.curlCharacters - 1_000; at += 1) text += part(at);
    return text;
  };

  // So long that whatever goes through all of it for each of its parts takes minutes.
  test.each([
    ["fields of one name", `-d '${filled(() => "a&")}'`],
    ["options", filled(() => "--data=a ")],
    ["names that are one name to a model", `-d '${filled((at) => `a${disguised(at)}=&`)}'`],
  ])("is gone through once: %s", (_what, rest) => {
    expect(read(`curl https://api.example.com/x ${rest}`).candidates).toHaveLength(1);
  });
});

/** A number in signs that no name of an argument has. */
function disguised(number: number): string {
  return number.toString(5).replace(/./g, (digit) => "!*();".charAt(Number(digit)));
}

describe(`the identity of a command ${verifies("BLIND-1")}`, () => {
  test("is its method, address and path, whatever else it has", () => {
    const ids = ["curl https://a.example/x?y=1", "curl -s https://a.example/x", "curl https://a.example/z"].map(
      (command) => read(command).document.id,
    );
    expect(ids).toEqual([
      "curl GET https://a.example/x",
      "curl GET https://a.example/x",
      "curl GET https://a.example/z",
    ]);
  });

  test("is short, and another one for another path, however long both are", () => {
    const [one, other] = ["a", "b"].map((end) => read(`curl https://a.example/${"x".repeat(1_000)}${end}`).document.id);
    expect(one).toHaveLength(500);
    expect(other).not.toBe(one);
  });
});
