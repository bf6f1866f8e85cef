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

  test("takes from a merge what is not there, of several the first", async () => {
    const text =
      "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  z: 3\n  <<: [*a, *b]\n  x: 3\n" +
      `${filler}d:\n  <<: *b\n  y: 4\n`;
    const value = { c: { z: 3, x: 3, y: 1 }, d: { y: 4, z: 2 } };
    expect(await readYaml(text, text.length)).toMatchObject(value);
    expect(await readYaml(text, whole)).toMatchObject(value);
  });

  test("means by an alias the last anchor of its name before it", async () => {
    const text = "a: &a {x: &a 1, y: *a}\nb: *a\nc: &a 2\nd: [*a, &a 3, *a]\n";
    expect(await readYaml(text)).toEqual({ a: { x: 1, y: 1 }, b: 1, c: 2, d: [2, 3, 3] });
  });

  test("brings only so much together by merges", async () => {
    const text = merging();
    await expect(readYaml(text, text.length)).rejects.toThrow("come from merges");
  });

  test.each([
    ["a key given twice, far apart", `last: 1\n${filler}last: 2\n`, /'last' is not unique/],
    ["a key of two large blocks", `${filler}${filler}`, /'filler' is not unique/],
    ["an alias of nothing", `${filler}use: *nobody\n`, /nobody/],
    ["aliases that multiply from piece to piece", multiplying(), /aliases/],
    ["faults without an end", `a: 1\n${"]".repeat(whole - 10)}`, /line 2, column 1/],
    ["more levels than are read in pieces", nesting(200), /in pieces/],
    ["a large text", `a: |\n  ${"x".repeat(2 * whole)}\n`, /no mapping/],
    ["a large list", `${"- x\n".repeat(whole)}`, /in pieces/],
    ["something broken", `${filler}b: [1\n`, /in pieces/],
    ["a second document", `${filler}---\na: 1\n`, /in pieces/],
  ])("is refused for %s", async (_what, text, reason) => {
    await expect(readYaml(text, whole)).rejects.toThrow(reason);
  });
});

function lines(count: number, line: (at: number) => string): string {
  return Array.from({ length: count }, (_none, at) => line(at)).join("");
}

function merging(): string {
  const members = lines(1_000, (at) => `  k${at}: 1\n`);
  return `a: &a\n${members}b:\n  <<: [${Array(400).fill("*a").join(", ")}]\n`;
}

/** Keys below keys, and at their end more than is read in one go. */
function nesting(levels: number): string {
  const keys = lines(levels, (at) => `${" ".repeat(at)}k:\n`);
  return `${keys}${lines(whole, (at) => `${" ".repeat(levels)}k${at}: x\n`)}`;
}

/** Each level is in a piece of its own, so that no single piece shows what they come to together. */
function multiplying(): string {
  const padding = `  pad: ${"p".repeat(300)}\n`;
  const lines = [`l0:\n  v: &l0 [${"x, ".repeat(20)}]\n${padding}`];
  for (let level = 1; level <= 8; level += 1)
    lines.push(`l${level}:\n  v: &l${level} [${`*l${level - 1}, `.repeat(20)}]\n${padding}`);
  return lines.join("");
}
