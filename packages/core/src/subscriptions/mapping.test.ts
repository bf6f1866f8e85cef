import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import { checkMapping, mapArguments } from "./mapping.ts";

const document: JsonObject = {
  body: { orderId: "O001", items: [{ sku: "a/b", "~": 1 }], none: null, "": "empty", "a/b": true },
  headers: { source: "shop" },
  id: "m-1",
};

describe(`a mapping ${verifies("MQ-3")}`, () => {
  test.for<readonly [JsonValue, JsonValue]>([
    [{ $message: "/body/orderId" }, "O001"],
    [{ $message: "/body/items/0/sku" }, "a/b"],
    [{ $message: "/body/items/0/~0" }, 1],
    [{ $message: "/body/a~1b" }, true],
    [{ $message: "/body/" }, "empty"],
    [{ $message: "/body/none", default: 1 }, null],
    [{ $message: "/body/nothing", default: 1 }, 1],
    [{ $message: "/headers/source" }, "shop"],
    [{ $message: "" }, document],
    [
      ["fixed", { $message: "/id" }, { $message: "/nothing" }],
      ["fixed", "m-1", null],
    ],
    [{ in: { depth: { $message: "/id" } } }, { in: { depth: "m-1" } }],
  ])("gives for %j %j", ([value, expected]) => {
    expect(mapArguments({ value }, document)).toEqual({ value: expected });
  });

  test("leaves out what the message does not have", () => {
    const pointers = ["/nothing", "/body/items/1", "/body/items/00", "/body/items/-", "/body/orderId/length"];
    for (const pointer of [...pointers, "/__proto__", "/body/constructor", "/body/items/length"]) {
      expect(mapArguments({ value: { $message: pointer }, fixed: 1 }, document)).toEqual({ fixed: 1 });
    }
  });

  test("is the message itself where that is an object, and says so where it is not", () => {
    expect(mapArguments({ $message: "/body" }, document)).toEqual(document["body"]);
    for (const body of [1, "text", null, ["list"]]) {
      expect(() => mapArguments({ $message: "/body" }, { body })).toThrow(/arguments are an object/);
    }
  });

  test("takes nothing of a message for a mapping", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (body) => {
        const given = JSON.parse(JSON.stringify(body)) as JsonValue;
        expect(mapArguments({ value: { $message: "/body" } }, { body: given, secret: "s" })).toEqual({ value: given });
      }),
    );
    const sly = { $message: "/headers" };
    expect(mapArguments({ value: { $message: "/body" } }, { body: sly, headers: { a: "b" } })).toEqual({ value: sly });
  });

  test("keeps odd names as they are", () => {
    const odd = JSON.parse('{"__proto__": {"x": 1}}') as JsonObject;
    expect(Object.keys(mapArguments({ value: odd }, document)["value"] as object)).toEqual(["__proto__"]);
  });

  test.for<readonly [JsonObject, string]>([
    [{ a: { $message: "body" } }, "target.arguments.a.$message"],
    [{ a: { $message: 1 } }, "target.arguments.a.$message"],
    [{ a: { $message: "/boddy/orderId" } }, "target.arguments.a.$message"],
    [{ a: [{ b: { $message: "/x~2" } }] }, "target.arguments.a.0.b.$message"],
    [{ a: { $message: "/x", other: 1 } }, "target.arguments.a.other"],
    [{ $message: "/x", other: 1 }, "target.arguments.other"],
  ])("that cannot be read says where: %j", ([mapping, param]) => {
    expect(() => checkMapping(mapping, "target.arguments")).toThrow(
      expect.objectContaining({ code: "invalid_definition", details: expect.objectContaining({ param }) }),
    );
  });
});
