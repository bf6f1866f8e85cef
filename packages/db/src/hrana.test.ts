import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decodeBatch, encodeBatch } from "./hrana.ts";

const cols = [{ name: "v" }];
const none = { cols: [], rows: [], affected_row_count: 0 };

/** An answer to a batch of one statement that gave one row. */
function answer(value: object): string {
  const step_results = [none, { cols, rows: [[value]], affected_row_count: 1 }, none, null];
  return JSON.stringify({ results: [{ type: "ok", response: { result: { step_results, step_errors: [] } } }] });
}

describe("a batch", () => {
  test("is one transaction that goes on only while it succeeds", () => {
    const body = JSON.parse(encodeBatch([{ sql: "SELECT ?1", args: [1n] }], { readonly: false })) as object;
    expect(body).toMatchObject({
      baton: null,
      requests: [
        {
          type: "batch",
          batch: {
            steps: [
              { stmt: { sql: "BEGIN IMMEDIATE" } },
              {
                condition: { type: "ok", step: 0 },
                stmt: { sql: "SELECT ?1", args: [{ type: "integer", value: "1" }] },
              },
              { condition: { type: "ok", step: 1 }, stmt: { sql: "COMMIT" } },
              { condition: { type: "not", cond: { type: "ok", step: 2 } }, stmt: { sql: "ROLLBACK" } },
            ],
          },
        },
        { type: "close" },
      ],
    });
  });

  test("carries every value there and back", () => {
    const value = fc.oneof(
      fc.string({ unit: "grapheme" }),
      fc.maxSafeInteger(),
      fc.double({ noNaN: true, noDefaultInfinity: true }).filter((number) => !Object.is(number, -0)),
      fc.constant(null),
      fc.uint8Array(),
    );
    fc.assert(
      fc.property(value, (given) => {
        const { requests } = JSON.parse(encodeBatch([{ sql: "", args: [given] }], { readonly: true })) as {
          requests: [{ batch: { steps: { stmt: { args: object[] } }[] } }];
        };
        const [encoded = {}] = requests[0].batch.steps[1]?.stmt.args ?? [];
        expect(decodeBatch(answer(encoded), 1)).toEqual([{ rows: [{ v: given }], changes: 1 }]);
      }),
    );
  });

  test("that is refused says why, by the first refusal", () => {
    const step_results = [none, null, null, none];
    const step_errors = [null, { message: "no such table", code: "SQLITE_ERROR" }, null, { message: "later" }];
    const refused = JSON.stringify({ results: [{ type: "ok", response: { result: { step_results, step_errors } } }] });
    expect(() => decodeBatch(refused, 1)).toThrow(
      expect.objectContaining({ message: "no such table", code: "SQLITE_ERROR" }),
    );
    const broken = JSON.stringify({ results: [{ type: "error", error: { message: "over", code: "STREAM_EXPIRED" } }] });
    expect(() => decodeBatch(broken, 1)).toThrow(expect.objectContaining({ code: "STREAM_EXPIRED" }));
  });

  test("whose answer is none of libSQL's, or ends without a commit, is no success", () => {
    const notCommitted = JSON.stringify({
      results: [{ type: "ok", response: { result: { step_results: [none, none, null, none], step_errors: [] } } }],
    });
    for (const text of [
      "{}",
      "[]",
      "null",
      "nonsense",
      '{"results":[]}',
      '{"results":[{"type":"ok"}]}',
      notCommitted,
    ]) {
      expect(() => decodeBatch(text, 1)).toThrow(/./);
    }
    for (const value of [{ type: "integer", value: "9007199254740993" }, { type: "date", value: 1 }, {}]) {
      expect(() => decodeBatch(answer(value), 1)).toThrow(/./);
    }
  });
});
