import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import { verifies } from "../../../../test/support/verifies.ts";
import type { JsonValue } from "../json.ts";
import { readYaml } from "./read-yaml.ts";

const whole = 2_000;

describe(`large YAML, read in pieces ${verifies("BLIND-1")}`, () => {
  const paths = Array.from({ length: 60 }, (_none, at) => [
    `/items/${at}`,
    {
      get: {
        summary: `Number ${at}: "quoted" # no comment`,
        description: "line 1\n  line 2\n\n# line 4\n",
        tags: [{ a: at }, []],
      },
    },
  ]);
  const schemas = Array.from({ length: 40 }, (_none, at) => [
    `S${at}`,
    { type: "string", enum: ["no", "1", "", "~"], pattern: "^\\d: {2}$" },
  ]);
  const value = {
    openapi: "3.1.0",
    info: { title: "T", description: "long ".repeat(60) },
    paths: Object.fromEntries(paths),
    components: { schemas: Object.fromEntries(schemas), "x: y": null },
  };

  test.each([
    ["as it comes", {}],
    ["in quotes and narrow lines", { indent: 4, lineWidth: 40, defaultStringType: "QUOTE_DOUBLE" }],
    ["folded, with lists at the indentation of their key", { blockQuote: "folded", indentSeq: false }],
  ] as const)("is what it is in one go: %s", async (_what, options) => {
    const text = stringify(value, options);
    expect(text.length).toBeGreaterThan(4 * whole);
    for (const written of [
      text,
      `---\n${text}`,
      `# a remark\n\n${text.replace("paths:", "# and one\npaths: # here")}`,
    ]) {
      expect(await readYaml(written, whole)).toEqual(value);
    }
  });

  test("is what it is in one go, whatever mappings it is made of", async () => {
    const leaf = fc.oneof(
      fc.string({ unit: fc.constantFrom("a", ":", " ", "#", "-", "\n", '"', "é", "&", "*", "{") }),
      fc.integer(),
      fc.constantFrom<JsonValue>(null, true, [], {}),
    );
    // `<<` asks for a mapping to be merged in, and is no name.
    const name = fc.string({ minLength: 1, maxLength: 8 }).filter((text) => text !== "<<");
    const mapping = fc.dictionary(name, fc.dictionary(name, leaf, { noNullPrototype: true, maxKeys: 8 }), {
      noNullPrototype: true,
      minKeys: 8,
      maxKeys: 20,
    });
    await fc.assert(
      fc.asyncProperty(mapping, async (members) => {
        const text = stringify(members, { aliasDuplicateObjects: false });
        const expected = JSON.stringify(parse(text));
        expect(JSON.stringify(await readYaml(text, text.length))).toBe(expected);
        expect(await readYaml(text, 200)).toEqual(JSON.parse(expected));
      }),
      { numRuns: 60 },
    );
  }, 60_000);

  test("takes a text below a key for a text, however much both look like mappings", async () => {
    const padding = Array.from({ length: 40 }, (_none, at) => `  pad_${at}: x\n`).join("");
    const text = `first:\n  "a:# b": |-\n    : \n     cccccccc\n  "d: # e": |\n    ffff: gggg\n${padding}`;
    expect(await readYaml(text, 200)).toEqual(parse(text));
  });

  const filler = `filler:\n${Array.from({ length: 100 }, (_none, at) => `  key_${at}: ${"v".repeat(40)}\n`).join("")}`;

  test("finds what aliases mean in earlier pieces", async () => {
    const text = `start:\n  a: &a {x: 1}\n  b: &b [*a, 2]\n${filler}later:\n  use: *a\n  list: *b\n  own: &a {x: 3}\n  mine: *a\n`;
    expect(await readYaml(text, whole)).toMatchObject({
      start: { b: [{ x: 1 }, 2] },
      later: { use: { x: 1 }, list: [{ x: 1 }, 2], own: { x: 3 }, mine: { x: 3 } },
    });
  });

  test.each([
    ["a key given twice, far apart", `last: 1\n${filler}last: 2\n`, /'last' is not unique/],
    ["a key of two large blocks", `${filler}${filler}`, /'filler' is not unique/],
    ["an alias of nothing", `${filler}use: *nobody\n`, /nobody/],
    ["aliases that multiply from piece to piece", multiplying(), /aliases/],
    ["a large text", `a: |\n  ${"x".repeat(2 * whole)}\n`, /no mapping/],
    ["a large list", `${"- x\n".repeat(whole)}`, /in pieces/],
    ["something broken", `${filler}b: [1\n`, /in pieces/],
    ["a second document", `${filler}---\na: 1\n`, /in pieces/],
  ])("is refused for %s", async (_what, text, reason) => {
    await expect(readYaml(text, whole)).rejects.toThrow(reason);
  });
});

/** Each level is in a piece of its own, so that no single piece shows what they come to together. */
function multiplying(): string {
  const padding = `  pad: ${"p".repeat(300)}\n`;
  const lines = [`l0:\n  v: &l0 [${"x, ".repeat(20)}]\n${padding}`];
  for (let level = 1; level <= 8; level += 1)
    lines.push(`l${level}:\n  v: &l${level} [${`*l${level - 1}, `.repeat(20)}]\n${padding}`);
  return lines.join("");
}
