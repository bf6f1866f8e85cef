/** How deep values of others may go: what is written, mapped or compared is walked by calls within calls. */

/** Levels of a tool's result. */
export const deepestResult = 1_000;

export function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((part) => isDeeperThan(part, levels - 1));
}
