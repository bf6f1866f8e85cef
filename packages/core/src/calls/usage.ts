/** Token counts as back ends tell them, in the form that is kept with a call and told to clients. */
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";

/** Details of details: `usage.prompt_tokens_details.cached_tokens`. */
const mostLevels = 2;
/** Of each level. Back ends tell some dozen numbers, and each row of a list of calls holds them. */
const mostFields = 64;
const longestText = 128;

export interface TokenCounts {
  readonly prompt: number;
  readonly completion: number;
  readonly total: number;
}

/** What else the back end says of its work stays beside the counts, as far as it is short. */
export function usageOf(told: JsonObject, { prompt, completion, total }: TokenCounts): Usage {
  return {
    ...shortened(told, mostLevels),
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: total,
  };
}

/** @returns undefined for what counts nothing */
export function countOf(value: JsonValue | undefined): number | undefined {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : undefined;
}

function shortened(value: JsonObject, levels: number): JsonObject {
  const entries: [string, JsonValue][] = [];
  for (const [name, field] of Object.entries(value)) {
    if (name.length > longestText) continue;
    if (isJsonObject(field)) {
      if (levels > 1) entries.push([name, shortened(field, levels - 1)]);
    } else if (!Array.isArray(field) && !(typeof field === "string" && field.length > longestText)) {
      entries.push([name, field]);
    }
    if (entries.length === mostFields) break;
  }
  return Object.fromEntries(entries);
}

export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly [detail: string]: JsonValue;
}
