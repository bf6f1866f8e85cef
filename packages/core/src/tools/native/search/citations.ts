/** Citations of an answer, held against what was read: one of a source that is none is taken out, and said. */

export interface CheckedAnswer {
  readonly text: string;
  /** Numbers of sources that it cites, in the order in which it does. */
  readonly cited: readonly number[];
  /** Numbers that stand for no source. */
  readonly dropped: readonly number[];
}

/** Blanks before it are looked at from the first of them only. */
const citation = /((?<! ) *)[[【]\s*(\d{1,4}(?:\s*[,，、;]\s*\d{1,4})*)\s*[\]】](?!\()/g;

/** @param sources how many were read; their numbers begin with 1 */
export function checkCitations(answer: string, sources: number): CheckedAnswer {
  const cited = new Set<number>();
  const dropped = new Set<number>();
  const text = answer.replaceAll(citation, (_whole, before: string, list: string) => {
    const numbers = list
      .split(/\D+/)
      .filter((part) => part !== "")
      .map(Number);
    const real = numbers.filter((number) => number >= 1 && number <= sources);
    for (const number of numbers) (real.includes(number) ? cited : dropped).add(number);
    return real.length === 0 ? "" : before + real.map((number) => `[${number}]`).join("");
  });
  return { text: text.trim(), cited: [...cited], dropped: [...dropped] };
}
