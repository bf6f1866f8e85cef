/**
 * When a call is looked at again that found no free slot, or no room beside what runs. Those at the head of the line
 * and those that have just come look often, so that no slot stays free and nobody waits much longer than has to be;
 * the many between them look seldom, since each look is a message and a claim.
 */

/** What a claim knows about a call that has to wait. */
export interface Waiting {
  readonly waitedMs: number;
  /** Queued calls of its tenant that have waited longer; counted as far as it matters, see `mostAhead`. */
  readonly ahead: number;
}

const shortestMs = 1_000;
/** Whatever the line and the wait. The sweep leaves a call alone for so long. */
export const longestLookMs = 30_000;
/** A wait grows by this part of itself at most before it is over. */
const partOfWait = 1 / 2;
/** For each round of the tenant's slots that is ahead. */
const roundMs = 1_000;
/** So that those who have come together do not come back together; both ends stay within the limits. */
const jitter = 0.2;

/** As many slots as a tenant may have ('concurrent_tool_calls'); chats are ended without one. */
const mostSlots = 1_000;

/** As many ahead as make the longest delay. */
export function mostAhead(concurrency: number): number {
  return Math.ceil(longestLookMs / roundMs) * Math.min(concurrency, mostSlots);
}

export function lookAgainMs(
  { waitedMs, ahead }: Waiting,
  concurrency: number,
  random: () => number = Math.random,
): number {
  const delay = Math.min(waitedMs * partOfWait, (ahead / concurrency) * roundMs);
  const bounded = Math.min(Math.max(delay, shortestMs / (1 - jitter)), longestLookMs / (1 + jitter));
  return Math.round(bounded * (1 - jitter + 2 * jitter * random()));
}
