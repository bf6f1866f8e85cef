import { describe, expect, it } from "vitest";
import { readTime } from "./timed-call.ts";

const at = (written: string, zone = "Asia/Shanghai"): string | undefined => {
  const time = readTime(written, zone);
  return time === undefined ? undefined : new Date(time).toISOString();
};

describe("the time of a call for later", () => {
  it("is the tenant's, with any of the separators that prompts use", () => {
    for (const written of ["2030-01-31-09:00", "2030/01/31-09:00", "2030.1.31 9:00:00", "2030-01-31T09:00"]) {
      expect(at(written)).toBe("2030-01-31T01:00:00.000Z");
    }
  });

  it("is read on the right side of a change of clocks", () => {
    expect(at("2030-03-31-03:30", "Europe/Berlin")).toBe("2030-03-31T01:30:00.000Z");
    expect(at("2030-03-31-01:30", "Europe/Berlin")).toBe("2030-03-31T00:30:00.000Z");
  });

  it("may name its own zone, and must be a time", () => {
    expect(at("2030-01-31T09:00:00Z")).toBe("2030-01-31T09:00:00.000Z");
    expect([at("soon"), at("2030-02-30-10:00"), at("2030-01-31-25:00")]).toEqual([undefined, undefined, undefined]);
  });
});
