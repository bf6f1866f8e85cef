import { describe, expect, test } from "vitest";
import { fromRfc3339, toRfc3339 } from "./time.ts";

describe("a time with its offset", () => {
  test.each([
    ["2026-12-01T09:00:00Z", "2026-12-01T09:00:00.000Z"],
    ["2026-12-01t09:00:00z", "2026-12-01T09:00:00.000Z"],
    ["2026-12-01 09:00+08:00", "2026-12-01T01:00:00.000Z"],
    ["2026-12-01T09:00:00.123456-0330", "2026-12-01T12:30:00.123Z"],
    ["2028-02-29T00:00:00Z", "2028-02-29T00:00:00.000Z"],
  ])("is read: %s", (text, at) => {
    expect(toRfc3339(fromRfc3339(text) ?? 0)).toBe(at);
  });

  test.each([
    "2026-12-01T09:00:00",
    "2026-12-01",
    "5",
    "1796039305467",
    "tomorrow",
    "2026-02-30T09:00:00Z",
    "2026-13-01T09:00:00Z",
    "2026-12-01T24:00:00Z",
    "2026-12-01T09:60:00Z",
  ])("is nothing else: %s", (text) => {
    expect(fromRfc3339(text)).toBeUndefined();
  });
});
