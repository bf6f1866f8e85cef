import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { JsonObject } from "../../json.ts";
import { compileArguments } from "../arguments.ts";
import { embedSchema } from "./embed.ts";

function whole(message: JsonObject): JsonObject {
  const { schema, definitions } = embedSchema(message, "#/properties/message");
  return { type: "object", properties: { message: schema }, ...definitions };
}

describe(`a schema below another ${verifies("CHAT-18")}`, () => {
  test("has its definitions at the root of the whole, where all readers look for them", () => {
    const message: JsonObject = {
      type: "object",
      properties: { a: { $ref: "#/$defs/s" }, b: { items: { $ref: "#/definitions/n" } } },
      $defs: { s: { type: "string" } },
      definitions: { n: { type: "number" } },
    };
    expect(whole(message)).toEqual({
      type: "object",
      properties: {
        message: {
          type: "object",
          properties: { a: { $ref: "#/$defs/s" }, b: { items: { $ref: "#/definitions/n" } } },
        },
      },
      $defs: { s: { type: "string" } },
      definitions: { n: { type: "number" } },
    });
  });

  test("is followed where it refers to itself, to its parts, and from its definitions back", () => {
    const message: JsonObject = {
      $id: "https://example.com/order",
      type: "object",
      properties: { name: { type: "string" }, parent: { $ref: "#" }, other: { $ref: "#/properties/name" } },
      anyOf: [{ $ref: "#/$defs/back" }],
      $defs: { back: { properties: { parts: { items: { $ref: "#" } } } } },
      additionalProperties: false,
    };
    const validator = compileArguments(whole(message));
    expect(validator.validate({ message: { parent: { name: "a", other: "b" } } }).ok).toBe(true);
    for (const wrong of [{ parent: { name: 1 } }, { parent: { colour: "red" } }, { other: 1 }]) {
      expect(validator.validate({ message: wrong })).toMatchObject({ ok: false });
    }
  });

  test("keeps what only looks like a reference, and what is a document of its own", () => {
    const message: JsonObject = {
      properties: { $ref: { type: "string" }, $defs: { type: "string" } },
      enum: [{ $ref: "#" }],
      default: { $ref: "#/a" },
      $defs: { own: { $id: "https://example.com/own", properties: { a: { $ref: "#/$defs/b" } }, $defs: { b: {} } } },
    };
    const { $defs, ...rest } = message;
    expect(embedSchema(message, "#/properties/message")).toEqual({ schema: rest, definitions: { $defs } });
  });
});
