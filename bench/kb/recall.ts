/**
 * Of how many questions the passage that answers them is among the first ten. Vectors are those of `EMBEDDING_BASE_URL`
 * (with `EMBEDDING_MODEL`, `EMBEDDING_API_KEY`) where that is set; else they know the pieces of words and no meaning.
 */
import type { SearchList } from "@toolyard/core/ports/knowledge-search";
import type { Finding } from "../support/report.ts";
import { byVector, byWords, openBase, type Base } from "./base.ts";
import { readPassages, readQuestions, type Question } from "./corpus.ts";
import { embedAll, embedderName, endpoint } from "./embedder.ts";

/** With the vectors that know no meaning; what a real model reaches is told. */
const floors = { "full text": 0.9, vector: 0.75, hybrid: 0.9 } as const;
type Mode = keyof typeof floors;

export async function measureRecall(): Promise<readonly Finding[]> {
  const passages = readPassages();
  const questions = readQuestions();
  const [vectors, asked] = await Promise.all([
    embedAll(passages.map(({ text }) => text)),
    embedAll(questions.map(({ question }) => question)),
  ]);
  const base = await openBase(
    passages.map(({ id, text }, at) => ({ id, text, ...(vectors[at] === undefined ? {} : { vector: vectors[at] }) })),
  );
  try {
    const findings: Finding[] = [];
    for (const mode of ["full text", "vector", "hybrid"] as const) {
      // One after the other: a tenant may only have so many searches waiting.
      const found: boolean[] = [];
      for (const [at, question] of questions.entries()) {
        found.push(await isFound(base, question, listsFor(mode, question, asked[at])));
      }
      findings.push(toFinding(mode, questions, found));
    }
    return findings;
  } finally {
    await base.close();
  }
}

function listsFor(mode: Mode, { question }: Question, vector: Float32Array | undefined): readonly SearchList[] {
  const vectors = vector === undefined || mode === "full text" ? [] : [byVector(vector)];
  return mode === "vector" ? vectors : [...vectors, byWords(question)];
}

async function isFound(base: Base, { passage }: Question, lists: readonly SearchList[]): Promise<boolean> {
  return (await base.search(lists)).some(({ heading }) => heading === passage);
}

function toFinding(mode: Mode, questions: readonly Question[], found: readonly boolean[]): Finding {
  const share = (of: (question: Question) => boolean): string => {
    const which = questions.flatMap((question, at) => (of(question) ? [found[at] === true] : []));
    return ((100 * which.filter(Boolean).length) / which.length).toFixed(0);
  };
  const parts = (["named", "described", "blurred"] as const).map(
    (kind) => `${kind} ${share((one) => one.kind === kind)} %`,
  );
  const languages = (["en", "zh"] as const).map(
    (language) => `${language} ${share((one) => one.language === language)} %`,
  );
  return {
    what: `recall@10, ${mode}`,
    figures: `${questions.length} questions, 2,400 passages; ${[...parts, ...languages].join(", ")}${mode === "full text" ? "" : `; ${embedderName}`}`,
    value: found.filter(Boolean).length / questions.length,
    floor: {
      at: "least",
      unit: "",
      ...(endpoint === undefined || mode === "full text" ? { value: floors[mode] } : {}),
    },
  };
}
