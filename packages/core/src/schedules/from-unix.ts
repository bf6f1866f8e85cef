/**
 * The five fields of crontab(5) as EventBridge's expressions, so that both are evaluated by one set of rules. Days of
 * the week count from another day there; where both kinds of days are restricted a day of either is meant, which
 * takes two expressions.
 */
import { refusing, type Refuse } from "./expression.ts";

const macros: ReadonlyMap<string, string> = new Map([
  ["@yearly", "0 0 1 1 *"],
  ["@annually", "0 0 1 1 *"],
  ["@monthly", "0 0 1 * *"],
  ["@weekly", "0 0 * * 0"],
  ["@daily", "0 0 * * *"],
  ["@midnight", "0 0 * * *"],
  ["@hourly", "0 * * * *"],
]);

interface UnixField {
  readonly name: string;
  readonly least: number;
  readonly most: number;
  readonly names?: readonly string[];
}

const minute: UnixField = { name: "minute", least: 0, most: 59 };
const hour: UnixField = { name: "hour", least: 0, most: 23 };
const dayOfMonth: UnixField = { name: "day of month", least: 1, most: 31 };
const month: UnixField = {
  name: "month",
  least: 1,
  most: 12,
  names: ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
};
const dayOfWeek: UnixField = {
  name: "day of week",
  least: 0,
  most: 7,
  names: ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
};

/** One or two expressions of six fields. @throws GatewayError `invalid_request` naming `param` */
export function fromUnixCron(text: string, param: string): readonly string[] {
  const refuse = refusing(param, text);
  const given = text.trim();
  if (given.startsWith("@") && !macros.has(given)) {
    throw refuse(`of such words there are ${[...macros.keys()].join(", ")}.`);
  }
  const parts = (macros.get(given) ?? given).split(/\s+/);
  if (parts.length !== 5) {
    throw refuse(
      `it has ${parts.length} fields; five are needed: minute hour day-of-month month day-of-week. Six fields with a year are written 'cron(…)'.`,
    );
  }
  const [minutes = "", hours = "", days = "", months = "", weekdays = ""] = parts;
  const before = `${translate(minutes, minute, refuse)} ${translate(hours, hour, refuse)}`;
  const ofMonth = translate(days, dayOfMonth, refuse);
  const inMonth = translate(months, month, refuse);
  const ofWeek = translateDaysOfWeek(weekdays, refuse);
  const byMonth = `cron(${before} ${ofMonth} ${inMonth} ? *)`;
  const byWeek = `cron(${before} ? ${inMonth} ${ofWeek} *)`;
  if (ofWeek === "*") return [byMonth];
  if (ofMonth === "*") return [byWeek];
  if (days.startsWith("*") || weekdays.startsWith("*")) {
    throw refuse(
      "a day field that begins with '*' and one that is restricted mean the days that fit both, which no schedule expresses; write the days as a list, or use two schedules.",
    );
  }
  return [byMonth, byWeek];
}

function translate(text: string, field: UnixField, refuse: Refuse): string {
  if (text === "*" || text === "*/1") return "*";
  return text
    .split(",")
    .map((part) => translatePart(part, field, refuse))
    .join(",");
}

function translatePart(text: string, field: UnixField, refuse: Refuse): string {
  const { isStar, first, last, step } = readPart(text, field, refuse);
  if (isStar) return `${field.least}/${step}`;
  if (step !== undefined) return expand({ first, last, step }).join(",");
  return text.toUpperCase();
}

function translateDaysOfWeek(text: string, refuse: Refuse): string {
  if (text === "*" || text === "*/1") return "*";
  const days = text.split(",").flatMap((part) => {
    const { isStar, ...range } = readPart(part, dayOfWeek, refuse);
    return expand(isStar ? { ...range, last: 6 } : range);
  });
  // Sunday is both 0 and 7 there, and 1 here.
  return [...new Set(days.map((day) => (day % 7) + 1))].toSorted((a, b) => a - b).join(",");
}

interface Range {
  readonly first: number;
  readonly last: number;
  readonly step: number | undefined;
}

function expand({ first, last, step = 1 }: Range): readonly number[] {
  return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_none, at) => first + at * step);
}

function readPart(text: string, field: UnixField, refuse: Refuse): Range & { readonly isStar: boolean } {
  const found = /^(?:(?<star>\*)|(?<from>\w+)(?:-(?<to>\w+))?)(?:\/(?<step>\d{1,2}))?$/.exec(text)?.groups;
  if (found === undefined) throw refuse(`${field.name} '${text}' is no value, range, step or list of them.`);
  const { star, from = "", to, step: every } = found;
  const isStar = star !== undefined;
  const step = every === undefined ? undefined : Number(every);
  if (step !== undefined && (step < 1 || step > field.most)) {
    throw refuse(`${field.name} '${text}' has a step that is not from 1 to ${field.most}.`);
  }
  if (isStar && step === undefined) throw refuse(`${field.name}: '*' stands alone, not in a list.`);
  if (!isStar && to === undefined && step !== undefined) {
    throw refuse(`${field.name} '${text}' has a step without a range; write '${from}-${field.most}/${step}'.`);
  }
  const first = isStar ? field.least : readValue(from, field, refuse);
  const last = isStar ? field.most : to === undefined ? first : readValue(to, field, refuse);
  if (last < first) throw refuse(`${field.name} '${text}' is a range that ends before it begins; write two ranges.`);
  return { isStar, first, last, step };
}

function readValue(text: string, { name, least, most, names = [] }: UnixField, refuse: Refuse): number {
  const named = names.indexOf(text.toUpperCase());
  if (named >= 0) return least + named;
  const value = /^\d{1,2}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= least && value <= most) return value;
  throw refuse(`${name} '${text}' is not from ${least} to ${most}.`);
}
