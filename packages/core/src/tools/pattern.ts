/**
 * Regular expressions that come from tenants, foreign servers and models. They run on RE2: time grows
 * with the length of the text only, so no pattern can hold up the process for all other tenants.
 */
import type { RE2JS } from "re2js";
import { engine } from "./pattern-engine.ts";

/** Patterns longer than this, or that grow larger when compiled, are refused. */
const longestPattern = 2_000;
const largestProgram = 5_000;

export interface Pattern {
  /** Is there a match anywhere in the text? */
  test(text: string): boolean;
  /** Where the first match begins. */
  find(text: string): number | undefined;
  /** The first match at or after a place. */
  match(text: string, from: number): PatternMatch | undefined;
  /** Work for a text of this length, in steps of a validation's budget. */
  cost(length: number): number;
}

export interface PatternMatch {
  readonly start: number;
  readonly end: number;
  /** The whole first; undefined: the group took no part. */
  readonly groups: readonly (string | undefined)[];
}

export interface PatternOptions {
  readonly ignoreCase?: boolean;
  /** `^` and `$` are those of lines, too. */
  readonly multiline?: boolean;
}

/** Why a pattern cannot be used, as the end of a sentence. */
export interface UnusablePattern {
  readonly reason: string;
}

export function compilePattern(source: string, options: PatternOptions = {}): Pattern | UnusablePattern {
  if (source.length > longestPattern) return { reason: `has more than ${longestPattern} characters` };
  const compiled = compile(source, options);
  if ("reason" in compiled) return compiled;
  const size = compiled.programSize();
  if (size > largestProgram) return { reason: "is too large when its repetitions are written out" };
  return {
    test: (text) => compiled.test(text),
    find: (text) => {
      const matcher = compiled.matcher(text);
      return matcher.find() ? matcher.start() : undefined;
    },
    match: (text, from) => {
      const matcher = compiled.matcher(text);
      if (from > text.length || !matcher.find(from)) return undefined;
      const count = matcher.groupCount();
      const groups = Array.from({ length: count + 1 }, (_, index) => matcher.group(index) ?? undefined);
      return { start: matcher.start(), end: matcher.end(), groups };
    },
    cost: (length) => 1 + Math.ceil((length * size) / 128),
  };
}

function compile(source: string, { ignoreCase = false, multiline = false }: PatternOptions): RE2JS | UnusablePattern {
  const { RE2JS, RE2JSException } = engine();
  try {
    // Patterns are written for JavaScript's syntax (`\u4e00`, `(?<name>…)`).
    const flags = (ignoreCase ? RE2JS.CASE_INSENSITIVE : 0) | (multiline ? RE2JS.MULTILINE : 0);
    return RE2JS.compile(RE2JS.translateRegExp(shortCategories(source)), flags);
  } catch (error) {
    if (!(error instanceof RE2JSException)) throw error;
    const fault = error.message.replace(/^error parsing regexp: /, "");
    return { reason: `cannot be used (${fault}); look-around and back references are not supported` };
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
