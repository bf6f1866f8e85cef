/**
 * Complete tool calls out of the deltas that back ends really send: without `index`, with index 0 for
 * every call, without or with repeated or changing ids, late names, arguments as objects, placeholder
 * arguments, a finished call sent again. Wherever it could be one call or two, the reading that runs
 * nothing twice and joins nothing foreign wins.
 *
 * What leaves is the strict form of the OpenAI chunk schema: `index` 0, 1, … in order of first
 * appearance, `id` and `name` once, the argument pieces of a call joined being exactly its arguments.
 */
import { randomBytes } from "node:crypto";
import { canonicalText, isJsonObject, parseJson, type JsonObject, type JsonValue } from "../../json.ts";
import { ArgumentsText } from "./arguments-text.ts";
import { mergeDelta } from "./merge-delta.ts";
import type { AssembledToolCall } from "./provider.ts";

export interface ToolCallDelta {
  readonly index: number;
  /** Only with the first delta of a call. */
  readonly id?: string;
  readonly name?: string;
  readonly arguments: string;
  /** With the first: a custom tool, whose input is no JSON. */
  readonly custom?: true;
  /** Fields beyond these, for example a thought signature, each once: clients join pieces in ways of their own. */
  readonly extra?: JsonObject;
}

/**
 * Calls of one turn. Twice what any tenant may have run in a round, which is refused in words of its own; a turn of
 * more is no turn of a model, and each piece of it would be matched against all of them.
 */
export const mostToolCalls = 256;

/** The turn cannot be followed further. */
export class TooManyToolCalls extends Error {
  override readonly name = "TooManyToolCalls";

  constructor() {
    super(`More than ${mostToolCalls} tool calls in one turn.`);
  }
}

export interface AssembledTurn {
  /** What had been held back until the end. */
  readonly deltas: readonly ToolCallDelta[];
  /** In the order of their `index`. */
  readonly calls: readonly AssembledToolCall[];
  /** The same calls as `tool_calls` of an assistant message that goes back to the back end, unknown fields included. */
  readonly wire: readonly JsonObject[];
}

/** One entry of `delta.tool_calls`, read tolerantly. Empty ids and names are absent. */
interface Piece {
  readonly index: number | undefined;
  readonly id: string | undefined;
  readonly name: string | undefined;
  readonly text: string;
  readonly type: string | undefined;
  readonly isCustom: boolean;
  readonly source: JsonObject;
  readonly body: JsonObject;
}

interface Slot {
  readonly arguments: ArgumentsText;
  readonly isCustom: boolean;
  /** Where it is neither `function` nor absent. */
  type: string | undefined;
  /** The back end's. */
  id: string | undefined;
  name: string | undefined;
  readonly sourceIndex: number | undefined;
  /** The name was said again after the arguments were complete: arguments that follow belong to a new call. */
  isNamedAgain: boolean;
  /** Set while this may be nothing but the given call sent once more. */
  repeats: Slot | undefined;
  /** At which it came while it may be that. */
  readonly indexes: number[];
  /** Text has followed its complete arguments: all that comes is more of it. */
  isGarbled: boolean;
  /** What its arguments say, for comparison with repetitions, which may be many. */
  said: { readonly text: string; readonly json: string } | undefined;
  /** The position and id under which it has left. */
  sent: { readonly index: number; readonly id: string } | undefined;
  readonly extra: JsonObject;
  /** Of which these have left. */
  readonly sentExtra: Set<string>;
  readonly bodyExtra: JsonObject;
}

export class ToolCallAssembly {
  /** In order of first appearance, without those that turned out to be repetitions. */
  readonly #slots: Slot[] = [];
  readonly #byId = new Map<string, Slot>();
  readonly #byIndex = new Map<number, Slot>();
  readonly #givenIds = new Set<string>();
  #current: Slot | undefined;
  #sentSlots = 0;
  #form: "tool_calls" | "function_call" | undefined;

