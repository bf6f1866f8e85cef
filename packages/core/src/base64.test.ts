/** Files that come as base64, whatever for (MAIL-3, OSS-1). */
import { describe, expect, test } from "vitest";
import { verifies } from "../../../test/support/verifies.ts";
import { readBase64 } from "./base64.ts";

describe(`base64 ${verifies("MAIL-3", "OSS-1")}`, () => {
  test.each([
    ["", ""],
    ["aGk=", "hi"],
    ["aGk", "hi"],
    ["aG\r\nk = ", "hi"],
    ["8J-Zgg==", "🙂"],
    ["8J+Zgg", "🙂"],
  ])("%j is %j", (text, bytes) => {
    expect(readBase64(text)?.toString("utf8")).toBe(bytes);
  });

  test.each(["aGk==x", "aGkab", "aGkab==", "文", "data:,x"])("%j, of which a part would be lost, is none", (text) => {
    expect(readBase64(text)).toBeUndefined();
  });
});
