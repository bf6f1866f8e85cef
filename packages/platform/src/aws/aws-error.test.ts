import { describe, expect, test } from "vitest";
import { reasonOf } from "./aws-error.ts";

describe("why a service of AWS failed", () => {
  test.each([
    ["what the service calls it", Object.assign(new Error("said more"), { name: "NoSuchBucket" }), "NoSuchBucket"],
    [
      "what the system calls it",
      Object.assign(new Error("connect 10.0.0.1"), { code: "ECONNREFUSED" }),
      "ECONNREFUSED",
    ],
    ["which of several addresses", Object.assign(new AggregateError([]), { code: "ETIMEDOUT" }), "ETIMEDOUT"],
    ["what has to be set", new Error("Region is missing"), "AWS_REGION must be set"],
    ["that it is not known", "thrown", "unknown reason"],
  ])("is told as %s", (_what, cause, reason) => {
    expect(reasonOf(cause)).toBe(reason);
  });
});
