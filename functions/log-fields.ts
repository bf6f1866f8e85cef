/**
 * The fields of a log line as they are written: those that it may hold and no others, whatever was passed along;
 * which ones were left out is said by name.
 */
import { logFieldNames, spokenFieldNames, type LogFields } from "@toolyard/core/ports/log";

const allowed: ReadonlySet<string> = new Set(logFieldNames);
const spoken: ReadonlySet<string> = new Set(spokenFieldNames);
const longestValue = 2_000;

export function choose(fields: LogFields): Record<string, unknown> {
  const chosen: Record<string, unknown> = {};
  const left: string[] = [];
  for (const [name, value] of Object.entries(fields)) {
    if (value === undefined || spoken.has(name)) continue;
    if (!allowed.has(name)) left.push(name);
    else chosen[name] = typeof value === "string" ? value.slice(0, longestValue) : value;
  }
  return left.length === 0 ? chosen : { ...chosen, fields_left_out: left };
}
