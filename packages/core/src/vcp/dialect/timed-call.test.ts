import { describe, expect, it } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { readTime } from "./timed-call.ts";

const at = (written: string, zone = "Asia/Shanghai"): string | undefined => {
  const time = readTime(written, zone);
  return time === undefined ? undefined : new Date(time).toISOString();
};

describe(`the time of a call for later ${verifies("VCP-18")}`, () => {
  it("is the tenant's, with any of the separators that prompts use", () => {
    for (const written of ["2030-01-31-09:00", "2030/01/31-09:00", "2030.1.31 9:00:00", "2030-01-31T09:00"]) {
      expect(at(written)).toBe("2030-01-31T01:00:00.000Z");
    }
  });

  it("is the tenant's in whatever form it comes, as long as it names no zone", () => {
    const fraction = "2030-01-31T01:00:00.123Z";
    expect([at("2030-01-31T09:00:00.123456"), at("2030-01-31 09:00:00,123")]).toEqual([fraction, fraction]);
    expect([at("2030-01-31"), at("2030/1/31")]).toEqual(["2030-01-30T16:00:00.000Z", "2030-01-30T16:00:00.000Z"]);
    for (const written of [
      "Jan 31, 2030 09:00",
      "31 January 2030 09:00:00",
      "Thu, 31 Jan 2030 9:00 AM",
      "2030-01-31 (Thu) 09:00",
      "2030-01-31 (THU) 09:00",
      "2030-01-31 09:00 (北京时间)",
    ]) {
      expect(at(written), written).toBe("2030-01-31T01:00:00.000Z");
    }
  });

  it("is read on the right side of a change of clocks", () => {
    expect(at("2030-03-31-03:30", "Europe/Berlin")).toBe("2030-03-31T01:30:00.000Z");
    expect(at("2030-03-31-01:30", "Europe/Berlin")).toBe("2030-03-31T00:30:00.000Z");
  });

  it("named CST is China's for a tenant whose clock shows that, and else Chicago's, as to Date", () => {
    for (const written of ["2030-01-31 17:00 CST", "2030-01-31 17:00 (CST)", "Thu, 31 Jan 2030 5:00 PM cst"]) {
      expect(at(written), written).toBe("2030-01-31T09:00:00.000Z");
      expect(at(written, "America/New_York"), written).toBe("2030-01-31T23:00:00.000Z");
    }
    expect(at("2030-01-31 17:00 CST (China Standard Time)")).toBe("2030-01-31T09:00:00.000Z");
    for (const written of ["2030-01-31 17:00:00 +0800 CST", "2030-01-31 17:00 (UTC+8 CST)"]) {
      expect(at(written), written).toBe("2030-01-31T09:00:00.000Z");
      expect(at(written, "Europe/Berlin"), written).toBe("2030-01-31T09:00:00.000Z");
    }
    expect(at("Sat Feb 2 2030 09:00:00 (SAT)")).toBe("2030-02-02T01:00:00.000Z");
    expect(at("Thu Jan 31 2030 18:00:00 GMT+0900 (JST)")).toBe("2030-01-31T09:00:00.000Z");
    expect(at("Thu Jan 31 2030 17:00:00 GMT+0100 (CST)")).toBe("2030-01-31T16:00:00.000Z");
  });

  it("may name its own zone, and must be a time", () => {
    for (const written of [
      "2030-01-31T09:00:00Z",
      "2030-01-31 17:00:00.000+08:00",
      "Thu, 31 Jan 2030 09:00:00 GMT",
      "Thu Jan 31 2030 17:00:00 GMT+0800 (China Standard Time)",
      "2030-01-31 09:00 Z",
      "Jan 31, 2030 09:00:00 Z",
      "2030-01-31 9:00 AM Z",
      "Jan 31, 2030 5:00 PM +0800",
      "2030-01-31 5:00 PM +08:00",
      "2030-01-31 17:00 +8",
      "2030-01-31 17:00 (UTC+8)",
      "2030-01-31 17:00 (GMT+08:00)",
    ]) {
      expect(at(written, "Europe/Berlin"), written).toBe("2030-01-31T09:00:00.000Z");
    }
    for (const written of [
      "soon",
      "2030-02-30-10:00",
      "2030-01-31-25:00",
      "2030-01-31-09:00:61",
      "1893456000000",
      "2030-01-31 17:00 (Asia/Shanghai)",
      "2030-01-31 18:00 JST",
      "2030-01-31 18:00 (JST)",
      "Jan 31, 2030 7:00 PM (AEST)",
    ]) {
      expect(at(written), written).toBeUndefined();
    }
  });
});
