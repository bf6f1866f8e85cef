/** JSON is the stream collected: the `chat.completion` body of the same events (CHAT-2). */
import { toOpenAiError } from "../errors/to-openai.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import type { ChatEvent, ChatSource, ClientToolCall, ToolExecution } from "./events.ts";
import { GrowingText } from "./growing-text.ts";
import { mergeDelta } from "./providers/merge-delta.ts";

interface Choice {
  /** Undefined where nothing was said of it; what was said may be empty. */
  content: GrowingText | undefined;
  reasoning: { field: string; readonly text: GrowingText } | undefined;
  refusal: GrowingText | undefined;
  others: JsonObject;
  logprobs: JsonObject | undefined;
  toolCalls: ClientToolCall[];
  finishReason: string | null;
}

export class ChatCollector {
  readonly #choices = new Map<number, Choice>();
  #start: Extract<ChatEvent, { type: "start" }> | undefined;
  #usage: JsonValue | undefined;
  #toolExecution: ToolExecution | undefined;
  #response: JsonObject | undefined;
  #sources: readonly ChatSource[] | undefined;

  add(event: ChatEvent): void {
    switch (event.type) {
      case "start":
        this.#start = event;
        return;
      case "text-delta":
        (this.#choice(event.choice).content ??= new GrowingText()).append(event.text);
        return;
      case "reasoning-delta": {
        const choice = this.#choice(event.choice);
        choice.reasoning ??= { field: event.field, text: new GrowingText() };
        choice.reasoning.field = event.field;
        choice.reasoning.text.append(event.text);
        return;
      }
      case "refusal-delta":
        (this.#choice(event.choice).refusal ??= new GrowingText()).append(event.text);
        return;
      case "other-delta": {
        const choice = this.#choice(event.choice);
        mergeDelta(choice.others, event.delta);
        if (event.logprobs !== undefined) addLogprobs((choice.logprobs ??= {}), event.logprobs);
        return;
      }
      case "tool-call":
        if (event.owner === "client") this.#choice(event.choice).toolCalls.push(event.call);
        return;
      case "usage":
        this.#usage = event.usage;
        return;
      case "finish":
        for (const { choice, finishReason } of event.reasons) this.#choice(choice).finishReason = finishReason;
        this.#toolExecution = event.toolExecution;
        this.#response = event.body;
        this.#sources = event.sources;
        return;
      case "tool-call-delta":
      case "tool-result":
      case "tool-pending":
      case "approval-required":
      case "handoff":
      case "error":
        return;
      default:
        event satisfies never;
    }
  }

  /** The answer so far, in the form of a whole one. */
  body(): JsonObject {
    // Usage is summed over the rounds; what could not be read as one is none. Both stand where an answer that is given again has them.
    const { usage: _unread, tool_execution: said, ...answered } = this.#response ?? {};
    const execution = (this.#toolExecution as unknown as JsonObject | undefined) ?? said;
    const choices = [...this.#choices]
      .sort(([a], [b]) => a - b)
      .map(([index, choice]) => this.#toChoice(index, choice));
    return {
      ...answered,
      id: this.#start?.id ?? "",
      object: "chat.completion",
      created: this.#start?.created ?? 0,
      model: this.#start?.model ?? "",
      choices,
      ...(this.#usage === undefined ? {} : { usage: this.#usage }),
      ...(this.#start?.systemFingerprint === undefined ? {} : { system_fingerprint: this.#start.systemFingerprint }),
      ...(execution === undefined ? {} : { tool_execution: execution }),
      ...(this.#sources === undefined ? {} : { toolyard: { sources: this.#sources.map((source) => ({ ...source })) } }),
    };
  }

  /** Body of an answer that ended with an error after the work had begun. */
  errorBody(event: Extract<ChatEvent, { type: "error" }>, requestId: string): JsonObject {
    const hasWork = this.#choices.size > 0 || event.toolExecution !== undefined;
    return {
      ...(toOpenAiError(event.error, requestId) as unknown as JsonObject),
      ...(hasWork
        ? {
            partial: {
              ...this.body(),
              ...(event.toolExecution === undefined
                ? {}
                : { tool_execution: event.toolExecution as unknown as JsonObject }),
            },
          }
        : {}),
    };
  }

  #toChoice(index: number, choice: Choice): JsonObject {
    const answered = this.#answeredChoice(index);
    const answeredMessage = isJsonObject(answered?.["message"]) ? answered["message"] : {};
    // Who answers with no text writes it, and clients read it as one.
    const content = choice.content?.text ?? (answeredMessage["content"] === "" ? "" : undefined);
    const said = Object.entries(answeredMessage).filter(([, value]) => !isNothing(value));
    const message: JsonObject = {
      ...answeredMessage,
      ...choice.others,
      // What the last turn says as a whole has not to be put together.
      ...Object.fromEntries(said),
      role: "assistant",
      content: content === undefined || (content === "" && choice.toolCalls.length > 0) ? null : content,
      ...(choice.refusal === undefined ? {} : { refusal: choice.refusal.text }),
      ...(choice.reasoning === undefined ? {} : { [choice.reasoning.field]: choice.reasoning.text.text }),
    };
    delete message["tool_calls"];
    if (choice.toolCalls.length > 0) message["tool_calls"] = choice.toolCalls as unknown as JsonValue[];
    return {
      ...answered,
      index,
      message,
      ...(choice.logprobs === undefined ? {} : { logprobs: choice.logprobs }),
      finish_reason: choice.finishReason,
    };
  }

  #answeredChoice(index: number): JsonObject | undefined {
    const choices = this.#response?.["choices"];
    const found = Array.isArray(choices)
      ? choices.find((choice) => isJsonObject(choice) && (choice["index"] ?? 0) === index)
      : undefined;
    return isJsonObject(found) ? found : undefined;
  }

  #choice(index: number): Choice {
    let choice = this.#choices.get(index);
    if (choice === undefined) {
      choice = {
        content: undefined,
        reasoning: undefined,
        refusal: undefined,
        others: {},
        logprobs: undefined,
        toolCalls: [],
        finishReason: null,
      };
      this.#choices.set(index, choice);
    }
    return choice;
  }
}

function isNothing(value: JsonValue): boolean {
  return value === null || (Array.isArray(value) && value.length === 0);
}

/** Into lists of our own: an event may still be written after this one, and copying all for each would add up. */
function addLogprobs(all: JsonObject, next: JsonObject): void {
  for (const [key, value] of Object.entries(next)) {
    const known = all[key];
    if (!Array.isArray(value)) all[key] = value;
    else if (Array.isArray(known)) for (const part of value) known.push(part);
    else all[key] = [...value];
  }
}
