/**
 * Finds the tool requests in a reply as it comes (facts of VCP's grammar; VCP-10). However the reply is cut into
 * pieces, the same is found, in time proportional to its length.
 *
 * What is only quoted is not asked for: blocks in reasoning, in code (fenced or inline) and in quoted lines stay
 * text. A block in a code span that has been opened and may never be closed is decided when that is known, at
 * the end of the paragraph at the latest.
 */
import { endMarker, escapeMarker, fuzzyMarker, none, startMarker, strictMarker, type BlockMarker } from "./markers.ts";
import { ReasoningFilter } from "./reasoning.ts";
import { readToolRequest, type ToolRequest } from "./tool-request.ts";

export interface ScannerOptions {
  readonly fuzzy?: boolean;
  /** `feed` and `end` give the reply without the blocks that are run; otherwise they give nothing. */
  readonly withholds?: boolean;
  /** The text is a request itself and no reply: nothing of it is thought. */
  readonly isBody?: boolean;
}

/** A run of equal characters that may go on in the next piece. */
interface Run {
  readonly character: string;
  length: number;
  readonly isAtLineStart: boolean;
}

interface Fence {
  readonly character: string;
  readonly length: number;
}

type Mode = "text" | "block" | "escape";

const tokens: Readonly<Record<"block" | "doubtful" | "escape", RegExp>> = {
  block: /[<「{]/g,
  /** A block that may be in a code span. */
  doubtful: /[<「{`\n]/g,
  escape: /[「{]/g,
};

const fewestOfFence = 3;
const blanks = /[ \t\r]*/y;
/** Characters of a line that are looked at to see how it begins. */
const headLength = 64;
const markupBeforeFence = /^[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]*)*$/;
const quotedHead = /^[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*>/;

export class ToolRequestScanner {
  readonly #isBody: boolean;
  readonly #fuzzy: boolean;
  readonly #isStart: BlockMarker;
  readonly #isEnd: BlockMarker;
  readonly #reasoning = new ReasoningFilter((text, isThought) => {
    if (!isThought) {
      this.#scan(text, false);
      return;
    }
    // No token goes on behind a thought.
    this.#scan("", true);
    this.#say(text);
  });
  readonly #requests: ToolRequest[] = [];
  #mode: Mode = "text";
  #hasSeenBlock = false;
  /** Not yet looked at: a token may be cut in the middle. */
  #tail = "";
  /** Up to where the piece has been passed on. */
  #from = 0;
  /** Of the block that is being read. */
  #body: string[] = [];

  /** Backticks that opened a code span; 0: none is open. */
  #span = 0;
  /** They stand where a fence does: at the end of the line they are one. */
  #spanMayBeFence = false;
  #fence: Fence | undefined;
  /** Behind what closes the fence if nothing else is on its line. */
  #isClosingFence = false;
  #run: Run | undefined;
  /** How the current line began in the pieces before this one. */
  #head = "";
  /** Where it begins in this piece; -1: before it. */
  #lineAt = -1;
  /** Up to where that is known. */
  #lineSeen = 0;

  readonly #next = new NextPlace();

  /** Blocks in a code span that is still open. */
  #doubtful: ToolRequest[] = [];
  readonly #visible: VisibleText | undefined;

  constructor({ fuzzy = false, withholds = false, isBody = false }: ScannerOptions = {}) {
    this.#isBody = isBody;
    this.#fuzzy = fuzzy;
    this.#isStart = fuzzy ? fuzzyMarker("TOOL_REQUEST") : strictMarker(startMarker);
    this.#isEnd = fuzzy ? fuzzyMarker("END_TOOL_REQUEST") : strictMarker(endMarker);
    this.#visible = withholds ? new VisibleText() : undefined;
  }

  /** Was there a block, whatever was in it? */
  get hasSeenBlock(): boolean {
    return this.#hasSeenBlock;
  }

  /** The next piece of the reply. @returns what of it, and of what was held back, may be shown */
  feed(text: string): string {
    if (this.#isBody) this.#scan(text, false);
    else this.#reasoning.feed(text);
    return this.#visible?.take() ?? "";
  }

  /** The reply is whole. */
  end(): { readonly requests: readonly ToolRequest[]; readonly visible: string } {
    this.#reasoning.end();
    this.#scan("", true);
    this.#endParagraph();
    this.#visible?.release();
    return { requests: this.#requests, visible: this.#visible?.take() ?? "" };
  }

  #scan(piece: string, isWhole: boolean): void {
    const text = this.#tail === "" ? piece : this.#tail + piece;
    this.#tail = "";
    this.#lineAt = -1;
    this.#lineSeen = 0;
    this.#from = 0;
    this.#next.begin();
    let at = 0;
    while (at < text.length || isWhole) {
      const next = this.#mode === "text" ? this.#stepText(text, at, isWhole) : this.#stepBlock(text, at, isWhole);
      if (next === undefined) break;
      at = next;
    }
    const end = text.length - this.#tail.length;
    this.#passTo(text, end);
    this.#head = this.#headOf(text, end);
  }

  /** @returns where to go on; undefined: the piece is used up */
  #stepText(text: string, at: number, isWhole: boolean): number | undefined {
    if (this.#run !== undefined) return this.#goOn(this.#run, text, isWhole);
    if (this.#isClosingFence && !this.#closeFence(text, at)) return undefined;
    // Behind backticks that are not closed: where does the paragraph end?
    const index = this.#span > 0 ? this.#next.inSpan(text, at) : this.#next.inText(text, at);
    if (index < 0) return undefined;
    const token = text.charCodeAt(index);
    if (token === lineFeed) {
      this.#endLine(text, index);
      return index + 1;
    }
    if (token !== bracket) return this.#takeRun(text, index, isWhole);
    const isQuoted = this.#fence !== undefined;
    const length = isQuoted ? none : this.#isStart(text, index, isWhole);
    if (length === "unsure") return this.#cutAt(text, index);
    const isBegin = length !== none && !quotedHead.test(this.#headOf(text, index));
    if (!isBegin) return index + Math.max(1, length);
    this.#passTo(text, index);
    this.#mode = "block";
    this.#visible?.beginBlock();
    this.#say(text.slice(index, index + length));
    this.#from = index + length;
    return this.#from;
  }

  #stepBlock(text: string, at: number, isWhole: boolean): number | undefined {
    if (this.#run !== undefined) return this.#goOn(this.#run, text, isWhole);
    const isDoubtful = this.#span > 0;
    const index = nextToken(tokens[this.#mode === "escape" ? "escape" : isDoubtful ? "doubtful" : "block"], text, at);
    if (index < 0) return undefined;
    const token = text[index];
    if (token === "\n") {
      this.#endLine(text, index);
      return index + 1;
    }
    if (token === "`") return this.#takeRun(text, index, isWhole);
    const length =
      token === "<"
        ? this.#isEnd(text, index, isWhole)
        : escapeMarker(text, index, { kind: this.#mode === "escape" ? "末" : "始", isWhole });
    if (length === "unsure") return this.#cutAt(text, index);
    if (length === none) return index + 1;
    if (token === "<") this.#endBlock(text, { from: index, to: index + length });
    else this.#mode = this.#mode === "escape" ? "block" : "escape";
    return index + length;
  }

  /** The next piece tells what begins here. */
  #cutAt(text: string, at: number): undefined {
    this.#tail = text.slice(at);
    return undefined;
  }

  /** What has been looked at is text of the reply, or of the block. */
  #passTo(text: string, to: number): void {
    const from = this.#from;
    if (from >= to) return;
    this.#from = to;
    if (this.#mode !== "text") this.#body.push(text.slice(from, to));
    this.#visible?.say(text.slice(from, to));
  }

  #endBlock(text: string, marker: { readonly from: number; readonly to: number }): void {
    this.#passTo(text, marker.from);
    this.#say(text.slice(marker.from, marker.to));
    this.#from = marker.to;
    this.#hasSeenBlock = true;
    const request = readToolRequest(this.#body.join(""), { fuzzy: this.#fuzzy });
    this.#body = [];
    this.#mode = "text";
    // Where the block ends is no beginning of a line.
    this.#head = "…";
    this.#lineAt = -1;
    this.#lineSeen = marker.to;
    const isDoubtful = this.#span > 0;
    this.#visible?.endBlock({ isRun: request !== undefined, isDoubtful });
    if (request !== undefined) (isDoubtful ? this.#doubtful : this.#requests).push(request);
  }

  /** It was no block but text about one. */
  #abandonBlock(): void {
    if (this.#mode === "text") return;
    this.#mode = "text";
    this.#body = [];
    this.#visible?.endBlock({ isRun: false, isDoubtful: true });
  }

  /** Backticks and tildes by number. @returns undefined: the next piece may hold more of them */
  #takeRun(text: string, at: number, isWhole: boolean): number | undefined {
    const character = text[at] ?? "";
    const end = endOfRun(text, at, character);
    const isCut = end === text.length && !isWhole;
    const mayFence = isCut || end - at >= fewestOfFence;
    const isAtLineStart = mayFence && this.#mode === "text" && this.#beginsLine(text, at);
    const run: Run = { character, length: end - at, isAtLineStart };
    if (isCut) {
      this.#run = run;
      return undefined;
    }
    this.#passTo(text, end);
    this.#endRun(run);
    return end;
  }

  /** With a run that began in a piece before. */
  #goOn(run: Run, text: string, isWhole: boolean): number | undefined {
    const end = endOfRun(text, 0, run.character);
    run.length += end;
    if (end === text.length && !isWhole) return undefined;
    this.#passTo(text, end);
    this.#run = undefined;
    this.#endRun(run);
    return end;
  }

  #endRun({ character, length, isAtLineStart }: Run): void {
    const mayFence = isAtLineStart && length >= fewestOfFence;
    const fence = this.#fence;
    if (fence !== undefined) {
      this.#isClosingFence = mayFence && character === fence.character && length >= fence.length;
      return;
    }
    // A fence ends the paragraph, whatever was open in it.
    if (mayFence) this.#endParagraph();
    if (character === "~") {
      if (mayFence) this.#fence = { character, length };
      return;
    }
    if (this.#span === 0) {
      this.#span = length;
      this.#spanMayBeFence = mayFence;
    } else if (length === this.#span) {
      this.#abandonBlock();
      this.#span = 0;
      this.#doubtful = [];
      this.#visible?.settle({ areRun: false });
    } else {
      this.#spanMayBeFence = false;
    }
  }

  /** False where the line goes on in the next piece. */
  #closeFence(text: string, at: number): boolean {
    blanks.lastIndex = at;
    const end = at + (blanks.exec(text)?.[0].length ?? 0);
    if (end === text.length) return false;
    this.#isClosingFence = false;
    if (text[end] === "\n") this.#fence = undefined;
    return true;
  }

  #endLine(text: string, at: number): void {
    if (this.#span > 0) {
      if (this.#spanMayBeFence) {
        this.#passTo(text, at);
        this.#abandonBlock();
        this.#fence = { character: "`", length: this.#span };
        this.#span = 0;
        this.#doubtful = [];
        this.#visible?.settle({ areRun: false });
      } else if (this.#isBlank(text, at)) this.#endParagraph();
    }
    this.#lineAt = at + 1;
    this.#lineSeen = at + 1;
  }

  /** A code span that is open here is never closed: its backticks are just that. */
  #endParagraph(): void {
    this.#span = 0;
    this.#spanMayBeFence = false;
    this.#requests.push(...this.#doubtful);
    this.#doubtful = [];
    this.#visible?.settle({ areRun: true });
  }

  /** How the line begins, up to `at` and no further than matters. */
  #headOf(text: string, at: number): string {
    if (at > this.#lineSeen) {
      const lineEnd = text.slice(this.#lineSeen, at).lastIndexOf("\n");
      if (lineEnd >= 0) this.#lineAt = this.#lineSeen + lineEnd + 1;
      this.#lineSeen = at;
    }
    if (this.#lineAt >= 0) return text.slice(this.#lineAt, Math.min(at, this.#lineAt + headLength + 1));
    return this.#head + text.slice(0, Math.max(0, Math.min(at, headLength + 1 - this.#head.length)));
  }

  #beginsLine(text: string, at: number): boolean {
    const head = this.#headOf(text, at);
    return head.length <= headLength && markupBeforeFence.test(head);
  }

  #isBlank(text: string, at: number): boolean {
    const head = this.#headOf(text, at);
    return head.length <= headLength && head.trim() === "";
  }

  #say(text: string): void {
    if (text !== "") this.#visible?.say(text);
  }
}

