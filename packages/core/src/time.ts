/** Times on the wire of our own routes: RFC 3339 in UTC with milliseconds. OpenAI's routes keep unix seconds. */

export function toRfc3339(ms: number): string {
  return new Date(ms).toISOString();
}

const withOffset = /^(\d{4}-\d\d-\d\d)[Tt ]((?:[01]\d|2[0-3]):\d\d(?::\d\d(?:\.\d{1,9})?)?)([Zz]|[+-]\d\d:?\d\d)$/;

/**
 * Also as ISO 8601 writes offsets. Undefined for anything else: what has no offset, which would be on the clock of
 * whichever machine reads it, and days that there are not, which `Date.parse` takes for others.
 */
export function fromRfc3339(text: string): number | undefined {
  const [, date, time = "", offset = ""] = withOffset.exec(text) ?? [];
  if (date === undefined) return undefined;
  const day = Date.parse(date);
  if (Number.isNaN(day) || !toRfc3339(day).startsWith(date)) return undefined;
  const at = Date.parse(`${date}T${time}${offset.toUpperCase().replace(/(?<=\d\d)(?=\d\d$)/, ":")}`);
  return Number.isNaN(at) ? undefined : at;
}

/** Of a time without an offset, as clocks on a wall show it, or the beginning of a day: the Unix time that it would be in UTC. */
export function wallFromRfc3339(text: string): number | undefined {
  return fromRfc3339(/^\d{4}-\d\d-\d\d$/.test(text) ? `${text}T00:00Z` : `${text}Z`);
}
