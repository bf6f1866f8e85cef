/**
 * Finds a sequence of tokens in a text that can be read in several ways, in time that grows with the text alone: the
 * search of Knuth, Morris and Pratt, which looks at nothing twice, along all readings at once. However long and regular
 * the sequence is, a place costs a few steps.
 */
import { opens, readingsAt, type Alphabet } from "./readings.ts";

/** Ways to read one stretch that are followed beside each other, those first that have found most. */
const mostWays = 4;

export interface Span {
  readonly start: number;
  readonly end: number;
}

export interface Sequence {
  readonly tokens: readonly number[];
  readonly alphabet: Alphabet;
  /** Finds where it may begin, in the text as it stands: `length` units. */
  readonly starts: { readonly pattern: RegExp; readonly length: number };
  /** What may follow, and belongs to it. */
  readonly tail: RegExp | undefined;
}

export class TokenSearch {
  readonly #sequence: Sequence;
  readonly #tokens: Int32Array;
  /** Where to go on when the token at an index is another one: never to one that would fail alike. */
  readonly #fallbacks: Int32Array;
  readonly #isEscapable: boolean;

  constructor(sequence: Sequence) {
    this.#sequence = sequence;
    this.#tokens = Int32Array.from(sequence.tokens);
    this.#fallbacks = fallbacksOf(this.#tokens);
    this.#isEscapable = sequence.alphabet.escapable.size > 0 || sequence.alphabet.runs.length > 0;
  }

  /** Each place where it stands; none overlaps another one. */
  *findAll(text: string): Generator<Span> {
    const arrivals = new Arrivals(text.length);
    for (let from = 0; ;) {
      const span = this.#find(text, from, arrivals);
      if (span === undefined) return;
      from = this.#endOfTail(text, span.end);
      yield { start: span.start, end: from };
    }
  }

