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

/** JSON text in one spelling; what is none, and what is nested too deep to be written again, as it is. */
export function canonicalText(text: string): string {
  const value = parseJson(text);
  return value === undefined || isTooDeep(value, text) ? text : canonicalJson(value);
}

/** Levels of what clients and back ends send. */
export const deepestJson = 1_000;

/** @param text that `value` was read from: what is so deep has at least a bracket and its end for each level */
export function isTooDeep(value: unknown, text: { readonly length: number }): boolean {
  return text.length > 2 * deepestJson && isDeeperThan(value, deepestJson);
}

/** Names in one object of what clients send. */
export const mostJsonNames = 20_000;

/**
 * Of what clients send, what would hold up all others while it is checked, in one walk.
 * @param text that `value` was read from; a short one has neither
 */
export function excessOf(value: unknown, text: { readonly length: number }): "levels" | "names" | undefined {
  return text.length > 2 * deepestJson ? excessWithin(value, deepestJson) : undefined;
}

function excessWithin(value: unknown, levels: number): "levels" | "names" | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  if (levels === 0) return "levels";
  const parts: readonly unknown[] = Array.isArray(value) ? value : Object.values(value);
  if (parts !== value && parts.length > mostJsonNames) return "names";
  for (const part of parts) {
    const found = excessWithin(part, levels - 1);
    if (found !== undefined) return found;
  }
  return undefined;
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

const longNumber = /\d{16}/;

/** May reading this JSON change a number? Few texts say yes. */
export function mayLoseDigits(text: string): boolean {
  return longNumber.test(text);
}

/**
 * Where texts begin and end, what stands in them from an escape on, and long whole numbers that are no names of members.
 * A bound for escapes: each one that is passed over is remembered until the end of the match.
 */
const pieces = /"|(?:\\[^][^"\\]*){1,1000}|(?<![\d.eE+-])-?[1-9]\d{15,}(?![\d.eE]|\s*:)/g;

/**
 * JSON of which `instead` says what text is to be read for a whole number that a double cannot hold, or would be written
 * with other digits: it may be somebody's id, and would become another's.
 * @throws SyntaxError
 */
export function parseWatchingDigits(text: string, instead: (digits: string) => string): JsonValue {
  if (!mayLoseDigits(text)) return JSON.parse(text) as JsonValue;
  let isInText = false;
  // A reviver would be told of the digits as well, but takes a hundred times as long, of strangers' bodies too.
  const watched = text.replace(pieces, (piece) => {
    if (piece === '"') isInText = !isInText;
    const isNumber = !isInText && piece !== '"' && !piece.startsWith("\\");
    return isNumber && !isCarried(piece) ? JSON.stringify(instead(piece)) : piece;
  });
  return JSON.parse(watched) as JsonValue;
}

/** Is what is sent on the number that the digits say? 2^57 is a double, but is written as 144115188075855870. */
function isCarried(digits: string): boolean {
  const [written = ""] = String(Number(digits)).replace(".", "").split("e");
  return digits.startsWith(written) && /^0*$/.test(digits.slice(written.length));
}

/** An object or list that is open, and the member that is read: its name or its number. */
interface OpenPart {
  /** Of an object, the names so far. */
  readonly names: Set<string> | undefined;
  at: string | number;
}

const mostRepeats = 100;

/**
 * Where a name stands in an object that has it already, as a path: of two such members reading keeps the last and says
 * nothing, and a reviver is told of no other. By hand, since it takes as long as reading does; an expression takes ten times that.
 * @param text that is JSON
 */
export function repeatedNames(text: string): readonly (readonly string[])[] {
  const found: string[][] = [];
  const open: OpenPart[] = [];
  for (let at = 0; at < text.length && found.length < mostRepeats; at += 1) {
    const char = text[at];
    const part = open.at(-1);
    if (char === "{") open.push({ names: new Set(), at: "" });
    else if (char === "[") open.push({ names: undefined, at: 0 });
    else if (char === "}" || char === "]") open.pop();
    else if (char === "," && typeof part?.at === "number") part.at += 1;
    else if (char === '"') {
      const start = at;
      do at = text.indexOf('"', at + 1);
      while (isEscaped(text, at));
      if (part?.names === undefined || !isBeforeColon(text, at)) continue;
      const inside = text.slice(start + 1, at);
      part.at = inside.includes("\\") ? (JSON.parse(`"${inside}"`) as string) : inside;
      if (part.names.has(part.at)) found.push(open.map((each) => String(each.at)));
      part.names.add(part.at);
    }
  }
  return found;
}

/** By an odd number of backslashes: then it is part of a text. */
function isEscaped(text: string, at: number): boolean {
  let before = at;
  while (text[before - 1] === "\\") before -= 1;
  return (at - before) % 2 === 1;
}

function isBeforeColon(text: string, at: number): boolean {
  let after = at + 1;
  while (text.charCodeAt(after) <= 0x20) after += 1;
  return text[after] === ":";
}

/** JSON in which such numbers are the texts of their digits. `undefined` where the text is not JSON. */
export function parseJsonExactly(text: string): JsonValue | undefined {
  try {
    return parseWatchingDigits(text, (digits) => digits);
  } catch {
    return undefined;
  }
}

/** A whole number as its digits, where a double might be another one. */
export function isLongNumber(value: unknown): value is string {
  return typeof value === "string" && /^-?[1-9]\d{15,39}$/.test(value) && !Number.isSafeInteger(Number(value));
}

interface RawJson {
  rawJSON(text: string): RawNumber;
  isRawJSON(value: unknown): boolean;
}
// Part of the language since ES2026, not yet of the type library.
const rawJson = JSON as unknown as RawJson;

/** A leaf that `JSON.stringify` writes as the number that this text is. */
export type RawNumber = { readonly rawJSON: string } & JsonObject;

export function toRawNumber(text: string): RawNumber {
  return rawJson.rawJSON(text);
}

export function isRawNumber(value: unknown): value is RawNumber {
  return rawJson.isRawJSON(value);
}

/**
 * Numbers that a double cannot hold come back out of `JSON.stringify` as they went in; they are
 * leaves that no path looks into. `undefined` where the text is not JSON.
 */
export function parseKeepingDigits(text: string): JsonValue | undefined {
  const keep = (_key: string, value: JsonValue, context?: { readonly source?: string }): JsonValue => {
    const source = context?.source;
    return typeof value === "number" && source !== undefined && source !== String(value) ? toRawNumber(source) : value;
  };
  try {
    // The reviver costs time, and few documents need it.
    return (mayLoseDigits(text) ? JSON.parse(text, keep) : JSON.parse(text)) as JsonValue;
  } catch {
    return undefined;
  }
}
