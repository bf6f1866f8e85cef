/** JSON values, canonical text and safe parsing. */

export type JsonValue = null | boolean | number | string | JsonValue[] | { [key: string]: JsonValue };
export type JsonObject = { [key: string]: JsonValue };

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** JSON text with sorted object keys: equal values give equal text. Used for hashes and prompt caching. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) => {
    if (!isJsonObject(part)) return part;
    const sorted: JsonObject = Object.create(null) as JsonObject;
    for (const key of Object.keys(part).sort()) sorted[key] = part[key] ?? null;
    return sorted;
  });
}

/** `undefined` where the text is not JSON. */
export function parseJson(text: string): JsonValue | undefined {
  try {
    return JSON.parse(text) as JsonValue;
  } catch {
    return undefined;
  }
}
