/**
 * Parts a reply, as it comes, into what is said and what is thought: `<think>` and `<thinking>`, in any case,
 * with attributes and inner spaces, nested and mixed; an opening tag that is never closed hides the rest. Only
 * what is said is a channel for tool requests, so this stands before everything that looks for them.
 */

export type TakePart = (text: string, isThought: boolean) => void;

type State =
  | "text"
  /** Behind `<`. */
  | "opened"
  /** Behind `</`. */
  | "slash"
  | "name"
  /** Behind the name: whatever comes up to `>` belongs to the tag. */
  | "attributes";

const longName = "thinking";
const shortLength = "think".length;

export class ReasoningFilter {
  readonly #take: TakePart;
  #state: State = "text";
  #depth = 0;
  #isClosing = false;
  /** Letters of the name seen. */
  #matched = 0;
  /** Of earlier pieces: what may turn out to be a tag. */
  #held: string[] = [];

  constructor(take: TakePart) {
    this.#take = take;
  }

  feed(text: string): void {
    let from = 0;
    // Where the tag that is being read begins: -1 in an earlier piece.
    let tagAt = this.#held.length > 0 ? -1 : 0;
    for (let at = 0; at < text.length;) {
      if (this.#state === "text") {
        const found = text.indexOf("<", at);
        if (found < 0) break;
        if (found + 1 < text.length && !mayOpen(text.charCodeAt(found + 1))) {
          at = found + 1;
          continue;
        }
        this.#state = "opened";
        tagAt = found;
        at = found + 1;
        continue;
      }
      const next = this.#state === "attributes" ? text.indexOf(">", at) : at;
      if (next < 0) break;
      const step = this.#step(text.charCodeAt(next));
      if (step === "on") {
        at = next + 1;
      } else if (step === "ends") {
        at = next + 1;
        this.#state = "text";
        this.#give(tagAt < 0 ? "" : text.slice(from, tagAt));
        this.#endTag(text.slice(Math.max(tagAt, 0), at));
        from = at;
      } else {
        // No tag; this character may begin one.
        this.#state = "text";
        this.#release();
        at = next;
      }
    }
    if (this.#state === "text") {
      this.#give(text.slice(from));
      return;
    }
    if (tagAt >= 0) this.#give(text.slice(from, tagAt));
    this.#held.push(text.slice(Math.max(tagAt, 0)));
  }

  /** There is no more: what might have become a tag is none. */
  end(): void {
    this.#state = "text";
    this.#release();
  }

  /** What the character does to the tag that may be one. */
  #step(code: number): "on" | "ends" | "breaks" {
    switch (this.#state) {
      case "text":
        return "breaks";
      case "opened":
      case "slash":
        if (isSpace(code)) return "on";
        if (code === slash && this.#state === "opened") {
          this.#state = "slash";
          return "on";
        }
        this.#isClosing = this.#state === "slash";
        this.#state = "name";
        this.#matched = 0;
        return this.#step(code);
      case "name":
        if (this.#matched < longName.length && (code | 32) === longName.charCodeAt(this.#matched)) {
          this.#matched += 1;
          return "on";
        }
        if (this.#matched !== shortLength && this.#matched !== longName.length) return "breaks";
        if (isWordCharacter(code)) return "breaks";
        this.#state = "attributes";
        return this.#step(code);
      case "attributes":
        return code === greater ? "ends" : "on";
      default:
        return this.#state satisfies never;
    }
  }

  #endTag(end: string): void {
    const tag = this.#held.join("") + end;
    this.#held = [];
    this.#take(tag, true);
    if (!this.#isClosing) this.#depth += 1;
    else if (this.#depth > 0) this.#depth -= 1;
  }

  #release(): void {
    if (this.#held.length === 0) return;
    const text = this.#held.join("");
    this.#held = [];
    this.#give(text);
  }

  #give(text: string): void {
    if (text !== "") this.#take(text, this.#depth > 0);
  }
}

const slash = 0x2f;
const greater = 0x3e;
const firstLetter = longName.charCodeAt(0);

/** Behind `<`. */
function mayOpen(code: number): boolean {
  return (code | 32) === firstLetter || code === slash || isSpace(code);
}

function isSpace(code: number): boolean {
  if (code < 0x80) return code === 0x20 || (code >= 0x09 && code <= 0x0d);
  return /\s/.test(String.fromCharCode(code));
}

function isWordCharacter(code: number): boolean {
  return code < 0x80 && /\w/.test(String.fromCharCode(code));
}
