/**
 * What replacing placeholders costs: prompts with 50 known values, and texts made to be slow. Upstream's figures are
 * those that were measured on the machine of the floors: 14 to 17 MB/s, and up to the third power of the length.
 */
import { expandPlaceholders, type PlaceholderDeps } from "@toolyard/core/vcp/placeholders/expand-placeholders";
import type { PlaceholderSources } from "@toolyard/core/vcp/placeholders/sources";
import { createFakeCore } from "../../test/support/fake-core.ts";
import { contextWith, variables, type VariableLine } from "../../test/support/vcp-variables.ts";
import { round, type Finding } from "../support/report.ts";
import { quantile } from "../support/statistics.ts";

const upstreamMegabytesPerSecond = 17;
const timesFaster = 10;
const mostGrowth = 1.2;
/** Of 256 K characters that were made to be slow. */
const mostMs = 50;

const deps: PlaceholderDeps = createFakeCore();
const sources: PlaceholderSources = {
  staticValues: () => Promise.resolve(new Map([["Weather", "sunny"]])),
  asyncText: (plugin, taskId) => Promise.resolve(`[任务 ${plugin} (ID: ${taskId}) 结果待更新...]`),
  toolTexts: () => Promise.resolve([]),
};
const known: readonly VariableLine[] = Array.from({ length: 50 }, (_, at) => ["var", `VarKnown${at}`, `value ${at}`]);
const context = contextWith(variables(...known), { placeholder_chars_max: 50_000_000 });

/** Prose with a placeholder about every 150 characters. */
function prompt(characters: number): string {
  const words = "You are a helpful assistant who answers in the language of the user and keeps to what is known. ";
  let text = "";
  for (let at = 0; text.length < characters; at += 1) text += `${words}${words.slice(0, 40)}{{VarKnown${at % 50}}} `;
  return text.slice(0, characters);
}

const repeated =
  (piece: (at: number) => string) =>
  (characters: number): string => {
    let text = "";
    for (let at = 0; text.length < characters; at += 1) text += piece(at);
    return text.slice(0, characters);
  };

const hostile: Readonly<Record<string, (characters: number) => string>> = {
  "unclosed {{": repeated(() => "{{a"),
  "braces alone": repeated(() => "{"),
  "distinct {{VCP_ASYNC_RESULT::…}}": repeated((at) => `{{VCP_ASYNC_RESULT::P::${at}}}`),
  "distinct {{…表情包}}": repeated((at) => `{{x${at}表情包}}`),
  "distinct unknown names": repeated((at) => `{{unknown ${at}}}`),
  "unclosed [[VCPStaticFold::": repeated(() => "[[VCPStaticFold::"),
  "long names": repeated(() => `{{${"n".repeat(255)} `),
};

/** The middle, or what is least disturbed by others on the machine. */
async function quantileMs(text: string, times: number, share: number): Promise<number> {
  const measured: number[] = [];
  for (let count = 0; count < times; count += 1) {
    // A text of its own each time, so that nothing is remembered of the one before.
    const messages = [{ role: "system", content: `${text}${count}` }];
    const since = performance.now();
    await expandPlaceholders(deps, context, messages, { model: "m", sources });
    measured.push(performance.now() - since);
  }
  return quantile(measured, share);
}

export async function measurePlaceholders(): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  // A process that has worked for a while is meant.
  await quantileMs(prompt(7_500), 3_000, 0.5);
  for (const [characters, times] of [
    [7_500, 1_000],
    [476_000, 60],
  ] as const) {
    const ms = await quantileMs(prompt(characters), times, 0.5);
    findings.push({
      what: `a prompt of ${characters / 1_000} KB, 50 known values`,
      figures: `${round(ms)} ms`,
      value: characters / 1_000 / ms,
      floor: { at: "least", value: timesFaster * upstreamMegabytesPerSecond, unit: "MB/s" },
    });
  }
  for (const [what, make] of Object.entries(hostile)) {
    const short = await quantileMs(make(16_384), 60, 0.1);
    const long = await quantileMs(make(262_144), 20, 0.1);
    const figures = `${round(short)} ms of 16K, ${round(long)} of 256K characters`;
    findings.push({ what, figures, value: long, floor: { at: "most", value: mostMs, unit: "ms" } });
    findings.push({
      what: `${what}: growth`,
      figures: "",
      value: Math.log(long / short) / Math.log(16),
      floor: { at: "most", value: mostGrowth, unit: "th power" },
    });
  }
  return findings;
}
