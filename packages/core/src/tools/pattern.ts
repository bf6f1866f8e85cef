/**
 * Regular expressions that come from tenants, foreign servers and models. They run on RE2: time grows
 * with the length of the text only, so no pattern can hold up the process for all other tenants.
 */
import type { RE2JS } from "re2js";
import { engine } from "./pattern-engine.ts";

/** Patterns longer than this, or that grow larger when compiled, are refused. */
const longestPattern = 2_000;
const largestProgram = 5_000;
/** Of compiling one, in steps of `patternWork`: about a fiftieth of a second. Honest ones take a hundredth of it. */
const mostWork = 20_000;
/** Of the patterns that are kept compiled; a step of work comes to about 250 bytes, so this is 50 MB at the most. */
const mostKeptWork = 200_000;

export interface Pattern {
  /** What compiling it takes, in steps of `patternWork`. */
  readonly work: number;
  /** Is there a match anywhere in the text? */
  test(text: string): boolean;
  /** Where the first match begins. */
  find(text: string): number | undefined;
  /** The first match at or after a place. */
  match(text: string, from: number): PatternMatch | undefined;
  /** Work of a search through a text of this length, as a share of what searches may do. */
  cost(length: number): number;
  /** The longest that a test of a text of this length can take, in tenths of a microsecond. */
  longestTest(length: number): number;
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

/** Compiled once for all who have the same one, and again where it was not used for long. */
export function compilePattern(source: string, options: PatternOptions = {}): Pattern | UnusablePattern {
  if (source.length > longestPattern) return { reason: `has more than ${longestPattern} characters` };
  // Before the engine writes repetitions out: that alone may take seconds.
  const work = patternWork(source, options);
  if (work > mostWork) return { reason: tooLarge };
  const { ignoreCase = false, multiline = false } = options;
  const key = `${ignoreCase ? "i" : ""}${multiline ? "m" : ""}/${source}`;
  const compiled = kept.find(key) ?? compile(source, options);
  if ("reason" in compiled) return compiled;
  const size = compiled.programSize();
  if (size > largestProgram) return { reason: tooLarge };
  kept.add(key, compiled, work);
  const engineOf = (): RE2JS => {
    const known = kept.find(key);
    if (known !== undefined) return known;
    const again = compile(source, options);
    if ("reason" in again) throw new TypeError(`The pattern ${again.reason}`);
    kept.add(key, again, work);
    return again;
  };
  // Each character is read, longer where classes of Unicode are asked, and may meet all instructions unless one pass is enough.
  const { onepass }: { readonly onepass: unknown } = compiled.re2();
  const longestRead = /\\[pP]/.test(source) ? 3 : 1.5;
  const longestStep = longestRead + (onepass === null ? size * 0.15 : 0);
  return {
    work,
    // Not `test` of the engine: that builds tables as it goes, at ten times the time and with megabytes for each pattern.
    test: (text) => engineOf().matcher(text).find(),
    find: (text) => {
      const matcher = engineOf().matcher(text);
      return matcher.find() ? matcher.start() : undefined;
    },
    match: (text, from) => {
      const matcher = engineOf().matcher(text);
      if (from > text.length || !matcher.find(from)) return undefined;
      const count = matcher.groupCount();
      const groups = Array.from({ length: count + 1 }, (_, index) => matcher.group(index) ?? undefined);
      return { start: matcher.start(), end: matcher.end(), groups };
    },
    cost: (length) => 1 + Math.ceil((length * size) / 128),
    longestTest: (length) => 20 + Math.ceil(length * longestStep),
  };
}

const tooLarge = "is too large when its repetitions are written out";

/** Two generations: what was used since the last change of them stays. */
class KeptPatterns {
  #young = new Map<string, { readonly compiled: RE2JS; readonly work: number }>();
  #old = new Map<string, { readonly compiled: RE2JS; readonly work: number }>();
  #youngWork = 0;

