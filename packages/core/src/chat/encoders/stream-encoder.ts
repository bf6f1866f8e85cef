/** From events to the bytes of an event stream; undefined where an event does not show. */
import type { ChatEvent } from "../events.ts";

export type StreamEncoder = (event: ChatEvent) => string | Uint8Array | undefined;

/** Tool-call deltas in OpenAI's form: id, type and name with the first piece of a call only. */
export class ToolCallDeltas {
  /** Positions of custom calls, by choice. */
  readonly #custom = new Map<number, Set<number>>();

  /** @param index position among the calls of the choice that this stream shows */
  encode(event: Extract<ChatEvent, { type: "tool-call-delta" }>, index: number): Record<string, unknown> {
    if (event.custom === true) {
      this.#custom.set(event.choice, (this.#custom.get(event.choice) ?? new Set<number>()).add(index));
    }
    const named = event.name === undefined ? {} : { name: event.name };
    const isCustom = this.#custom.get(event.choice)?.has(index) === true;
    return {
      ...event.extra,
      index,
      ...(event.name === undefined ? {} : { id: event.id, type: isCustom ? "custom" : "function" }),
      ...(isCustom
        ? { custom: { ...named, input: event.arguments } }
        : { function: { ...named, arguments: event.arguments } }),
    };
  }
}
