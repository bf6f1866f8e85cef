/** What a search by words takes in a base of 100,000 chunks: of a rare name, and of words that are in every tenth chunk. */
import type { Finding } from "../support/report.ts";
import { quantile } from "../support/statistics.ts";
import { byWords, openBase, type Chunk } from "./base.ts";
import { readPassages, readQuestions } from "./corpus.ts";

const count = 100_000;
const rounds = 40;

/** Each passage comes many times, with a name of its own. */
function* chunks(): Generator<Chunk> {
  const passages = readPassages();
  for (let at = 0; at < count; at += 1) {
    const passage = passages[at % passages.length];
    if (passage !== undefined) yield { id: String(at), text: `${passage.text} №${at} 编号${at}` };
  }
}

export async function measureFullText(): Promise<readonly Finding[]> {
  const base = await openBase(chunks());
  const questions = readQuestions().filter((_, at) => at % 6 === 0);
  const rare: number[] = [];
  const whole: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    rare.push(await timed(() => base.search([byWords(`${(round * 7_919) % count}`)])));
    const { question = "" } = questions[round % questions.length] ?? {};
    whole.push(await timed(() => base.search([byWords(question)])));
  }
  await base.close();
  return [toFinding("one rare word", rare, 50), toFinding("whole questions", whole, 1_000)];
}

function toFinding(what: string, values: readonly number[], most: number): Finding {
  return {
    what: `full text, ${what}`,
    figures: `p50 ${quantile(values, 0.5).toFixed(1)}, p95 ${quantile(values, 0.95).toFixed(1)} ms; 100,000 chunks`,
    value: quantile(values, 0.5),
    floor: { at: "most", value: most, unit: "ms" },
  };
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}
