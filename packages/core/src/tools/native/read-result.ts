/**
 * `read_result`: reads on in a result that was too long for the model, by bytes, lines, JSONPath or
 * search. A handle opens for the caller who made the call and in the session it was made in; for
 * anyone else there is no such result.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import * as z from "zod";
import { openHandle } from "../../calls/open-handle.ts";
import { cutPoint, type OpenResult } from "../../calls/result-store.ts";
import type { CallContext } from "../../context.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { parseKeepingDigits } from "../../json.ts";
import { readAll } from "../../ports/blob-store.ts";
import type { ToolReply } from "../tool-call.ts";
import { compilePattern } from "../pattern.ts";
import { selectJson, type Selection } from "./json-path.ts";
import { answered, defineNativeTool, invalidInput, type NativeRun } from "./native-tool.ts";
import { decodeStrictly, linePieces, type LinePiece } from "./text-lines.ts";

const input = () =>
  z.strictObject({
    call_id: z.string().min(1).max(64).describe("The handle: id of the call whose result is read."),
    offset: z.int().min(0).optional().describe("First byte to read."),
    length: z.int().min(1).optional().describe("How many bytes to read."),
    line: z.int().min(1).optional().describe("First line to read, or to search with 'grep', from 1."),
    lines: z.int().min(1).optional().describe("How many lines to read."),
    jsonpath: z.string().max(500).optional().describe("Part of a JSON result, such as $.items[0:10].name; no filters."),
    grep: z.string().min(1).max(500).optional().describe("Regular expression (RE2); gives the lines that match."),
    ignore_case: z.boolean().default(false).describe("For 'grep'."),
  });
type Input = z.output<ReturnType<typeof input>>;

export const readResult = defineNativeTool({
  name: "read_result",
  className: "ReadResultTool",
  title: "Read result",
  description:
    "Reads on in a long tool result by its handle: a byte range ('offset'), lines ('line'), a part of JSON ('jsonpath') or a search ('grep').",
  input,
  effect: "read",
  repeat: "natural",
  // It gives on what other tools brought in from outside.
  outputTrust: "outside",
  invoke: (asked, run) => answered(read(asked, run)),
});

/** Room for the line that says what is shown. */
const noticeBytes = 160;
/** A JSON document of this size is parsed at once, no larger one. */
const largestJson = 10_485_760;
const pieceCharacters = 4_000;
/** Characters around a match in a long line. */
const excerptCharacters = 200;
/** Work of one search, in steps of `Pattern.cost`. */
const searchBudget = 10_000_000;
/** Steps between two looks at the clock and the other requests. */
const searchSlice = 20_000;

async function read(asked: Input, run: NativeRun): Promise<ToolReply> {
  const body = await modeOf(asked)(asked, run);
  return { mediaType: "text/plain", body };
}

type Mode = (asked: Input, run: NativeRun) => Promise<string>;

function modeOf(asked: Input): Mode {
  const wanted = [
    ...(asked.offset !== undefined || asked.length !== undefined ? [readBytes] : []),
    // With `grep`, `line` says where to start.
    ...((asked.line !== undefined || asked.lines !== undefined) && asked.grep === undefined ? [readLines] : []),
    ...(asked.jsonpath === undefined ? [] : [readJson]),
    ...(asked.grep === undefined ? [] : [search]),
  ];
  if (wanted.length > 1) {
    throw invalidInput(
      "arguments",
      "Choose one way to read: 'offset' and 'length', 'line' and 'lines', 'jsonpath', or 'grep'.",
    );
  }
  return wanted[0] ?? readBytes;
}

/** Bytes that the answer may have. */
function roomOf(context: CallContext): number {
  return Math.max(128, context.config.settings.result_bytes - noticeBytes);
}

