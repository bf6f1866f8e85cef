/**
 * The arguments of one tool call as they arrive in pieces. Tells when the JSON is complete, holds back
 * what may only be a placeholder (`{}` before the real arguments, `null` for none), and never repairs:
 * text that the model left open stays open. Reads every character once.
 */

type Phase = "blank" | "null" | "brace" | "empty-object" | "body";

const quote = 0x22;
const backslash = 0x5c;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const openBracket = 0x5b;
const closeBracket = 0x5d;

export class ArgumentsText {
  #text = "";
  /** What of the text has not been taken yet. Kept apart: cutting it off a growing text would copy that each time. */
  #fresh = "";
  #phase: Phase;
  #nullLetters = 0;
  #depth = 0;
  #inString = false;
  #isEscaped = false;
  #isComplete = false;
  readonly #isFree: boolean;

  /** @param isFree the text is no JSON (custom tools): it is taken as it comes */
  constructor(isFree: boolean) {
    this.#isFree = isFree;
    this.#phase = isFree ? "body" : "blank";
  }

  append(piece: string): void {
    if (this.#isFree) {
      this.#text += piece;
      this.#fresh += piece;
      return;
    }
    let kept = 0;
    for (let at = 0; at < piece.length; at += 1) {
      const code = piece.charCodeAt(at);
      if (this.#standsForNothing && !isSpace(code)) {
        // A complete `{}` with more text after it can only have been a placeholder.
        this.#text = "";
        this.#fresh = "";
        this.#phase = "blank";
        kept = at;
      }
      this.#step(code);
    }
    const text = kept === 0 ? piece : piece.slice(kept);
    this.#text += text;
    this.#fresh += text;
  }

  /** What may be shown and was not taken before; at the end, all of it. */
  take(isEnd: boolean): string {
    if (!isEnd && this.isHeld) return "";
    const fresh = isEnd && this.#isNone ? "{}" : this.#fresh;
    this.#fresh = "";
    return fresh;
  }

  /** Nothing but white space so far. */
  get isBlank(): boolean {
    return this.#isFree ? this.#text === "" : this.#phase === "blank";
  }

  /** So far the text may turn out to stand for nothing; it must not be shown yet. */
  get isHeld(): boolean {
    return this.#phase !== "body";
  }

  /** The brackets have closed, and the text is no placeholder: only white space may follow. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** `{}` so far: complete, unless more follows. */
  get isEmptyObject(): boolean {
    return this.#phase === "empty-object";
  }

  get text(): string {
    return this.#text;
  }

  /** The arguments of a finished call: blank and `null` mean none. */
  get final(): string {
    return this.#isNone ? "{}" : this.#text;
  }

  get #isNone(): boolean {
    return this.#phase === "blank" || (this.#phase === "null" && this.#nullLetters === 4);
  }

  get #standsForNothing(): boolean {
    return this.#phase === "empty-object" || (this.#phase === "null" && this.#nullLetters === 4);
  }

  #step(code: number): void {
    switch (this.#phase) {
      case "body":
        this.#stepInBody(code);
        return;
      case "blank":
        if (isSpace(code)) return;
        if (code === openBrace) this.#phase = "brace";
        else if (code === nullLetter(0)) this.#startNull();
        else this.#enterBody(code);
        return;
      case "null":
        if (isSpace(code) && this.#nullLetters === 4) return;
        if (code === nullLetter(this.#nullLetters)) this.#nullLetters += 1;
        else this.#enterBody(code);
        return;
      case "brace":
        if (isSpace(code)) return;
        if (code === closeBrace) this.#phase = "empty-object";
        else {
          this.#depth = 1;
          this.#enterBody(code);
        }
        return;
      case "empty-object":
        return;
    }
  }

  #startNull(): void {
    this.#phase = "null";
    this.#nullLetters = 1;
  }

  #enterBody(code: number): void {
    this.#phase = "body";
    this.#stepInBody(code);
  }

  #stepInBody(code: number): void {
    if (this.#inString) {
      if (this.#isEscaped) this.#isEscaped = false;
      else if (code === backslash) this.#isEscaped = true;
      else if (code === quote) this.#inString = false;
      return;
    }
    if (code === quote) this.#inString = true;
    else if (code === openBrace || code === openBracket) this.#depth += 1;
    else if (code === closeBrace || code === closeBracket) {
      this.#depth -= 1;
      if (this.#depth <= 0) this.#isComplete = true;
    }
  }
}

function nullLetter(at: number): number {
  return "null".charCodeAt(at);
}

/** JSON's white space. */
function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}
