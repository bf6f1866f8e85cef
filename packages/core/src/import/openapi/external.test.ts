import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import type { JsonValue } from "../../json.ts";
import { importLimits } from "../limits.ts";
import { ApiDocument } from "./document.ts";
import { loadExternalDocuments } from "./external.ts";

const main = "https://docs.example.com/api/openapi.json";

async function load(root: JsonValue, served: Readonly<Record<string, JsonValue>>, url: string | null = main) {
  const asked: string[] = [];
  const others = await loadExternalDocuments(root, {
    url: url ?? undefined,
    load: async (address) => {
      asked.push(address);
      const document = served[address];
      return document === undefined ? undefined : { document, bytes: JSON.stringify(document).length };
    },
  });
  return { asked, others };
}

describe(`documents that a document refers to ${verifies("BLIND-1")}`, () => {
  test("are loaded once each, with what they refer to, relative to where they stand", async () => {
    const root = {
      a: { $ref: "./parts/a.json#/X" },
      again: { $ref: "./parts/a.json#/Y" },
      own: { $ref: "#/a" },
      self: { $ref: "openapi.json#/a" },
    };
    const served = {
      "https://docs.example.com/api/parts/a.json": {
        X: { $ref: "../b.json" },
        Y: { $ref: "a.json#/X" },
        back: { $ref: "../openapi.json#/a" },
      },
      "https://docs.example.com/api/b.json": { type: "string" },
    };
    const { asked, others } = await load(root, served);
    expect(asked).toEqual(Object.keys(served));
    const document = new ApiDocument({ openapi: "3.1.0", ...root }, { url: main, others });
    expect(document.follow({ value: root.a, base: "" })).toMatchObject({
      value: { type: "string" },
      base: "https://docs.example.com/api/b.json",
    });
  });

  test("are https only: no file, no clear text, no other scheme, nothing relative without a base", async () => {
    const references = [
      "file:///etc/passwd",
      "http://docs.example.com/a.json",
      "data:application/json,{}",
      "ftp://a/b",
      "//docs.example.com/x.json",
      "a.json",
      "::",
    ];
    const root = references.map(($ref) => ({ $ref }));
    expect((await load(root, {}, "http://127.0.0.1:9/openapi.json")).asked).toEqual([]);
    expect((await load(root, {}, null)).asked).toEqual([]);
    const expected = ["https://docs.example.com/x.json", "https://docs.example.com/api/a.json"];
    expect((await load(root, {})).asked.filter((address) => !address.endsWith("::")).sort()).toEqual(expected.sort());
  });

  test("that cannot be had leave a gap", async () => {
    const root = { openapi: "3.0.0", a: { $ref: "https://gone.example/a.json" } };
    const { others } = await load(root, {});
    expect(new ApiDocument(root, { url: main, others }).follow({ value: root.a, base: "" })).toBeUndefined();
  });

  test("have an end, however many there are", async () => {
    const chain = (at: number): string => `https://docs.example.com/${at}.json`;
    const served = Object.fromEntries(Array.from({ length: 500 }, (_none, at) => [chain(at), { $ref: chain(at + 1) }]));
    await expect(load({ $ref: chain(0) }, served)).rejects.toMatchObject({
      code: "invalid_request",
      details: { param: "openapi" },
    });
    const large = { "https://docs.example.com/l.json": "x".repeat(importLimits.externalBytes) };
    await expect(load({ $ref: "https://docs.example.com/l.json" }, large)).rejects.toMatchObject({
      code: "invalid_request",
    });
  });
});
