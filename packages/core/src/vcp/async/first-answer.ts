/**
 * The first answer of an asynchronous plugin (VCP specification s. 4.2; VCP-5): the first JSON object on its
 * stdout that is one, found while the plugin still runs and says more. What plugins log around it is passed
 * over, braces and all. Each character is looked at a bounded number of times, however it arrives.
 */
import { isJsonObject, parseJsonExactly, type JsonObject } from "../../json.ts";

/** Where a text that began like JSON turns out to be none, it is read again from its second brace if that is no further back. */
const longestLookBack = 256;

type Step = "next" | "failed" | "closed";

/** What may come next. `name-or-end`: after `{`; `value-or-end`: after `[`; `rest`: after a value. */
type Expected = "name-or-end" | "name" | "colon" | "value-or-end" | "value" | "rest";

/** One object that may be it: reads character by character, and fails where no JSON can go on like this. */
class Candidate {
  readonly start: number;
  readonly #open: string[] = ["{"];
  #expected: Expected = "name-or-end";
  #inString = false;
  #escaped = false;
  #inWord = false;

  constructor(start: number) {
    this.start = start;
  }

  take(character: string): Step {
    if (this.#inString) return this.#takeOfString(character);
    if (this.#inWord && /[\w+.-]/.test(character)) return "next";
    this.#inWord = false;
    if (character === " " || character === "\n" || character === "\r" || character === "\t") return "next";
    return this.#takeOfStructure(character);
  }

  #takeOfString(character: string): Step {
    if (this.#escaped) this.#escaped = false;
    else if (character === "\\") this.#escaped = true;
    else if (character === '"') this.#inString = false;
    else if (character < " ") return "failed";
    return "next";
  }

  #takeOfStructure(character: string): Step {
    const expected = this.#expected;
    switch (character) {
      case '"':
        return this.#beginString(expected);
      case ":":
        return this.#follow(expected === "colon", "value");
      case ",":
        return this.#follow(expected === "rest", this.#open.at(-1) === "{" ? "name" : "value");
      case "{":
      case "[":
        if (expected !== "value" && expected !== "value-or-end") return "failed";
        this.#open.push(character);
        this.#expected = character === "{" ? "name-or-end" : "value-or-end";
        return "next";
      case "}":
        return this.#close("{", expected === "rest" || expected === "name-or-end");
      case "]":
        return this.#close("[", expected === "rest" || expected === "value-or-end");
      default:
        this.#inWord = /[\w-]/.test(character);
        return this.#follow(this.#inWord && (expected === "value" || expected === "value-or-end"), "rest");
    }
  }

  #beginString(expected: Expected): Step {
    this.#inString = true;
    const isName = expected === "name" || expected === "name-or-end";
    const isValue = expected === "value" || expected === "value-or-end";
    return this.#follow(isName || isValue, isName ? "colon" : "rest");
  }

  #follow(fits: boolean, expected: Expected): Step {
    this.#expected = expected;
    return fits ? "next" : "failed";
  }

  #close(opening: string, fits: boolean): Step {
    if (!fits || this.#open.pop() !== opening) return "failed";
    this.#expected = "rest";
    return this.#open.length === 0 ? "closed" : "next";
  }
}

export class FirstAnswer {
  #text = "";
  #at = 0;
  /** Began first, and may still be it. */
  #candidate: Candidate | undefined;
  /** Began a later line: should the first one be a log line that leaves a brace open, this is it. */
  #ofLine: Candidate | undefined;
  #found: JsonObject | undefined;

  get found(): JsonObject | undefined {
    return this.#found;
  }

  /** @returns the answer, once it is there */
  add(part: string): JsonObject | undefined {
    if (this.#found !== undefined) return this.#found;
    this.#text += part;
    for (; this.#found === undefined && this.#at < this.#text.length; this.#at += 1) this.#look(this.#at);
    if (this.#found !== undefined) this.#text = "";
    return this.#found;
  }

  #look(at: number): void {
    const character = this.#text.charAt(at);
    const beginsLine = character === "{" && (at === 0 || this.#text.charAt(at - 1) === "\n");
    if (beginsLine && this.#candidate !== undefined) this.#ofLine = new Candidate(at);
    else if (this.#ofLine !== undefined) this.#advanceLine(this.#ofLine, at);
    if (this.#found === undefined) this.#advance(at);
  }

  #advanceLine(candidate: Candidate, at: number): void {
    const step = candidate.take(this.#text.charAt(at));
    if (step === "next") return;
    this.#ofLine = undefined;
    if (step === "closed") this.#found = answerIn(this.#text.slice(candidate.start, at + 1));
  }

  #advance(end: number): void {
    for (let at = end; at <= end; at += 1) {
      const character = this.#text.charAt(at);
      const candidate = this.#candidate;
      if (candidate === undefined) {
        if (character === "{") this.#candidate = new Candidate(at);
        continue;
      }
      const step = candidate.take(character);
      if (step === "next") continue;
      this.#candidate = undefined;
      if (step === "closed") this.#found = answerIn(this.#text.slice(candidate.start, at + 1));
      // What begins within the part that failed is looked at, too; where that part is long, from its end only.
      else at = at - candidate.start <= longestLookBack ? candidate.start : at - 1;
    }
  }
}

/** An answer says `status` as the protocol has it, or at least what the specification asks of a first answer. */
function answerIn(text: string): JsonObject | undefined {
  const parsed = parseJsonExactly(text);
  if (!isJsonObject(parsed)) return undefined;
  const { status, requestId, messageForAI } = parsed;
  if (status === undefined) return isText(requestId) || isText(messageForAI) ? parsed : undefined;
  return status === "success" || status === "error" ? parsed : undefined;
}

function isText(value: unknown): boolean {
  return typeof value === "string" && value !== "";
}
