import { readFileSync } from "node:fs";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { ToolRequestScanner, type ScannerOptions } from "./scanner.ts";
import type { ToolRequest } from "./tool-request.ts";

interface Golden {
  readonly id: string;
  readonly input: string;
  readonly strict: readonly ToolRequest[];
  readonly fuzzy?: readonly ToolRequest[];
}

const fixture = new URL("../../../../../test/fixtures/vcp/parser-cases.json", import.meta.url);
// Written by the upstream's own parser; the type is what its cases have.
const { cases } = JSON.parse(readFileSync(fixture, "utf8")) as { readonly cases: readonly Golden[] };

interface Scanned {
  readonly requests: readonly ToolRequest[];
  readonly visible: string;
}

function scan(pieces: readonly string[], options?: ScannerOptions): Scanned {
  const scanner = new ToolRequestScanner(options);
  const shown = pieces.map((piece) => scanner.feed(piece)).join("");
  const { requests, visible } = scanner.end();
  return { requests, visible: shown + visible };
}

function cut(text: string, size: number): string[] {
  return Array.from({ length: Math.ceil(text.length / size) }, (_, at) => text.slice(at * size, (at + 1) * size));
}

const block = (name: string, fields = ""): string =>
  `<<<[TOOL_REQUEST]>>>\ntool_name:「始」${name}「末」${fields}\n<<<[END_TOOL_REQUEST]>>>`;
const namesOf = (text: string): string[] => scan([text]).requests.map(({ name }) => name);

/** Where we do otherwise; each has a row in docs/vcp-compatibility.md. */
const exceptions: Readonly<Record<string, "is quoted" | "is cut off">> = {
  "code-fence-is-executed": "is quoted",
  "inline-code-is-executed": "is quoted",
  "blockquote-prefix": "is quoted",
  "value-no-end-marker": "is cut off",
  "end-marker-in-value-truncates": "is cut off",
};

const named = (list: readonly Golden[]): [string, Golden][] => list.map((golden) => [golden.id, golden]);
const ways = (input: string): string[][] => [[input], cut(input, 1), cut(input, 16)];

describe(`golden cases of the parser ${verifies("VCP-10")}`, () => {
  it.each(named(cases.filter(({ id }) => exceptions[id] !== "is quoted")))(
    "%s: the same is found, however it is cut",
    (id, { input, strict, fuzzy = strict }) => {
      for (const [isFuzzy, expected] of [
        [false, strict],
        [true, fuzzy],
      ] as const) {
        for (const pieces of ways(input)) {
          const found = scan(pieces, { fuzzy: isFuzzy }).requests;
          expect(found.map(({ flaw: _flaw, block: _block, ...request }) => request)).toEqual(expected);
          expect(found.some(({ flaw }) => flaw !== undefined)).toBe(exceptions[id] === "is cut off");
        }
      }
    },
  );

  it.each(named(cases.filter(({ id }) => exceptions[id] === "is quoted")))("%s: nothing is run", (_id, { input }) => {
    expect(ways(input).map((pieces) => scan(pieces).requests)).toEqual([[], [], []]);
  });

  it("has every case that is an exception", () => {
    expect(cases.filter(({ id }) => exceptions[id] !== undefined)).toHaveLength(Object.keys(exceptions).length);
  });
});

describe("what is only quoted", () => {
  it("runs after a fence that is closed, and not within one, also with a longer fence or tildes", () => {
    expect(namesOf(`\`\`\`text\n${block("A")}\n\`\`\`\n${block("B")}`)).toEqual(["B"]);
    expect(namesOf(`~~~~\n${block("A")}\n~~~\n${block("B")}\n~~~~ \n${block("C")}`)).toEqual(["C"]);
    expect(namesOf(`- list\n  \`\`\`\n  ${block("A")}`)).toEqual([]);
  });

  it("takes a backtick that is never closed for a backtick", () => {
    expect(namesOf(`It\`s this:\n${block("A")}`)).toEqual(["A"]);
    expect(namesOf(`It\`s this:\n${block("A")}\n\nand \`that\``)).toEqual(["A"]);
    expect(namesOf(`\`${block("A")} and ${block("B")}\` then ${block("C")}`)).toEqual(["C"]);
  });

  it("takes a start marker in a code span for text about it", () => {
    expect(namesOf(`\`<<<[TOOL_REQUEST]>>>\` begins it.\n${block("A")}`)).toEqual(["A"]);
  });

  it("lets values hold code and fences", () => {
    const value = "```js\n`x`\n```\n";
    const [request] = scan([block("A", `,\ncode:「始」${value}「末」`)]).requests;
    expect(request?.args).toEqual({ code: value.trim() });
  });

  it("passes over quoted lines, in lists too", () => {
    expect(namesOf(`> > ${block("A")}\n1. > ${block("B")}\n a > b ${block("C")}`)).toEqual(["C"]);
  });

  it("passes over reasoning whose tag is cut in the middle or never closed", () => {
    const text = `<thinking lang="zh">a<think>b</think>${block("A")}</thinking>ok ${block("B")}<think>${block("C")}`;
    for (const size of [1, 3, 7]) {
      expect(scan(cut(text, size)).requests.map(({ name }) => name)).toEqual(["B"]);
    }
  });
});

