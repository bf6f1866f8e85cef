/** Token counts, summed over all rounds of a chat (CHAT-2). */
import type { Usage } from "../calls/usage.ts";
import type { JsonValue } from "../json.ts";

/** Adds number by number, nested details too. */
export function addUsage(sum: Usage | undefined, next: Usage): Usage {
  return sum === undefined ? next : (addFields(sum, next) as unknown as Usage);
}

function addFields(
  a: Readonly<Record<string, JsonValue>>,
  b: Readonly<Record<string, JsonValue>>,
): Record<string, JsonValue> {
  const result: Record<string, JsonValue> = { ...a };
  for (const [key, value] of Object.entries(b)) {
    const before = result[key];
    if (typeof before === "number" && typeof value === "number") result[key] = before + value;
    else if (isRecord(before) && isRecord(value)) result[key] = addFields(before, value);
    else result[key] = value;
  }
  return result;
}

function isRecord(value: JsonValue | undefined): value is { [key: string]: JsonValue } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
