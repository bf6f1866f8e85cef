/** Messages as JSON and as bytes: what goes in comes out, and what does not fit is refused by name (SVC-1). */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, type DescriptorProto } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { compileArguments } from "../tools/arguments.ts";
import { deliveryOf } from "../errors/delivery.ts";
import { createCodec, type TypedMethod } from "./codec.ts";
import { missingImports, readDescriptorSet, readFiles, type Descriptors } from "./descriptors.ts";
import { toParameters } from "./parameters.ts";
import { textField } from "./wire.ts";

const fixtures = join(import.meta.dirname, "../../../../test/fixtures/grpc");
const set = readFileSync(join(fixtures, "loyalty.binpb"));
const descriptors = readDescriptorSet(set);
const everything = { input: "loyalty.v1.Everything", output: "loyalty.v1.Everything" };
const codec = createCodec(descriptors, { emitDefaults: false });

const there = (value: JsonObject): unknown => JSON.parse(codec.decode(everything, codec.encode(everything, value)));

function refusal(work: () => unknown): GatewayError {
  try {
    work();
  } catch (error) {
    if (error instanceof GatewayError) return error;
    throw error;
  }
  throw new Error("nothing was refused");
}

function outcomeOf(work: () => unknown): string {
  try {
    work();
    return "read";
  } catch (error) {
    return error instanceof Error ? error.name : "unknown";
  }
}

function withoutJsonNames(types: DescriptorProto[]): void {
  for (const { field, nestedType } of types) {
    for (const each of field) each.jsonName = "";
    withoutJsonNames(nestedType);
  }
}

const int64 = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String);
const uint64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }).map(String);
const int32 = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }).filter((value) => value !== 0);
const uint32 = fc.integer({ min: 1, max: 2 ** 32 - 1 });
const notZero = (value: string): boolean => value !== "0";
const word = fc.string({ unit: "grapheme", minLength: 1 });
/** Whole seconds, in the spelling that comes back. */
const instant = fc
  .integer({ min: -62_135_596_800, max: 253_402_300_799 })
  .map((seconds) => new Date(seconds * 1_000).toISOString().replace(".000Z", "Z"));
const freeValue = fc.oneof(fc.string(), fc.boolean(), fc.integer(), fc.constant(null), fc.array(fc.integer()));

/** Messages in the very form in which they come back: no field has its default. */
const messages = fc.record(
  {
    aDouble: fc.double({ noNaN: true, noDefaultInfinity: true }).filter((value) => value !== 0),
    aFloat: fc.float({ noNaN: true, noDefaultInfinity: true }).filter((value) => value !== 0),
    anInt32: int32,
    anInt64: int64.filter(notZero),
    aUint32: uint32,
    aUint64: uint64.filter(notZero),
    aSint32: int32,
    aSint64: int64.filter(notZero),
    aFixed32: uint32,
    aFixed64: uint64.filter(notZero),
    aBool: fc.constant(true),
    aString: word,
    someBytes: fc.uint8Array({ minLength: 1 }).map((bytes) => Buffer.from(bytes).toString("base64")),
    level: fc.constantFrom("SILVER", "GOLD"),
    words: fc.array(fc.string({ unit: "grapheme" }), { minLength: 1 }),
    counts: fc.dictionary(word, int64, { minKeys: 1 }),
    number: fc.integer({ min: -1_000, max: 1_000 }),
    at: instant,
    took: fc.integer({ min: 0, max: 315_576_000_000 }).map((seconds) => `${seconds}s`),
    free: fc.dictionary(word, freeValue),
    anyValue: freeValue,
    maybe: fc.string({ unit: "grapheme" }),
    maybeNumber: fc.integer({ min: -1_000, max: 1_000 }),
    mask: fc.constantFrom("customerId", "name,level"),
    packed: int64.map((value) => ({ "@type": "type.googleapis.com/google.protobuf.Int64Value", value })),
    inner: fc.record({ aString: word }),
  },
  { requiredKeys: [] },
);

