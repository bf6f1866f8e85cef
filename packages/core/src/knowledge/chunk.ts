/**
 * Cuts a text into pieces that are searched. A piece ends where a sentence or a paragraph does, says under which
 * headings it stands, and begins with the end of the one before, so that what is told in two sentences is found.
 * Offsets are those of the text: `text.slice(start, end)` is the piece. Pure, and the same for the same text.
 */
import { tokensOfBytes } from "../budgets/estimate.ts";
import type { KnowledgeConfig } from "./config.ts";

export interface Piece {
  readonly start: number;
  readonly end: number;
  /** Headings above it, outermost first, joined by ` › `; empty: none. */
  readonly heading: string;
}

export interface CutOptions {
  readonly chunk: KnowledgeConfig["chunk"];
  readonly language: string | null;
  /** Lines that begin with `#` are headings. */
  readonly hasHeadings: boolean;
}

interface Span {
  readonly start: number;
  readonly end: number;
}

const longestHeading = 200;

export function* cutText(text: string, options: CutOptions): Generator<Piece> {
  for (const section of options.hasHeadings ? sectionsOf(text) : [{ start: 0, end: text.length, heading: "" }]) {
    // Most sections are short: where sentences end in them changes nothing.
    const isOne = tokensOf(text, section) <= options.chunk.size;
    const spans = isOne
      ? trimmed(text, [{ span: section }])
      : packed(text, unitsOf(text, section, options), options.chunk);
    for (const span of spans) yield { ...span, heading: section.heading };
  }
}

interface Section extends Span {
  readonly heading: string;
}

