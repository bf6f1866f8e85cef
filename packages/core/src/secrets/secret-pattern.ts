/**
 * Finds a secret in text however a back end may have written it: raw, percent-encoded, escaped in JSON
 * (also as ASCII, with `\/`, or JSON within JSON) or in HTML, as UTF-8 read as Latin-1, in base64.
 * One text may mix them. Letters and digits are what no encoder touches, so they are searched as they are.
 */
import { openers, runToken, type Alphabet } from "./readings.ts";
import { TokenSearch, type Sequence } from "./token-search.ts";

/** Base64 that is shorter would also be found in ordinary words. */
const shortestBase64 = 8;

/** So much of a secret is looked for first: more would find little less, and is not to be had in time in every text. */
const probeLength = 32;
const startLength = 8;

export function createSecretPatterns(secret: string): readonly SecretPattern[] {
  return [
    new SecretPattern(secret, foldUnit),
    ...base64Cores(secret).map((core) => new SecretPattern(core, foldBase64, /[\w+/-]?={0,2}/y)),
  ];
}

/** One text and all ways to write it. Nothing is prepared before a text looks as if it were in it. */
export class SecretPattern {
  readonly #text: string;
  readonly #fold: Alphabet["fold"];
  /** What may follow. */
  readonly #tail: RegExp | undefined;
  /** Part of every form, in small letters; empty where there is none. */
  readonly #probe: string;
  #search: TokenSearch | undefined;

  constructor(text: string, fold: Alphabet["fold"], tail?: RegExp) {
    this.#text = text;
    this.#fold = fold;
    this.#tail = tail;
    const runs = text.match(/[A-Za-z0-9]+/g) ?? [];
    const longest = runs.reduce((before, run) => (run.length > before.length ? run : before), "");
    this.#probe = longest.slice(0, probeLength).toLowerCase();
  }

  /** @param small the text in small letters */
  mayBeIn(small: string): boolean {
    return small.includes(this.#probe);
  }

  replaceIn(text: string, replacement: string): string {
    this.#search ??= new TokenSearch({ ...sequenceOf(this.#text, this.#fold), tail: this.#tail });
    let result = "";
    let from = 0;
    for (const { start, end } of this.#search.findAll(text)) {
      result += text.slice(from, start) + replacement;
      from = end;
    }
    return from === 0 ? text : result + text.slice(from);
  }
}

function sequenceOf(text: string, fold: Alphabet["fold"]): Omit<Sequence, "tail"> {
  const units = text.match(/\\+|[^\\]/gs) ?? [];
  const tokens = units.map((unit) => (unit.startsWith("\\") ? runToken(unit.length) : fold(unit.charCodeAt(0))));
  const runs = new Set(units.filter((unit) => unit.startsWith("\\")).map(({ length }) => length));
  const escapable = new Set(tokens.filter((_token, at) => !/^[\\\w.-]/.test(units[at] ?? "")));
  const alphabet = { fold, escapable, runs: [...runs].sort((a, b) => a - b) };
  return { tokens, alphabet, starts: startsOf(units) };
}

/** Of a secret that begins with what every encoder may touch, any of their beginnings. */
function startsOf(units: readonly string[]): Sequence["starts"] {
  const plain = /^[\w.-]+/.exec(units.slice(0, startLength).join(""))?.[0];
  if (plain !== undefined) return { pattern: new RegExp(plain.replaceAll(".", "\\."), "gi"), length: plain.length };
  const first = units[0]?.charCodeAt(0) ?? 0;
  // In base64, two alphabets.
  const unit = `\\u${first.toString(16).padStart(4, "0")}`;
  return { pattern: new RegExp(`[${unit}${openers}_-]`, "gi"), length: 1 };
}

/** Units of characters that differ in case only are one. */
const folded = new Uint16Array(0x1_0000);

function foldUnit(unit: number): number {
  const known = folded[unit] ?? 0;
  if (known !== 0) return known;
  const large = String.fromCharCode(unit).toUpperCase();
  const small = (large.length === 1 ? large : String.fromCharCode(unit)).toLowerCase();
  const fold = small.length === 1 ? small.charCodeAt(0) : unit;
  folded[unit] = fold;
  return fold;
}

/** In both alphabets. */
function foldBase64(unit: number): number {
  if (unit === 0x2d) return 0x2b;
  return unit === 0x5f ? 0x2f : foldUnit(unit);
}

/** Base64 of a longer text has one of three forms for the part in it, by where that part begins. */
function base64Cores(secret: string): readonly string[] {
  const bytes = Buffer.from(secret, "utf8");
  const whole = bytes.toString("base64");
  if (whole.length < shortestBase64) return [];
  const [first = "", ...others] = [0, 1, 2].map((offset) => {
    const text = Buffer.concat([Buffer.alloc(offset), bytes]).toString("base64");
    // Characters that also depend on what stands before or after are left out.
    return text.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6));
  });
  const sure = first.length < shortestBase64 ? whole.replace(/=+$/, "") : first;
  return [sure, ...others.filter((core) => core.length >= shortestBase64)];
}
