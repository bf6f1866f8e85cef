/**
 * One list of several: reciprocal rank fusion (Cormack, Clarke, Büttcher 2009). Scores of lists that measure
 * different things cannot be compared, places in them can.
 */

export interface RankedList {
  readonly ids: readonly number[];
  readonly weight: number;
}

export interface Fused {
  readonly id: number;
  /** 1 where it is the first of every list. */
  readonly score: number;
}

/** How much the first places count more than those after them; the value of the paper. */
const damping = 60;

/** The best of all lists, at most so many; equal ones in order of their ids. */
export function fuse(lists: readonly RankedList[], limit: number): readonly Fused[] {
  const scores = new Map<number, number>();
  let best = 0;
  for (const { ids, weight } of lists) {
    best += weight / (damping + 1);
    ids.forEach((id, at) => scores.set(id, (scores.get(id) ?? 0) + weight / (damping + 1 + at)));
  }
  return [...scores]
    .sort(([id, score], [other, otherScore]) => otherScore - score || id - other)
    .slice(0, limit)
    .map(([id, score]) => ({ id, score: best === 0 ? 0 : score / best }));
}
