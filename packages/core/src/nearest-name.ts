/** Longer ones are not compared: that takes time with the product of both lengths, and callers choose theirs. */
const longest = 128;

/** The known name that was meant, where one is like it: one slip in three characters. */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  if (name.length > longest) return undefined;
  const most = Math.max(1, Math.round(name.length / 3));
  const ranked = known
    .filter((one) => Math.abs(one.length - name.length) <= most)
    .map((one) => ({ one, distance: slipsBetween(name.toLowerCase(), one.toLowerCase()) }))
    .toSorted((a, b) => a.distance - b.distance);
  const [best] = ranked;
  return best !== undefined && best.distance <= most ? best.one : undefined;
}

/** How many characters are to be put in, taken out, changed, or exchanged with their neighbour (optimal string alignment). */
function slipsBetween(from: string, to: string): number {
  let before: readonly number[] = [];
  let row: readonly number[] = Array.from({ length: to.length + 1 }, (_, at) => at);
  for (let i = 1; i <= from.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= to.length; j += 1) {
      const kept = (row[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1);
      const isExchanged = i > 1 && j > 1 && from[i - 1] === to[j - 2] && from[i - 2] === to[j - 1];
      const exchanged = isExchanged ? (before[j - 2] ?? 0) + 1 : kept;
      next.push(Math.min(kept, exchanged, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    before = row;
    row = next;
  }
  return row[to.length] ?? 0;
}
