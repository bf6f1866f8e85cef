/**
 * EventBridge's schedule expressions, by its exact grammar: `at(…)`, `rate(…)`, and `cron(…)` of six fields in which
 * 1 is Sunday. What its description leaves open is refused rather than guessed, and every refusal says what to write.
 */
import { GatewayError } from "../errors/gateway-error.ts";

/** Which days of a month; days of the week count from 0, Sunday. */
export type DayRule =
  | { readonly kind: "every_day" }
  | { readonly kind: "days_of_month"; readonly days: ReadonlySet<number> }
  | { readonly kind: "last_day" }
  | { readonly kind: "nearest_weekday"; readonly day: number }
  | { readonly kind: "days_of_week"; readonly days: ReadonlySet<number> }
  | { readonly kind: "nth_day_of_week"; readonly day: number; readonly nth: number }
  | { readonly kind: "last_day_of_week"; readonly day: number };

export interface CronExpression {
  readonly kind: "cron";
  /** In order. */
  readonly minutes: readonly number[];
  readonly hours: readonly number[];
  readonly months: ReadonlySet<number>;
  readonly years: ReadonlySet<number>;
  readonly lastYear: number;
  readonly days: DayRule;
}

export type Expression =
  | CronExpression
  | { readonly kind: "rate"; readonly everyMs: number }
  /** On the clock of the schedule's time zone. */
  | { readonly kind: "at"; readonly wall: number };

/** Makes the error out of what is wrong. */
export type Refuse = (why: string) => GatewayError;

export function refusing(param: string, text: string): Refuse {
  return (why) => new GatewayError("invalid_request", `'${param}' is '${text.slice(0, 120)}': ${why}`, { param });
}

/** As its API takes them. */
const longestExpression = 256;
const lastYear = 2_199;
const firstYear = 1_970;
const longestRateMs = 36_500 * 86_400_000;

/** @throws GatewayError `invalid_request` naming `param` */
export function parseExpression(text: string, param: string): Expression {
  const refuse = refusing(param, text);
  const [, word = "", inner = ""] = /^([A-Za-z]+)\(([^()]*)\)$/.exec(text.slice(0, longestExpression + 1)) ?? [];
  switch (word) {
    case "at":
      return parseAt(inner, refuse);
    case "rate":
      return parseRate(inner, refuse);
    case "cron":
      return parseCron(inner, refuse);
    default:
      throw refuse(
        /^(?:at|rate|cron)$/i.test(word)
          ? `it is not specified with capitals; write '${word.toLowerCase()}(…)'.`
          : "write 'cron(minutes hours day-of-month month day-of-week year)', 'rate(5 minutes)' or 'at(2026-12-01T09:30:00)'.",
      );
  }
}

function parseAt(inner: string, refuse: Refuse): Expression {
  const wall = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/.test(inner) ? Date.parse(`${inner}Z`) : Number.NaN;
  // Date.parse takes February 30 for March 2, and 24:00:00 for the next day.
  if (Number.isNaN(wall) || new Date(wall).toISOString().slice(0, 19) !== inner) {
    throw refuse(
      "between the brackets stands a time that exists as 'yyyy-mm-ddThh:mm:ss', without fraction or zone; 'time_zone' says which clock is meant.",
    );
  }
  return { kind: "at", wall };
}

const unitMs: Readonly<Record<string, number>> = { minute: 60_000, hour: 3_600_000, day: 86_400_000 };

function parseRate(inner: string, refuse: Refuse): Expression {
  const [, digits, unit = "", plural] = /^([1-9]\d{0,8}) (minute|hour|day)(s?)$/.exec(inner) ?? [];
  const count = Number(digits);
  const everyMs = count * (unitMs[unit] ?? 0);
  if (digits === undefined) {
    throw refuse(
      "a rate is a whole number from 1, one space and minute(s), hour(s) or day(s), as in 'rate(5 minutes)'.",
    );
  }
  if ((count === 1) !== (plural === "")) {
    const right = `rate(${count} ${unit}${count === 1 ? "" : "s"})`;
    throw refuse(`singular and plural do not fit, which is not specified; write '${right}'.`);
  }
  if (everyMs > longestRateMs) throw refuse("a rate is at most 36500 days.");
  return { kind: "rate", everyMs };
}

interface Field {
  readonly name: string;
  readonly least: number;
  readonly most: number;
  /** From `least` on. */
  readonly names?: readonly string[];
}

const monthNames = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const dayNames = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const fields = {
  minutes: { name: "minutes", least: 0, most: 59 },
  hours: { name: "hours", least: 0, most: 23 },
  dayOfMonth: { name: "day-of-month", least: 1, most: 31 },
  month: { name: "month", least: 1, most: 12, names: monthNames },
  dayOfWeek: { name: "day-of-week", least: 1, most: 7, names: dayNames },
  year: { name: "year", least: firstYear, most: lastYear },
} as const satisfies Record<string, Field>;

