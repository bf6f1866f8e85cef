/**
 * An answer that is to be JSON (`response_format`) is that of the last turn alone: what a model says on its way to
 * tools of the gateway would stand before it in the one message that clients get, and nobody could parse it.
 */
import { isJsonObject } from "../json.ts";
import type { ChatEvent } from "./events.ts";
import type { OpenedChat } from "./opened-chat.ts";

export type TextDelta = Extract<ChatEvent, { type: "text-delta" }>;

/** With JSON, or with the fence that some models put around it. */
const answersBegin = /^\s*(?:[{[]|```)/;
const fenceMayBegin = /^\s*`{1,2}$/;

/** Text that is not the answer's JSON, until it is known how its turn ends. */
export class Preamble {
  /** What the turn says: as its first characters tell, the answer, which nobody has to wait for, or words. */
  #says: "nothing" | "answer" | "words" = "nothing";
  #held = "";

  /** Undefined where no text has to be held back. */
  static of({ request, offer, dialect }: OpenedChat): Preamble | undefined {
    const format = request.passthrough["response_format"];
    const isJson = isJsonObject(format) && (format["type"] === "json_schema" || format["type"] === "json_object");
    return isJson && offer.tools !== undefined && dialect === undefined && request.choices === 1
      ? new Preamble()
      : undefined;
  }

  startTurn(): void {
    this.#says = "nothing";
    this.#held = "";
  }

  /** What may be told of it now. */
  read(event: TextDelta): TextDelta | undefined {
    if (this.#says === "answer") return event;
    const text = this.#held + event.text;
    if (this.#says === "nothing") {
      // White space is no harm before JSON.
      if (text.trim() === "") return event;
      if (answersBegin.test(text)) {
        this.#says = "answer";
        return this.release(event.choice, event);
      }
      if (!fenceMayBegin.test(text)) this.#says = "words";
    }
    this.#held = text;
    return undefined;
  }

  /** The text of a turn that is not on its way to tools of the gateway: it is the answer's. */
  release(choice: number, last?: TextDelta): TextDelta | undefined {
    if (this.#held === "") return last;
    const text = `${this.#held}${last?.text ?? ""}`;
    this.#held = "";
    return { type: "text-delta", text, choice };
  }
}