function endOfRun(text: string, at: number, character: string): number {
  let end = at;
  while (text[end] === character) end += 1;
  return end;
}

function nextToken(pattern: RegExp, text: string, at: number): number {
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex - 1 : -1;
}

/**
 * The next token of a text that is walked once: where each is next is kept until the walk has passed it, since the
 * engine finds one character many times faster than one of several.
 */
class NextPlace {
  #brackets = -1;
  #backtick = -1;
  #tilde = -1;
  #lineFeed = -1;

  /** Another text. */
  begin(): void {
    this.#brackets = -1;
    this.#backtick = -1;
    this.#tilde = -1;
    this.#lineFeed = -1;
  }

  /** `at` never goes back. @returns -1 where there is none */
  inText(text: string, at: number): number {
    const next = this.#inAny(text, at);
    return next === nowhere ? -1 : next;
  }

  /** Ends of lines are tokens, too. */
  inSpan(text: string, at: number): number {
    if (this.#lineFeed < at) this.#lineFeed = placeOf(text, "\n", at);
    const next = Math.min(this.#inAny(text, at), this.#lineFeed);
    return next === nowhere ? -1 : next;
  }

  #inAny(text: string, at: number): number {
    if (this.#brackets < at) this.#brackets = placeOfBrackets(text, at);
    if (this.#backtick < at) this.#backtick = placeOf(text, "`", at);
    if (this.#tilde < at) this.#tilde = placeOf(text, "~", at);
    return Math.min(this.#brackets, this.#backtick, this.#tilde);
  }
}

/** Behind the end of any string. */
const nowhere = 2 ** 30 - 1;

function placeOf(text: string, token: string, at: number): number {
  const place = text.indexOf(token, at);
  return place < 0 ? nowhere : place;
}

/** No marker begins with fewer than two; the second of them may be in the next piece. */
function placeOfBrackets(text: string, at: number): number {
  const place = text.indexOf("<<", at);
  if (place >= 0) return place;
  const last = text.length - 1;
  return last >= at && text.charCodeAt(last) === bracket ? last : nowhere;
}

const bracket = 0x3c;
const lineFeed = 0x0a;

/** What is shown of a reply whose requests are withheld: of a block it is known at its end, or later. */
class VisibleText {
  #ready = "";
  /** In order; undefined: nothing is held back. */
  #held: { readonly text: string[]; readonly isBlock: boolean }[] = [];
  #isInBlock = false;

  say(text: string): void {
    const last = this.#held.at(-1);
    if (last === undefined) this.#ready += text;
    else if (last.isBlock === this.#isInBlock) last.text.push(text);
    else this.#held.push({ text: [text], isBlock: this.#isInBlock });
  }

  beginBlock(): void {
    this.#isInBlock = true;
    this.#held.push({ text: [], isBlock: true });
  }

  endBlock({ isRun, isDoubtful }: { readonly isRun: boolean; readonly isDoubtful: boolean }): void {
    this.#isInBlock = false;
    const block = this.#held.at(-1);
    if (block === undefined) return;
    if (isDoubtful && isRun) {
      this.#held.push({ text: [], isBlock: false });
      return;
    }
    this.#held.pop();
    if (!isRun) this.#held.push({ text: block.text, isBlock: false });
    if (!isDoubtful) this.settle({ areRun: true });
  }

  /** What was in doubt is not any more. */
  settle({ areRun }: { readonly areRun: boolean }): void {
    // A block that is still being read is decided at its own end.
    const open = this.#isInBlock ? this.#held.pop() : undefined;
    for (const { text, isBlock } of this.#held) if (!isBlock || !areRun) this.#ready += text.join("");
    this.#held = open === undefined ? [] : [open];
  }

  /** All of what is held back is text. */
  release(): void {
    for (const { text } of this.#held) this.#ready += text.join("");
    this.#held = [];
  }

  take(): string {
    const text = this.#ready;
    this.#ready = "";
    return text;
  }
}