  /**
   * Takes the `tool_calls` of one delta.
   * @throws TooManyToolCalls
   */
  push(toolCalls: JsonValue | undefined): readonly ToolCallDelta[] {
    if (!Array.isArray(toolCalls) || toolCalls.length === 0 || !this.#speaks("tool_calls")) return [];
    let inSameDelta = false;
    for (const source of toolCalls) {
      if (!isJsonObject(source)) continue;
      const piece = readPiece(source);
      this.#add(this.#slotOf(piece, inSameDelta), piece);
      inSameDelta = true;
    }
    return this.#release(false);
  }

  /** Takes the deprecated `function_call` of one delta: there is at most one such call. */
  pushLegacy(functionCall: JsonValue | undefined): readonly ToolCallDelta[] {
    if (!isJsonObject(functionCall)) return [];
    const piece = readPiece({ index: 0, function: functionCall });
    const saysNothing = piece.name === undefined && piece.text === "";
    if (saysNothing || !this.#speaks("function_call")) return [];
    this.#add(this.#current ?? this.#open(piece), piece);
    return this.#release(false);
  }

  /** The end of the turn. Calls that never got a name cannot be run and are left out. */
  finish(): AssembledTurn {
    const undecided = this.#slots.filter(({ repeats }) => repeats !== undefined);
    for (const slot of undecided) if (slot.repeats !== undefined) this.#settleRepetition(slot, slot.repeats, true);
    const deltas = this.#release(true);
    const calls: AssembledToolCall[] = [];
    const wire: JsonObject[] = [];
    for (const slot of this.#slots) {
      if (slot.sent === undefined || slot.name === undefined) continue;
      const call = toCall(slot, slot.sent.id, slot.name);
      calls[slot.sent.index] = call;
      wire[slot.sent.index] = toWire(slot, call);
    }
    return { deltas, calls, wire };
  }

  /** Some back ends send both forms of a call; the one that came first counts. */
  #speaks(form: "tool_calls" | "function_call"): boolean {
    this.#form ??= form;
    return this.#form === form;
  }

  // Whose piece is it?

  #slotOf(piece: Piece, inSameDelta: boolean): Slot {
    if (piece.id !== undefined) {
      const known = this.#byId.get(piece.id);
      return known === undefined ? this.#slotOfNewId(piece) : this.#slotOfKnownId(known, piece);
    }
    const there = this.#slotAt(piece);
    if (there === undefined) return this.#open(piece);
    // Two entries of one list are two calls, unless an index says otherwise.
    const isOther = piece.index === undefined && piece.name !== undefined && inSameDelta;
    if (isOther || !continues(there, piece)) return this.#open(piece);
    const mayRepeat = there.arguments.isComplete && saysArguments(piece) && !isMoreOfGarbled(there, piece);
    return mayRepeat ? this.#openRepetition(there, piece) : there;
  }

