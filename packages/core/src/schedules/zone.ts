/**
 * Clocks on the wall of a time zone. A wall time is written as the Unix time, in milliseconds, that it would be in UTC.
 */

interface Clock {
  readonly format: Intl.DateTimeFormat;
  /** By quarter of an hour: since 1972 clocks were changed on one, and asking costs a hundred times what this does. */
  readonly offsets: Map<number, number>;
}

const clocks = new Map<string, Clock>();
/** Zones have names in any case; nobody's spelling may fill the memory. */
const mostClocks = 1_000;
const mostOffsets = 1_000;
const quarterMs = 900_000;

/** Milliseconds that clocks of the zone are ahead of UTC then. */
export function offsetAt(at: number, timeZone: string): number {
  if (timeZone === "UTC") return 0;
  const { format, offsets } = clockOf(timeZone);
  const quarter = Math.floor(at / quarterMs);
  const known = offsets.get(quarter);
  if (known !== undefined) return known;
  const shown = Object.fromEntries(
    format.formatToParts(quarter * quarterMs).map(({ type, value }) => [type, Number(value)]),
  );
  const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = shown;
  const offset = Date.UTC(year, month - 1, day, hour, minute, second) - quarter * quarterMs;
  if (offsets.size >= mostOffsets) offsets.clear();
  offsets.set(quarter, offset);
  return offset;
}

function clockOf(timeZone: string): Clock {
  const known = clocks.get(timeZone);
  if (known !== undefined) return known;
  if (clocks.size >= mostClocks) clocks.clear();
  const format = new Intl.DateTimeFormat("en-US", {
    timeZone,
    hourCycle: "h23",
    year: "numeric",
    month: "numeric",
    day: "numeric",
    hour: "numeric",
    minute: "numeric",
    second: "numeric",
  });
  const clock = { format, offsets: new Map<number, number>() };
  clocks.set(timeZone, clock);
  return clock;
}

export function isZone(name: string): boolean {
  try {
    clockOf(name);
    return true;
  } catch {
    return false;
  }
}

export function wallAt(at: number, timeZone: string): number {
  return at + offsetAt(at, timeZone);
}

/** Clocks change by less than a day, and not twice within two. */
const around = 86_400_000;

/** When clocks show it, in order: never where they were put forward over it, twice where they were put back. */
export function instantsOf(wall: number, timeZone: string): readonly number[] {
  const before = offsetAt(wall - around, timeZone);
  const after = offsetAt(wall + around, timeZone);
  const offsets = before === after ? [before] : [before, after];
  return offsets
    .map((offset) => wall - offset)
    .filter((at) => wallAt(at, timeZone) === wall)
    .toSorted((a, b) => a - b);
}
