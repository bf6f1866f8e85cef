import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { importLimits } from "./limits.ts";
import { readDocumentText } from "./read-text.ts";

const read = (text: string): Promise<unknown> => readDocumentText(text, "openapi");

describe(`text of a document ${verifies("BLIND-1")}`, () => {
  test("may be JSON or YAML, whose names are names whatever they look like", async () => {
    const yaml =
      '__proto__: {a: 1}\n"$ref": x\nconst: 2\nday: 2020-01-01\nno: no\n200: ok\nbase: &base {x: 1}\nuse:\n  <<: *base\n  y: 2\n';
    const value = await read(yaml);
    expect(JSON.stringify(value)).toBe(
      '{"200":"ok","__proto__":{"a":1},"$ref":"x","const":2,"day":"2020-01-01","no":"no","base":{"x":1},"use":{"x":1,"y":2}}',
    );
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect(await read('{"a":[1,{"b":null}]}')).toEqual({ a: [1, { b: null }] });
    expect(await read("{a: [1, {b: ~}]}")).toEqual({ a: [1, { b: null }] });
  });

  test.each([
    ["no text", "  \n", /is empty/],
    ["broken JSON", '{"a": 1,}x', /neither JSON/],
    ["broken YAML", "a: [1", /line 1/],
    ["a name given twice", "a: 1\na: 2", /unique/],
    ["a name given twice in JSON", '{"paths":{"/a":{"get":{},"g\\u0065t":{}}}}', /says 'paths\.\/a\.get' twice/],
    ["aliases that multiply", bomb(9), /aliases|Excessive/],
    ["an alias that holds itself", "a: &a\n  b: *a\n", /stands in what it means/],
    ["nesting without an end", "[".repeat(20_000), /cannot be read|nested|neither/],
    ["too much YAML", `a: ${"x".repeat(importLimits.yamlBytes)}`, /convert it to JSON/],
  ])("is refused by its field for %s", async (_what, text, reason) => {
    await expect(read(text)).rejects.toMatchObject({
      code: "invalid_request",
      details: { param: "openapi" },
      message: expect.stringMatching(reason),
    });
  });

  test("makes no objects but plain ones: a tag runs nothing", async () => {
    const tagged = "a: !!js/function 'function () { return 1 }'\nb: !<tag:x> {c: 1}\n";
    expect(await read(tagged)).toEqual({ a: "function () { return 1 }", b: { c: 1 } });
    expect(await read("n: .inf")).toEqual({ n: null });
  });
});

/** Nine lists of nine aliases each. */
function bomb(levels: number): string {
  const lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"];
  for (let level = 1; level <= levels; level += 1)
    lines.push(`l${level}: &l${level} [${`*l${level - 1}, `.repeat(9)}]`);
  return lines.join("\n");
}
