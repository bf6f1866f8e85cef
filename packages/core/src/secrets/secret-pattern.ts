/**
 * Finds a secret in text however a back end may have written it: raw, percent-encoded, escaped in JSON
 * (also as ASCII, with `\/`, or JSON within JSON) or in HTML, as UTF-8 read as Latin-1, in base64.
 * One text may mix them. Letters and digits are what no encoder touches, so they are searched as they are.
 */

/** Characters of one regular expression: the engine refuses longer ones. */
const pieceLength = 256;
/** Base64 that is shorter would also be found in ordinary words. */
const shortestBase64 = 8;

export function createSecretPatterns(secret: string): readonly SecretPattern[] {
  return [
    new SecretPattern(secret, formsOf),
    ...base64Cores(secret).map((core) => new SecretPattern(core, base64FormsOf, "[\\w+/-]?={0,2}")),
  ];
}

/** One text and all ways to write it. Nothing is compiled before a text looks as if it were in it. */
export class SecretPattern {
  readonly #text: string;
  readonly #forms: (character: string) => string;
  /** Expression for what may follow. */
  readonly #tail: string;
  /** Part of every form, in small letters; empty where there is none. */
  readonly #probe: string;
  #compiled: Pieces | undefined;

  constructor(text: string, forms: (character: string) => string, tail = "") {
    this.#text = text;
    this.#forms = forms;
    this.#tail = tail;
    const runs = text.match(/[A-Za-z0-9]+/g) ?? [];
    this.#probe = runs.reduce((longest, run) => (run.length > longest.length ? run : longest), "").toLowerCase();
  }

  /** @param small the text in small letters */
  mayBeIn(small: string): boolean {
    return small.includes(this.#probe);
  }

  replaceIn(text: string, replacement: string): string {
    this.#compiled ??= compile(partsOf(this.#text, this.#forms), this.#tail);
    return replaceAll(text, this.#compiled, replacement);
  }
}

/**
 * A run of backslashes is one part, and takes all that stand together: were each of them looked for by itself, a long
 * run could be shared out among them in more ways than there is time for. So the escapes of what follows are among
 * what it takes.
 */
function partsOf(text: string, forms: (character: string) => string): readonly string[] {
  const units = text.match(/\\+|[^\\]/gsu) ?? [];
  return units.map((unit, at) => {
    if (unit.startsWith("\\")) return backslashes(unit.length);
    return units[at - 1]?.startsWith("\\") === true ? `(?:${forms(unit)}|(?<=\\\\)${escaped(unit)})` : forms(unit);
  });
}

function backslashes(count: number): string {
  return `(?:(?:%(?:25)?5c|\\\\{1,8}u005c|${htmlNumber(0x5c)}){${count}}|(?<!\\\\)\\\\{${count},}(?!\\\\))`;
}

/** What is left of an escaped character behind its backslashes. */
function escaped(character: string): string {
  return character === "\t" ? "t" : unitEscapes(character).replace(/^\\\\\{1,8\}/, "");
}

interface Pieces {
  /** Searched; each of the others has to follow the one before. */
  readonly first: RegExp;
  readonly rest: readonly RegExp[];
}

function compile(parts: readonly string[], tail: string): Pieces {
  const sources: string[] = [];
  for (let at = 0; at < parts.length; at += pieceLength) sources.push(parts.slice(at, at + pieceLength).join(""));
  const [first = "", ...rest] = sources.map((source, index) => source + (index === sources.length - 1 ? tail : ""));
  return { first: new RegExp(first, "gi"), rest: rest.map((source) => new RegExp(source, "yi")) };
}

function replaceAll(text: string, { first, rest }: Pieces, replacement: string): string {
  let result = "";
  let from = 0;
  first.lastIndex = 0;
  for (let match = first.exec(text); match !== null; match = first.exec(text)) {
    const end = endOfRest(text, first.lastIndex, rest);
    first.lastIndex = end ?? match.index + 1;
    if (end === undefined) continue;
    result += text.slice(from, match.index) + replacement;
    from = end;
  }
  return from === 0 ? text : result + text.slice(from);
}

function endOfRest(text: string, start: number, rest: readonly RegExp[]): number | undefined {
  let end = start;
  for (const piece of rest) {
    piece.lastIndex = end;
    if (!piece.test(text)) return undefined;
    end = piece.lastIndex;
  }
  return end;
}

/** What decoders take Latin-1 to be. */
const windows1252 = new TextDecoder("windows-1252");

const htmlNames: Readonly<Record<string, string>> = { "&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos" };

/** Every way to write one character but a backslash. Repetitions are bounded, so that no text makes the search slow. */
function formsOf(character: string): string {
  if (/[\w.-]/.test(character)) return literal(character);
  const bytes = Buffer.from(character, "utf8");
  const point = character.codePointAt(0) ?? 0;
  const html = htmlNames[character];
  const forms = [
    [...bytes].map((byte) => `%(?:25)?${hex(byte, 2)}`).join(""),
    unitEscapes(character),
    htmlNumber(point),
    ...(html === undefined ? [] : [`&(?:amp;)?${html};`]),
    ...(/["'/]/.test(character) ? [`\\\\{1,8}${literal(character)}`] : []),
    ...(character === "\t" ? ["\\\\{1,8}t"] : []),
    ...(character === " " ? ["\\+"] : []),
    // Last, since longer forms may begin with the character itself.
    ...(bytes.length === 1 ? [] : [literal(bytes.toString("latin1")), literal(windows1252.decode(bytes))]),
    literal(character),
  ];
  return `(?:${forms.join("|")})`;
}

function htmlNumber(point: number): string {
  return `&(?:amp;)?#(?:0{0,4}${point}|x0{0,4}${hex(point, 1)});`;
}

/** `\u5bc6`, with more backslashes where JSON stands within JSON. */
function unitEscapes(character: string): string {
  const units = Array.from({ length: character.length }, (_none, at) => character.charCodeAt(at));
  return units.map((unit) => `\\\\{1,8}u${hex(unit, 4)}`).join("");
}

function hex(value: number, length: number): string {
  return value.toString(16).padStart(length, "0");
}

function literal(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
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

/** In both alphabets, and escaped as any text. */
function base64FormsOf(character: string): string {
  if (character === "+") return `(?:-|${formsOf("+")})`;
  if (character === "/") return `(?:_|${formsOf("/")})`;
  return character;
}
