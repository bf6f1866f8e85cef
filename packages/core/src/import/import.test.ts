import { describe, expect, test } from "vitest";
import { callContext } from "../../../../test/support/call-context.ts";
import { createFakeCore, unscripted } from "../../../../test/support/fake-core.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import type { PluginRecord } from "../blind/plugin.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject, JsonValue } from "../json.ts";
import type { Egress, EgressRequest } from "../ports/egress.ts";
import type { PluginChanges, PluginRepo } from "../ports/repos.ts";
import { importPlugins } from "./import.ts";
import { importLimits } from "./limits.ts";
import { importRequestSchema } from "./request.ts";
import type { ImportResult } from "./result.ts";

interface World {
  /** Bodies by address; an error is thrown, a text that starts with `->` is where the answer came from. */
  readonly served?: Readonly<Record<string, string | Error>>;
  readonly upsertMany?: PluginRepo["upsertMany"];
  /** What the tenant has. */
  readonly plugins?: readonly PluginRecord[];
}

interface Imported {
  readonly result: ImportResult;
  readonly asked: readonly EgressRequest[];
  readonly changes: readonly PluginChanges[];
}

async function run(
  body: JsonObject,
  { served = {}, upsertMany, plugins: existing = [] }: World = {},
): Promise<Imported> {
  const asked: EgressRequest[] = [];
  const changes: PluginChanges[] = [];
  const egress: Egress = {
    ...unscripted<Egress>("egress"),
    checkUrl: () => undefined,
    request: (request) => {
      asked.push(request);
      const answer = served[request.url] ?? new GatewayError("egress_denied", "not there");
      if (answer instanceof Error) return Promise.reject(answer);
      return Promise.resolve({ status: 200, headers: {}, url: request.url, body: piecesOf(answer) });
    },
  };
  const plugins: PluginRepo = {
    ...unscripted<PluginRepo>("plugins"),
    upsertMany: (tenant, given) => {
      changes.push(given);
      if (upsertMany !== undefined) return upsertMany(tenant, given);
      return Promise.resolve(new Map(given.create.map(({ name }, at) => [name, at + 1])));
    },
  };
  const core = createFakeCore({ core: { egress }, repos: { plugins } });
  const context = callContext();
  const config = { ...context.config, plugins: existing };
  const result = await importPlugins(core, { ...context, config }, importRequestSchema.parse(body));
  return { result, asked, changes };
}

async function* piecesOf(text: string): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < text.length; at += 1_000_000) yield Buffer.from(text.slice(at, at + 1_000_000));
}

const main = "https://docs.example.com/api/openapi.json";

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
    [main]: document,
    "https://docs.example.com/api/paths.yaml":
      "a:\n  get:\n    operationId: a\n    parameters:\n      - $ref: parameters.json#/limit\n",
    "https://docs.example.com/api/parameters.json":
      '{"limit":{"name":"limit","in":"query","schema":{"$ref":"#/Size"}},"Size":{"type":"integer"}}',
    "https://schemas.example/x.json": '{"type":"string"}',
  };

  test("are put together from https addresses where that is asked for, each asked for once", async () => {
    const { result, asked } = await run({ url: main, allow_external_refs: true }, { served });
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
    const { result, asked } = await run({ url: main }, { served });
    expect(asked).toHaveLength(1);
    expect(result.operations.map(({ name }) => name)).toEqual(["b", "c"]);
    expect(result.warnings[0]).toContain("'/a'");
    expect(result.operations.flatMap(({ warnings }) => warnings)).toHaveLength(4);
  });

  test("may lack one: what refers to it has a gap, and says so", async () => {
    const lacking = { ...served, "https://schemas.example/x.json": new GatewayError("egress_denied", "private") };
    const { result } = await run({ url: main, allow_external_refs: true }, { served: lacking });
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
  const { changes } = await run({ openapi: openapi({ get: {} }) });
  const made = (changes[0]?.create ?? []).map((plugin): PluginRecord => ({
    ...plugin,
    pluginId: 1,
    createdAt: 0,
    updatedAt: 0,
  }));
  const later = { openapi: openapi({ $ref: "https://gone.example/a.json" }), remove_missing: true };
  expect((await run(later, { plugins: made })).changes).toEqual([]);
  // Nor is all of it, where a document comes without any operation.
  expect((await run({ ...later, openapi: openapi({}) }, { plugins: made })).changes).toEqual([]);
  const replaced = await run({ ...later, openapi: openapi({ post: {} }) }, { plugins: made });
  expect(replaced.changes.map((each) => each.delete)).toEqual([[1]]);
});

describe(`limits of an import ${verifies("BLIND-1", "BLIND-10")}`, () => {
  const manyOperations = (count: number): JsonObject => ({
    openapi: "3.0.0",
    servers: [{ url: "https://api.example.com" }],
    paths: Object.fromEntries(Array.from({ length: count }, (_none, at) => [`/p${at}`, { get: {} }])),
  });

  test("a document larger than the limit is not read to its end", async () => {
    const large = { [main]: " ".repeat(importLimits.documentBytes + 1) };
    await expect(run({ url: main }, { served: large })).rejects.toMatchObject({
      code: "payload_too_large",
      details: { param: "url" },
    });
  });

  test("a document with more operations than the limit is refused whole", async () => {
    await expect(run({ openapi: manyOperations(importLimits.operations + 1) })).rejects.toMatchObject({
      code: "invalid_request",
    });
    expect((await run({ openapi: manyOperations(300) })).changes[0]?.create).toHaveLength(300);
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
    await expect(run({ openapi })).rejects.toMatchObject({ code: "invalid_request", details: { param: "include" } });
    expect((await run({ openapi, include: ["/p7"] })).changes[0]?.create).toHaveLength(1);
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
    const { result } = await run({ openapi, dry_run: true });
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
    const { result } = await run({ openapi: { ...manyOperations(0), ...make() }, dry_run: true });
    expect(result.operations).toHaveLength(1);
  });

  test.each<readonly [string, JsonObject]>([
    ["parameters", { parameters: many(20_000, (at) => ({ in: "path", name: `p${at}` })) }],
    ["servers", { servers: many(20_000, () => ({ url: "https://elsewhere.example" })) }],
  ])("%s that all paths share count for each of them", async (_what, shared) => {
    const paths = Object.fromEntries(many(4_000, (at) => [`/p${at}`, { $ref: "#/components/pathItems/Shared" }]));
    const openapi = { ...manyOperations(0), paths, components: { pathItems: { Shared: { ...shared, get: {} } } } };
    await expect(run({ openapi })).rejects.toMatchObject({ code: "invalid_request", details: { param: "include" } });
  });

  test("what somebody else changed meanwhile is a conflict, by name", async () => {
    const upsertMany: PluginRepo["upsertMany"] = (_tenant, { create }) =>
      Promise.resolve(new Map(create.slice(1).map(({ name }) => [name, 1])));
    await expect(run({ openapi: manyOperations(2) }, { upsertMany })).rejects.toMatchObject({
      code: "conflict",
      message: expect.stringContaining("'get_p0'"),
    });
  });

  test("a dry run and an import of nothing write nothing", async () => {
    expect((await run({ openapi: manyOperations(2), dry_run: true })).changes).toEqual([]);
    expect((await run({ openapi: manyOperations(0) })).changes).toEqual([]);
  });
});
