import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { toHeaders, toMessageId } from "./received-text.ts";

describe(`headers of messages that are taken ${verifies("MQ-3")}`, () => {
  test.each(["  two  spaces ", "ends with a stop.", "x".repeat(8_192)])("stay as they are: %j", (value) => {
    expect(toHeaders([["note", value]])).toEqual({ note: value });
  });

  test("hold no control characters", () => {
    expect(toHeaders([["note", "a\r\nb\u0000\u007f."]])).toEqual({ note: "a  b  ." });
  });

  test("are left out where they are too long, never cut", () => {
    expect(
      toHeaders([
        ["long", "x".repeat(8_193)],
        ["short", "y"],
      ]),
    ).toEqual({ short: "y" });
  });
});

describe(`ids of messages that are taken ${verifies("MQ-3")}`, () => {
  test.each(["order-1", "order-1.", "x".repeat(1_024)])("stay as they are: %j", (id) => {
    expect(toMessageId(id)).toBe(id);
  });

  test("that are long differ where only their ends do, and are the same each time", () => {
    const ids = ["1", "2", "1"].map((end) => toMessageId("x".repeat(9_000) + end));
    expect(new Set(ids).size).toBe(2);
    expect(ids[2]).toBe(ids[0]);
    expect(Math.max(...ids.map((id = "") => id.length))).toBeLessThan(100);
  });

  test.each([undefined, "", " \r\n "])("are none where they say nothing: %j", (id) => {
    expect(toMessageId(id)).toBeUndefined();
  });
});
