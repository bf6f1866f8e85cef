/**
 * The expressions of `refreshIntervalCron`: five fields, or six with seconds first. `*`, lists, ranges, steps and
 * the English short names of months and days.
 */
import { GatewayError } from "../../errors/gateway-error.ts";

/** The values at which it fires, each in order. Days of the week: 0 is Sunday. */
export interface CronFields {
  readonly seconds: readonly number[];
  readonly minutes: readonly number[];
  readonly hours: readonly number[];
  readonly daysOfMonth: readonly number[];
  readonly months: readonly number[];
  readonly daysOfWeek: readonly number[];
  /** Where both days are given, either fires. */
  readonly eitherDay: boolean;
}

interface FieldSpec {
  readonly name: string;
  readonly min: number;
  readonly max: number;
  readonly names?: readonly string[];
}

const months = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const days = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const second: FieldSpec = { name: "second", min: 0, max: 59 };
const minute: FieldSpec = { name: "minute", min: 0, max: 59 };
const hour: FieldSpec = { name: "hour", min: 0, max: 23 };
const dayOfMonth: FieldSpec = { name: "day of month", min: 1, max: 31 };
const month: FieldSpec = { name: "month", min: 1, max: 12, names: months };
/** 7 is Sunday, too. */
const dayOfWeek: FieldSpec = { name: "day of week", min: 0, max: 7, names: days };

/** @throws GatewayError `invalid_definition` naming the field that cannot be read */
export function parseCron(expression: string): CronFields {
  const words = expression.trim().split(/\s+/);
  if (words.length !== 5 && words.length !== 6) {
    throw invalid(expression, "it needs five fields, or six with seconds first");
  }
  const [seconds = "0", ...rest] = words.length === 6 ? words : ["0", ...words];
  const [minutes = "*", hours = "*", daysOfMonth = "*", inMonths = "*", daysOfWeek = "*"] = rest;
  const read = (text: string, spec: FieldSpec): readonly number[] => readField(expression, text, spec);
  return {
    seconds: read(seconds, second),
    minutes: read(minutes, minute),
    hours: read(hours, hour),
    daysOfMonth: read(daysOfMonth, dayOfMonth),
    months: read(inMonths, month),
    daysOfWeek: ordered(read(daysOfWeek, dayOfWeek).map((day) => day % 7)),
    eitherDay: !isAny(daysOfMonth) && !isAny(daysOfWeek),
  };
}

function isAny(text: string): boolean {
  return text.startsWith("*") || text === "?";
}

function readField(expression: string, text: string, spec: FieldSpec): readonly number[] {
  return ordered(text.split(",").flatMap((part) => readPart(expression, part, spec)));
}

function readPart(expression: string, part: string, spec: FieldSpec): readonly number[] {
  const [, range = "", stepText] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(part) ?? [];
  const step = stepText === undefined ? 1 : Number(stepText);
  const [from, to] = readRange(range, stepText !== undefined, spec);
  if (from === undefined || to === undefined || from > to || step === 0) {
    throw invalid(expression, `'${part}' is no ${spec.name}; take numbers from ${spec.min} to ${spec.max}`);
  }
  return Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, index) => from + index * step);
}

function readRange(
  range: string,
  hasStep: boolean,
  spec: FieldSpec,
): readonly [from: number | undefined, to: number | undefined] {
  if (range === "*" || range === "?") return [spec.min, spec === dayOfWeek ? 6 : spec.max];
  const [first = "", last] = range.split("-", 2);
  const from = readValue(first, spec);
  if (last !== undefined) return [from, readValue(last, spec)];
  return [from, hasStep ? spec.max : from];
}

function readValue(text: string, { min, max, names }: FieldSpec): number | undefined {
  const named = names?.indexOf(text.toLowerCase()) ?? -1;
  const value = named >= 0 ? named + (min === 1 ? 1 : 0) : /^\d{1,2}$/.test(text) ? Number(text) : Number.NaN;
  return value >= min && value <= max ? value : undefined;
}

function ordered(values: readonly number[]): readonly number[] {
  return [...new Set(values)].sort((a, b) => a - b);
}

function invalid(expression: string, reason: string): GatewayError {
  return new GatewayError(
    "invalid_definition",
    `'refreshIntervalCron' is '${expression.slice(0, 80)}', which is no cron expression: ${reason}.`,
    { param: "refreshIntervalCron" },
  );
}
