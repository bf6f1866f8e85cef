/**
 * YAML 1.2 as plain JSON. Reading it takes about half a second a megabyte, so a large document is read
 * piece by piece, by the indentation of its mappings, with turns for other requests in between. Tags run no
 * code, and aliases cannot multiply without an end.
 */
import * as yaml from "yaml";
import type { JsonValue } from "../json.ts";
import { importLimits } from "./limits.ts";
import { Pace } from "../pace.ts";
import { YamlValues } from "./yaml-values.ts";

/** Levels of mappings that are read in pieces: each goes through all lines of those below it. */
const deepest = 64;

/**
 * @param whole characters that may be read in one go
 * @throws Error saying what is wrong with the text
 */
export async function readYaml(text: string, whole: number = importLimits.yamlWhole): Promise<JsonValue> {
  const reader = new YamlReader(whole);
  if (text.length <= whole) return toJson(reader.readPiece(text));
  try {
    return toJson(await reader.readPieces(text));
  } catch (error) {
    throw new Error(
      `${reasonOf(error)}; more than ${whole} characters are read in pieces, for which large parts have to be mappings in block style`,
      {
        cause: error,
      },
    );
  }
}

class YamlReader {
  readonly #whole: number;
  readonly #pieceLength: number;
  readonly #pace = new Pace();
  readonly #values = new YamlValues();

  constructor(whole: number) {
    this.#whole = whole;
    this.#pieceLength = Math.ceil(whole / 8);
  }

  async readPieces(text: string): Promise<unknown> {
    const lines = text.replace(/^---[^\n]*\n/, "").split(/(?<=\n)/);
    if (lines.some((line) => /^(?:---|\.\.\.)(?:\s|$)/.test(line))) throw new Error("more than one document");
    return this.#readMapping(lines, 1);
  }

  readPiece(text: string): unknown {
    const lineCounter = new yaml.LineCounter();
    const composer = new yaml.Composer({
      schema: "core",
      resolveKnownTags: false,
      merge: true,
      logLevel: "error",
      // It would compare each key with each.
      uniqueKeys: false,
    });
    const tokens = untilFault(new yaml.Parser(lineCounter.addNewLine).parse(text));
    const [document, another] = composer.compose(tokens, true, text.length);
    const fault = document?.errors[0];
    if (fault !== undefined) {
      const { line, col } = lineCounter.linePos(fault.pos[0]);
      throw new Error(`${fault.message} at line ${line}, column ${col}`, { cause: fault });
    }
    if (another !== undefined) throw new Error("more than one document");
    return this.#values.read(document?.contents ?? null);
  }

  async #readMapping(lines: readonly string[], level: number): Promise<unknown> {
    const members = new Map<string, unknown>();
    let small = "";
    const flush = (): void => {
      if (small !== "") addAll(members, this.readPiece(small));
      small = "";
    };
    for (const entry of splitEntries(lines)) {
      await this.#pace.turn();
      const text = entry.join("");
      if (small.length + text.length > this.#pieceLength) flush();
      if (text.length <= this.#pieceLength) {
        small += text;
        continue;
      }
      const start = entry.findIndex(hasContent);
      const [first = "", ...rest] = entry.slice(start);
      const isOpened = level < deepest && opensMapping(first, rest);
      addAll(members, isOpened ? await this.#readOpened(first, rest, level + 1) : this.#readLarge(text));
    }
    flush();
    return Object.fromEntries(members);
  }

  /** A text of several lines below its key may look like a mapping. */
  async #readOpened(first: string, rest: readonly string[], level: number): Promise<unknown> {
    try {
      return { [this.#keyOf(first)]: await this.#readMapping(rest, level) };
    } catch (error) {
      const text = first + rest.join("");
      if (text.length > this.#whole) throw error;
      return this.readPiece(text);
    }
  }

  #readLarge(text: string): unknown {
    if (text.length > this.#whole) throw new Error(`a part of ${text.length} characters is no mapping`);
    return this.readPiece(text);
  }

  /** What looks like a key may begin a text: a colon and a `#` can stand in a quoted key. */
  #keyOf(line: string): string {
    const [entry] = Object.entries(this.readPiece(line) ?? {});
    if (entry === undefined || entry[1] !== null) throw new Error("a line is no key of a mapping");
    return entry[0];
  }
}

/** Whatever makes no sense is a fault of its own, and there may be one for each character. */
function* untilFault(tokens: Iterable<yaml.CST.Token>): Iterable<yaml.CST.Token> {
  for (const token of tokens) {
    yield token;
    if (token.type === "error") return;
  }
}

/** The lines of each entry of a block mapping; what stands before the first one goes with it. */
function splitEntries(lines: readonly string[]): readonly (readonly string[])[] {
  const indent = indentOf(lines.find(hasContent) ?? "");
  const entries: string[][] = [];
  let hasStarted = false;
  for (const line of lines) {
    const isStart = hasContent(line) && indentOf(line) === indent;
    const current = entries.at(-1);
    if (current === undefined || (isStart && hasStarted)) entries.push([line]);
    else current.push(line);
    hasStarted ||= isStart;
  }
  return entries;
}

function indentOf(line: string): number {
  return line.length - line.trimStart().length;
}

function hasContent(line: string): boolean {
  return /^\s*[^\s#]/.test(line);
}

/** `key:` with a mapping in the lines below it. */
function opensMapping(first: string, rest: readonly string[]): boolean {
  const next = rest.find(hasContent);
  if (next === undefined || !/:(?:\s+#[^]*)?$/.test(first.trimEnd())) return false;
  return indentOf(next) > indentOf(first) && !/^\s*-(?:\s|$)/.test(next);
}

function addAll(members: Map<string, unknown>, parsed: unknown): void {
  if (parsed === null || parsed === undefined) return;
  if (typeof parsed !== "object" || Array.isArray(parsed)) throw new Error("a part is no mapping");
  for (const [key, value] of Object.entries(parsed)) {
    if (members.has(key)) throw new Error(`the key '${key.slice(0, 80)}' is not unique`);
    members.set(key, value);
  }
}

/** Aliases may circle, and numbers may be none that JSON knows. */
function toJson(value: unknown): JsonValue {
  let count = 0;
  const waiting: unknown[] = [value];
  while (waiting.length > 0) {
    const next = waiting.pop();
    count += 1;
    if (count > importLimits.yamlValues)
      throw new Error(`more than ${importLimits.yamlValues} values when its aliases are written out`);
    if (typeof next === "object" && next !== null) for (const part of Object.values(next)) waiting.push(part);
  }
  return JSON.parse(JSON.stringify(value)) as JsonValue;
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? (error.message.split("\n", 1)[0] ?? "") : "unreadable";
}
