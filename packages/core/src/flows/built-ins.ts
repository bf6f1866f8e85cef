/**
 * Functions of JSONata in our own words, or behind a bound: the library's would take time or room without end in one
 * step, which nothing can look into. Names of parameters matter: the library reads them for partial application.
 */
import type { Expression } from "jsonata";
import {
  ExpressionLimit,
  isFunctionOf,
  longestList,
  longestMs,
  outOfTime,
  requireTextLength,
} from "./expression-limit.ts";

/** Of dates and numbers. */
const longestPicture = 200;
const widestPart = 100;
/** Of what is read by a picture. */
const longestPictured = 100;
/** Places in a time at which one part may end here or there: each multiplies the ways in which it can be read. */
const mostOpenEnds = 4;

// oxlint-disable-next-line typescript/no-explicit-any -- the library's own type of functions
type Implementation = (this: any, ...given: any[]) => unknown;

export interface BuiltIns {
  readonly append: Implementation;
  readonly replace: Implementation;
  readonly fromMillis: Implementation;
  readonly toMillis: Implementation;
  readonly formatNumber: Implementation;
  readonly formatInteger: Implementation;
  readonly parseInteger: Implementation;
}

export interface Frame {
  /** When the evaluation began. */
  readonly timestamp: Date | null;
  lookup(name: string): unknown;
}

interface Focus {
  createSequence(): unknown[];
  readonly environment: Frame;
}

/** For what is done in the library without a look at the clock. @throws ExpressionLimit */
export function requireTime({ timestamp }: Pick<Frame, "timestamp">): void {
  if (timestamp !== null && Date.now() - timestamp.getTime() > longestMs) throw outOfTime();
}

export function registerBuiltIns(program: Expression, library: BuiltIns): void {
  const register = (name: string, implementation: Implementation, signature: string): void => {
    program.registerFunction(name, implementation, signature);
  };
  const { append, replace, fromMillis, toMillis, formatNumber, formatInteger, parseInteger } = library;
  register("pad", pad, "<s-ns?:s>");
  register("join", join, "<a<s>s?:s>");
  register("distinct", distinct, "<x:x>");
  register("spread", spread, "<x-:a<o>>");
  register(
    "append",
    function (this: Focus, first?: unknown, second?: unknown) {
      // It copies both, and `$reduce` calls it for each item.
      requireTime(this.environment);
      return append.call(this, first, second);
    },
    "<xx:a>",
  );
  register(
    "replace",
    // oxlint-disable-next-line eslint/max-params -- those that the language gives it
    function (this: Focus, text?: string, pattern?: unknown, replacement?: unknown, limit?: number) {
      const isPlain = typeof pattern === "string" && pattern !== "" && typeof replacement === "string";
      if (text !== undefined && isPlain && limit === undefined) return join(text.split(pattern), replacement);
      if (limit !== undefined && limit > longestList) {
        throw new ExpressionLimit(`replaces more than ${longestList} times`);
      }
      return replace.call(this, text, pattern, replacement, limit);
    },
    "<s-(sf)(sf)n?:s>",
  );
  register(
    "now",
    function (this: Focus, picture?: string, timezone?: string) {
      requirePicture(picture);
      return fromMillis.call(this, this.environment.timestamp?.getTime(), picture, timezone);
    },
    "<s?s?:s>",
  );
  register(
    "fromMillis",
    function (this: Focus, millis?: number, picture?: string, timezone?: string) {
      requirePicture(picture);
      return fromMillis.call(this, millis, picture, timezone);
    },
    "<n-s?s?:s>",
  );
  register(
    "toMillis",
    function (this: Focus, timestamp?: string, picture?: string) {
      requirePicture(picture);
      requirePictured(timestamp);
      if (picture !== undefined && openEnds(picture) > mostOpenEnds) {
        throw new ExpressionLimit("has a picture that can be read in too many ways; separate its parts");
      }
      return toMillis.call(this, timestamp, picture);
    },
    "<s-s?:n>",
  );
  register(
    "formatNumber",
    function (this: Focus, value?: number, picture?: string, options?: object) {
      requirePicture(picture);
      return formatNumber.call(this, value, picture, options);
    },
    "<n-so?:s>",
  );
  register(
    "formatInteger",
    function (this: Focus, value?: number, picture?: string) {
      requirePicture(picture);
      return formatInteger.call(this, value, picture);
    },
    "<n-s:s>",
  );
  register(
    "parseInteger",
    function (this: Focus, value?: string, picture?: string) {
      requirePicture(picture);
      requirePictured(value);
      return parseInteger.call(this, value, picture);
    },
    "<s-s:n>",
  );
}

