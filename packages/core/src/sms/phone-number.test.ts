import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { parsePhoneNumber } from "./phone-number.ts";

describe(`phone numbers ${verifies("SVCERR-1")}`, () => {
  test.each([
    ["13800138000", "+8613800138000"],
    ["8613800138000", "+8613800138000"],
    ["+86 138 0013 8000", "+8613800138000"],
    ["0086-138-0013-8000", "+8613800138000"],
    ["+852 6123 4567", "+85261234567"],
    ["+1 (500) 555-0006", "+15005550006"],
    ["+49.151.12345678", "+4915112345678"],
  ])("%s is %s", (text, number) => {
    expect(parsePhoneNumber(text, "86")).toBe(number);
  });

  test.each([
    "",
    "+",
    "12345",
    "10086",
    "23800138000",
    "+8612800138000",
    "+0123456789",
    "+1234567890123456",
    "138001380001",
    "13800138000;13900139000",
    "13800138000\n",
    "tel:+8613800138000",
    "+44 (0)7911 123456",
    "0049 (0) 151 23456789",
    "+86１3800138000",
    "++8613800138000",
  ])("%j is none", (text) => {
    expect(parsePhoneNumber(text, "86")).toBeUndefined();
  });

  test("without a usual country only what says its country is a number", () => {
    expect(parsePhoneNumber("13800138000")).toBeUndefined();
    expect(parsePhoneNumber("+8613800138000")).toBe("+8613800138000");
  });

  test("nothing but '+' and digits comes out, and comes out again", () => {
    const nearly = fc.stringMatching(/^[+0-9 ().\-,;&=%\r\n]{0,24}$/);
    fc.assert(
      fc.property(fc.oneof(nearly, fc.string()), (text) => {
        const number = parsePhoneNumber(text, "86");
        expect(number ?? "+1234567").toMatch(/^\+[1-9]\d{6,14}$/);
        expect(parsePhoneNumber(number ?? "")).toBe(number);
      }),
    );
  });
});