  #slotOfKnownId(known: Slot, piece: Piece): Slot {
    if (piece.name !== undefined && known.name !== undefined && piece.name !== known.name) {
      const isElsewhere = piece.index !== undefined && piece.index !== known.sourceIndex;
      const isNamePiece = known.arguments.isBlank && known.sent === undefined && !isElsewhere;
      return isNamePiece ? known : this.#open(piece);
    }
    const startsAgain = (saysArguments(piece) || piece.name !== undefined) && !isMoreOfGarbled(known, piece);
    return known.arguments.isComplete && startsAgain ? this.#openRepetition(known, piece) : known;
  }

  #slotOfNewId(piece: Piece): Slot {
    const there = this.#slotAt(piece);
    if (there === undefined) return this.#open(piece);
    const isJoinable = !there.arguments.isComplete || !saysArguments(piece);
    // An id that comes late. With a name on both sides it is another call.
    if (isJoinable && there.id === undefined && (there.name === undefined || piece.name === undefined)) return there;
    // An id that is made anew for every piece: what has no name cannot begin a call.
    const isTail = piece.index !== undefined && piece.name === undefined && there.name !== undefined;
    return isTail && !there.arguments.isComplete ? there : this.#open(piece);
  }

  #slotAt(piece: Piece): Slot | undefined {
    return piece.index === undefined ? this.#current : this.#byIndex.get(piece.index);
  }

  #openRepetition(original: Slot, piece: Piece): Slot {
    const slot = this.#open(piece);
    slot.repeats = original;
    return slot;
  }

  #open(piece: Piece): Slot {
    const slot: Slot = {
      arguments: new ArgumentsText(piece.isCustom),
      isCustom: piece.isCustom,
      type: undefined,
      id: piece.id,
      // Arguments that follow a name said again bring that name along.
      name: piece.name ?? this.#nameSaidAgain(piece),
      sourceIndex: piece.index,
      isNamedAgain: false,
      repeats: undefined,
      indexes: [],
      isGarbled: false,
      said: undefined,
      sent: undefined,
      extra: {},
      sentExtra: new Set(),
      bodyExtra: {},
    };
    this.#slots.push(slot);
    return slot;
  }

  #nameSaidAgain(piece: Piece): string | undefined {
    const there = this.#slotAt(piece);
    return there?.isNamedAgain === true && piece.id === undefined ? there.name : undefined;
  }

  #add(slot: Slot, piece: Piece): void {
    this.#current = slot;
    if (piece.index !== undefined) {
      this.#byIndex.set(piece.index, slot);
      if (slot.repeats !== undefined) slot.indexes.push(piece.index);
    }
    if (piece.id !== undefined) {
      slot.id ??= piece.id;
      this.#byId.set(piece.id, slot);
    }
    if (piece.type !== undefined) slot.type = piece.type;
    if (piece.name !== undefined) addName(slot, piece.name);
    slot.arguments.append(piece.text);
    addUnknown(slot.extra, piece.source, knownFields);
    addUnknown(slot.bodyExtra, piece.body, knownBodyFields);
    if (slot.repeats !== undefined && slot.arguments.isComplete) this.#settleRepetition(slot, slot.repeats, false);
    if (this.#slots.length > mostToolCalls) throw new TooManyToolCalls();
  }

  /** The same id with the same name and arguments is the same call; anything else stands for itself. */
  #settleRepetition(slot: Slot, original: Slot, isEnd: boolean): void {
    slot.repeats = undefined;
    const isSameName = slot.name === undefined || slot.name === original.name;
    if (!(isSameName && saysTheSame(original, slot, isEnd))) {
      if (slot.name !== undefined) return;
      // More text after complete arguments: the call is garbled and must not pass for a good one.
      original.arguments.append(slot.arguments.text);
      original.isGarbled = true;
    }
    this.#slots.splice(this.#slots.lastIndexOf(slot), 1);
    if (slot.id !== undefined) this.#byId.set(slot.id, original);
    for (const index of slot.indexes) if (this.#byIndex.get(index) === slot) this.#byIndex.set(index, original);
    if (this.#current === slot) this.#current = original;
  }

  // What may leave?

  #release(isEnd: boolean): ToolCallDelta[] {
    const deltas: ToolCallDelta[] = [];
    for (const [position, slot] of this.#slots.entries()) {
      if (slot.repeats !== undefined) continue;
      if (slot.sent === undefined && !isEnd) {
        // Later calls wait, so that the order is that of first appearance.
        if (slot.name === undefined) break;
        // The name may still grow while nothing follows it.
        if (slot.arguments.isBlank && position === this.#slots.length - 1) break;
      }
      if (slot.name !== undefined) this.#releaseSlot(slot, slot.name, isEnd, deltas);
    }
    return deltas;
  }

  #releaseSlot(slot: Slot, name: string, isEnd: boolean, deltas: ToolCallDelta[]): void {
    const text = slot.arguments.take(isEnd);
    const extra = takeExtra(slot);
    const more = extra === undefined ? {} : { extra };
    if (slot.sent === undefined) {
      slot.sent = { index: this.#sentSlots, id: this.#uniqueId(slot.id) };
      this.#sentSlots += 1;
      deltas.push({ ...slot.sent, name, arguments: text, ...(slot.isCustom ? { custom: true } : {}), ...more });
    } else if (text !== "" || extra !== undefined) deltas.push({ index: slot.sent.index, arguments: text, ...more });
  }

  #uniqueId(id: string | undefined): string {
    const unique = id === undefined || this.#givenIds.has(id) ? `call_${randomBytes(12).toString("hex")}` : id;
    this.#givenIds.add(unique);
    return unique;
  }
}

