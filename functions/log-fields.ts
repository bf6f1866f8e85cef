/**
 * A log line as it is written: of its fields those that it may hold and no others, whatever was passed along; which
 * ones were left out is said by name.
 */
import { logFieldNames, spokenFieldNames, type LogFields, type LogLevel } from "@toolyard/core/ports/log";

const allowed: ReadonlySet<string> = new Set(logFieldNames);
const spoken: ReadonlySet<string> = new Set(spokenFieldNames);
const longestValue = 2_000;

const levels: readonly LogLevel[] = ["debug", "info", "warn", "error"];

/** Is what happens at this level written where `lowest` is the lowest that is? */
export function isWritten(at: LogLevel, lowest: LogLevel): boolean {
  return levels.indexOf(at) >= levels.indexOf(lowest);
}

/** With its end. */
export function toLogLine(level: LogLevel, message: string, fields: LogFields): string {
  const line: Record<string, unknown> = { level, time: new Date().toISOString() };
  let left: string[] | undefined;
  const given: Readonly<Record<string, unknown>> = fields;
  for (const name of Object.keys(given)) {
    const value = given[name];
    if (value === undefined || spoken.has(name)) continue;
    if (!allowed.has(name)) (left ??= []).push(name);
    else line[name] = typeof value === "string" ? value.slice(0, longestValue) : value;
  }
  if (left !== undefined) line["fields_left_out"] = left;
  line["msg"] = message;
  return `${JSON.stringify(line)}\n`;
}
