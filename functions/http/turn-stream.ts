/**
 * A turn of a group chat as an event stream. The turn waits for no client, since others are listening: for one that is
 * slower, what is being said is kept as one piece that grows, and everything else in its order. None of it is more
 * than the turn itself holds, as events are made into text only where there is room for it.
 */
import type { GatewayError } from "@toolyard/core/errors/gateway-error";
import { toOpenAiError } from "@toolyard/core/errors/to-openai";
import { mergeChunks, type GroupChatEvent } from "@toolyard/core/group-chats/events";
import type { StartedTurn } from "@toolyard/core/group-chats/start-turn";
import { viewMessage } from "@toolyard/core/group-chats/view";
import { eventStreamHeaders, type ResponseSink } from "./sink.ts";

export class TurnStream {
  readonly #sink: ResponseSink;
  readonly #waiting: GroupChatEvent[] = [];
  /** Resolves when the client has taken what was written; undefined: it has. */
  #behind: Promise<void> | undefined;
  #hasEnded = false;

  constructor(sink: ResponseSink) {
    this.#sink = sink;
    // A turn that waits for another one says nothing.
    sink.beginWhenQuiet();
  }

  write(event: GroupChatEvent): void {
    this.#begin();
    this.#hasEnded ||= event.type === "chat:end";
    const merged = mergeChunks(this.#waiting.at(-1), event);
    if (merged === undefined) this.#waiting.push(event);
    else this.#waiting[this.#waiting.length - 1] = merged;
    this.#writeWaiting();
  }

  /** A turn that was over before this request is told of by what came of it. */
  async end({ messages, reason, callId, replayed }: StartedTurn): Promise<void> {
    if (replayed && !this.#hasEnded) this.#replay(messages.map(viewMessage), callId, reason ?? "completed");
    await this.#finish();
  }

  async fail(error: GatewayError, requestId: string): Promise<void> {
    // What ended the turn has been told with its end.
    const said = { type: "error", ...toOpenAiError(error, requestId) };
    await this.#finish(this.#hasEnded ? "" : toText(said));
  }

  #replay(messages: ReturnType<typeof viewMessage>[], turnId: string, reason: StartedTurn["reason"] & string): void {
    for (const message of messages.filter(({ author }) => author.kind === "agent")) {
      const { group_chat_id: chatId, author, id: messageId } = message;
      const agent = { name: author.name, displayName: author.display_name };
      this.write({ type: "agent:speak", chatId, turnId, agent, messageId, message });
    }
    const chatId = messages[0]?.group_chat_id ?? "";
    this.write({ type: "chat:end", chatId, turnId, reason, messages: Math.max(0, messages.length - 1) });
  }

  /** As much as there is room for; the rest once there is. */
  #writeWaiting(): void {
    while (this.#behind === undefined) {
      const event = this.#waiting.shift();
      if (event === undefined) return;
      this.#behind = this.#sink.write(toText(event))?.then(() => {
        this.#behind = undefined;
        this.#writeWaiting();
      });
    }
  }

  async #finish(last = ""): Promise<void> {
    this.#begin();
    // A client that takes nothing for long is cut off by the sink, and nothing is waited for any more.
    while (this.#behind !== undefined) await this.#behind;
    this.#sink.end(`${last}data: [DONE]\n\n`);
  }

  #begin(): void {
    if (!this.#sink.headSent) this.#sink.head(200, eventStreamHeaders);
  }
}

function toText(event: object): string {
  return `data: ${JSON.stringify(event)}\n\n`;
}