describe(`a message ${verifies("SVC-1")}`, () => {
  test("comes back as it went, numbers of 64 bits, bytes, enums and well-known types included", () => {
    fc.assert(
      fc.property(messages, (message) => {
        expect(there(message)).toEqual(message);
      }),
    );
  });

  test("may say null for what is wrapped, which is no value", () => {
    const message = { maybe: null };
    expect(compileArguments(toParameters(descriptors, "loyalty.v1.Everything")).validate(message)).toMatchObject({
      ok: true,
    });
    expect(there(message)).toEqual({});
  });

  test("that its schema takes can be written, whatever it is", () => {
    const validator = compileArguments(toParameters(descriptors, "loyalty.v1.Everything"));
    fc.assert(
      fc.property(messages, (message) => {
        const checked = validator.validate(message);
        expect(checked.ok ? [] : checked.errors).toEqual([]);
      }),
    );
  });

  test("takes both spellings of a name, and numbers of 64 bits as numbers, too", () => {
    expect(there({ an_int64: 5, aUint64: "7" })).toEqual({ anInt64: "5", aUint64: "7" });
  });

  test.each([
    [{ nonsense: 1 }, "nonsense"],
    [{ inner: { inner: { colour: "red" } } }, "colour"],
    [{ anInt32: "two" }, "an_int32"],
    [{ anInt32: 2 ** 31 }, "an_int32"],
    [{ level: "PLATINUM" }, "PLATINUM"],
    [{ someBytes: "***" }, "some_bytes"],
    [{ at: "yesterday" }, "Timestamp"],
    [{ text: "x", number: 1 }, "choice"],
    [{ words: "one" }, "words"],
  ] as const)("that does not fit is refused by name: %j", (args, name) => {
    const error = refusal(() => codec.encode(everything, args));
    expect([error.code, deliveryOf(error)]).toEqual(["invalid_arguments", "not_sent"]);
    expect(error.message).toContain(name);
  });

  test("has its defaults where they are asked for", () => {
    const full = createCodec(descriptors, { emitDefaults: true });
    const list = { input: "loyalty.v1.ListRequest", output: "loyalty.v1.ListRequest" };
    expect(JSON.parse(full.decode(list, new Uint8Array()))).toEqual({ page: 0, level: "LEVEL_UNSPECIFIED" });
  });

  test("tells what is packed in it, and described nowhere, by its bytes", () => {
    const secret = "type.googleapis.com/other.v1.Secret";
    const within = (number: number, bytes: Uint8Array): Uint8Array =>
      Buffer.concat([textField(number, "x".repeat(bytes.length)).subarray(0, -bytes.length), bytes]);
    const packed = within(26, Buffer.concat([textField(1, secret), textField(2, "hidden")]));
    const told = { "@type": secret, value: Buffer.from("hidden").toString("base64") };
    const bytes = Buffer.concat([textField(14, "known"), packed, within(29, packed)]);
    expect(JSON.parse(codec.decode(everything, bytes))).toEqual({
      aString: "known",
      packed: told,
      inner: { packed: told },
    });
    expect(refusal(() => codec.encode(everything, { packed: told }))).toMatchObject({ code: "invalid_arguments" });
  });

  test("that JSON has no words for was answered all the same", () => {
    const error = refusal(() => codec.decode(everything, textField(24, "")));
    expect(error).toMatchObject({ code: "tool_failed", message: expect.stringContaining("answered OK") });
    expect(deliveryOf(error)).toBe("answered");
  });

  test("that is none is the server's fault", () => {
    const error = refusal(() => codec.decode(everything, Buffer.from([0xff, 0xff])));
    expect([error.code, deliveryOf(error)]).toEqual(["tool_failed", "answered"]);
  });
});

describe(`the size of an answer ${verifies("SVC-1")}`, () => {
  const full = createCodec(descriptors, { emitDefaults: true });
  const list = { input: "loyalty.v1.ListRequest", output: "loyalty.v1.ListReply" };
  const many = Buffer.alloc(40_000, Buffer.from([0x0a, 0]));
  const outcome = (method: TypedMethod, bytes: Uint8Array, most: number): string =>
    outcomeOf(() => full.decode(method, bytes, most));

  test("counts the defaults of messages that take no bytes, before they are made", () => {
    const { length } = full.decode(list, many);
    expect(length).toBeGreaterThan(1_000_000);
    expect([outcome(list, many, length), outcome(list, many, length - 1)]).toEqual(["read", "MessageTooLarge"]);
    const start = process.memoryUsage().heapUsed;
    expect(outcome(list, Buffer.concat(Array.from({ length: 500 }, () => many)), length)).toBe("MessageTooLarge");
    expect(process.memoryUsage().heapUsed - start).toBeLessThan(50_000_000);
  });

  test("counts what is within a packed message, and fields that nobody knows", () => {
    const wrapped = { input: "google.protobuf.Any", output: "google.protobuf.Any" };
    const packed = Buffer.concat([
      textField(1, "type.googleapis.com/loyalty.v1.ListReply"),
      textField(2, many.toString("latin1")),
    ]);
    const unknown = Buffer.alloc(40_000, Buffer.from([0x7a, 0]));
    expect([outcome(wrapped, packed, 500_000), outcome(list, unknown, 500_000)]).toEqual([
      "MessageTooLarge",
      "MessageTooLarge",
    ]);
  });

  test("of customers is not taken for more than it is", () => {
    const customer = {
      customerId: "c-1",
      name: "Ada",
      level: "GOLD",
      balance: { currency: "EUR", amount: "5" },
      points: { spring: "5", summer: "7" },
      referrer: { name: "Bob" },
    };
    const bytes = codec.encode(
      { ...list, input: list.output },
      { customers: Array.from({ length: 100 }, () => customer) },
    );
    expect(outcome(list, bytes, full.decode(list, bytes).length)).toBe("read");
  });
});

