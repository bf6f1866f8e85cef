import { describe, expect, test } from "vitest";
import { checkCron, nextFiring } from "./cron.ts";

const at = (text: string): number => Date.parse(text);

describe("cron expressions", () => {
  test.each([
    ["*/5 * * * *", "2026-11-28T10:02:30Z", "2026-11-28T10:05:00Z"],
    ["30 15 10 * * *", "2026-11-28T10:15:30Z", "2026-11-29T10:15:30Z"],
    ["0 9 1 jan mon", "2026-12-31T23:59:00Z", "2027-01-01T09:00:00Z"],
    ["0 0 * * 7", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"],
  ])("%s after %s fires at %s", (expression, after, expected) => {
    expect(nextFiring(expression, at(after))).toBe(at(expected));
  });

  test("fire by the clock of their zone, once where it is put back, and as soon as it can where it is put forward", () => {
    const berlin = { timeZone: "Europe/Berlin" };
    expect(nextFiring("30 2 * * *", at("2026-03-28T12:00:00Z"), berlin)).toBe(at("2026-03-29T01:00:00Z"));
    const once = nextFiring("30 2 * * *", at("2026-10-24T12:00:00Z"), berlin);
    expect(once).toBe(at("2026-10-25T00:30:00Z"));
    expect(nextFiring("30 2 * * *", once ?? 0, berlin)).toBe(at("2026-10-26T01:30:00Z"));
  });

  test("that never fire again have no next time", () => {
    expect(nextFiring("0 0 30 2 *", at("2026-11-28T00:00:00Z"))).toBeUndefined();
  });

  test.each(["", "* * * *", "60 * * * *", "* * * * * * *", "a b c d e", "*/0 * * * *"])(
    "'%s' is refused, with the field that holds it",
    (expression) => {
      expect(() => checkCron(expression, "refreshIntervalCron")).toThrow(
        expect.objectContaining({ code: "invalid_definition", details: { param: "refreshIntervalCron" } }),
      );
    },
  );
});
