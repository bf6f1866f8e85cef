/**
 * Patterns for documents that others read. Python's `re` and Go's RE2 know no `\p{…}` or `\u…` as JavaScript has them,
 * and a client made from such a pattern fails where it first checks a value.
 */

/**
 * The same pattern in signs that all of them read. Of a set of characters that speaks of Unicode's classes only what
 * it leaves out of Latin-1 is said: whatever else it does not hold the gateway itself refuses.
 */
export function toPortablePattern(pattern: string): string {
  return pattern.replaceAll(setWithClass, withoutClasses).replaceAll(escaped, toSpelled);
}

const setWithClass = /\[(?:[^\]\\]|\\[^])*?\\p\{(?:[^\]\\]|\\[^])*\]/gu;
const escaped = /\\(?:u([0-9a-f]{4})|[^])/giu;
const latin1 = Array.from({ length: 256 }, (_none, code) => code);

function withoutClasses(set: string): string {
  const isHeld = new RegExp(set, "u");
  const named = [...set.matchAll(escaped)].flatMap(([, code]) =>
    code === undefined ? [] : [Number.parseInt(code, 16)],
  );
  const others = [...latin1, ...named.filter((code) => code > 255)].filter(
    (code) => !isHeld.test(String.fromCharCode(code)),
  );
  return `[^${rangesOf(others)
    .map(([first, last]) => (first === last ? toSign(first) : `${toSign(first)}-${toSign(last)}`))
    .join("")}]`;
}

function toSpelled(whole: string, code: string | undefined): string {
  return code === undefined ? whole : toSign(Number.parseInt(code, 16));
}

type Range = readonly [first: number, last: number];

function rangesOf(codes: readonly number[]): readonly Range[] {
  const ranges: Range[] = [];
  for (const code of codes) {
    const newest = ranges.at(-1);
    if (newest?.[1] === code - 1) ranges[ranges.length - 1] = [newest[0], code];
    else ranges.push([code, code]);
  }
  return ranges;
}

/** In each of these languages two hexadecimal digits name a character of Latin-1. */
function toSign(code: number): string {
  return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : String.fromCharCode(code);
}
