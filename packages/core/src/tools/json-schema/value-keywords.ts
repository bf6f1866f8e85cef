/** Keywords about a value by itself: its type, the values it may be, bounds, lengths, patterns. */
import { canonicalJson, isLongNumber, type JsonObject, type JsonValue } from "../../json.ts";
import { invalidSchema, ownMember, shorten } from "./document.ts";
import { formatCheck } from "./formats.ts";
import { isEqual, isOfDigits, longNumberIn } from "./long-numbers.ts";
import { preview, typeOf } from "./run.ts";
import {
  type Check,
  type Keyword,
  type Site,
  charactersPerStep,
  countOf,
  fail,
  namesOf,
  numberOf,
  stringOf,
} from "./rule.ts";

const typeNames = ["null", "boolean", "integer", "number", "string", "array", "object"];

function hasType(value: JsonValue, name: string): boolean {
  if (name === "integer") return Number.isInteger(value);
  return typeOf(value) === name;
}

export function typeKeyword(value: JsonValue, site: Site): Check {
  const names = typeof value === "string" ? [value] : namesOf(value, site.location);
  const unknown = names.find((name) => !typeNames.includes(name));
  if (unknown !== undefined) {
    throw invalidSchema(site.location, `names the unknown type '${shorten(unknown)}'; known: ${typeNames.join(", ")}`);
  }
  const types = [...new Set(isNullable(site.schema) ? [...names, "null"] : names)];
  const takesNumbers = types.includes("integer") || types.includes("number");
  return (given, frame) =>
    types.some((name) => hasType(given, name)) ||
    (takesNumbers && longNumberIn(given, frame) !== undefined) ||
    fail(frame, () => {
      const why = takesNumbers && isLongNumber(given) ? ", whose digits cannot be carried as a number" : "";
      return `must be ${types.join(" or ")}, got ${described(given)}${why}`;
    });
}

/** OpenAPI 3.0 says so of a type; generators of definitions do of references, alternatives and values, too. */
export function isNullable(schema: JsonObject): boolean {
  return ownMember(schema, "nullable") === true;
}

function described(value: JsonValue): string {
  const type = typeOf(value);
  return type === "array" || type === "object" || type === "null" ? preview(value) : `the ${type} ${preview(value)}`;
}

export function oneOfValues(values: readonly JsonValue[]): Check {
  const scalars = new Set(values.filter((value) => !isComposite(value)));
  const composites = new Set(values.filter(isComposite).map(canonicalJson));
  const shown = shorten(values.map((value) => JSON.stringify(value)).join(", "), 200);
  return (value, frame) => {
    const isAllowed = isComposite(value)
      ? composites.size > 0 && composites.has(frame.budget.canonical(value))
      : scalars.has(value);
    return (
      isAllowed ||
      fail(frame, () => (values.length === 1 ? `must be ${shown}` : `must be one of ${shown}; got ${preview(value)}`))
    );
  };
}

export function isComposite(value: JsonValue): boolean {
  return typeof value === "object" && value !== null;
}

/** A bound on numbers; `exclusive` where draft 4 says so beside it. */
export function bound(
  keyword: string,
  words: string,
  passes: (value: number | bigint, limit: number) => boolean,
): Keyword {
  return (value, site) => {
    // Draft 4: `exclusiveMinimum: true` belongs to `minimum`.
    if (typeof value === "boolean" && keyword.startsWith("exclusive")) return undefined;
    const limit = numberOf(value, site);
    const partner = `exclusive${keyword.charAt(0).toUpperCase()}${keyword.slice(1)}`;
    const exclusive = ownMember(site.schema, partner) === true;
    const mayBeDigits = isOfDigits(site.schema);
    return (given, frame) => {
      const number = typeof given === "number" ? given : longNumberIn(given, frame, mayBeDigits);
      return (
        number === undefined ||
        (passes(number, limit) && !(exclusive && isEqual(number, limit))) ||
        fail(frame, () => `must be ${words} ${limit}, got ${number}`)
      );
    };
  };
}

export function isMultiple(value: number, divisor: number): boolean {
  const quotient = value / divisor;
  if (!Number.isFinite(quotient)) return false;
  // 0.3 is a multiple of 0.1 although their binary quotient is not whole.
  return Math.abs(quotient - Math.round(quotient)) <= Math.abs(quotient) * 1e-12;
}

export function lengthBound(words: string, passes: (length: number, limit: number) => boolean): Keyword {
  return (value, site) => {
    const limit = countOf(value, site);
    return (given, frame) => {
      if (typeof given !== "string") return true;
      // Each character has one unit of the text or two; most texts need no counting.
      const isClear = passes(given.length, limit) === passes(Math.ceil(given.length / 2), limit);
      if (!isClear) frame.budget.spend(Math.ceil(given.length / charactersPerStep));
      return (
        passes(isClear ? given.length : codePoints(given), limit) ||
        fail(frame, () => `must have ${words} ${limit} characters, has ${codePoints(given)}`)
      );
    };
  };
}

function codePoints(text: string): number {
  let count = text.length;
  for (let at = 0; at < text.length - 1; at += 1) {
    // A surrogate pair is one character.
    if ((text.charCodeAt(at) & 0xfc00) === 0xd800 && (text.charCodeAt(at + 1) & 0xfc00) === 0xdc00) count -= 1;
  }
  return count;
}

export function sizeBound(
  type: "array" | "object",
  words: string,
  passes: (size: number, limit: number) => boolean,
): Keyword {
  return (value, site) => {
    const limit = countOf(value, site);
    const members = type === "array" ? "items" : "properties";
    return (given, frame) => {
      if (typeOf(given) !== type) return true;
      const size = Array.isArray(given) ? given.length : frame.budget.namesIn(given as JsonObject).length;
      return passes(size, limit) || fail(frame, () => `must have ${words} ${limit} ${members}, has ${size}`);
    };
  };
}

export function patternKeyword(value: JsonValue, site: Site): Check {
  const source = stringOf(value, site);
  const pattern = site.compiler.pattern(source, site.location);
  return (given, frame) => {
    if (typeof given !== "string") return true;
    return (
      frame.budget.matches(pattern, given) ||
      fail(frame, () => `must match the pattern '${shorten(source, 120)}', got ${preview(given)}`)
    );
  };
}

export function formatKeyword(value: JsonValue, site: Site): Check | undefined {
  const name = stringOf(value, site);
  const check = formatCheck(name);
  if (check === undefined) return undefined;
  return (given, frame) => {
    if (typeof given !== "string") return true;
    frame.budget.spend(1 + Math.ceil(given.length / charactersPerStep));
    return check(given) || fail(frame, () => `must be a ${name}, got ${preview(given)}`);
  };
}
