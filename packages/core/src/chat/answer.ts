/** The answer as its client is told of it: one message over all rounds, out of what back ends say in each. */
import type { JsonObject } from "../json.ts";
import type { ChatEvent } from "./events.ts";
import type { Preamble, TextDelta } from "./preamble.ts";
import type { AssembledToolCall, ProviderEvent } from "./providers/provider.ts";
import type { TextDialect } from "./text-dialect.ts";
import { toCallEvent, type ToldCalls } from "./told-calls.ts";

/** What a back end has answered in a round. */
export interface Turn {
  readonly message: JsonObject;
  readonly calls: readonly AssembledToolCall[];
  readonly finishReason: string;
}

export interface AnswerOptions {
  /** Answers that were asked for. */
  readonly choices: number;
  readonly dialect: TextDialect | undefined;
  /** Holds text back that is not the answer's. */
  readonly preamble: Preamble | undefined;
  readonly calls: () => ToldCalls;
}

type Finish = Extract<ChatEvent, { type: "finish" }>;

export class Answer {
  readonly #options: Omit<AnswerOptions, "dialect">;
  #dialect: TextDialect | undefined;
  #round = 0;
  #turns = new Map<number, Turn>();
  #response: Extract<ProviderEvent, { type: "response" }> | undefined;
  #hasText = false;
  /** The next text is set off from that of the turns before. */
  #separate = false;

  constructor({ dialect, ...options }: AnswerOptions) {
    this.#options = options;
    this.#dialect = dialect;
  }

  /** Another agent goes on with it, who may speak another dialect. */
  goOnIn(dialect: TextDialect | undefined): void {
    this.#dialect = dialect;
  }

  startRound(): void {
    this.#round += 1;
    this.#turns.clear();
    this.#separate = this.#hasText;
    this.#options.preamble?.startTurn();
  }

  /** Counted from 1. */
  get round(): number {
    return this.#round;
  }

  /** Of the first choice, as soon as it is whole. */
  get turn(): Turn | undefined {
    return this.#turns.get(0);
  }

  get hasText(): boolean {
    return this.#hasText;
  }

  /** @param events to which those are added that the client is told */
  read(event: ProviderEvent, events: ChatEvent[]): void {
    switch (event.type) {
      case "start":
        // The answer is one message, whatever number of turns it took.
        if (this.#round === 1) events.push(event);
        return;
      case "text-delta":
        this.#readText(event, events);
        return;
      case "reasoning-delta":
      case "refusal-delta":
      case "other-delta":
        events.push(this.#ownFrame(event));
        return;
      case "tool-call-delta":
        events.push(this.#options.calls().delta(event));
        return;
      case "message":
        this.#readMessage(event, events);
        return;
      case "usage":
        return;
      case "response":
        this.#response = event;
        return;
      default:
        event satisfies never;
    }
  }

  /** The model is not given what it asks for any more. */
  endAtLimit(turn: Turn): void {
    this.#turns = new Map([[0, { ...turn, calls: [], finishReason: "length" }]]);
  }

  /** It ends with a text that no back end has written. */
  endWithOwnText(): void {
    this.#turns = new Map([[0, { message: {}, calls: [], finishReason: "stop" }]]);
    this.#response = undefined;
  }

  get reasons(): Finish["reasons"] {
    return [...this.#turns]
      .sort(([a], [b]) => a - b)
      .map(([choice, turn]) => ({ choice, finishReason: reasonOf(turn) }));
  }

  get body(): JsonObject | undefined {
    return this.#response?.body;
  }

  /** Just what the back end wrote, where the whole answer is that. */
  get bytes(): Finish["bytes"] {
    return this.#round > 1 || this.#dialect !== undefined ? undefined : this.#response?.bytes;
  }

  #readText(event: TextDelta, events: ChatEvent[]): void {
    const { preamble } = this.#options;
    const dialect = this.#dialect;
    if (dialect === undefined) return this.#tellText(preamble === undefined ? event : preamble.read(event), events);
    if (event.text !== "") this.#hasText = true;
    const shown = dialect.read(event.text);
    if (shown === undefined) events.push(this.#ownFrame(event));
    else if (shown !== "") events.push({ type: "text-delta", text: shown, choice: event.choice });
  }

  #tellText(event: TextDelta | undefined, events: ChatEvent[]): void {
    if (event === undefined) return;
    if (event.text !== "") {
      if (this.#separate) events.push({ type: "text-delta", text: "\n\n", choice: event.choice });
      this.#separate = false;
      this.#hasText = true;
    }
    events.push(this.#ownFrame(event));
  }

  #readMessage(event: Extract<ProviderEvent, { type: "message" }>, events: ChatEvent[]): void {
    const { choice, message, toolCalls: calls, finishReason } = event;
    const rest = this.#dialect?.endReply() ?? "";
    if (rest !== "") events.push({ type: "text-delta", text: rest, choice: 0 });
    const turn = { message, calls, finishReason };
    const { preamble } = this.#options;
    if (preamble !== undefined && !this.#isOnItsWay(turn)) this.#tellText(preamble.release(choice), events);
    this.#turns.set(choice, turn);
    // Several answers to one question all belong to the client, and with them what they call.
    if (this.#options.choices > 1 && finishReason !== "length") {
      for (const [at, call] of calls.entries()) {
        events.push(toCallEvent(this.#options.calls().own(call, choice, at)));
      }
    }
  }

  /** The turn calls tools of the gateway alone, so another one follows. */
  #isOnItsWay({ calls, finishReason }: Turn): boolean {
    if (calls.length === 0 || finishReason === "length") return false;
    return calls.every(({ name }) => this.#options.calls().ownerOf(name) === "gateway");
  }

  /** Frames of later turns carry another id than the answer has; they are written anew. */
  #ownFrame<E extends Extract<ChatEvent, { frame?: Uint8Array }>>(event: E): E {
    if (this.#round === 1 || event.frame === undefined) return event;
    const { frame: _frame, ...rest } = event;
    return rest as E;
  }
}

function reasonOf({ calls, finishReason }: Turn): string {
  return calls.length > 0 && finishReason !== "length" ? "tool_calls" : finishReason;
}
