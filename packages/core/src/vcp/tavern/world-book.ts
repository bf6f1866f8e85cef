/**
 * World books: texts that come up when the conversation names what they are about (VCP-9). Which ones do is
 * decided here, by keywords, patterns, chance and a budget; where they are put, in inject.ts.
 */
import * as z from "zod";
import { tokensOfText } from "../../budgets/estimate.ts";
import { compilePattern, type Pattern } from "../../tools/pattern.ts";
import { injectedRoleSchema } from "./preset.ts";

const longestKey = 500;
export const largestBook = { entries: 5_000, keys: 100, content: 65_536 } as const;

const keysSchema = z.array(z.string().min(1).max(longestKey)).max(largestBook.keys);

export const entrySchema = z.strictObject({
  name: z.string().max(500).default(""),
  keys: keysSchema.default([]).meta({ description: "Words, or patterns written `/…/` or `/…/i`." }),
  secondary_keys: keysSchema.default([]),
  /** How secondary keys count once a primary one is there. */
  logic: z.enum(["and_any", "and_all", "not_any", "not_all"]).default("and_any"),
  content: z.string().max(largestBook.content),
  enabled: z.boolean().default(true),
  constant: z.boolean().default(false).meta({ description: "Comes up without any key." }),
  order: z.int().min(-1_000_000).max(1_000_000).default(100).meta({ description: "Higher ones stand further down." }),
  position: z.enum(["before_character", "after_character", "at_depth"]).default("before_character"),
  depth: z.int().min(0).max(10_000).default(4),
  role: injectedRoleSchema.default("system"),
  probability: z.number().min(0).max(100).default(100).meta({ description: "Per cent." }),
  scan_depth: z.int().min(0).max(1_000).optional().meta({ description: "Left out: that of the book." }),
  case_sensitive: z.boolean().optional(),
  whole_words: z.boolean().optional(),
  exclude_recursion: z.boolean().default(false).meta({ description: "Is not brought up by other entries." }),
  prevent_recursion: z.boolean().default(false).meta({ description: "Does not bring up other entries." }),
  delay_until_recursion: z.boolean().default(false).meta({ description: "Is brought up by other entries only." }),
});
export type WorldBookEntry = z.infer<typeof entrySchema>;

export const worldBookSchema = z.strictObject({
  description: z.string().max(10_000).default(""),
  scan_depth: z.int().min(0).max(1_000).default(4).meta({ description: "Latest messages that are looked at." }),
  token_budget: z.int().min(0).max(1_000_000).default(2_048).meta({ description: "Tokens of all texts, estimated." }),
  recursive: z.boolean().default(false).meta({ description: "Texts that come up may bring up others." }),
  case_sensitive: z.boolean().default(false),
  whole_words: z.boolean().default(false),
  entries: z.array(entrySchema).max(largestBook.entries).default([]),
});
export type WorldBook = z.infer<typeof worldBookSchema>;

/** Why a key cannot be used beside the others of its book; undefined for one that can. */
export function unusableKey(key: string, patterns = new BookPatterns()): string | undefined {
  const found = patterns.compile(key);
  return found !== undefined && "reason" in found ? found.reason : undefined;
}

/** Texts of one conversation, newest first, and what decides about chance. */
export interface Scan {
  readonly texts: readonly string[];
  /** From 0 up to, not including, 1. */
  readonly random: () => number;
  /** Gives others a turn. */
  readonly turn: () => Promise<void>;
  /** What patterns may still cost. */
  readonly work: PatternWork;
}

/** Characters; shorter texts are charged like these. */
const shortestText = 16;

/** Bounds what the patterns and whole words of all books of a conversation may cost. */
export class PatternWork {
  #left = 200_000;
  /** Some were left out. */
  isExhausted = false;

  /** Each alone is linear in the text; to be compiled, it costs as much as for some. */
  test(pattern: Pattern, text: string): boolean {
    return this.spend(pattern.cost(Math.max(text.length, shortestText))) && pattern.test(text);
  }

  /** May so much still be done? */
  spend(steps: number): boolean {
    this.#left -= steps;
    if (this.#left < 0) this.isExhausted = true;
    return this.#left >= 0;
  }
}

type MaybePattern = Pattern | { readonly reason: string } | undefined;

/**
 * Compiles the patterns of one book, and no more of them than a book may have: compiled, they can take thousands of
 * times the room that they are written in, so none outlives what it was compiled for.
 */
export class BookPatterns {
  readonly #known = new Map<string, MaybePattern>();
  /** Instructions; each pattern counts for some, however short it is. */
  #left = 100_000;

