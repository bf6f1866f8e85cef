import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { importLimits } from "../limits.ts";
import { readCurl } from "./read-curl.ts";

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
    expect(readCurl(`curl https://api.example.com/x ${rest}`, { prefix: "" }).candidates).toHaveLength(1);
  });
});

/** A number in signs that no name of an argument has. */
function disguised(number: number): string {
  return number.toString(5).replace(/./g, (digit) => "!*();".charAt(Number(digit)));
}
