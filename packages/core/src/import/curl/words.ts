/**
 * The words of a shell command as a shell would make them, without running anything: quotes, escapes,
 * continued lines and the names of variables. What would run a program is refused.
 */
import { GatewayError } from "../../errors/gateway-error.ts";
import type { Notes } from "../notes.ts";

/** Around the name of a variable in a word; taken out of the text before it is read. */
const open = "\uE000";
const close = "\uE001";

/** Does the text hold a shell variable, whose value nobody knows here? */
export function hasVariable(text: string): boolean {
  return text.includes(open);
}

/** The text with each variable as `write` spells it. */
export function replaceVariables(text: string, write: (name: string) => string): string {
  return text.replace(/\uE000([^\uE001]*)\uE001/g, (_whole, name: string) => write(name));
}

/** @throws GatewayError `invalid_request` for unfinished quotes and for what would run a program */
export function splitWords(command: string, notes: Notes): readonly string[] {
  const text = command.replace(/[\uE000\uE001]/g, "").replaceAll("\r\n", "\n");
  return new WordReader(isOfWindows.test(text) ? withoutCarets(text) : text, notes).read();
}

/** Quotes of cmd.exe, as browsers on Windows write them when a command is copied from them. */
const isOfWindows = /^\s*\S*curl(?:\.exe)?(?:\s+-[\w-]+)*\s+\^"/i;

/** What cmd.exe hands on: after a caret stands what is meant as it is, and nothing is a variable of a shell. */
function withoutCarets(text: string): string {
  return text.replaceAll(/\^\n?([^])/g, "$1").replaceAll(/[$`]/g, "\\$&");
}

class WordReader {
  readonly #text: string;
  readonly #notes: Notes;
  #at = 0;
  readonly #words: string[] = [];
  #word: string | undefined;

  constructor(text: string, notes: Notes) {
    this.#text = text.trim().replace(/^[$%#>] +/, "");
    this.#notes = notes;
  }

  read(): readonly string[] {
    while (this.#at < this.#text.length && this.#step());
    this.#endWord();
    return this.#words;
  }

  #endWord(): void {
    if (this.#word !== undefined) this.#words.push(this.#word);
    this.#word = undefined;
  }

  #add(text: string): void {
    this.#word = (this.#word ?? "") + text;
  }

  /** @returns false at the end of the command */
  #step(): boolean {
    const character = this.#text.charAt(this.#at);
    this.#at += 1;
    if (character === "\\" || (character === "^" && this.#text.charAt(this.#at) === "\n")) return this.#readEscape();
    if (character === "'") this.#add(this.#until("'"));
    else if (character === '"') this.#readDoubleQuoted();
    else if (character === "$") this.#readDollar();
    else if (character === "`") throw runsProgram();
    else if (character === " " || character === "\t") this.#endWord();
    else if (character === "#" && this.#word === undefined)
      return this.#endCommand(this.#text.slice(this.#at).includes("\n"));
    else if (/[\n|;&<>()]/.test(character)) return this.#endCommand(this.#text.slice(this.#at).trim() !== "");
    else this.#add(character);
    return true;
  }

  #endCommand(hasMore: boolean): boolean {
    if (hasMore) this.#notes.add("Only the first command is read; what follows it is left out.");
    return false;
  }

  #readEscape(): boolean {
    const next = this.#text.charAt(this.#at);
    this.#at += 1;
    if (next !== "\n") this.#add(next === "" ? "\\" : next);
    return true;
  }

  #until(quote: string): string {
    const end = this.#text.indexOf(quote, this.#at);
    if (end < 0) throw unfinished(quote);
    const text = this.#text.slice(this.#at, end);
    this.#at = end + 1;
    return text;
  }

  #readDoubleQuoted(): void {
    this.#add("");
    for (;;) {
      const character = this.#text.charAt(this.#at);
      if (character === "") throw unfinished('"');
      this.#at += 1;
      if (character === '"') return;
      if (character === "`") throw runsProgram();
      if (character === "$") this.#readVariable();
      else if (character === "\\") this.#readQuotedEscape();
      else this.#add(character);
    }
  }

  #readQuotedEscape(): void {
    const next = this.#text.charAt(this.#at);
    this.#at += 1;
    if (next !== "\n") this.#add(/["\\$`]/.test(next) ? next : `\\${next}`);
  }

  #readDollar(): void {
    const next = this.#text.charAt(this.#at);
    if (next === "'") {
      this.#at += 1;
      this.#readAnsiQuoted();
    } else if (next === '"') {
      this.#at += 1;
      this.#readDoubleQuoted();
    } else {
      this.#readVariable();
    }
  }

  #readVariable(): void {
    const rest = this.#text.slice(this.#at, this.#at + 200);
    if (rest.startsWith("(")) throw runsProgram();
    const match = /^(?:\{([A-Za-z_]\w*)[^}]*\}|([A-Za-z_]\w*))/.exec(rest);
    if (match === null) {
      this.#add("$");
      return;
    }
    this.#at += match[0].length;
    this.#add(`${open}${match[1] ?? match[2] ?? ""}${close}`);
  }

  /** `$'…'`, as browsers write it when a command is copied from them. */
  #readAnsiQuoted(): void {
    this.#add("");
    for (;;) {
      const character = this.#text.charAt(this.#at);
      if (character === "") throw unfinished("'");
      this.#at += 1;
      if (character === "'") return;
      if (character !== "\\") {
        this.#add(character);
        continue;
      }
      const match = /^(?:x([0-9a-f]{1,2})|u([0-9a-f]{1,4})|U([0-9a-f]{1,8})|([0-7]{1,3})|([^]))/i.exec(
        this.#text.slice(this.#at, this.#at + 9),
      );
      this.#at += match?.[0].length ?? 0;
      this.#add(match === null ? "" : ansiCharacter(match));
    }
  }
}

const ansiEscapes: Readonly<Record<string, string>> = {
  n: "\n",
  t: "\t",
  r: "\r",
  a: "\u0007",
  b: "\b",
  f: "\f",
  v: "\v",
  e: "\u001b",
  E: "\u001b",
};

function ansiCharacter([, hex, unicode, long, octal, plain = ""]: RegExpExecArray): string {
  const code = hex ?? unicode ?? long;
  const number =
    code === undefined ? (octal === undefined ? undefined : Number.parseInt(octal, 8)) : Number.parseInt(code, 16);
  if (number === undefined) return ansiEscapes[plain] ?? (/[\\'"?]/.test(plain) ? plain : `\\${plain}`);
  return number <= 0x10ffff ? String.fromCodePoint(number) : "";
}

function unfinished(quote: string): GatewayError {
  return new GatewayError("invalid_request", `'curl' has a quote (${quote}) that does not end.`, { param: "curl" });
}

function runsProgram(): GatewayError {
  return new GatewayError(
    "invalid_request",
    "'curl' holds a command in a command ($(…) or `…`), which is not run; write its result instead.",
    { param: "curl" },
  );
}
