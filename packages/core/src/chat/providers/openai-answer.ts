/**
 * One answer of an OpenAI-compatible back end, chunk by chunk or whole, as provider events. Knows the
 * habits of the many servers that speak this format; knows nothing of how the bytes came.
 *
 * A chunk's bytes go along with its event where they can be sent on as they are: one choice, one
 * piece, nothing beside it, and the same id, model and time as before.
 */
import { randomBytes } from "node:crypto";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { type Usage, countOf, usageOf } from "../../calls/usage.ts";
import { GrowingText } from "../growing-text.ts";
import { isCanonicalAnswer } from "./canonical-answer.ts";
import { mergeDelta } from "./merge-delta.ts";
import type { ProviderEvent } from "./provider.ts";
import { ToolCallAssembly, type AssembledTurn, type ToolCallDelta } from "./tool-call-assembly.ts";

type StartEvent = Extract<ProviderEvent, { type: "start" }>;

/** Fields of a chunk or body that have events of their own. */
const knownFields: ReadonlySet<string> = new Set([
  "id",
  "object",
  "created",
  "model",
  "choices",
  "usage",
  "error",
  "obfuscation",
  "system_fingerprint",
]);

/** Other words for OpenAI's reasons; only its own are known to clients. */
const finishReasons: ReadonlyMap<string, string> = new Map([
  ["function_call", "tool_calls"],
  ["tool_use", "tool_calls"],
  ["end_turn", "stop"],
  ["stop_sequence", "stop"],
  ["eos", "stop"],
  ["stop", "stop"],
  ["max_tokens", "length"],
  ["max_output_tokens", "length"],
  ["model_length", "length"],
  ["sensitive", "content_filter"],
  ["safety", "content_filter"],
  ["recitation", "content_filter"],
]);

/** Words with which back ends say that an answer broke off through no fault of the request. */
const givenUpWords: ReadonlySet<string> = new Set(["error", "abort", "network_error", "insufficient_system_resource"]);

export interface WholeBody {
  readonly body: JsonObject;
  /** As received, where they are fit to be sent on. */
  readonly bytes?: Uint8Array;
}

const withoutCalls: AssembledTurn = { deltas: [], calls: [], wire: [] };

export class AnswerReader {
  readonly #requestedModel: string;
  readonly #mostChoices: number;
  readonly #choices = new Map<number, ChoiceReader>();
  readonly #extra: JsonObject = {};
  #hasExtra = false;
  #start: StartEvent | undefined;
  #usage: Usage | undefined;

  /**
   * @param requestedModel reported where the back end names none
   * @param mostChoices as many as were asked for: what a back end says in others is passed over
   */
  constructor(requestedModel: string, mostChoices: number) {
    this.#requestedModel = requestedModel;
    this.#mostChoices = mostChoices;
  }

