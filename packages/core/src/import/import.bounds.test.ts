import { describe, expect, test } from "vitest";
import { manyOperations, runImport } from "../../../../test/support/run-import.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import { importLimits } from "./limits.ts";

describe(`bounds of an import ${verifies("BLIND-1", "BLIND-10")}`, () => {
  test("a document with more operations than the limit is refused whole", async () => {
    await expect(runImport({ openapi: manyOperations(importLimits.operations + 1) })).rejects.toMatchObject({
      code: "invalid_request",
    });
    expect((await runImport({ openapi: manyOperations(300) })).changes[0]?.create).toHaveLength(300);
  });

  test("a small document that comes to much work is given up, not worked off", async () => {
    const ref = (level: number): JsonObject => ({ $ref: `#/components/schemas/L${level}` });
    const level = (at: number): JsonObject => ({
      type: "object",
      properties: { a: ref(at + 1), b: ref(at + 1), c: ref(at + 1) },
    });
    const schemas: JsonObject = Object.fromEntries(Array.from({ length: 30 }, (_none, at) => [`L${at}`, level(at)]));
    const post = { requestBody: { content: { "application/json": { schema: ref(0) } } } };
    const paths = Object.fromEntries(Array.from({ length: 3_000 }, (_none, at) => [`/p${at}`, { post }]));
    const openapi = { ...manyOperations(0), paths, components: { schemas } };
    await expect(runImport({ openapi })).rejects.toMatchObject({
      code: "invalid_request",
      details: { param: "include" },
    });
    expect((await runImport({ openapi, include: ["/p7"] })).changes[0]?.create).toHaveLength(1);
  });

  test("huge values that are referred to from everywhere are looked at no further than they are kept", async () => {
    const huge = "x".repeat(5_000_000);
    let nested: JsonValue = "deep";
    for (let depth = 0; depth < 50_000; depth += 1) nested = [nested];
    const big: JsonObject = {
      type: "string",
      description: huge,
      default: huge,
      example: huge,
      enum: [huge, "y"],
      const: nested,
      pattern: huge,
    };
    const properties = Object.fromEntries(
      Array.from({ length: 300 }, (_none, at) => [`p${at}`, { $ref: "#/components/schemas/Big" }]),
    );
    const post = {
      summary: huge,
      description: huge,
      requestBody: { content: { "application/json": { schema: { properties } } } },
    };
    const openapi = { ...manyOperations(0), paths: { "/a": { post } }, components: { schemas: { Big: big } } };
    const { result } = await runImport({ openapi, dry_run: true });
    const [operation] = result.operations;
    expect(operation?.reason).toBeNull();
    expect(JSON.stringify(operation?.definition).length).toBeLessThan(importLimits.schemaBytes + 4_096);
    expect(Object.keys(Object(operation?.definition?.parameters["properties"]))).toHaveLength(300);
  });

  const posting = (schema: JsonValue): JsonObject => ({
    post: { requestBody: { content: { "application/json": { schema } } } },
  });
  const many = <Value>(count: number, make: (at: number) => Value): Value[] =>
    Array.from({ length: count }, (_none, at) => make(at));

  // So long that whatever goes through all of it for each part of the document takes minutes.
  test.each<readonly [string, () => JsonObject]>([
    [
      "a default, referred to by each of many properties",
      () => {
        const properties = Object.fromEntries(many(3_500, (at) => [`p${at}`, { $ref: "#/components/schemas/Long" }]));
        const long = {
          type: "string",
          default: many(300_000, () => 0),
          const: Object.fromEntries(many(20_000, (at) => [at, 0])),
        };
        return { paths: { "/a": posting({ properties }) }, components: { schemas: { Long: long } } };
      },
    ],
    [
      "the names of required fields, beside many properties",
      () => ({
        paths: {
          "/a": posting({
            required: many(1_000_000, (at) => `r${at}`),
            properties: Object.fromEntries(many(3_500, (at) => [`p${at}`, true])),
          }),
        },
      }),
    ],
    [
      "a path with placeholders, beside many parameters",
      () => ({
        paths: {
          [many(30_000, (at) => `/{a${at}}`).join("")]: {
            get: { parameters: many(30_000, (at) => ({ in: "path", name: `p${at}` })) },
          },
        },
      }),
    ],
  ])("what is long is gone through once: %s", async (_what, make) => {
    const { result } = await runImport({ openapi: { ...manyOperations(0), ...make() }, dry_run: true });
    expect(result.operations).toHaveLength(1);
  });

  test.each<readonly [string, JsonObject]>([
    ["parameters", { parameters: many(20_000, (at) => ({ in: "path", name: `p${at}` })) }],
    ["servers", { servers: many(20_000, () => ({ url: "https://elsewhere.example" })) }],
  ])("%s that all paths share count for each of them", async (_what, shared) => {
    const paths = Object.fromEntries(many(4_000, (at) => [`/p${at}`, { $ref: "#/components/pathItems/Shared" }]));
    const openapi = { ...manyOperations(0), paths, components: { pathItems: { Shared: { ...shared, get: {} } } } };
    await expect(runImport({ openapi })).rejects.toMatchObject({
      code: "invalid_request",
      details: { param: "include" },
    });
  });
});