/** Does a piece without an id go on with the call at its place? */
function continues(there: Slot, piece: Piece): boolean {
  const hasText = saysArguments(piece);
  if (piece.name === undefined) return !(there.isNamedAgain && hasText);
  if (there.name === undefined) return !there.arguments.isComplete || !hasText;
  if (piece.name !== there.name) {
    // Either the rest of a name or a call after one without arguments; only an index tells.
    return piece.index !== undefined && there.arguments.isBlank && there.sent === undefined;
  }
  if (there.arguments.isEmptyObject) return !hasText || !isWhole(piece.text);
  return !there.arguments.isComplete || !hasText;
}

function saysArguments(piece: Piece): boolean {
  return piece.text.trim() !== "";
}

function isWhole(text: string): boolean {
  const whole = new ArgumentsText(false);
  whole.append(text);
  return whole.isComplete || whole.isEmptyObject;
}

function addName(slot: Slot, name: string): void {
  if (slot.name === undefined) slot.name = name;
  else if (slot.name === name) slot.isNamedAgain = slot.arguments.isComplete;
  // Names come whole, in pieces, or longer each time.
  else slot.name = name.startsWith(slot.name) ? name : slot.name + name;
}

/** A repetition of a garbled call has to be named as one. */
function isMoreOfGarbled(there: Slot, piece: Piece): boolean {
  return there.isGarbled && piece.name === undefined;
}

function saysTheSame(original: Slot, repetition: Slot, isEnd: boolean): boolean {
  const { text } = original.arguments;
  const again = repetition.arguments;
  // Cut off before it said anything else.
  if (isEnd && (again.isHeld || text.startsWith(again.text))) return true;
  return text === again.text || jsonOf(original) === jsonOf(repetition);
}

/** In one spelling; what is no JSON as it is. */
function jsonOf(slot: Slot): string {
  const { text } = slot.arguments;
  if (slot.said?.text !== text) {
    slot.said = { text, json: canonicalText(text.trim()) };
  }
  return slot.said.json;
}

const knownFields: ReadonlySet<string> = new Set(["index", "id", "type", "function", "custom"]);
const knownBodyFields: ReadonlySet<string> = new Set(["name", "arguments", "input"]);

function readPiece(source: JsonObject): Piece {
  const custom = source["custom"];
  const isCustom = isJsonObject(custom);
  const body = isCustom ? custom : isJsonObject(source["function"]) ? source["function"] : {};
  const written = isCustom ? body["input"] : body["arguments"];
  const { index, id, type } = source;
  return {
    index: typeof index === "number" && Number.isInteger(index) ? index : undefined,
    id: textOf(typeof id === "number" ? String(id) : id),
    name: textOf(body["name"]),
    text:
      typeof written === "string" ? written : written === undefined || written === null ? "" : JSON.stringify(written),
    type: isCustom ? "custom" : type === "function" ? undefined : textOf(type),
    isCustom,
    source,
    body,
  };
}

function textOf(value: JsonValue | undefined): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** What has not left yet, as a copy: more may come to it. */
function takeExtra({ extra, sentExtra }: Slot): JsonObject | undefined {
  let taken: JsonObject | undefined;
  for (const key in extra) {
    const value = extra[key];
    if (value === undefined || sentExtra.has(key)) continue;
    sentExtra.add(key);
    mergeDelta((taken ??= {}), { [key]: value });
  }
  return taken;
}

function addUnknown(target: JsonObject, source: JsonObject, known: ReadonlySet<string>): void {
  for (const key in source) {
    const value = source[key];
    if (!known.has(key) && value !== undefined) mergeDelta(target, { [key]: value }, "repeat");
  }
}

function toCall(slot: Slot, id: string, name: string): AssembledToolCall {
  const extra = slot.type === undefined ? slot.extra : { ...slot.extra, type: slot.type };
  return { id, name, arguments: slot.arguments.final, extra };
}

function toWire(slot: Slot, { id, name, arguments: text }: AssembledToolCall): JsonObject {
  const type = slot.type ?? "function";
  if (slot.isCustom) return { id, type, custom: { ...slot.bodyExtra, name, input: text }, ...slot.extra };
  return { id, type, function: { ...slot.bodyExtra, name, arguments: toObjectText(text) }, ...slot.extra };
}

/** Most servers refuse a conversation where arguments are no JSON object; their model would never hear what was wrong. */
function toObjectText(text: string): string {
  return isJsonObject(parseJson(text)) ? text : JSON.stringify({ invalid_arguments: text });
}