  /** Undefined for a key that is a word. */
  compile(key: string): MaybePattern {
    if (!isPattern(key)) return undefined;
    let found = this.#known.get(key);
    if (found === undefined) this.#known.set(key, (found = this.#compile(key)));
    return found;
  }

  #compile(key: string): MaybePattern {
    const reason = "is one too many: the patterns of this book are too large together";
    if (this.#left < 0) return { reason };
    const found = patternOf(key);
    // One that is refused may have been large, too.
    this.#left -= found === undefined || "reason" in found ? 1_000 : 50 + found.cost(128);
    return this.#left < 0 ? { reason } : found;
  }
}

/** Rounds in which texts bring up others. */
const deepestRecursion = 5;
/** Of the messages that are looked at, the newest characters. */
const longestScan = 65_536;

/** The entries that come up, those that stand further up first. */
export async function activeEntries(book: WorldBook, scan: Scan): Promise<readonly WorldBookEntry[]> {
  const matchers = matchersOf(book);
  const patterns = new BookPatterns();
  const active: WorldBookEntry[] = [];
  const waiting = new Set(matchers);
  let found: readonly WorldBookEntry[] = [];
  for (let round = 0; round <= deepestRecursion; round += 1) {
    const texts = round === 0 ? scan.texts : [found.map(({ content }) => content).join("\n")];
    const subject = new Subject(texts, { work: scan.work, patterns });
    const now: WorldBookEntry[] = [];
    for (const matcher of waiting) {
      const { entry } = matcher;
      if (round === 0 ? entry.delay_until_recursion && !entry.constant : entry.exclude_recursion) continue;
      await scan.turn();
      const depth = round === 0 ? (entry.scan_depth ?? book.scan_depth) : 1;
      if (!(entry.constant && round === 0) && !(await matcher.isIn(subject, depth, scan.turn))) continue;
      // Whoever was not lucky is not asked again.
      waiting.delete(matcher);
      if (entry.probability < 100 && scan.random() * 100 >= entry.probability) continue;
      now.push(entry);
    }
    active.push(...now);
    found = now.filter((entry) => !entry.prevent_recursion);
    if (!book.recursive || found.length === 0) break;
  }
  return withinBudget(active, book.token_budget).sort((a, b) => a.order - b.order);
}

/** Constant ones first, then those with the highest order; the first that does not fit ends it. */
function withinBudget(active: readonly WorldBookEntry[], budget: number): WorldBookEntry[] {
  const preferred = active.toSorted((a, b) => Number(b.constant) - Number(a.constant) || b.order - a.order);
  const kept = new Set<WorldBookEntry>();
  let tokens = 0;
  for (const entry of preferred) {
    tokens += tokensOfText(entry.content);
    if (tokens > budget) break;
    kept.add(entry);
  }
  // In the order of the book again, which decides where orders are equal.
  return active.filter((entry) => kept.has(entry));
}

interface Means {
  readonly work: PatternWork;
  readonly patterns: BookPatterns;
}

interface Cut extends Means {
  readonly text: string;
  readonly lowered: string;
}

/** What keys are looked for in, cut and lowered once for each depth. */
class Subject {
  readonly #texts: readonly string[];
  readonly #means: Means;
  readonly #cut = new Map<number, Cut>();

  constructor(texts: readonly string[], means: Means) {
    this.#texts = texts;
    this.#means = means;
  }