  /** Every choice that began has its reason to finish: nothing is missing but the trailer. */
  get isFinished(): boolean {
    if (this.#choices.size === 0) return false;
    for (const choice of this.#choices.values()) if (!choice.isFinished) return false;
    return true;
  }

  get hasChoices(): boolean {
    return this.#choices.size > 0;
  }

  /** The back end's word for having given up in the middle of an answer. */
  get givenUpAs(): string | undefined {
    for (const { givenUpAs } of this.#choices.values()) if (givenUpAs !== undefined) return givenUpAs;
    return undefined;
  }

  /**
   * Adds to `events`.
   * @param frame the bytes of the chunk where they are fit to be sent on
   * @throws TooManyToolCalls
   */
  chunk(chunk: JsonObject, frame: Uint8Array | undefined, events: ProviderEvent[]): void {
    const usage = toUsage(chunk["usage"]);
    if (usage !== undefined) this.#usage = usage;
    for (const key in chunk) if (!knownFields.has(key)) this.#keepExtra(key, chunk[key]);
    const choices = chunk["choices"];
    if (!Array.isArray(choices) || choices.length === 0) return;
    const start = this.#begin(chunk, events);
    const isWhole = choices.length === 1 && usage === undefined && continuesAs(chunk, start);
    for (const [position, choice] of choices.entries()) {
      if (isJsonObject(choice)) this.#choice(choice, position)?.chunk(choice, isWhole ? frame : undefined, events);
    }
  }

  /** A chunk of a choice that has begun, which says one text and nothing else. Adds to `events`. */
  text(text: string, of: { readonly choice: number; readonly frame: Uint8Array }, events: ProviderEvent[]): void {
    this.#choices.get(of.choice)?.text(text, of.frame, events);
  }

  /**
   * A body that holds the whole answer. Adds to `events`.
   * @throws TooManyToolCalls
   */
  body(body: JsonObject, events: ProviderEvent[]): void {
    this.#usage = toUsage(body["usage"]);
    this.#begin(body, events);
    const choices = Array.isArray(body["choices"]) ? body["choices"] : [];
    for (const [position, choice] of choices.entries()) {
      if (isJsonObject(choice)) this.#choice(choice, position)?.message(choice, events);
    }
  }

  /** The end of the answer. Adds to `events`. @param whole the whole body, where there was one */
  finish(events: ProviderEvent[], whole?: WholeBody): void {
    for (const choice of [...this.#choices.values()].sort((a, b) => a.index - b.index)) choice.finish(events);
    if (this.#usage !== undefined) events.push({ type: "usage", usage: this.#usage });
    if (whole !== undefined) {
      const { body, bytes } = whole;
      const isForwardable = bytes !== undefined && isCanonicalAnswer(body);
      events.push(isForwardable ? { type: "response", body, bytes } : { type: "response", body });
    } else if (this.#hasExtra) {
      events.push({ type: "response", body: this.#extra });
    }
  }

  #keepExtra(key: string, value: JsonValue | undefined): void {
    if (value === undefined || value === null) return;
    this.#hasExtra = true;
    // Said of the whole answer, so the last word counts.
    if (key !== "__proto__") this.#extra[key] = value;
  }

  #begin(source: JsonObject, events: ProviderEvent[]): StartEvent {
    if (this.#start !== undefined) return this.#start;
    const { id, model, created, system_fingerprint: fingerprint } = source;
    this.#start = {
      type: "start",
      id: typeof id === "string" && id !== "" ? id : `chatcmpl-${randomBytes(12).toString("hex")}`,
      model: typeof model === "string" && model !== "" ? model : this.#requestedModel,
      created: typeof created === "number" && created > 0 ? Math.floor(created) : Math.floor(Date.now() / 1_000),
      ...(typeof fingerprint === "string" ? { systemFingerprint: fingerprint } : {}),
      ...(beginsWithoutText(source["choices"]) ? { content: null } : {}),
    };
    events.push(this.#start);
    return this.#start;
  }

  /** Undefined for one too many. */
  #choice(source: JsonObject, position: number): ChoiceReader | undefined {
    const index = typeof source["index"] === "number" ? source["index"] : position;
    const known = this.#choices.get(index);
    if (known !== undefined || this.#choices.size >= this.#mostChoices) return known;
    const choice = new ChoiceReader(index);
    this.#choices.set(index, choice);
    return choice;
  }
}

/** What one delta holds, told apart. */
interface Delta {
  text: string;
  reasoning: string;
  reasoningField: "reasoning_content" | "reasoning";
  refusal: string;
  hasRole: boolean;
  toolCalls: JsonValue | undefined;
  functionCall: JsonValue | undefined;
  other: JsonObject | undefined;
  /** Content came as parts, which clients do not know: it is written anew as text. */
  hasParts: boolean;
}

class ChoiceReader {
  readonly index: number;
  readonly #content = new GrowingText();
  readonly #reasoningContent = new GrowingText();
  readonly #reasoning = new GrowingText();
  readonly #refusal = new GrowingText();
  readonly #other: JsonObject = {};
  /** Content that is no text (thinking, pictures), where content comes as parts. */
  readonly #parts: JsonValue[] = [];
  /** Made for the first of them: most answers have none. */
  #toolCalls: ToolCallAssembly | undefined;
  #message: JsonObject | undefined;
  #finishReason: string | undefined;
  #givenUpAs: string | undefined;
  #hasDelta = false;

  constructor(index: number) {
    this.index = index;
  }

  get isFinished(): boolean {
    return this.#finishReason !== undefined;
  }

  get givenUpAs(): string | undefined {
    return this.#givenUpAs;
  }

  chunk(choice: JsonObject, frame: Uint8Array | undefined, events: ProviderEvent[]): void {
    const finishes = this.#readFinishReason(choice);
    const logprobs = isJsonObject(choice["logprobs"]) ? choice["logprobs"] : undefined;
    const source = this.#deltaOf(choice);
    const delta = this.#readDelta(source);
    const before = events.length;
    const isForwardable = frame !== undefined && !finishes && !delta.hasRole && isSingle(delta, logprobs);
    this.#emit(delta, isForwardable ? frame : undefined, events);
    if (delta.other !== undefined || logprobs !== undefined) {
      this.#emitOther(
        delta.other ?? {},
        logprobs,
        isForwardable && events.length === before ? frame : undefined,
        events,
      );
    }
  }

  text(text: string, frame: Uint8Array, events: ProviderEvent[]): void {
    this.#content.append(text);
    events.push({ type: "text-delta", text, choice: this.index, frame });
  }

  /** A whole message, kept as it was written. */
  message(choice: JsonObject, events: ProviderEvent[]): void {
    this.#readFinishReason(choice);
    this.#finishReason ??= "";
    const message = isJsonObject(choice["message"]) ? choice["message"] : {};
    this.#message = message;
    const logprobs = isJsonObject(choice["logprobs"]) ? choice["logprobs"] : undefined;
    const delta = this.#readDelta(message);
    this.#emit(delta, undefined, events);
    if (delta.other !== undefined || logprobs !== undefined)
      this.#emitOther(delta.other ?? {}, logprobs, undefined, events);
  }

  finish(events: ProviderEvent[]): void {
    const turn = this.#toolCalls?.finish() ?? withoutCalls;
    this.#emitToolCalls(turn.deltas, events);
    const reason = this.#finishReason;
    // What a filter has cut into may look like a whole call.
    const isFiltered = reason === "content_filter";
    const [calls, wire] = isFiltered ? [[], []] : [turn.calls, turn.wire];
    events.push({
      type: "message",
      choice: this.index,
      message: this.#message === undefined ? this.#assemble(wire) : withToolCalls(this.#message, wire),
      toolCalls: calls,
      finishReason: reasonFor(reason, calls.length),
    });
  }

  #readFinishReason(choice: JsonObject): boolean {
    const reason = choice["finish_reason"];
    // Some write the word for nothing.
    if (typeof reason !== "string" || reason === "" || reason === "null") return false;
    const word = reason.toLowerCase();
    if (givenUpWords.has(word)) this.#givenUpAs = reason;
    this.#finishReason = finishReasons.get(word) ?? reason;
    return true;
  }

  /** Some streams carry a `message`; beside deltas it only repeats them. */
  #deltaOf(choice: JsonObject): JsonObject {
    if (isJsonObject(choice["delta"])) {
      this.#hasDelta = true;
      return choice["delta"];
    }
    return !this.#hasDelta && isJsonObject(choice["message"]) ? choice["message"] : {};
  }

  #readDelta(source: JsonObject): Delta {
    const delta: Delta = {
      text: "",
      reasoning: "",
      reasoningField: "reasoning_content",
      refusal: "",
      hasRole: false,
      toolCalls: undefined,
      functionCall: undefined,
      other: undefined,
      hasParts: false,
    };
    for (const key in source) {
      const value = source[key];
      if (value === undefined || value === null || key === "__proto__") continue;
      switch (key) {
        case "role":
          delta.hasRole = true;
          break;
        case "content":
          delta.text = typeof value === "string" ? value : this.#readParts(value, delta);
          break;
        case "reasoning_content":
        case "reasoning":
          if (typeof value === "string") this.#readReasoning(key, value, delta);
          else (delta.other ??= {})[key] = value;
          break;
        case "refusal":
          if (typeof value === "string") delta.refusal = value;
          break;
        case "tool_calls":
          delta.toolCalls = value;
          break;
        case "function_call":
          delta.functionCall = value;
          break;
        default:
          if (!isEmpty(value)) (delta.other ??= {})[key] = value;
      }
    }
    return delta;
  }

  /** Both fields may carry the same text; it is shown once and kept in both. */
  #readReasoning(field: "reasoning_content" | "reasoning", text: string, delta: Delta): void {
    (field === "reasoning" ? this.#reasoning : this.#reasoningContent).append(text);
    if (text === "" || (delta.reasoning !== "" && field === "reasoning")) return;
    delta.reasoning = text;
    delta.reasoningField = field;
  }

  /** Thoughts among them are told as reasoning; whatever is no text goes back to the back end as it came. */
  #readParts(content: JsonValue, delta: Delta): string {
    if (!Array.isArray(content)) return "";
    delta.hasParts = true;
    let text = "";
    for (const part of content) {
      const said = textOfPart(part);
      if (said === undefined) {
        this.#parts.push(part);
        delta.reasoning += thoughtOfPart(part);
      } else text += said;
    }
    return text;
  }

  #emit(delta: Delta, frame: Uint8Array | undefined, events: ProviderEvent[]): void {
    const choice = this.index;
    const { text, reasoning, refusal, reasoningField: field } = delta;
    if (reasoning !== "") {
      const event = { type: "reasoning-delta", text: reasoning, field, choice } as const;
      events.push(frame === undefined ? event : { ...event, frame });
    }
    if (text !== "") {
      this.#content.append(text);
      events.push(
        frame === undefined ? { type: "text-delta", text, choice } : { type: "text-delta", text, choice, frame },
      );
    }
    if (refusal !== "") {
      this.#refusal.append(refusal);
      const event = { type: "refusal-delta", text: refusal, choice } as const;
      events.push(frame === undefined ? event : { ...event, frame });
    }
    const { toolCalls, functionCall } = delta;
    if (toolCalls === undefined && functionCall === undefined) return;
    this.#toolCalls ??= new ToolCallAssembly();
    if (toolCalls !== undefined) this.#emitToolCalls(this.#toolCalls.push(toolCalls), events);
    if (functionCall !== undefined) this.#emitToolCalls(this.#toolCalls.pushLegacy(functionCall), events);
  }

  #emitToolCalls(deltas: readonly ToolCallDelta[], events: ProviderEvent[]): void {
    for (const delta of deltas) events.push({ type: "tool-call-delta", ...delta, choice: this.index });
  }

