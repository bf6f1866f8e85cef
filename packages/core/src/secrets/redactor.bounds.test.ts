import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { Redactor, redactedText } from "./redactor.ts";

describe(`what a redactor finds ${verifies("BLIND-6")}`, () => {
  test("a long secret of one character, in long texts of nearly nothing else", () => {
    // Had each place of the text its own try of the secret, these would take minutes.
    for (const [unit, written] of [
      ['"', '"'],
      ['"', "%22"],
      ["ab", "ab"],
      ["%25", "%25"],
      ["\\/", "\\\\/"],
    ] as const) {
      const secret = `${unit.repeat(8_000)}z9`;
      const redactor = new Redactor();
      redactor.add(secret);
      const other = `${written.repeat(100_000)}-z9`;
      expect(redactor.redact(other) === other).toBe(true);
      expect(redactor.redact(`${other}|${written.repeat(8_000)}z9`).endsWith(`-z9|${redactedText}`)).toBe(true);
    }
  });
});
