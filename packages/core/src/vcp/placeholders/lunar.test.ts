import { expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { dateTexts } from "./dates.ts";
import { lunarDate } from "./lunar.ts";

test.each([
  ["2026-11-28", "丙午马年十月廿十"],
  ["2026-12-07", "丙午马年十月廿九 大雪"],
  ["2026-02-16", "乙巳蛇年腊月廿九"],
  ["2026-02-17", "丙午马年正月初一"],
  ["2025-07-25", "乙巳蛇年闰六月初一"],
  ["2026-12-22", "丙午马年冬月十四 冬至"],
  ["2024-02-09", "癸卯兔年腊月三十"],
  ["1901-01-06", "庚子鼠年冬月十六 小寒"],
  ["2100-12-31", "庚申猴年腊月初一"],
  ["2101-01-01", ""],
  ["1900-12-31", ""],
])(`%s in the Chinese calendar ${verifies("VCP-19")}`, (date, expected) => {
  const [year = 0, month = 0, day = 0] = date.split("-").map(Number);
  expect(lunarDate(year, month, day)).toBe(expected);
});

test.each(
  "2020-01-25 2021-02-12 2022-02-01 2023-01-22 2024-02-10 2025-01-29 2026-02-17 2027-02-06 2028-01-26 2029-02-13".split(
    " ",
  ),
)("%s is the first day of a year", (date) => {
  const [year = 0, month = 0, day = 0] = date.split("-").map(Number);
  expect(lunarDate(year, month, day)).toMatch(/年正月初一/);
});

test("midnight is 00, and what is not wanted is not made", async () => {
  const midnight = Date.parse("2026-01-01T00:00:00Z");
  expect([...(await dateTexts(midnight, "UTC", new Set(["Time", "Today"])))]).toEqual([
    ["Time", "00:00:00"],
    ["Today", "星期四"],
  ]);
});
