/**
 * When a schedule fires. Expressions are read on the clock of its zone: a time that does not exist since clocks were
 * put forward is left out, one that comes twice fires when it first comes; days of a rate have 24 hours.
 */
import * as z from "zod";
import { parseExpression, type CronExpression, type DayRule } from "./expression.ts";
import { instantsOf, isZone, wallAt } from "./zone.ts";

const ofAnother = "is none that this release reads";

export const timingSchema = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("at"), at: z.number() }),
  /** `first`: when it fires first; times are counted from there. */
  z.strictObject({ kind: z.literal("rate"), every_ms: z.number(), first: z.number() }),
  /** What fires at the times of any of these. */
  z.strictObject({ kind: z.literal("cron"), expressions: z.array(z.string().refine(isRead, ofAnother)).min(1) }),
]);
export type Timing = z.output<typeof timingSchema>;

/** Tables of zones grow: one that a newer process took is not known to all. */
export const zoneSchema = z.string().refine(isZone, ofAnother);

/** Times in milliseconds; both ends belong to it. */
export interface Timeline {
  readonly timing: Timing;
  readonly timeZone: string;
  readonly startAt: number | null;
  readonly endAt: number | null;
}

/** The first firing later than `after`; undefined where there is none any more. */
export function nextFiring({ timing, timeZone, startAt, endAt }: Timeline, after: number): number | undefined {
  const from = startAt === null ? after : Math.max(after, startAt - 1);
  const next = nextOf(timing, from, timeZone);
  return next === undefined || (endAt !== null && next > endAt) ? undefined : next;
}

/** Up to `count` firings later than `after`. */
export function nextFirings(timeline: Timeline, after: number, count: number): readonly number[] {
  const found: number[] = [];
  let at = nextFiring(timeline, after);
  while (at !== undefined && found.length < count) {
    found.push(at);
    at = nextFiring(timeline, at);
  }
  return found;
}

function nextOf(timing: Timing, after: number, timeZone: string): number | undefined {
  switch (timing.kind) {
    case "at":
      return timing.at > after ? timing.at : undefined;
    case "rate": {
      const { first, every_ms: every } = timing;
      return after < first ? first : first + (Math.floor((after - first) / every) + 1) * every;
    }
    case "cron": {
      const times = timing.expressions.flatMap((text) => nextOfCron(read(text), after, timeZone) ?? []);
      return times.length === 0 ? undefined : Math.min(...times);
    }
    default:
      return timing satisfies never;
  }
}

const parsed = new Map<string, CronExpression>();
const mostParsed = 1_000;

function read(text: string): CronExpression {
  const known = parsed.get(text);
  if (known !== undefined) return known;
  const expression = parseExpression(text, "cron");
  if (expression.kind !== "cron") throw new TypeError(`'${text}' is stored as a cron expression.`);
  if (parsed.size >= mostParsed) parsed.clear();
  parsed.set(text, expression);
  return expression;
}

function isRead(text: string): boolean {
  try {
    return read(text).kind === "cron";
  } catch {
    return false;
  }
}

const minuteMs = 60_000;
const dayMs = 86_400_000;

/** From day to day on the wall: clocks first show its times in their order, so the first that is later is the next. */
function nextOfCron(cron: CronExpression, after: number, timeZone: string): number | undefined {
  const wall = wallAt(after, timeZone);
  let day = Math.floor(wall / dayMs) * dayMs;
  let fromMinute = Math.floor((wall - day) / minuteMs);
  for (;;) {
    const date = new Date(day);
    const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()];
    if (year > cron.lastYear) return undefined;
    if (!cron.years.has(year)) day = Date.UTC(year + 1, 0, 1);
    else if (!cron.months.has(month + 1)) day = Date.UTC(year, month + 1, 1);
    else {
      const found = isDay(cron.days, date) ? firstOfDay(cron, { day, fromMinute, after, timeZone }) : undefined;
      if (found !== undefined) return found;
      day += dayMs;
    }
    fromMinute = 0;
  }
}

interface Day {
  readonly day: number;
  readonly fromMinute: number;
  readonly after: number;
  readonly timeZone: string;
}

function firstOfDay({ hours, minutes }: CronExpression, { day, fromMinute, after, timeZone }: Day): number | undefined {
  for (const hour of hours) {
    for (const minute of minutes) {
      const ofDay = hour * 60 + minute;
      if (ofDay < fromMinute) continue;
      const [at] = instantsOf(day + ofDay * minuteMs, timeZone);
      if (at !== undefined && at > after) return at;
    }
  }
  return undefined;
}

function isDay(rule: DayRule, date: Date): boolean {
  const day = date.getUTCDate();
  const weekday = date.getUTCDay();
  switch (rule.kind) {
    case "every_day":
      return true;
    case "days_of_month":
      return rule.days.has(day);
    case "last_day":
      return day === daysOfMonth(date);
    case "nearest_weekday":
      return day === nearestWeekday(rule.day, date);
    case "days_of_week":
      return rule.days.has(weekday);
    case "nth_day_of_week":
      return weekday === rule.day && Math.ceil(day / 7) === rule.nth;
    case "last_day_of_week":
      return weekday === rule.day && day + 7 > daysOfMonth(date);
    default:
      return rule satisfies never;
  }
}

function daysOfMonth(date: Date): number {
  return new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 0)).getUTCDate();
}

/** The day from Monday to Friday next to it, in the same month; undefined where the month has no such day. */
function nearestWeekday(day: number, date: Date): number | undefined {
  const most = daysOfMonth(date);
  if (day > most) return undefined;
  const weekday = new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), day)).getUTCDay();
  if (weekday === 6) return day === 1 ? 3 : day - 1;
  if (weekday === 0) return day === most ? day - 2 : day + 1;
  return day;
}