describe(`descriptors ${verifies("SVC-1")}`, () => {
  test("tell of methods, their effects and their comments", () => {
    expect(descriptors.methods.get("loyalty.v1.Customers/List")).toMatchObject({
      input: "loyalty.v1.ListRequest",
      output: "loyalty.v1.ListReply",
      idempotency: "no_side_effects",
      comment: "Lists customers, page by page.",
      isServerStreaming: false,
    });
    expect(descriptors.methods.get("loyalty.v1.Customers/SetPoints")?.idempotency).toBe("idempotent");
    expect(descriptors.methods.get("loyalty.v1.Customers/Watch")?.isServerStreaming).toBe(true);
    expect(descriptors.methods.get("loyalty.v1.Customers/Import")?.isClientStreaming).toBe(true);
    expect(missingImports(descriptors)).toEqual([]);
  });

  test("become schemas, messages that hold themselves by reference", () => {
    expect(toParameters(descriptors, "loyalty.v1.ListRequest")).toEqual({
      type: "object",
      properties: {
        page: { type: "integer", minimum: -2_147_483_648, maximum: 2_147_483_647, description: "Counted from 1." },
        level: { type: "string", enum: ["LEVEL_UNSPECIFIED", "SILVER", "GOLD"] },
      },
    });
    expect(toParameters(descriptors, "loyalty.v1.Customer")).toMatchObject({
      properties: {
        balance: { properties: { amount: { description: "Of the smallest unit." } } },
        points: { additionalProperties: { type: ["string", "integer"] } },
        referrer: { $ref: "#/$defs/loyalty.v1.Customer" },
      },
      $defs: { "loyalty.v1.Customer": { type: "object" } },
    });
  });

  test("may come in any order and without the well-known files", () => {
    const files = descriptors.files.filter(({ name }) => !name.startsWith("google/")).toReversed();
    const shuffled = createCodec({ files }, { emitDefaults: false });
    expect(JSON.parse(shuffled.decode(everything, shuffled.encode(everything, { took: "1.500s" })))).toEqual({
      took: "1.500s",
    });
  });

  test("may leave out how fields are named in JSON", () => {
    const files = descriptors.files.map(({ name, bytes }) => {
      const file = fromBinary(FileDescriptorProtoSchema, bytes);
      withoutJsonNames(file.messageType);
      return { name, imports: [], bytes: toBinary(FileDescriptorProtoSchema, file) };
    });
    const nameless = createCodec({ files }, { emitDefaults: false });
    const value = { anInt64: "5", inner: { aString: "x" } };
    expect(JSON.parse(nameless.decode(everything, nameless.encode(everything, value)))).toEqual(value);
    expect(nameless.encode(everything, { an_int64: "5" })).toEqual(nameless.encode(everything, { anInt64: "5" }));
  });

  test("that lack an import are refused, naming it", () => {
    const files = descriptors.files.filter(({ name }) => name !== "money.proto");
    const error = refusal(() => createCodec({ files }, { emitDefaults: false }));
    expect([error.code, error.details.param]).toEqual(["invalid_definition", "config.grpc.descriptors"]);
    expect(error.message).toContain("'money.proto'");
  });

  test("that are broken are refused and never run on", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), fc.nat(set.length - 1), (noise, at) => {
        const broken = Buffer.concat([set.subarray(0, at), noise]);
        expect(["read", "RangeError", "TypeError"]).toContain(outcomeOf(() => readDescriptorSet(broken)));
      }),
    );
  });
});

describe("descriptors that a library makes of .proto files while it runs", () => {
  const made = readDescriptorSet(readFileSync(join(fixtures, "loyalty-of-protobufjs.binpb")));

  test(`name their types from the inside out, and no files that they need ${verifies("SVC-1")}`, () => {
    expect(made.methods.get("loyalty.v1.Customers/SetPoints")).toMatchObject({
      input: "loyalty.v1.SetPointsRequest",
      output: "google.protobuf.Empty",
    });
    const namesOf = (of: Descriptors): readonly string[] =>
      Object.keys(toParameters(of, "loyalty.v1.Everything")["properties"] ?? {});
    expect(namesOf(made)).toEqual(namesOf(descriptors));
    const madeCodec = createCodec(made, { emitDefaults: false });
    const value: JsonObject = {
      level: "GOLD",
      counts: { a: "1" },
      at: "2026-11-27T08:00:00Z",
      free: { list: [null, 1, "a"] },
      maybe: "",
      mask: "aB,c",
      inner: { words: ["x"], packed: { "@type": "type.googleapis.com/shop.Money", currency: "EUR" } },
    };
    const bytes = madeCodec.encode(everything, value);
    expect(Buffer.from(bytes)).toEqual(Buffer.from(codec.encode(everything, value)));
    expect(JSON.parse(madeCodec.decode(everything, bytes))).toEqual(value);
  });

  test("are refused where the search for their types would have no end", () => {
    const file = create(FileDescriptorProtoSchema, {
      name: "a.proto",
      package: `a${".a".repeat(240)}`,
      messageType: [{ name: "M", field: Array.from({ length: 1_300 }, () => ({ name: "f", typeName: "T" })) }],
    });
    expect(() => readFiles([toBinary(FileDescriptorProtoSchema, file)])).toThrow("take too long to find");
  });
});