  at(depth: number): Cut {
    const known = this.#cut.get(depth);
    if (known !== undefined) return known;
    let text = "";
    for (const one of this.#texts.slice(0, depth)) {
      if (text.length >= longestScan) break;
      text += `${one.slice(-(longestScan - text.length))}\n`;
    }
    const cut = { text, lowered: text.toLowerCase(), ...this.#means };
    this.#cut.set(depth, cut);
    return cut;
  }
}

interface Matcher {
  readonly entry: WorldBookEntry;
  isIn(subject: Subject, depth: number, turn: Scan["turn"]): Promise<boolean>;
}

type Test = (cut: Cut) => boolean;

const ofBooks = new WeakMap<WorldBook, readonly Matcher[]>();

function matchersOf(book: WorldBook): readonly Matcher[] {
  let matchers = ofBooks.get(book);
  if (matchers === undefined) {
    matchers = book.entries
      .filter(({ enabled, content }) => enabled && content !== "")
      .map((one) => toMatcher(one, book));
    ofBooks.set(book, matchers);
  }
  return matchers;
}

function toMatcher(entry: WorldBookEntry, book: WorldBook): Matcher {
  const how = {
    caseSensitive: entry.case_sensitive ?? book.case_sensitive,
    wholeWords: entry.whole_words ?? book.whole_words,
  };
  const primary = entry.keys.map((key) => testOf(key, how));
  const secondary = entry.secondary_keys.map((key) => testOf(key, how));
  return {
    entry,
    isIn: async (subject, depth, turn) => {
      if (depth === 0) return false;
      const cut = subject.at(depth);
      const isThere = async (test: Test): Promise<boolean> => {
        await turn();
        return test(cut);
      };
      if (!(await hasOne(primary, isThere))) return false;
      return secondary.length === 0 || agrees(entry.logic, secondary, isThere);
    },
  };
}

type IsThere = (test: Test) => Promise<boolean>;

/** Is there a test that comes to this? */
async function hasOne(tests: readonly Test[], isThere: IsThere, end = true): Promise<boolean> {
  for (const test of tests) if ((await isThere(test)) === end) return true;
  return false;
}

async function agrees(logic: WorldBookEntry["logic"], secondary: readonly Test[], isThere: IsThere): Promise<boolean> {
  switch (logic) {
    case "and_any":
      return hasOne(secondary, isThere);
    case "and_all":
      return !(await hasOne(secondary, isThere, false));
    case "not_any":
      return !(await hasOne(secondary, isThere));
    case "not_all":
      return hasOne(secondary, isThere, false);
    default:
      return logic satisfies never;
  }
}

function testOf(key: string, how: { readonly caseSensitive: boolean; readonly wholeWords: boolean }): Test {
  if (isPattern(key)) return patternTest(key);
  const word = how.caseSensitive ? key : key.toLowerCase();
  if (word.trim() === "") return () => false;
  return ({ text, lowered, work }) => {
    const subject = how.caseSensitive ? text : lowered;
    return how.wholeWords ? hasWord(subject, word, work) : subject.includes(word);
  };
}

function patternTest(key: string): Test {
  return ({ text, work, patterns }) => {
    const pattern = patterns.compile(key);
    if (pattern !== undefined && !("reason" in pattern)) return work.test(pattern, text);
    // A book with such a one is refused, but may have been written by another release.
    work.isExhausted = true;
    return false;
  };
}

/** Letters and digits of scripts that set words apart; those of Chinese, Japanese and Korean do not. */
const wordCharacter = /^[\p{L}\p{M}\p{N}_]$/u;
const unspaced = /^[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Hangul}\p{sc=Thai}]$/u;

/** What a place costs that has to be looked at, in steps. */
const stepsOfPlace = 1 / 2;

function hasWord(text: string, word: string, work: PatternWork): boolean {
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    if (!work.spend(stepsOfPlace)) return false;
    const after = at + word.length;
    if (isBoundary(text, at - 1, word.charAt(0)) && isBoundary(text, after, word.charAt(word.length - 1))) return true;
  }
  return false;
}

/** Does a word end between its own last (or first) character and this neighbour? */
function isBoundary(text: string, at: number, own: string): boolean {
  const neighbour = text.charAt(at);
  const joins = (character: string): boolean => wordCharacter.test(character) && !unspaced.test(character);
  return !joins(own) || !joins(neighbour);
}

const patternForm = /^\/(.+)\/([a-z]*)$/s;

function isPattern(key: string): boolean {
  return patternForm.test(key);
}

function patternOf(key: string): MaybePattern {
  const [, source, flags] = patternForm.exec(key) ?? [];
  if (source === undefined || flags === undefined) return undefined;
  const other = flags.replace(/[gimsu]/g, "");
  if (other !== "") return { reason: `has the flag '${other.charAt(0)}'; g, i, m, s and u are known` };
  const inline = flags.replace(/[^ms]/g, "");
  return compilePattern(inline === "" ? source : `(?${inline})${source}`, { ignoreCase: flags.includes("i") });
}
