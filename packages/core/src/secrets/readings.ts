/**
 * How a text can be read at one place other than as it stands: percent-encoded, escaped in JSON (also as ASCII, with
 * `\/`, or JSON within JSON) or in HTML, as UTF-8 read as Latin-1, as a form. What is read are tokens: the units of
 * characters in one case, and whole runs of backslashes. All that is looked at is bounded or looked at once.
 */

/** What of a searched text an encoder would touch, as tokens. */
export interface Alphabet {
  readonly escapable: ReadonlySet<number>;
  /** Lengths of its runs of backslashes, without repetition. */
  readonly runs: readonly number[];
  readonly fold: (unit: number) => number;
}

export interface Reading {
  readonly tokens: readonly number[];
  /** Behind what was read. */
  readonly end: number;
}

const backslash = 0x5c;
const tab = 0x09;
const space = 0x20;
const plus = 0x2b;
const percent = 0x25;
const ampersand = 0x26;
/** First bytes of characters of several bytes in UTF-8, which windows-1252 has in the same places. */
const firstLead = 0xc2;
const lastLead = 0xf4;

const htmlNames: Readonly<Record<string, number>> = { amp: 0x26, lt: 0x3c, gt: 0x3e, quot: 0x22, apos: 0x27 };
const htmlOnce = /&(?:#0{0,4}(\d{1,7})|#x0{0,4}([\da-f]{1,6})|(amp|lt|gt|quot|apos));/iy;
/** An entity whose ampersand was escaped again. */
const htmlTwice = /&amp;(?:#0{0,4}(\d{1,7})|#x0{0,4}([\da-f]{1,6})|(amp|lt|gt|quot|apos));/iy;

/** A run of so many backslashes: a longer one in a text holds it. */
export function runToken(length: number): number {
  return 0x1_0000 + length;
}

/** May it be the beginning of a reading? Asked for each unit of a text. */
export function opens(unit: number): boolean {
  return (
    unit === percent ||
    unit === ampersand ||
    unit === backslash ||
    unit === plus ||
    (unit >= firstLead && unit <= lastLead)
  );
}

/** What `opens` says yes to, for a class of a regular expression. */
export const openers = "%&\\\\+\\u00c2-\\u00f4";

/** Only what could be part of the searched text. */
export function readingsAt(text: string, at: number, alphabet: Alphabet): readonly Reading[] {
  const unit = text.charCodeAt(at);
  if (unit === backslash) return jsonEscapes(text, at, alphabet);
  if (unit === plus) return alphabet.escapable.has(space) ? [{ tokens: [space], end: at + 1 }] : [];
  const found = unit === percent || unit === ampersand ? escapesAt(text, at) : [misread(text, at)];
  return escapes(found, { text, at, alphabet });
}

interface Escape {
  readonly point: number;
  readonly end: number;
}

interface Place {
  readonly text: string;
  readonly at: number;
  readonly alphabet: Alphabet;
}

function escapes(found: readonly (Escape | undefined)[], place: Place): readonly Reading[] {
  const { alphabet } = place;
  const readings: Reading[] = [];
  for (const escape of found) {
    if (escape === undefined) continue;
    if (escape.point === backslash) {
      readings.push(...escapedRuns(escape, place));
      continue;
    }
    const tokens = tokensOf(escape.point, alphabet.fold);
    if (tokens.every((token) => alphabet.escapable.has(token))) readings.push({ tokens, end: escape.end });
  }
  return readings;
}

const escapedBackslash = /(?:%(?:25)?5c|&(?:amp;)?#(?:0{0,4}92|x0{0,4}5c);|\\u005c)$/i;
const longestEscape = 16;

function isInRun(text: string, at: number): boolean {
  return escapedBackslash.test(text.slice(Math.max(0, at - longestEscape), at));
}

function tokensOf(point: number, fold: Alphabet["fold"]): readonly number[] {
  if (point <= 0xffff) return [fold(point)];
  const character = String.fromCodePoint(point);
  return [fold(character.charCodeAt(0)), fold(character.charCodeAt(1))];
}

/**
 * Of all the escaped backslashes that stand together: the first ones, since what follows may be a backslash of another
 * kind, or all. All are counted from the first one only, or a long run would be counted from each of its places.
 */
function escapedRuns(first: Escape, { text, at, alphabet: { runs } }: Place): readonly Reading[] {
  if (runs.length === 0) return [];
  const ends = [first.end];
  for (let next = isInRun(text, at) ? undefined : first; next !== undefined;) {
    next = escapesAt(text, next.end).find((escape) => escape?.point === backslash);
    if (next !== undefined) ends.push(next.end);
  }
  const all = ends.at(-1) ?? first.end;
  const readings: Reading[] = [];
  for (const wanted of runs) {
    const end = ends[wanted - 1];
    if (end === undefined) break;
    const tokens = [runToken(wanted)];
    readings.push({ tokens, end });
    if (end !== all) readings.push({ tokens, end: all });
  }
  return readings;
}

/** Once and twice. */
function escapesAt(text: string, at: number): readonly (Escape | undefined)[] {
  if (text.charCodeAt(at) === backslash) return [jsonEscape(text, behindBackslashes(text, at))];
  return text.charCodeAt(at) === percent
    ? [percentEncoded(text, at, false), percentEncoded(text, at, true)]
    : [htmlEntity(text, at, htmlOnce), htmlEntity(text, at, htmlTwice)];
}

function percentEncoded(text: string, at: number, twice: boolean): Escape | undefined {
  const lead = percentByte(text, at, twice);
  if (lead === undefined) return undefined;
  return wide(lead, (next) => continuing(percentByte(text, next, false)) ?? continuing(percentByte(text, next, true)));
}

function percentByte(text: string, at: number, twice: boolean): Escape | undefined {
  if (text.charCodeAt(at) !== percent) return undefined;
  if (twice && !text.startsWith("25", at + 1)) return undefined;
  const digits = at + (twice ? 3 : 1);
  const point = hexAt(text, digits, 2);
  return point === undefined ? undefined : { point, end: digits + 2 };
}

function htmlEntity(text: string, at: number, pattern: RegExp): Escape | undefined {
  pattern.lastIndex = at;
  const match = pattern.exec(text);
  if (match === null) return undefined;
  const [, decimal, hexadecimal, name = ""] = match;
  const point =
    decimal === undefined
      ? hexadecimal === undefined
        ? htmlNames[name.toLowerCase()]
        : Number.parseInt(hexadecimal, 16)
      : Number(decimal);
  return point === undefined || point > 0x10_ffff ? undefined : { point, end: pattern.lastIndex };
}

/** UTF-8 whose bytes were taken for characters of Latin-1 or windows-1252. */
function misread(text: string, at: number): Escape | undefined {
  const lead = { point: text.charCodeAt(at), end: at + 1 };
  return wide(lead, (next) => continuing({ point: byteOf(text.charCodeAt(next)), end: next + 1 }));
}

/** The character whose first byte this is; of one byte it is that itself. */
function wide(lead: Escape, next: (at: number) => Escape | undefined): Escape | undefined {
  const { point: byte } = lead;
  if (byte < 0x80) return lead;
  if (byte < firstLead || byte > lastLead) return undefined;
  const more = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
  let point = byte & (0x3f >> more);
  let { end } = lead;
  for (let count = 0; count < more; count += 1) {
    const continuation = next(end);
    if (continuation === undefined) return undefined;
    point = (point << 6) | (continuation.point & 0x3f);
    end = continuation.end;
  }
  return point > 0x10_ffff ? undefined : { point, end };
}

/** A byte of a character behind the first one. */
function continuing(byte: Escape | undefined): Escape | undefined {
  return byte !== undefined && byte.point >= 0x80 && byte.point < 0xc0 ? byte : undefined;
}

const windows1252 = new Map(
  Array.from(
    new TextDecoder("windows-1252").decode(Uint8Array.from({ length: 32 }, (_none, at) => 0x80 + at)),
    (character, at) => [character.charCodeAt(0), 0x80 + at],
  ),
);

function byteOf(unit: number): number {
  return unit < 0x100 ? unit : (windows1252.get(unit) ?? Number.NaN);
}

/** From the first backslash of a run on, so that however long it is, it is read once. */
function jsonEscapes(text: string, at: number, alphabet: Alphabet): readonly Reading[] {
  if (at > 0 && text.charCodeAt(at - 1) === backslash) return [];
  const end = behindBackslashes(text, at);
  const held: Reading[] = [];
  for (const wanted of alphabet.runs) {
    if (wanted > end - at) break;
    held.push({ tokens: [runToken(wanted)], end });
  }
  const escape = jsonEscape(text, end);
  if (escape === undefined) return held;
  if (escape.point === backslash) return [...held, ...escapes([escape], { text, at, alphabet })];
  const token = alphabet.fold(escape.point);
  if (!alphabet.escapable.has(token)) return held;
  return [
    { tokens: [token], end: escape.end },
    ...held,
    // The run holds backslashes of the searched text as well as that of the escape behind them.
    ...held.map(({ tokens }) => ({ tokens: [...tokens, token], end: escape.end })),
  ];
}

function behindBackslashes(text: string, at: number): number {
  let end = at;
  while (text.charCodeAt(end) === backslash) end += 1;
  return end;
}

/** What is left of an escape behind its backslashes. */
function jsonEscape(text: string, at: number): Escape | undefined {
  const letter = text[at];
  if (letter === '"' || letter === "'" || letter === "/") return { point: letter.charCodeAt(0), end: at + 1 };
  if (letter === "t" || letter === "T") return { point: tab, end: at + 1 };
  if (letter !== "u" && letter !== "U") return undefined;
  const point = hexAt(text, at + 1, 4);
  return point === undefined ? undefined : { point, end: at + 5 };
}

function hexAt(text: string, at: number, digits: number): number | undefined {
  let value = 0;
  for (let index = at; index < at + digits; index += 1) {
    const digit = hexDigit(text.charCodeAt(index));
    if (digit === undefined) return undefined;
    value = value * 16 + digit;
  }
  return value;
}

function hexDigit(unit: number): number | undefined {
  if (unit >= 0x30 && unit <= 0x39) return unit - 0x30;
  const small = unit | 0x20;
  return small >= 0x61 && small <= 0x66 ? small - 0x57 : undefined;
}