describe(`calls in MCP's form ${verifies("VCP-21")}`, () => {
  it("are requests where they stand in a block, and only there", () => {
    const call = JSON.stringify({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/call",
      params: { name: "T", arguments: { n: 1 } },
    });
    expect(scan([`<<<[TOOL_REQUEST]>>>\n${call}\n<<<[END_TOOL_REQUEST]>>>`]).requests).toMatchObject([
      { name: "T", args: { n: 1 } },
    ]);
    expect(scan([call]).requests).toEqual([]);
  });
});

describe("withheld blocks", () => {
  it("leaves out what is run, and nothing else", () => {
    const text = `a ${block("A")} b <think>t</think> \`${block("Q")}\` c`;
    for (const size of [1, 5, text.length]) {
      expect(scan(cut(text, size), { withholds: true }).visible).toBe(`a  b <think>t</think> \`${block("Q")}\` c`);
    }
  });

  it("gives text on at once and a block that never ends at the end", () => {
    const scanner = new ToolRequestScanner({ withholds: true });
    expect(scanner.feed("Hello <<")).toBe("Hello ");
    expect(scanner.feed(" you <<<[TOOL_REQUEST]>>> never")).toBe("<< you ");
    expect(scanner.end().visible).toBe("<<<[TOOL_REQUEST]>>> never");
  });

  it("shows a block that names no tool", () => {
    const text = "x <<<[TOOL_REQUEST]>>>nothing<<<[END_TOOL_REQUEST]>>> y";
    expect(scan([text], { withholds: true }).visible).toBe(text);
  });
});

const part = fc.constantFrom(
  "<<<[TOOL_REQUEST]>>>", "<<<[END_TOOL_REQUEST]>>>", "<<[tool_request]>>", "<<<<", ">>", "<think>", "</think>", "< / thinking a>",
  "<think", "tool_name:「始」T「末」", "a:「始」", "「末」", "「始ESCAPE」", "{末escape}", "「始", "末", "`", "``", "```", "~~~", "\n", "\n\n", "\n> ",
  " ", "x", "12", "[", "{", "- ", ":", ",",
); // prettier-ignore

describe("whatever the text is", () => {
  it("finds the same in any cut of it, and never throws", () => {
    fc.assert(
      fc.property(
        fc.array(fc.oneof(part, fc.string()), { maxLength: 40 }),
        fc.infiniteStream(fc.nat({ max: 9 })),
        fc.record({ fuzzy: fc.boolean(), withholds: fc.boolean() }),
        (parts, sizes, options) => {
          const text = parts.join("");
          const pieces: string[] = [];
          for (let at = 0; at < text.length;) {
            const size = sizes.next().value + 1;
            pieces.push(text.slice(at, at + size));
            at += size;
          }
          expect(scan(pieces, options)).toEqual(scan([text], options));
          const { requests, visible } = scan([text], { ...options, withholds: true });
          const isAllShown = visible === text;
          expect(isAllShown || requests.length > 0).toBe(true);
        },
      ),
    );
  });

  const size = 100_000;
  const hostile: Readonly<Record<string, (size: number) => string>> = {
    "start markers": (size) => "<<<[TOOL_REQUEST]>>>".repeat(size / 20),
    "angle brackets": (size) => "<".repeat(size),
    "tags that are none": (size) => "<think ".repeat(size / 7),
    "spaces after a bracket": (size) => `<${" ".repeat(size)}`,
    "open values": (size) => `<<<[TOOL_REQUEST]>>>${"a:「始」".repeat(size / 5)}<<<[END_TOOL_REQUEST]>>>`,
    "open ESCAPEs": (size) => `<<<[TOOL_REQUEST]>>>${"「始ESCAPE」".repeat(size / 9)}<<<[END_TOOL_REQUEST]>>>`,
    braces: (size) => `<<<[TOOL_REQUEST]>>>${"{".repeat(size)}`,
    backticks: (size) => "`".repeat(size),
    "runs of backticks, each longer": (size) => {
      let text = "";
      for (let length = 1; text.length < size; length += 1) text += `${"`".repeat(length)} `;
      return text;
    },
    "doubtful blocks": (size) =>
      `\`${`<<<[TOOL_REQUEST]>>>tool_name:「始」T「末」<<<[END_TOOL_REQUEST]>>>`.repeat(size / 60)}`,
    "one long quoted line": (size) => `> ${"<<<[TOOL_REQUEST]>>> ` ".repeat(size / 23)}`,
    keys: (size) => `<<<[TOOL_REQUEST]>>>${"a ".repeat(size / 2)}<<<[END_TOOL_REQUEST]>>>`,
  };
  for (const [name, make] of Object.entries(hostile)) {
    it(`gets through ${name} by the hundred thousand`, () => {
      for (const fuzzy of [false, true]) {
        const text = make(size);
        const whole = scan([text], { fuzzy, withholds: true });
        const inPieces = scan(cut(text, 16), { fuzzy, withholds: true });
        expect(inPieces.requests.length).toBe(whole.requests.length);
        expect(inPieces.visible.length).toBe(whole.visible.length);
      }
    });
  }
});
