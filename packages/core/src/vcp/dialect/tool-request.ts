/**
 * What stands between the markers of one block: fields, of which some are words to the loop and the others the
 * tool's arguments. A value whose end is missing makes the block unusable: it is never run with what is left.
 */
import { isJsonObject, parseJsonExactly, type JsonObject } from "../../json.ts";
import { restoreEscapes, valueEnd, valueStart } from "./markers.ts";

export interface ToolRequest {
  /** As written. */
  readonly name: string;
  /** Texts, as VCP has them; of a call in MCP's form, whatever it holds. */
  readonly args: JsonObject;
  /** Fire and forget: only a failure is told to the model. */
  readonly archery: boolean;
  /** Not even its success is waited for. */
  readonly archeryNoReply: boolean;
  /** `ink`: the client sees the result whatever is shown otherwise. */
  readonly markHistory: boolean;
  /** What of the conversation the tool wants to have. */
  readonly river: string | null;
  /** How many files of knowledge it wants to have. */
  readonly vref: string | null;
  /** Why it must not run. */
  readonly flaw?: string;
  /** What its fields were read from. */
  readonly block?: ReadOptions & { readonly text: string };
}

export interface ReadOptions {
  /** Markers are taken for what they probably mean. */
  readonly fuzzy: boolean;
}

/** Undefined where the block names no tool. */
export function readToolRequest(block: string, { fuzzy }: ReadOptions): ToolRequest | undefined {
  const { fields, flaw } = readFields(block, fuzzy ? fuzzyValues : strictValues);
  const read = ofFields(fields);
  const request = read === undefined ? ofMcpCall(block) : { ...read, block: { text: block, fuzzy } };
  return request === undefined || flaw === undefined ? request : { ...request, flaw };
}

/**
 * The arguments once more, for a tool that has some of these names, which are no words to the grammar: of `user-id` it
 * reads `id`, and of `关键词` nothing.
 */
export function readWithNames(request: ToolRequest, names: readonly string[]): ToolRequest {
  const { block } = request;
  if (block === undefined || names.length === 0) return request;
  const { fields, flaw } = readFields(block.text, block.fuzzy ? fuzzyValues : strictValues, names);
  return { ...request, args: argsOf(fields), ...(flaw === undefined ? {} : { flaw }) };
}

function ofFields(fields: ReadonlyMap<string, string>): ToolRequest | undefined {
  const name = fields.get("tool_name") ?? "";
  if (name === "") return undefined;
  const archery = fields.get("archery");
  return {
    name,
    args: argsOf(fields),
    archery: archery === "true" || archery === "no_reply",
    archeryNoReply: archery === "no_reply",
    markHistory: fields.get("ink") === "mark_history",
    river: fields.get("river") ?? null,
    vref: fields.get("vref") ?? null,
  };
}

function argsOf(fields: ReadonlyMap<string, string>): JsonObject {
  const args: Record<string, string> = {};
  for (const [key, value] of fields) if (!reserved.has(key)) args[key] = value;
  const valet = fields.get("valet");
  if (valet !== undefined && !fields.has("maid")) args["maid"] = valet;
  return args;
}

/** Words to the loop; and a name that no argument can have. */
const reserved = new Set(["tool_name", "archery", "ink", "river", "vref", "__proto__"]);

/** A call in MCP's form (`{"method":"tools/call","params":{"name","arguments"}}`) is the same request (VCP-21). */
export function ofMcpCall(text: string): ToolRequest | undefined {
  const trimmed = text.trim();
  const message = trimmed.startsWith("{") ? parseJsonExactly(trimmed) : undefined;
  if (!isJsonObject(message) || message["method"] !== "tools/call" || !isJsonObject(message["params"])) {
    return undefined;
  }
  const { name, arguments: args } = message["params"];
  if (typeof name !== "string" || name === "") return undefined;
  return {
    name,
    args: isJsonObject(args) ? args : {},
    archery: false,
    archeryNoReply: false,
    markHistory: false,
    river: null,
    vref: null,
  };
}

interface Values {
  /**
   * A key, or the end of what is none, and, where it has a value, which of the two kinds begins behind it: a raw one, a
   * plain one.
   */
  readonly field: RegExp;
  readonly end: FindEnd;
}

/** Where what ends a value begins and ends, behind `at`; undefined: nowhere. */
type FindEnd = (block: string, at: number) => { readonly from: number; readonly to: number } | undefined;

const escapeEnd = byPattern(/[「{]末escape[」}]/gi);
const strictValues: Values = {
  field: new RegExp(`(\\w+|[^\\w\\s](?=\\s*:))(?:\\s*:\\s*(?:([「{]始escape[」}])|(${valueStart}))?)?`, "gi"),
  end: (block, at) => {
    const from = block.indexOf(valueEnd, at);
    return from < 0 ? undefined : { from, to: from + valueEnd.length };
  },
};
const fuzzyValues: Values = {
  field: /(\w+|[^\w\s](?=\s*:))(?:\s*:\s*(?:([「{]始escape[」}])|([「{]始[^\n「{]*?[」}]))?)?/gi,
  end: byPattern(/[「{]末(?!escape[」}])[^\n「{]*?[」}]/gi),
};

function byPattern(pattern: RegExp): FindEnd {
  return (block, at) => {
    pattern.lastIndex = at;
    const found = pattern.exec(block);
    return found === null ? undefined : { from: found.index, to: pattern.lastIndex };
  };
}

function readFields(
  block: string,
  { field, end }: Values,
  names: readonly string[] = [],
): { readonly fields: ReadonlyMap<string, string>; readonly flaw?: string } {
  const fields = new Map<string, string>();
  /** Whether a value has no end behind `at`: nobody looks for it twice. */
  const isEndless = { raw: false, plain: false };
  let at = 0;
  for (;;) {
    field.lastIndex = at;
    const found = field.exec(block);
    if (found === null) return { fields };
    const valueAt = field.lastIndex;
    at = valueAt;
    const [, word = "", raw, plain] = found;
    const isRaw = raw !== undefined;
    if (!isRaw && plain === undefined) continue;
    const wordEnd = found.index + word.length;
    const key = nameEndingAt(block, wordEnd, names) ?? (/\w/.test(word) ? word : undefined);
    const kind = isRaw ? "raw" : "plain";
    const closed = isEndless[kind] ? undefined : isRaw ? escapeEnd(block, valueAt) : end(block, valueAt);
    if (key === undefined) {
      // What a value says that has no name here is no field either.
      isEndless[kind] = closed === undefined;
      at = closed?.to ?? wordEnd;
      continue;
    }
    if (closed === undefined) return { fields, flaw: `The value of '${key}' has no end marker.` };
    const value = block.slice(valueAt, closed.from).trim();
    fields.set(key, isRaw ? restoreEscapes(value) : value);
    at = closed.to;
  }
}

function nameEndingAt(block: string, end: number, names: readonly string[]): string | undefined {
  return names.find((name) => {
    const start = end - name.length;
    return block.endsWith(name, end) && !isInWord.test(block.slice(Math.max(0, start - 2), start));
  });
}

/** What stands before a name belongs to a longer one. */
const isInWord = /[\p{L}\p{N}_]$/u;
