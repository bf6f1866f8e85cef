/**
 * JSON as models and people read it, indented. Values come from plugins and hosts: hundreds of brackets around a
 * list would put twice as many blanks before every line of it, so what would be mostly blanks is written without any.
 */
import type { JsonValue } from "../json.ts";

/** Levels that are indented. */
const deepest = 64;
/** Characters that line breaks and indentation may add. */
const mostBlanks = 1_048_576;

export function prettyJson(value: JsonValue): string {
  return JSON.stringify(value, null, blanksOf(value, 0) <= mostBlanks ? 2 : 0);
}

/** Stops counting where it is too much. */
function blanksOf(value: JsonValue, depth: number): number {
  if (typeof value !== "object" || value === null) return 0;
  if (depth >= deepest) return Number.POSITIVE_INFINITY;
  let blanks = 2 * depth + 1;
  for (const part of Array.isArray(value) ? value : Object.values(value)) {
    blanks += 2 * depth + 4 + blanksOf(part, depth + 1);
    if (blanks > mostBlanks) break;
  }
  return blanks;
}
