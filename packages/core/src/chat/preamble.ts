/**
 * An answer that is to be JSON (`response_format`) is that of the last turn alone: what a model says on its way to
 * tools of the gateway would stand before it in the one message that clients get, and nobody could parse it.
 */
import type { ChatEvent } from "./events.ts";
import type { OpenedChat } from "./opened-chat.ts";
import { isJsonObject } from "../json.ts";

export type TextDelta = Extract<ChatEvent, { type: "text-delta" }>;

/** Text that is not the answer's JSON, until it is known how its turn ends. */
export class Preamble {
  #held = "";
  /** The turn has begun with JSON: it is the answer, which nobody has to wait for. */
  #isAnswer = false;

  /** Undefined where no text has to be held back. */
  static of({ request, offer, dialect }: OpenedChat): Preamble | undefined {
    const format = request.passthrough["response_format"];
    const isJson = isJsonObject(format) && (format["type"] === "json_schema" || format["type"] === "json_object");
    return isJson && offer.tools !== undefined && dialect === undefined && request.choices === 1
      ? new Preamble()
      : undefined;
  }

  startTurn(): void {
    this.#held = "";
    this.#isAnswer = false;
  }

  /** What may be told of it now. */
  read(event: TextDelta): TextDelta | undefined {
    if (this.#isAnswer) return event;
    const text = this.#held + event.text;
    this.#isAnswer = /^\s*[{[]/.test(text);
    if (!this.#isAnswer) {
      this.#held = text;
      return undefined;
    }
    const isFirst = this.#held === "";
    this.#held = "";
    return isFirst ? event : { type: "text-delta", text, choice: event.choice };
  }

  /** The text of a turn that is not on its way to tools of the gateway: it is the answer's. */
  release(choice: number): TextDelta | undefined {
    const text = this.#held;
    this.#held = "";
    return text === "" ? undefined : { type: "text-delta", text, choice };
  }
}
