import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { deliveryOf } from "../errors/delivery.ts";
import { addressOf, pathOf } from "./bucket-address.ts";
import { keyProblem, relativeKey, wholeKey, wholePrefix } from "./object-key.ts";

const rules = { prefix: "team-a/", keyBytes: 1_024 };
const address = addressOf({ vendor: "minio", bucket: "photos", region: "us-east-1", endpoint: "http://store.example" });

function refusalOf(work: () => unknown): GatewayError {
  try {
    work();
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
  throw new Error("it was not refused");
}

describe(`keys ${verifies("OSS-1", "SVCERR-1")}`, () => {
  test.each([
    "files/doc.pdf",
    "文档/报告 1.pdf",
    "a+b",
    "100%",
    "a//b",
    "folder/",
    "...",
    "a..b",
    ".hidden",
    "?#&=;",
    "'\"<>",
  ])("takes %j as it is", (key) => {
    expect(wholeKey(key, rules)).toBe(`team-a/${key}`);
  });

  test.each([
    ["", "empty"],
    ["/etc/passwd", "begin with a slash"],
    ["\\share", "begin with a slash"],
    ["../team-b/secret", "'..'"],
    ["a/../../team-b/x", "'..'"],
    ["a/..", "'..'"],
    ["a\\..\\..\\b", "'..'"],
    ["./a", "'.'"],
    ["a\u0000b", "control"],
    ["a\nb", "control"],
    ["a\u2028b", "control"],
    ["\ud800", "surrogate"],
    ["文".repeat(342), "1033 bytes"],
  ])("refuses %j before anything leaves", (key, why) => {
    const error = refusalOf(() => wholeKey(key, rules));
    expect([error.code, error.details.param, deliveryOf(error)]).toEqual(["invalid_arguments", "key", "not_sent"]);
    expect(error.message).toContain(why);
  });

  test("counts bytes against the vendor's limit", () => {
    expect(() => wholeKey("x".repeat(843), { prefix: "team-a/", keyBytes: 850 })).not.toThrow();
    expect(refusalOf(() => wholeKey("x".repeat(844), { prefix: "team-a/", keyBytes: 850 })).message).toContain("850");
  });

  test("of listings may be a part of a key, or nothing", () => {
    expect([wholePrefix("", rules), wholePrefix("fil", rules)]).toEqual(["team-a/", "team-a/fil"]);
  });

  test("of others below another prefix are not seen", () => {
    expect([relativeKey("team-a/x", rules), relativeKey("team-b/x", rules)]).toEqual(["x", undefined]);
  });

  test("whatever they hold, the path of the request is bucket, prefix and key, and stays so", () => {
    const anyKey = fc.oneof(
      fc.string({ unit: "binary", minLength: 1, maxLength: 40 }),
      fc
        .array(fc.constantFrom("..", ".", "/", "\\", "%2e", "%2F", "a", " ", "+", "文", "?", "#", "'"), {
          minLength: 1,
        })
        .map((parts) => parts.join("")),
    );
    fc.assert(
      fc.property(anyKey, (key) => {
        fc.pre(keyProblem(key) === undefined);
        const url = new URL(address.origin + pathOf(address, wholeKey(key, rules)));
        expect([url.search, url.hash]).toEqual(["", ""]);
        expect(url.pathname.startsWith("/photos/team-a/")).toBe(true);
        expect(decodeURIComponent(url.pathname)).toBe(`/photos/team-a/${key}`);
      }),
      { numRuns: 1_000 },
    );
  });
});
