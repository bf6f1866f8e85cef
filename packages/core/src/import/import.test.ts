import { describe, expect, test } from "vitest";
import { documentUrl, manyOperations, runImport } from "../../../../test/support/run-import.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { PluginRecord } from "../blind/plugin.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import type { PluginRepo } from "../ports/plugins.ts";
import { importLimits } from "./limits.ts";

describe(`documents in several files ${verifies("BLIND-1")}`, () => {
  const document = JSON.stringify({
    openapi: "3.1.0",
    info: { title: "Split" },
    servers: [{ url: "https://api.example.com" }],
    paths: {
      "/a": { $ref: "./paths.yaml#/a" },
      "/b": { get: { operationId: "b", parameters: [{ $ref: "parameters.json#/limit" }] } },
      "/c": {
        post: {
          operationId: "c",
          requestBody: {
            content: {
              "application/json": {
                schema: {
                  properties: {
                    x: { $ref: "https://schemas.example/x.json" },
                    y: { $ref: "http://schemas.example/y.json" },
                    z: { $ref: "file:///etc/passwd" },
                  },
                },
              },
            },
          },
        },
      },
    },
  });
  const served = {
    [documentUrl]: document,
    "https://docs.example.com/api/paths.yaml":
      "a:\n  get:\n    operationId: a\n    parameters:\n      - $ref: parameters.json#/limit\n",
    "https://docs.example.com/api/parameters.json":
      '{"limit":{"name":"limit","in":"query","schema":{"$ref":"#/Size"}},"Size":{"type":"integer"}}',
    "https://schemas.example/x.json": '{"type":"string"}',
  };

  test("are put together from https addresses where that is asked for, each asked for once", async () => {
    const { result, asked } = await runImport({ url: documentUrl, allow_external_refs: true }, { served });
    expect(asked.map(({ url }) => url).sort()).toEqual(Object.keys(served).sort());
    expect(
      asked.every(({ method, headers }) => method === "GET" && !headers.some(([name]) => /auth|cookie/i.test(name))),
    ).toBe(true);
    const properties = result.operations.map(({ name, definition }) => [name, definition?.parameters["properties"]]);
    expect(properties).toEqual([
      ["a", { limit: { type: "integer" } }],
      ["b", { limit: { type: "integer" } }],
      ["c", { x: { type: "string" }, y: {}, z: {} }],
    ]);
  });

  test("are the main one only, unless that is asked for", async () => {
    const { result, asked } = await runImport({ url: documentUrl }, { served });
    expect(asked).toHaveLength(1);
    expect(result.operations.map(({ name }) => name)).toEqual(["b", "c"]);
    expect(result.warnings[0]).toContain("'/a'");
    expect(result.operations.flatMap(({ warnings }) => warnings)).toHaveLength(4);
  });

  test("may lack one: what refers to it has a gap, and says so", async () => {
    const lacking = { ...served, "https://schemas.example/x.json": new GatewayError("egress_denied", "private") };
    const { result } = await runImport({ url: documentUrl, allow_external_refs: true }, { served: lacking });
    const c = result.operations.find(({ name }) => name === "c");
    expect(c?.definition?.parameters["properties"]).toEqual({ x: {}, y: {}, z: {} });
    expect(c?.warnings).toHaveLength(3);
  });
});

test(`a part that cannot be read now is not taken for removed ${verifies("BLIND-1")}`, async () => {
  const openapi = (item: JsonObject): JsonObject => ({
    openapi: "3.0.0",
    info: { title: "T" },
    servers: [{ url: "https://api.example.com" }],
    paths: { "/a/{id}": item },
  });
  const { changes } = await runImport({ openapi: openapi({ get: {} }) });
  const made = (changes[0]?.create ?? []).map((plugin): PluginRecord => ({
    ...plugin,
    pluginId: 1,
    createdAt: 0,
    updatedAt: 0,
  }));
  const later = { openapi: openapi({ $ref: "https://gone.example/a.json" }), remove_missing: true };
  expect((await runImport(later, { plugins: made })).changes).toEqual([]);
  // Nor is all of it, where a document comes without any operation.
  expect((await runImport({ ...later, openapi: openapi({}) }, { plugins: made })).changes).toEqual([]);
  const replaced = await runImport({ ...later, openapi: openapi({ post: {} }) }, { plugins: made });
  expect(replaced.changes.map((each) => each.delete)).toEqual([[1]]);
});

describe(`limits of an import ${verifies("BLIND-1", "BLIND-10")}`, () => {
  test("a document larger than the limit is not read to its end", async () => {
    const large = { [documentUrl]: " ".repeat(importLimits.documentBytes + 1) };
    await expect(runImport({ url: documentUrl }, { served: large })).rejects.toMatchObject({
      code: "payload_too_large",
      details: { param: "url" },
    });
  });

  test("what somebody else changed meanwhile is a conflict, by name", async () => {
    const upsertMany: PluginRepo["upsertMany"] = (_tenant, { create }) =>
      Promise.resolve(new Map(create.slice(1).map(({ name }) => [name, 1])));
    await expect(runImport({ openapi: manyOperations(2) }, { upsertMany })).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringContaining("'get_p0'"),
    });
  });

  test("a dry run and an import of nothing write nothing", async () => {
    expect((await runImport({ openapi: manyOperations(2), dry_run: true })).changes).toEqual([]);
    expect((await runImport({ openapi: manyOperations(0) })).changes).toEqual([]);
  });
});
