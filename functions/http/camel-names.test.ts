import { describe, expect, test } from "vitest";
import * as z from "zod";
import { verifies } from "../../test/support/verifies.ts";
import { inEitherSpelling } from "./camel-names.ts";

const schema = z.strictObject({
  top_k: z.int().optional(),
  config: z.strictObject({ min_score: z.number() }).nullable().optional(),
  items: z.array(z.strictObject({ document_id: z.string() })).default([]),
  metadata: z.record(z.string(), z.string()).optional(),
});

const body = inEitherSpelling(schema);

describe(`fields by their camelCase names ${verifies("KB-1")}`, () => {
  test("are those of the schema, at every depth", () => {
    const given = { topK: 3, config: { minScore: 0.5 }, items: [{ documentId: "a" }, { document_id: "b" }] };
    expect(body.parse(given)).toEqual({
      top_k: 3,
      config: { min_score: 0.5 },
      items: [{ document_id: "a" }, { document_id: "b" }],
    });
  });

  test("may be given twice with one value, and not with two", () => {
    expect(body.parse({ top_k: 3, topK: 3 })).toEqual({ top_k: 3, items: [] });
    const faultOf = (given: unknown): unknown => body.safeParse(given).error?.issues[0];
    expect(faultOf({ top_k: 3, topK: 4 })).toMatchObject({
      path: ["top_k"],
      message: "and 'topK' say different things; send one of them",
    });
    expect(faultOf({ config: { min_score: 1, minScore: 0 } })).toMatchObject({ path: ["config", "min_score"] });
  });

  test("are left alone where nobody has said what they are", () => {
    const metadata = { sourceUrl: "x" };
    expect(body.parse({ metadata, config: null })).toEqual({ metadata, config: null, items: [] });
    expect(() => body.parse({ somethingElse: 1 })).toThrow(/somethingElse/);
    expect(() => body.parse("text")).toThrow(/expected object/);
  });
});