/** From one heading to the next; lines of code are none. */
function* sectionsOf(text: string): Generator<Section> {
  const path: { readonly level: number; readonly title: string }[] = [];
  let start = 0;
  let fence: string | undefined;
  for (const line of linesOf(text)) {
    const content = text.slice(line.start, line.end);
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(content)?.[1]?.slice(0, 3);
    if (mark !== undefined) fence = fence === undefined ? mark : fence === mark ? undefined : fence;
    const found = fence === undefined ? /^ {0,3}(#{1,6})[ \t]+(\S.*)$/.exec(content) : null;
    if (found === null) continue;
    yield { start, end: line.start, heading: headingOf(path) };
    const level = found[1]?.length ?? 1;
    while ((path.at(-1)?.level ?? 0) >= level) path.pop();
    path.push({ level, title: titleOf(found[2] ?? "") });
    start = line.start;
  }
  yield { start, end: text.length, heading: headingOf(path) };
}

function titleOf(text: string): string {
  const title = withoutClosingMarks(text.trim());
  return title.length <= longestHeading ? title : `${title.slice(0, longestHeading).toWellFormed()}…`;
}

/** `B ##` is the heading `B`. */
function withoutClosingMarks(text: string): string {
  let end = text.length;
  while (text.charAt(end - 1) === "#") end -= 1;
  const before = text.slice(0, end);
  const title = before.trimEnd();
  return title.length === before.length ? text : title;
}

function headingOf(path: readonly { readonly title: string }[]): string {
  return path.map(({ title }) => title).join(" › ");
}

function* linesOf(text: string): Generator<Span> {
  for (let start = 0; start < text.length;) {
    const found = text.indexOf("\n", start);
    const end = found < 0 ? text.length : found;
    yield { start, end };
    start = end + 1;
  }
}

/** What a piece is made of whole, unless it is larger than a piece by itself. */
function* unitsOf(text: string, section: Span, { chunk, language }: CutOptions): Generator<Span> {
  for (const paragraph of paragraphsOf(text, section)) {
    if (chunk.by === "paragraph" && tokensOf(text, paragraph) <= chunk.size) {
      yield paragraph;
      continue;
    }
    for (const sentence of segmentsOf(text, paragraph, segmenter(language, "sentence"))) {
      if (tokensOf(text, sentence) <= chunk.size) yield sentence;
      else yield* brokenUp(text, sentence, { chunk, language });
    }
  }
}

/** Words of a sentence, as many as a piece takes; a word that is longer still is cut between characters. */
function* brokenUp(
  text: string,
  span: Span,
  { chunk, language }: Pick<CutOptions, "chunk" | "language">,
): Generator<Span> {
  let start = span.start;
  let end = start;
  // Counted along: a piece may have thousands of words, and would be measured whole for each of them.
  let bytes = 0;
  for (const word of segmentsOf(text, span, segmenter(language, "word"))) {
    const more = bytesOf(text, word);
    if (end > start && tokensOfBytes(bytes + more) > chunk.size) {
      yield { start, end };
      start = end;
      bytes = 0;
    }
    end = word.end;
    bytes += more;
    while (tokensOfBytes(bytes) > chunk.size) {
      const cut = cutBefore(text, { start, end }, chunk.size);
      yield { start, end: cut };
      bytes -= bytesOf(text, { start, end: cut });
      start = cut;
    }
  }
  if (end > start) yield { start, end };
}

/** As far as `size` tokens go at four bytes each, and never into a pair of surrogates. */
function cutBefore(text: string, { start, end }: Span, size: number): number {
  let bytes = 0;
  for (let at = start; at < end;) {
    const point = text.codePointAt(at) ?? 0;
    bytes += point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    if (bytes > size * 4 && at > start) return at;
    at += point < 0x10000 ? 1 : 2;
  }
  return end;
}

function* paragraphsOf(text: string, { start, end }: Span): Generator<Span> {
  let from = start;
  // Nowhere else is looked for its end: a text may have as many sections as lines.
  for (const { index, 0: blank } of text.slice(start, end).matchAll(/\n[ \t]*\n\s*/g)) {
    const next = start + index + blank.length;
    yield { start: from, end: next };
    from = next;
  }
  if (from < end) yield { start: from, end };
}

const segmenters = new Map<string, Intl.Segmenter>();

function segmenter(language: string | null, granularity: "sentence" | "word"): Intl.Segmenter {
  const key = `${granularity} ${language ?? ""}`;
  let known = segmenters.get(key);
  if (known === undefined) {
    known = new Intl.Segmenter(language ?? undefined, { granularity });
    segmenters.set(key, known);
  }
  return known;
}

/** A paragraph may be a whole book: it is looked at in parts, which costs a sentence cut at each of their ends. */
const longestLook = 20_000;

function* segmentsOf(text: string, { start, end }: Span, by: Intl.Segmenter): Generator<Span> {
  for (let from = start; from < end;) {
    const to = from + longestLook >= end ? end : betweenCharacters(text, from + longestLook);
    for (const { index, segment } of by.segment(text.slice(from, to))) {
      yield { start: from + index, end: from + index + segment.length };
    }
    from = to;
  }
}

function betweenCharacters(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff ? at - 1 : at;
}

function tokensOf(text: string, span: Span): number {
  return tokensOfBytes(bytesOf(text, span));
}

function bytesOf(text: string, { start, end }: Span): number {
  return Buffer.byteLength(text.slice(start, end));
}

/** Units put together until a piece is full; the next one begins with the last of them, up to the overlap. */
function* packed(text: string, units: Iterable<Span>, { size, overlap }: KnowledgeConfig["chunk"]): Generator<Span> {
  let held: { readonly span: Span; readonly tokens: number }[] = [];
  let tokens = 0;
  // Of those held, how many are repeated from the piece before.
  let repeated = 0;
  for (const span of units) {
    const more = tokensOf(text, span);
    if (held.length > repeated && tokens + more > size) {
      yield* trimmed(text, held);
      held = tailOf(held, Math.min(overlap, size - more));
      repeated = held.length;
      tokens = held.reduce((sum, unit) => sum + unit.tokens, 0);
    }
    held.push({ span, tokens: more });
    tokens += more;
  }
  if (held.length > repeated) yield* trimmed(text, held);
}

function tailOf<Unit extends { readonly tokens: number }>(held: readonly Unit[], overlap: number): Unit[] {
  let tokens = 0;
  let from = held.length;
  // Never all of them: that would be the same piece again.
  while (from > 1 && tokens + (held[from - 1]?.tokens ?? 0) <= overlap) {
    from -= 1;
    tokens += held[from]?.tokens ?? 0;
  }
  return held.slice(from);
}

function* trimmed(text: string, held: readonly { readonly span: Span }[]): Generator<Span> {
  const [first, last] = [held[0]?.span, held.at(-1)?.span];
  if (first === undefined || last === undefined) return;
  const whole = text.slice(first.start, last.end);
  const start = first.start + (whole.length - whole.trimStart().length);
  const end = first.start + whole.trimEnd().length;
  if (start < end) yield { start, end };
}
