/**
 * The literal tokens of VCP's tool language. A model writes them, so every look at them is a step of fixed
 * length: whoever scans with these takes time in proportion to the text, whatever the text is.
 */

export const startMarker = "<<<[TOOL_REQUEST]>>>";
export const endMarker = "<<<[END_TOOL_REQUEST]>>>";
export const valueStart = "「始」";
export const valueEnd = "「末」";

/** What stands for a marker inside an ESCAPE value, and is put back when the value has been cut out. */
const restored: readonly (readonly [string, string])[] = [
  ["<<<[TOOL_REQUEST_ESCAPE]>>>", startMarker],
  ["<<<[END_TOOL_REQUEST_ESCAPE]>>>", endMarker],
  ["「始ESCAPE」", valueStart],
  ["「末ESCAPE」", valueEnd],
];

export function restoreEscapes(value: string): string {
  if (!value.includes("ESCAPE")) return value;
  return restored.reduce((text, [written, meant]) => text.replaceAll(written, () => meant), value);
}

/** What a look at one place of a text finds. */
export type Look =
  /** How many characters the token has. */
  | number
  /** The text ends before that can be said. */
  | "unsure";

export const none = 0;

/** Is there a block marker at `at`? */
export type BlockMarker = (text: string, at: number, isWhole: boolean) => Look;

export function strictMarker(marker: string): BlockMarker {
  return (text, at, isWhole) => {
    if (text.startsWith(marker, at)) return marker.length;
    const left = text.length - at;
    return !isWhole && left < marker.length && marker.startsWith(text.slice(at)) ? "unsure" : none;
  };
}

const fewestBrackets = 2;
const mostBrackets = 4;

/** Two to four angle brackets on either side, letters in any case. */
export function fuzzyMarker(name: string): BlockMarker {
  const inner = `[${name}]`.toLowerCase();
  return (text, at, isWhole) => {
    const cut: Look = isWhole ? none : "unsure";
    const opening = countOf(text, at, "<");
    if (at + opening === text.length && opening <= mostBrackets) return cut;
    if (opening < fewestBrackets || opening > mostBrackets) return none;
    const innerAt = at + opening;
    const found = text.slice(innerAt, innerAt + inner.length).toLowerCase();
    if (found !== inner) return found.length < inner.length && inner.startsWith(found) ? cut : none;
    const closingAt = innerAt + inner.length;
    const closing = Math.min(countOf(text, closingAt, ">"), mostBrackets);
    if (!isWhole && closing < mostBrackets && closingAt + closing === text.length) return "unsure";
    return closing < fewestBrackets ? none : closingAt + closing - at;
  };
}

/** As many as matter. */
function countOf(text: string, at: number, character: string): number {
  let count = 0;
  while (count <= mostBrackets && text[at + count] === character) count += 1;
  return count;
}

const escapeWord = "escape";
const escapeLength = 3 + escapeWord.length;

/** Is there `「始ESCAPE」` (`kind` 始) or `「末ESCAPE」` (末) at `at`, with either bracket and in any case? */
export function escapeMarker(text: string, at: number, { kind, isWhole }: EscapeLook): Look {
  // Nearly always: JSON has many braces, and most values are plain.
  const second = text[at + 1];
  if (second !== undefined && second !== kind) return none;
  const third = text[at + 2];
  if (third !== undefined && third !== "E" && third !== "e") return none;
  const whole = text.slice(at, at + escapeLength);
  if (!/^[「{]/.test(whole)) return none;
  const isEscape =
    escapeWord.startsWith(whole.slice(2, 2 + escapeWord.length).toLowerCase()) &&
    (whole.length < escapeLength || /[」}]$/.test(whole));
  if (!isEscape) return none;
  if (whole.length === escapeLength) return escapeLength;
  return isWhole ? none : "unsure";
}

interface EscapeLook {
  readonly kind: "始" | "末";
  readonly isWhole: boolean;
}