const readBytes: Mode = async (asked, run) => {
  const room = roomOf(run.context);
  const start = asked.offset ?? 0;
  const length = Math.min(asked.length ?? room, room);
  // A few bytes more show whether the last character is whole.
  const opened = await openHandle(run.deps, run.context, asked.call_id, { start, end: start + length + 4 });
  const { bytes: size } = opened;
  if (start > size) throw invalidInput("offset", `The result has ${size} bytes; 'offset' must not be beyond.`);
  const part = await readAll(opened.body);
  // The range may begin inside a character; that character belonged to the part before.
  const first = start === 0 ? 0 : characterEnd(part, -1);
  // At least one character, or whoever reads on would never get on.
  const last = Math.max(cutPoint(part, length), Math.min(characterEnd(part, first), part.byteLength));
  const text = await wholeText(only(part.subarray(first, last)), notText(asked.call_id, opened));
  const next = start + last;
  const more = next < size ? `; read on with "offset":${next}` : "; this is the end";
  return `[bytes ${start + first}-${next} of ${size}${more}]\n${text}`;
};

/** Where the character that begins at `at` ends. */
function characterEnd(bytes: Uint8Array, at: number): number {
  let end = at + 1;
  while (end < at + 4 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end += 1;
  return end;
}

const readLines: Mode = async (asked, run) => {
  const room = roomOf(run.context);
  const output = new Output(room);
  const start = asked.line ?? 1;
  const after = asked.lines === undefined ? Number.POSITIVE_INFINITY : start + asked.lines;
  let last = start - 1;
  let position = 0;
  let isInsideLine = false;
  let next: string | undefined;
  // Pieces small enough that one always fits.
  for await (const piece of pieces(
    await openHandle(run.deps, run.context, asked.call_id),
    asked.call_id,
    Math.floor(room / 4),
  )) {
    if (piece.line >= start) {
      if (piece.line >= after) next = `"line":${piece.line}`;
      else if (!output.add(piece.text)) next = isInsideLine ? `"offset":${position}` : `"line":${piece.line}`;
      if (next !== undefined) break;
      last = piece.line;
      isInsideLine = !piece.text.endsWith("\n");
    }
    position += Buffer.byteLength(piece.text);
  }
  if (last < start) throw invalidInput("line", `The result has fewer than ${start} lines.`);
  return `[lines ${start}-${last}${next === undefined ? "; this is the end" : `; read on with ${next}`}]\n${output.text}`;
};

const readJson: Mode = async (asked, run) => {
  const { jsonpath = "$" } = asked;
  const opened = await openHandle(run.deps, run.context, asked.call_id);
  if (opened.bytes > largestJson) {
    throw invalidInput(
      "jsonpath",
      `The result has ${opened.bytes} bytes, too many for 'jsonpath' (${largestJson}); use 'grep' or 'line'.`,
    );
  }
  const document = parseKeepingDigits(await wholeText(opened.body, notText(asked.call_id, opened)));
  if (document === undefined) throw invalidInput("jsonpath", "The result is not JSON; use 'grep', 'line' or 'offset'.");
  const { values, isSingular } = selectJson(document, jsonpath);
  if (values.length === 0) return `[nothing is at ${jsonpath}]`;
  const room = roomOf(run.context);
  const bytes = Buffer.from(writeSelected({ values, isSingular }, jsonpath, room), "utf8");
  if (bytes.byteLength <= room) return bytes.toString("utf8");
  const head = bytes.subarray(0, cutPoint(bytes, room)).toString("utf8");
  return `${head}\n[cut: more than ${room} bytes are at ${jsonpath}, ${values.length} values; ask for fewer, for example with [0:10]]`;
};

/** No more of it than there is room for: a path can select the same part of a document many times over. */
function writeSelected({ values, isSingular }: Selection, path: string, room: number): string {
  try {
    if (isSingular) return JSON.stringify(values[0]);
    let text = "[";
    for (const [index, value] of values.entries()) {
      text += `${index === 0 ? "" : ","}${JSON.stringify(value)}`;
      if (text.length > room) return text;
    }
    return `${text}]`;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw invalidInput("jsonpath", `What is at ${path} is nested too deep to be written; use 'offset'.`, error);
  }
}

const search: Mode = async (asked, run) => {
  const pattern = compilePattern(asked.grep ?? "", { ignoreCase: asked.ignore_case });
  if ("reason" in pattern) throw invalidInput("grep", `The pattern ${pattern.reason}.`);
  const room = roomOf(run.context);
  const output = new Output(room);
  const start = asked.line ?? 1;
  const watch = new SearchWatch(run.context.signal);
  const found: number[] = [];
  let next: number | undefined;
  for await (const piece of pieces(
    await openHandle(run.deps, run.context, asked.call_id),
    asked.call_id,
    pieceCharacters,
  )) {
    if (piece.line < start) continue;
    await watch.spend(pattern.cost(piece.text.length));
    // `$` means the end of the line, not of its line break.
    const text = piece.text.replace(/\r?\n$/, "");
    const at = pattern.find(text);
    if (at === undefined) continue;
    if (!output.add(`${piece.line}: ${excerpt(text, at, Math.floor(room / 16))}\n`)) {
      next = piece.line;
      break;
    }
    found.push(piece.line);
  }
  if (found.length === 0) return `[no line from ${start} on matches]`;
  if (next === undefined) return `${output.text}[${found.length} matches; that is all]`;
  // One long line may hold more matches than an answer.
  const more = next === found[0] ? `more in line ${next}; use a narrower pattern` : `more from "line":${next} on`;
  return `${output.text}[${found.length} matches; ${more}]`;
};

/** @param most half of the characters shown of a long line */
function excerpt(line: string, at: number, most: number): string {
  const width = Math.min(most, excerptCharacters);
  if (line.length <= 2 * width) return line;
  const from = Math.max(0, at - Math.floor(width / 2));
  const to = Math.min(line.length, from + 2 * width);
  return `${from > 0 ? "…" : ""}${line.slice(from, to)}${to < line.length ? "…" : ""}`;
}

/** Keeps a long search from holding up everybody else, and ends it when nobody waits any more. */
class SearchWatch {
  readonly #signal: AbortSignal;
  #spent = 0;
  #pausedAt = 0;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  async spend(steps: number): Promise<void> {
    this.#spent += steps;
    if (this.#spent > searchBudget) {
      throw invalidInput(
        "grep",
        "The pattern takes too long on a result of this size; make it simpler or begin further on with 'line'.",
      );
    }
    if (this.#spent - this.#pausedAt < searchSlice) return;
    this.#pausedAt = this.#spent;
    await nextTurn();
    if (this.#signal.aborted) throw new GatewayError("call_cancelled", "The search was given up.");
  }
}

/** Collects text up to a number of bytes. */
class Output {
  readonly #room: number;
  #used = 0;
  text = "";

  constructor(room: number) {
    this.#room = room;
  }

  add(text: string): boolean {
    const bytes = Buffer.byteLength(text);
    if (this.#used + bytes > this.#room) return false;
    this.#used += bytes;
    this.text += text;
    return true;
  }
}

function pieces(opened: OpenResult, callId: string, longest: number): AsyncIterable<LinePiece> {
  return linePieces(decodeStrictly(opened.body, "utf-8", notText(callId, opened)), longest);
}

async function wholeText(body: AsyncIterable<Uint8Array>, toError: (cause: unknown) => GatewayError): Promise<string> {
  let text = "";
  for await (const part of decodeStrictly(body, "utf-8", toError)) text += part;
  return text;
}

async function* only(bytes: Uint8Array): AsyncGenerator<Uint8Array, void, void> {
  yield bytes;
}

function notText(callId: string, { mediaType, bytes }: OpenResult): (cause: unknown) => GatewayError {
  return (cause) =>
    invalidInput(
      "call_id",
      `The result is not text but ${mediaType}, ${bytes} bytes; GET /v1/calls/${callId}/result gives it whole.`,
      cause,
    );
}