  #emitOther(
    delta: JsonObject,
    logprobs: JsonObject | undefined,
    frame: Uint8Array | undefined,
    events: ProviderEvent[],
  ): void {
    if (this.#message === undefined) mergeDelta(this.#other, delta);
    events.push({
      type: "other-delta",
      delta,
      choice: this.index,
      ...(logprobs === undefined ? {} : { logprobs }),
      ...(frame === undefined ? {} : { frame }),
    });
  }

  #assemble(toolCalls: readonly JsonObject[]): JsonObject {
    const text = this.#content.text;
    const message: JsonObject = { role: "assistant", content: text === "" && toolCalls.length > 0 ? null : text };
    if (this.#parts.length > 0) {
      message["content"] = text === "" ? this.#parts : [...this.#parts, { type: "text", text }];
    }
    if (this.#refusal.text !== "") message["refusal"] = this.#refusal.text;
    if (this.#reasoningContent.text !== "") message["reasoning_content"] = this.#reasoningContent.text;
    if (this.#reasoning.text !== "") message["reasoning"] = this.#reasoning.text;
    Object.assign(message, this.#other);
    return withToolCalls(message, toolCalls);
  }
}

function beginsWithoutText(choices: JsonValue | undefined): boolean {
  const first = Array.isArray(choices) ? choices[0] : undefined;
  const said = isJsonObject(first) ? (first["delta"] ?? first["message"]) : undefined;
  return isJsonObject(said) && said["content"] === null;
}

/** Nobody can answer calls that are not there. */
function reasonFor(reason: string | undefined, calls: number): string {
  if (calls === 0) return reason === undefined || reason === "" || reason === "tool_calls" ? "stop" : reason;
  return reason === undefined || reason === "" ? "tool_calls" : reason;
}

/** The message with its calls in the strict form; the deprecated form is replaced by it. */
function withToolCalls(message: JsonObject, toolCalls: readonly JsonObject[]): JsonObject {
  const { tool_calls: _calls, function_call: legacy, ...rest } = message;
  if (toolCalls.length > 0) return { role: "assistant", ...rest, tool_calls: [...toolCalls] };
  return legacy === null ? { role: "assistant", ...rest, function_call: null } : { role: "assistant", ...rest };
}

function textOfPart(part: JsonValue): string | undefined {
  return isJsonObject(part) && part["type"] === "text" && typeof part["text"] === "string" ? part["text"] : undefined;
}

/** Mistral's reasoning models think in parts that hold parts of text. */
function thoughtOfPart(part: JsonValue): string {
  const thought = isJsonObject(part) && part["type"] === "thinking" ? part["thinking"] : undefined;
  if (typeof thought === "string") return thought;
  return Array.isArray(thought) ? thought.map((piece) => textOfPart(piece) ?? "").join("") : "";
}

/** One piece and nothing beside it. */
function isSingle(delta: Delta, logprobs: JsonObject | undefined): boolean {
  if (delta.toolCalls !== undefined || delta.functionCall !== undefined || delta.hasParts) return false;
  const hasOther = delta.other !== undefined || logprobs !== undefined;
  return (
    Number(delta.text !== "") + Number(delta.reasoning !== "") + Number(delta.refusal !== "") + Number(hasOther) === 1
  );
}

/** The chunk repeats the head of the answer, so it can stand beside chunks written by us. */
function continuesAs(chunk: JsonObject, start: StartEvent): boolean {
  return (
    chunk["id"] === start.id &&
    chunk["model"] === start.model &&
    chunk["created"] === start.created &&
    chunk["object"] === "chat.completion.chunk"
  );
}

function isEmpty(value: JsonValue): boolean {
  return value === "" || (Array.isArray(value) && value.length === 0);
}

function toUsage(value: JsonValue | undefined): Usage | undefined {
  if (!isJsonObject(value)) return undefined;
  const prompt = countOf(value["prompt_tokens"]);
  const completion = countOf(value["completion_tokens"]);
  if (prompt === undefined && completion === undefined) return undefined;
  const counts = { prompt: prompt ?? 0, completion: completion ?? 0 };
  const total = countOf(value["total_tokens"]) ?? counts.prompt + counts.completion;
  return usageOf(value, { ...counts, total });
}
