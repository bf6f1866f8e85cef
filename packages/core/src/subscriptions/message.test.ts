import { describe, expect, test } from "vitest";
import { broughtMessageSchema, documentOf, keyOf, laneOf, type BroughtMessage } from "./message.ts";
import { subscriptionOptionsSchema } from "./subscription.ts";

const brought = (change: Partial<BroughtMessage> = {}): BroughtMessage =>
  broughtMessageSchema.parse({ delivery: "delivery-number-1", bytes: 2, ...change });

const read = (format: "json" | "text" | "base64", body: string | Uint8Array) =>
  documentOf(
    { topic: "orders", options: { ...subscriptionOptionsSchema.parse({}), format } },
    brought({ message_id: "m-1", headers: { source: "shop" }, key: "k", place: { partition: 3 }, at: 0 }),
    Buffer.from(body),
  );

describe("a message", () => {
  test("has one key for its id, whoever brings it, and one for each taking without an id", () => {
    const other = { delivery: "delivery-number-2" };
    expect(keyOf(brought({ message_id: "m" }))).toBe(keyOf(brought({ ...other, message_id: "m", redelivered: true })));
    expect(keyOf(brought({ message_id: "m" }))).not.toBe(keyOf(brought({ message_id: "n" })));
    expect(keyOf(brought())).not.toBe(keyOf(brought(other)));
    // An id that looks like the other kind is none.
    expect(keyOf(brought({ message_id: "delivery-number-1" }))).not.toBe(keyOf(brought()));
    expect(laneOf("a")).not.toBe(laneOf("b"));
  });

  test("is read as its format says, with what goes with it", () => {
    expect(read("json", '{"a": [1]}')).toEqual({
      body: { a: [1] },
      id: "m-1",
      topic: "orders",
      headers: { source: "shop" },
      key: "k",
      place: { partition: 3 },
      published_at: "1970-01-01T00:00:00.000Z",
    });
    expect(read("json", "")["body"]).toBeNull();
    // As a number it would be another one.
    expect(read("json", '{"id":1234567890123456789}')["body"]).toEqual({ id: "1234567890123456789" });
    expect(read("text", "{no json 茶")["body"]).toBe("{no json 茶");
    expect(read("base64", Uint8Array.from([255, 0]))["body"]).toBe("/wA=");
  });

  test("that is not what its format says names the setting", () => {
    expect(() => read("json", "{no json")).toThrow(expect.objectContaining({ code: "invalid_json" }));
    for (const format of ["json", "text"] as const) {
      expect(() => read(format, Uint8Array.from([255, 254]))).toThrow(/'base64' as 'options.format'/);
    }
  });

  test("with a time beyond the calendar has none", () => {
    const document = documentOf(
      { topic: "t", options: subscriptionOptionsSchema.parse({}) },
      brought({ at: Number.MAX_SAFE_INTEGER }),
      Buffer.from("1"),
    );
    expect(document["published_at"]).toBeUndefined();
  });
});