  #endOfTail(text: string, end: number): number {
    const { tail } = this.#sequence;
    if (tail === undefined) return end;
    tail.lastIndex = end;
    return tail.test(text) ? tail.lastIndex : end;
  }

  #find(text: string, from: number, arrivals: Arrivals): Span | undefined {
    const { alphabet } = this.#sequence;
    /** How much of the sequence ends here, of each way; at places that are still to come. */
    let found: number[] = [];
    const ahead = new Map<number, number[]>();
    for (let at = from; at < text.length; at += 1) {
      if (ahead.size === 0) {
        [at, found] = this.#skip(text, at, found);
        if (found[0] === this.#tokens.length) return this.#spanOf(text, { from, end: at, arrivals });
        if (at === text.length) return undefined;
      } else {
        const arrived = ahead.get(at);
        if (arrived !== undefined) {
          for (const count of arrived) add(found, count);
          ahead.delete(at);
        }
      }
      const unit = text.charCodeAt(at);
      const token = alphabet.fold(unit);
      const isOpen = this.#opens(unit);
      if (found.length === 0) {
        // Nothing begins here.
        if (!isOpen && token !== this.#tokens[0]) continue;
        found.push(0);
      }
      const next = this.#advance(found, [token]);
      let end = next.includes(this.#tokens.length) ? at + 1 : 0;
      for (const reading of isOpen ? readingsAt(text, at, alphabet) : []) {
        const counts = this.#advance(found, reading.tokens);
        if (counts.length === 0) continue;
        arrivals.add(reading.end, at);
        if (counts.includes(this.#tokens.length)) end = Math.max(end, reading.end);
        const there = ahead.get(reading.end);
        if (there === undefined) ahead.set(reading.end, counts);
        else for (const count of counts) add(there, count);
      }
      if (end > 0) return this.#spanOf(text, { from, end, arrivals });
      found = next;
    }
    return undefined;
  }

  #opens(unit: number): boolean {
    return this.#isEscapable && opens(unit);
  }

  /** Goes on to where there is more than one way, or to the end: of the sequence or of the text. */
  #skip(text: string, from: number, found: number[]): [at: number, found: number[]] {
    if (found.length > 1) return [from, found];
    const { fold } = this.#sequence.alphabet;
    let [at, [count = 0]] = [from, found];
    while (at < text.length && count < this.#tokens.length) {
      if (count === 0) at = this.#nextStart(text, at);
      const unit = text.charCodeAt(at);
      if (at === text.length || this.#opens(unit)) break;
      count = this.#step(count, fold(unit));
      at += 1;
    }
    return [at, [count]];
  }

  #nextStart(text: string, at: number): number {
    const { pattern, length } = this.#sequence.starts;
    pattern.lastIndex = at;
    return pattern.test(text) ? pattern.lastIndex - length : text.length;
  }

  #advance(found: readonly number[], tokens: readonly number[]): number[] {
    const counts: number[] = [];
    for (const before of found) {
      let count = before;
      // Where a reading goes on behind the sequence's end, it is another thing that begins there.
      for (const token of tokens) count = this.#step(count === this.#tokens.length ? 0 : count, token);
      if (count > 0) add(counts, count);
    }
    return counts;
  }

  #step(before: number, token: number): number {
    let count = before;
    while (count >= 0 && this.#tokens[count] !== token) count = this.#fallbacks[count] ?? -1;
    return count + 1;
  }

  /** From the first place from which the sequence reaches its end. */
  #spanOf(text: string, { from, end, arrivals }: Found): Span {
    const { alphabet } = this.#sequence;
    // By how much of the sequence is in front of it: a reading has two tokens at most.
    let [places, before]: [readonly number[], readonly number[]] = [[end], []];
    for (let count = this.#tokens.length; count > 0; count -= 1) {
      const one = [...before];
      const two: number[] = [];
      for (const place of places) {
        const earlier = place - 1;
        if (earlier >= from && alphabet.fold(text.charCodeAt(earlier)) === this.#tokens[count - 1]) put(one, earlier);
        for (const origin of arrivals.at(place)) {
          if (origin < from) continue;
          for (const { tokens, end: to } of readingsAt(text, origin, alphabet)) {
            if (to !== place || tokens.some((token, index) => this.#tokens[count - tokens.length + index] !== token))
              continue;
            put(tokens.length === 1 ? one : two, origin);
          }
        }
      }
      [places, before] = [one, two];
    }
    return { start: Math.min(...places), end };
  }
}

interface Found {
  /** Nothing of it stands before. */
  readonly from: number;
  readonly end: number;
  readonly arrivals: Arrivals;
}

/** Of places in the text: where readings began that end there and have found something. */
class Arrivals {
  readonly #length: number;
  /** One more than where it began. Most texts need none of it. */
  #first: Int32Array | undefined;
  readonly #others = new Map<number, number[]>();

  constructor(length: number) {
    this.#length = length;
  }

  add(place: number, origin: number): void {
    this.#first ??= new Int32Array(this.#length + 1);
    const first = this.#first[place];
    if (first === 0) this.#first[place] = origin + 1;
    else if (first !== origin + 1) {
      const others = this.#others.get(place) ?? [];
      put(others, origin);
      this.#others.set(place, others);
    }
  }

  at(place: number): readonly number[] {
    const first = this.#first?.[place] ?? 0;
    return first === 0 ? [] : [first - 1, ...(this.#others.get(place) ?? [])];
  }
}

function add(counts: number[], count: number): void {
  if (counts.includes(count)) return;
  if (counts.length < mostWays) {
    counts.push(count);
    return;
  }
  const least = counts.indexOf(Math.min(...counts));
  if ((counts[least] ?? 0) < count) counts[least] = count;
}

function put(places: number[], place: number): void {
  if (!places.includes(place)) places.push(place);
}

function fallbacksOf(tokens: Int32Array): Int32Array {
  const fallbacks = new Int32Array(tokens.length);
  fallbacks[0] = -1;
  let border = 0;
  for (let at = 1; at < tokens.length; at += 1) {
    fallbacks[at] = tokens[at] === tokens[border] ? (fallbacks[border] ?? -1) : border;
    while (border >= 0 && tokens[border] !== tokens[at]) border = fallbacks[border] ?? -1;
    border += 1;
  }
  return fallbacks;
}