function parseCron(inner: string, refuse: Refuse): CronExpression {
  const parts = inner.split(" ");
  if (parts.length !== 6 || parts.includes("")) {
    throw refuse(
      `it has ${parts.filter((part) => part !== "").length} fields; six are needed, one space between them: minutes hours day-of-month month day-of-week year.`,
    );
  }
  const [minutes = "", hours = "", dayOfMonth = "", month = "", dayOfWeek = "", year = ""] = parts;
  const years = parseField(year, fields.year, refuse);
  return {
    kind: "cron",
    minutes: parseField(minutes, fields.minutes, refuse),
    hours: parseField(hours, fields.hours, refuse),
    months: new Set(parseField(month, fields.month, refuse)),
    years: new Set(years),
    lastYear: years.at(-1) ?? lastYear,
    days: parseDays(dayOfMonth, dayOfWeek, refuse),
  };
}

function parseDays(dayOfMonth: string, dayOfWeek: string, refuse: Refuse): DayRule {
  if ((dayOfMonth === "?") === (dayOfWeek === "?")) {
    throw refuse("of day-of-month and day-of-week exactly one must be '?': the one that does not matter.");
  }
  if (dayOfMonth === "*" || dayOfWeek === "*") return { kind: "every_day" };
  return dayOfWeek === "?" ? parseDayOfMonth(dayOfMonth, refuse) : parseDayOfWeek(dayOfWeek, refuse);
}

function parseDayOfMonth(text: string, refuse: Refuse): DayRule {
  if (text === "L") return { kind: "last_day" };
  const nearest = /^(\d{1,2})W$/.exec(text)?.[1];
  if (nearest !== undefined) return { kind: "nearest_weekday", day: parseValue(nearest, fields.dayOfMonth, refuse) };
  if (/[LW]/.test(text)) {
    throw refuse(`day-of-month '${text}' is not specified; 'L' stands alone, and 'W' after one day, as in '15W'.`);
  }
  return { kind: "days_of_month", days: new Set(parseField(text, fields.dayOfMonth, refuse)) };
}

function parseDayOfWeek(text: string, refuse: Refuse): DayRule {
  const field = fields.dayOfWeek;
  const day = (value: string): number => parseValue(value, field, refuse) - 1;
  if (text === "L") return { kind: "days_of_week", days: new Set([6]) };
  const last = /^(\d)L$/.exec(text)?.[1];
  if (last !== undefined) return { kind: "last_day_of_week", day: day(last) };
  const [, of, nth] = /^(\w+)#([1-5])$/.exec(text) ?? [];
  if (of !== undefined) return { kind: "nth_day_of_week", day: day(of), nth: Number(nth) };
  if (text.includes("#")) {
    throw refuse(
      `day-of-week '${text}' may hold one '#' alone: a day and which of the month from 1 to 5, as in '6#3'.`,
    );
  }
  if (/\dL|L,|,L/.test(text))
    throw refuse(`day-of-week '${text}' is not specified; 'L' stands after one day, as in '6L'.`);
  if (text.includes("/")) {
    throw refuse("day-of-week with '/' is not specified; write the days as a list, as in 'MON,WED,FRI'.");
  }
  return { kind: "days_of_week", days: new Set(parseField(text, field, refuse).map((value) => value - 1)) };
}

/** All values, in order. */
function parseField(text: string, field: Field, refuse: Refuse): readonly number[] {
  const values = new Set(text.split(",").flatMap((part) => parsePart(part, field, refuse)));
  return [...values].toSorted((a, b) => a - b);
}

function parsePart(part: string, field: Field, refuse: Refuse): readonly number[] {
  const found = /^(?:(?<star>\*)|(?<from>\w+)(?:-(?<to>\w+))?)(?:\/(?<step>\d{1,4}))?$/.exec(part)?.groups;
  if (found === undefined) {
    throw refuse(`${field.name} '${part}' is no value, range 'a-b', step 'a/n' or '*', nor a list of such.`);
  }
  const { star, from = "", to, step: every } = found;
  if (to !== undefined && every !== undefined) {
    throw refuse(`${field.name} '${part}' is a range with a step, which is not specified; write the values as a list.`);
  }
  const step = every === undefined ? 1 : Number(every);
  if (step < 1 || step > field.most)
    throw refuse(`${field.name} '${part}' has a step that is not from 1 to ${field.most}.`);
  const least = star === undefined ? parseValue(from, field, refuse) : field.least;
  const isOpen = star !== undefined || every !== undefined;
  const most = isOpen ? field.most : to === undefined ? least : parseValue(to, field, refuse);
  if (most < least)
    throw refuse(`${field.name} '${part}' is a range that ends before it begins; write two, or a list.`);
  return Array.from({ length: Math.floor((most - least) / step) + 1 }, (_none, at) => least + at * step);
}

function parseValue(text: string, { name, least, most, names = [] }: Field, refuse: Refuse): number {
  const named = names.indexOf(text);
  if (named >= 0) return least + named;
  if (names.includes(text.toUpperCase())) {
    throw refuse(`${name} '${text}' is not specified in this case; write '${text.toUpperCase()}'.`);
  }
  const value = /^\d{1,4}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= least && value <= most) return value;
  const or = names.length > 0 ? ` or ${names[0]} to ${names.at(-1)}` : "";
  throw refuse(`${name} '${text}' is not from ${least} to ${most}${or}.`);
}
