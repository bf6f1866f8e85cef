/** JSON values, canonical text and safe parsing. */

export type JsonValue = null | boolean | number | string | JsonValue[] | { [key: string]: JsonValue };
export type JsonObject = { [key: string]: JsonValue };

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What is written, compared or checked is walked by calls within calls, which end somewhere. */
export function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (levels === 0) return true;
  const parts: readonly unknown[] = Array.isArray(value) ? value : Object.values(value);
  return parts.some((part) => isDeeperThan(part, levels - 1));
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

/** What JSON text says, or the text itself where it is none. */
export function jsonOrText(text: string): JsonValue {
  const value = parseJson(text);
  return value === undefined ? text : value;
}

const mayLoseDigits = /\d{16}/;

/**
 * JSON of which `instead` says what is to be read for a whole number that a double cannot hold: it may be somebody's
 * id, and would become another's.
 * @throws SyntaxError
 */
export function parseWatchingDigits(text: string, instead: (digits: string) => JsonValue): JsonValue {
  // The reviver costs time, and few texts need it.
  if (!mayLoseDigits.test(text)) return JSON.parse(text) as JsonValue;
  const watch = (_key: string, value: JsonValue, context?: { readonly source?: string }): JsonValue => {
    const source = context?.source;
    if (typeof value !== "number" || source === undefined || !/^-?\d+$/.test(source)) return value;
    return Number.isFinite(value) && BigInt(source) === BigInt(value) ? value : instead(source);
  };
  return JSON.parse(text, watch) as JsonValue;
}

/** JSON in which such numbers are the texts of their digits. `undefined` where the text is not JSON. */
export function parseJsonExactly(text: string): JsonValue | undefined {
  try {
    return parseWatchingDigits(text, (digits) => digits);
  } catch {
    return undefined;
  }
}