function pad(text: string | undefined, width: number, given?: string): string | undefined {
  if (text === undefined) return undefined;
  const wanted = Math.trunc(Math.abs(width));
  requireTextLength(wanted);
  const missing = wanted - Array.from(text).length;
  if (missing <= 0) return text;
  const fill = given === undefined || given === "" ? " " : given;
  const fillers = Array.from(fill);
  const rest = fillers.slice(0, missing % fillers.length).join("");
  const filled = fill.repeat(Math.floor(missing / fillers.length)) + rest;
  return width > 0 ? text + filled : filled + text;
}

function join(texts: readonly string[] | undefined, separator?: string): string | undefined {
  if (texts === undefined) return undefined;
  const between = separator ?? "";
  requireTextLength(texts.reduce((sum, text) => sum + text.length, between.length * Math.max(0, texts.length - 1)));
  return texts.join(between);
}

/** The library copies what it has with each item. */
function spread(this: Focus, value: unknown): unknown {
  if (Array.isArray(value)) {
    const parts = value.map((item) => spread.call(this, item)).filter((part) => part !== undefined);
    return parts.length === 0 ? this.createSequence() : parts.flat();
  }
  if (typeof value !== "object" || value === null || isFunctionOf(value)) return value;
  const result = this.createSequence();
  for (const [name, field] of Object.entries(value as Readonly<Record<string, unknown>>)) {
    const one = Object.create(null) as Record<string, unknown>;
    one[name] = field;
    result.push(one);
  }
  return result;
}

/** The library compares each with each. */
function distinct(this: Focus, values: unknown): unknown {
  if (!Array.isArray(values) || values.length <= 1) return values;
  const keyOf = createKeys();
  const isSequence = (values as { readonly sequence?: boolean }).sequence === true;
  const results: unknown[] = isSequence ? this.createSequence() : [];
  const known = new Set<string>();
  for (const value of values as readonly unknown[]) {
    const key = keyOf(value);
    if (!known.has(key)) results.push(value);
    known.add(key);
  }
  return results;
}

/** One text for all that the language holds to be equal: the order of fields says nothing, functions are themselves. */
function createKeys(): (value: unknown) => string {
  const functions = new Map<unknown, number>();
  const keyOf = (value: unknown): string => {
    if (typeof value === "string") return JSON.stringify(value);
    if (typeof value === "function" || (typeof value === "object" && value !== null && isFunctionOf(value))) {
      const id = functions.get(value) ?? functions.size;
      functions.set(value, id);
      return `f${id}`;
    }
    if (Array.isArray(value)) return `[${value.map(keyOf).join(",")}]`;
    if (typeof value !== "object" || value === null) return String(value);
    const fields = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${fields.map(([name, field]) => `${JSON.stringify(name)}:${keyOf(field)}`).join(",")}}`;
  };
  return keyOf;
}

function requirePictured(text: string | undefined): void {
  if (text === undefined || text.length <= longestPictured) return;
  throw new ExpressionLimit(`reads a text of more than ${longestPictured} characters by a picture`);
}

function requirePicture(picture: string | undefined): void {
  if (picture === undefined) return;
  if (picture.length > longestPicture) {
    throw new ExpressionLimit(`has a picture of more than ${longestPicture} characters`);
  }
  for (const marker of markersOf(picture)) {
    const widths = marker.slice(marker.lastIndexOf(",") + 1).split("-");
    // As the library reads them, "0x1f" included.
    if (marker.includes(",") && widths.some((width) => Number.parseInt(width) > widestPart)) {
      throw new ExpressionLimit(`has a picture with a part of more than ${widestPart} characters`);
    }
  }
}

const markerPattern = /\[([^\]]*)\]/;

function markersOf(picture: string): readonly string[] {
  return picture.split(markerPattern).flatMap((part, at) => (at % 2 === 1 ? [part.replace(/\s+/g, "")] : []));
}

/** Between two parts that nothing parts for certain: letters and digits may belong to either. */
function openEnds(picture: string): number {
  const parts = picture.split(markerPattern);
  const markers = markersOf(picture);
  // Numbers in words have these in them, too.
  const separator = markers.some((marker) => /^.w/i.test(marker)) ? /[^A-Za-z0-9 ,-]/ : /[^A-Za-z0-9]/;
  let count = 0;
  for (const [at, marker] of markers.entries()) {
    const before = markers[at - 1];
    const between = parts[2 * at] ?? "";
    if (before === undefined || separator.test(between)) continue;
    const isFixed = between === "" && isNumber(before) && isNumber(marker.replace(/^f/, "Y"));
    if (!isFixed) count += 1;
  }
  return count;
}

/** One that ends where the next begins has as many digits as it says. */
function isNumber(marker: string): boolean {
  return /^(?:[YMDdWwXxHhms](?:$|[\d#,])|F[\d#])/.test(marker);
}