  find(key: string): RE2JS | undefined {
    const young = this.#young.get(key);
    if (young !== undefined) return young.compiled;
    const old = this.#old.get(key);
    if (old !== undefined) this.add(key, old.compiled, old.work);
    return old?.compiled;
  }

  add(key: string, compiled: RE2JS, work: number): void {
    if (this.#young.has(key)) return;
    this.#young.set(key, { compiled, work });
    this.#youngWork += work;
    if (this.#youngWork < mostKeptWork / 2) return;
    this.#old = this.#young;
    this.#young = new Map();
    this.#youngWork = 0;
  }
}

const kept = new KeptPatterns();

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

/** The part of a pattern that is looked at in one go: an escape, a class, the beginning of a group, a repetition. */
const tokens =
  /\\(?:[uxpP]\{[^}]*\}|[^])|\[(?:\\[^]|[^\]\\])*\]?|\(\?(?:P?<[^>]*>|[a-zA-Z-]*[:)])?|\{\d{1,4}(?:,\d{0,4})?\}|[^]/gu;

/**
 * What compiling takes, in microseconds or so and rather more than less: counted repetitions are written out,
 * classes of Unicode are long lists, and longer ones where case does not count.
 */
function patternWork(source: string, { ignoreCase = false }: PatternOptions): number {
  const folds = ignoreCase || /\(\?[a-zA-Z]*i/.test(source);
  let work = source.length;
  /** Instructions of the groups that are open and of what was read last, which a repetition repeats. */
  const outer: number[] = [];
  let size = 0;
  let last = 0;
  for (const [token] of source.matchAll(tokens)) {
    const repetition = /^(?:[*+?]|\{(\d+)(,?)(\d*)\})$/.exec(token);
    if (repetition !== null) {
      const [, least = "1", comma = "", most = ""] = repetition;
      const times = Math.max(1, Number(least), Number(most));
      const optional = comma === "" ? 0 : Math.max(1, Number(most) - Number(least));
      size += last * (times - 1) + 1 + optional;
      last = last * times + 1 + optional;
    } else if (token.startsWith("(")) {
      // A group of flags alone is none.
      if (token.endsWith(")")) continue;
      outer.push(size);
      size = 0;
    } else if (token === ")") {
      // Its two ends, and what stands for nothing where it is empty.
      last = size + 3;
      size = last + (outer.pop() ?? 0);
    } else {
      work += classWork(token, folds);
      // A branch may be empty, too.
      last = token === "|" ? 2 : 1;
      size += last;
    }
  }
  return work + outer.reduce((sum, part) => sum + part, size);
}

/** Where case does not count, a range is gone through letter by letter, up to the last letter that has two cases. */
const lastWithCase = 0x1_e9_43;
const lettersPerStep = 8;

function classWork(token: string, folds: boolean): number {
  if (!/^[[\\]/.test(token)) return 0;
  let work = 0;
  let before: number | undefined;
  let isRange = false;
  for (const [member, braced, digits, kind = ""] of token.matchAll(members)) {
    if (/[pP]/.test(kind)) work += folds ? 300 : 50;
    else if (/[dDsSwW]/.test(kind)) work += folds ? 40 : 15;
    const letter = codePointOf(member, braced ?? digits);
    if (isRange && folds && before !== undefined) {
      work += Math.max(0, Math.ceil((Math.min(letter, lastWithCase) - before) / lettersPerStep));
    }
    isRange = member === "-" && before !== undefined && !isRange;
    if (!isRange) before = letter;
  }
  return work;
}

const members = /\\(?:[ux](?:\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2,4}))|([^]))|[^]/gu;

function codePointOf(member: string, hexadecimal: string | undefined): number {
  if (hexadecimal !== undefined) return Number.parseInt(hexadecimal, 16);
  return member.codePointAt(member.startsWith("\\") ? 1 : 0) ?? 0;
}
