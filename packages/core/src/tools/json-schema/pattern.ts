/**
 * Regular expressions that come from tenants, foreign servers and models. They run on RE2: time grows
 * with the length of the text only, so no pattern can hold up the process for all other tenants.
 */
import { RE2JS, RE2JSException } from "re2js";

/** Patterns longer than this, or that grow larger when compiled, are refused. */
const longestPattern = 2_000;
const largestProgram = 5_000;

export interface Pattern {
  /** Is there a match anywhere in the text? */
  test(text: string): boolean;
  /** Work for a text of this length, in steps of a validation's budget. */
  cost(length: number): number;
}

export interface PatternOptions {
  readonly ignoreCase?: boolean;
}

/** `undefined` with the reason told to `refuse` where the pattern cannot be used. */
export function compilePattern(
  source: string,
  refuse: (reason: string) => void,
  options: PatternOptions = {},
): Pattern | undefined {
  if (source.length > longestPattern) {
    refuse(`has more than ${longestPattern} characters`);
    return undefined;
  }
  const compiled = compile(source, options);
  if (typeof compiled === "string") {
    refuse(`cannot be used (${compiled}); look-around and back references are not supported`);
    return undefined;
  }
  const size = compiled.programSize();
  if (size > largestProgram) {
    refuse("is too large when its repetitions are written out");
    return undefined;
  }
  return { test: (text) => compiled.test(text), cost: (length) => 1 + Math.ceil((length * size) / 2_048) };
}

function compile(source: string, options: PatternOptions): RE2JS | string {
  try {
    // Schemas are written for JavaScript's syntax (`\u4e00`, `(?<name>…)`).
    return RE2JS.compile(
      RE2JS.translateRegExp(shortCategories(source)),
      options.ignoreCase === true ? RE2JS.CASE_INSENSITIVE : 0,
    );
  } catch (error) {
    if (error instanceof RE2JSException) return error.message.replace(/^error parsing regexp: /, "");
    throw error;
  }
}

/** JavaScript's long names of Unicode properties, which RE2 knows by short ones. */
const categories = new Map([
  ["Letter", "L"],
  ["Lowercase_Letter", "Ll"],
  ["Uppercase_Letter", "Lu"],
  ["Mark", "M"],
  ["Number", "N"],
  ["Decimal_Number", "Nd"],
  ["Punctuation", "P"],
  ["Symbol", "S"],
  ["Separator", "Z"],
]);

function shortCategories(source: string): string {
  // Any escape is taken whole, so that the second half of an escaped backslash starts nothing.
  const escapes = /\\(?:([pP])\{(?:(?:Script|sc|General_Category|gc)=)?([A-Za-z_]+)\}|[^])/g;
  return source.replace(escapes, (whole: string, letter?: string, name?: string) =>
    letter === undefined || name === undefined ? whole : `\\${letter}{${categories.get(name) ?? name}}`,
  );
}
