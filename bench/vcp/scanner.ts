/** The scanner of tool requests: a reply at once, a reply in deltas, and how the time grows with the text. */
import { ToolRequestScanner } from "@toolyard/core/vcp/dialect/scanner";
import { round, type Finding } from "../support/report.ts";

const deltaLength = 16;
const mostMicrosPerDelta = 1;
const leastMegabytesPerSecond = 400;
const mostGrowth = 1.2;
const shortest = 10_000;
const longest = 10_000_000;
const blocksPerMegabyte = 200;

const prose =
  "The report of the third quarter is ready, and its figures are in `summary.md`. 报告已经写好，数字在附录里。\n\n" +
  "- Sales rose by 4.2 % (a < b), mostly in the north; see <https://example.com/report> for more of it.\n" +
  "- 支出与去年持平，预算还有余地。 Nothing else has changed since the last time that you asked about this.\n\n";
const block =
  '<<<[TOOL_REQUEST]>>>\nmaid:「始」小克「末」,\ntool_name:「始」FileOperator「末」,\ncommand:「始」WriteFile「末」,\ncontent:「始」{"title": "Q3", "rows": [1, 2, 3]}「末」\n<<<[END_TOOL_REQUEST]>>>\n';

/** A reply as models write them, with its share of requests. */
function reply(length: number): string {
  const blocks = Math.max(1, Math.round((length / 1_000_000) * blocksPerMegabyte));
  const share = Math.floor(length / blocks);
  const filler = prose.repeat(Math.ceil(share / prose.length)).slice(0, Math.max(0, share - block.length));
  return `${filler}${block}`.repeat(blocks);
}

const hostile: Readonly<Record<string, (length: number) => string>> = {
  "start markers that never end": (length) => "<<<[TOOL_REQUEST]>>>".repeat(length / 20),
  "angle brackets": (length) => "<".repeat(length),
  "open reasoning tags": (length) => "<think ".repeat(length / 7),
  "blanks behind a bracket": (length) => `<${" ".repeat(length)}`,
  "values that never end": (length) => `<<<[TOOL_REQUEST]>>>${"a:「始」".repeat(length / 5)}<<<[END_TOOL_REQUEST]>>>`,
  "braces in a block": (length) => `<<<[TOOL_REQUEST]>>>${"{".repeat(length)}`,
  "backticks, each run longer": (length) => {
    const runs: string[] = [];
    for (let size = 1, at = 0; at < length; at += size, size += 1) runs.push(`${"`".repeat(size)} `);
    return runs.join("");
  },
  "markers on one quoted line": (length) => `> ${"<<<[TOOL_REQUEST]>>> ` ".repeat(length / 23)}`,
};

export function measureScanner(): readonly Finding[] {
  const megabyte = reply(1_000_000);
  const bytes = Buffer.byteLength(megabyte);
  const wholeMs = fastestMs(200, () => scan([megabyte]));
  const deltas = cut(megabyte);
  const inDeltasMs = fastestMs(10, () => scan(deltas));
  const withheldMs = fastestMs(10, () => scan(deltas, true));
  return [
    {
      what: `a reply of a megabyte, ${blocksPerMegabyte} requests, at once`,
      figures: `${round(wholeMs)} ms`,
      value: bytes / 1_000 / wholeMs,
      floor: { at: "least", value: leastMegabytesPerSecond, unit: "MB/s" },
    },
    ...[
      ["the same in deltas of 16 characters", inDeltasMs] as const,
      ["the same, requests withheld", withheldMs] as const,
    ].map(([what, ms]): Finding => ({
      what,
      figures: `${deltas.length} deltas in ${round(ms)} ms`,
      value: (ms * 1_000) / deltas.length,
      floor: { at: "most", value: mostMicrosPerDelta, unit: "µs" },
    })),
    ...Object.entries({ "replies as they are": reply, ...hostile }).map(([name, make]) => growthOf(name, make)),
  ];
}

/** n where the time grows with the length to the power of n; the worse of both ways to be fed. */
function growthOf(name: string, make: (length: number) => string): Finding {
  const [few, many] = [make(shortest), make(longest)];
  const ways = [(text: string): readonly string[] => [text], cut].map((pieces) => {
    const [fewPieces, manyPieces] = [pieces(few), pieces(many)];
    const fewMs = fastestMs(30, () => scan(fewPieces));
    const manyMs = fastestMs(5, () => scan(manyPieces));
    return { fewMs, manyMs, power: Math.log(manyMs / fewMs) / Math.log(many.length / few.length) };
  });
  return {
    what: `growth from 10 KB to 10 MB: ${name}`,
    figures: ways.map(({ fewMs, manyMs }) => `${round(fewMs)} ms → ${round(manyMs)} ms`).join(", "),
    value: Math.max(...ways.map(({ power }) => power)),
    floor: { at: "most", value: mostGrowth, unit: "" },
  };
}

function cut(text: string): readonly string[] {
  return Array.from({ length: Math.ceil(text.length / deltaLength) }, (_, at) =>
    text.slice(at * deltaLength, (at + 1) * deltaLength),
  );
}

function scan(pieces: readonly string[], withholds = false): number {
  const scanner = new ToolRequestScanner({ withholds });
  for (const piece of pieces) scanner.feed(piece);
  return scanner.end().requests.length;
}

/** The machine is shared: what else runs on it only ever takes time. */
function fastestMs(times: number, work: () => number): number {
  let fastest = Number.POSITIVE_INFINITY;
  for (let count = 0; count < times; count += 1) {
    const since = performance.now();
    work();
    fastest = Math.min(fastest, performance.now() - since);
  }
  return fastest;
}
