/** Longer ones are not compared: that takes time with the product of both lengths, and callers choose theirs. */
const longest = 128;

/** The known name that is most like it, where one is. */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  if (name.length > longest) return undefined;
  const most = Math.max(2, Math.ceil(name.length / 3));
  const ranked = known
    .filter((one) => Math.abs(one.length - name.length) <= most)
    .map((one) => ({ one, distance: distanceOf(name.toLowerCase(), one.toLowerCase()) }))
    .toSorted((a, b) => a.distance - b.distance);
  const [best] = ranked;
  return best !== undefined && best.distance <= most ? best.one : undefined;
}

/** Of Levenshtein: how many characters are to be put in, taken out or changed. */
function distanceOf(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, at) => at);
  for (let i = 1; i <= from.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= to.length; j += 1) {
      const changed = (row[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min(changed, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}
