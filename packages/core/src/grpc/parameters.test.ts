/** Schemas of a set's methods end in size, however its messages and methods multiply (SVC-1). */
import { create, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { BlobStore } from "../ports/blob-store.ts";
import { storeDescriptorSet } from "./descriptor-sets.ts";
import { readDescriptorSet } from "./descriptors.ts";
import { ParameterSchemas } from "./parameters.ts";

interface Shape {
  readonly fields: number;
  readonly methods: number;
  readonly values?: number;
}

/** One message of numbers, or of enums, and methods that all take it. */
function setOf({ fields, methods, values }: Shape): Uint8Array {
  const kind = values === undefined ? { type: 5 } : { type: 14, typeName: ".E" };
  const named = (letter: string, count: number): { name: string; number: number }[] =>
    Array.from({ length: count }, (_each, index) => ({ name: `${letter}${index}`, number: index }));
  const file = {
    name: "a.proto",
    syntax: "proto3",
    enumType: [{ name: "E", value: named("V", values ?? 1) }],
    messageType: [
      {
        name: "A",
        field: named("f", fields).map(({ name, number }) => ({ name, number: number + 1, label: 1, ...kind })),
      },
    ],
    service: [
      { name: "S", method: named("m", methods).map(({ name }) => ({ name, inputType: ".A", outputType: ".A" })) },
    ],
  };
  return toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file: [file] }));
}

const blobs: BlobStore = new Proxy({} as BlobStore, {
  get: () => () => {
    throw new Error("nothing is to be stored");
  },
});

describe(`the schemas of a set ${verifies("SVC-1")}`, () => {
  test("are made once for each message", () => {
    const schemas = new ParameterSchemas(readDescriptorSet(setOf({ fields: 3, methods: 2 })));
    expect(schemas.of("A")).toBe(schemas.of("A"));
  });

  test.each<[string, Shape, RegExp]>([
    ["fields and methods", { fields: 1_000, methods: 2_000 }, /more than 8000000 characters/],
    ["values of enums and fields", { fields: 1_500, methods: 1, values: 3_000 }, /more than 8000000 characters/],
    ["methods", { fields: 1, methods: 5_001 }, /more than 5000 methods/],
  ])("that come to too much by their %s are refused with the set", async (_what, shape, reason) => {
    await expect(storeDescriptorSet({ blobs }, "acme", setOf(shape))).rejects.toMatchObject({
      code: "invalid_definition",
      message: expect.stringMatching(reason),
    });
  });
});
