/** A call as adapters are given it, and what they answer. */
import type { JsonObject } from "../json.ts";
import type { CallContext } from "../context.ts";
import type { GroupChatEvent } from "../group-chats/events.ts";
import type { Tool } from "./tool.ts";
import type { ToolUri } from "./uri.ts";

export interface ToolCall {
  /** Also the idempotency key that goes to back ends which honour one. */
  readonly id: string;
  readonly tool: Tool;
  readonly uri: ToolUri;
  /** Validated, defaults applied. */
  readonly arguments: JsonObject;
  readonly attempt: number;
  /** Milliseconds for this attempt, of the dispatcher's calls. */
  readonly timeoutMs?: number;
  /** What a person has answered where the back end had asked (`InputRequired`); the call is made once more with it. */
  readonly answers?: InputAnswers | undefined;
  /** The conversation that asks had read content from outside; absent: it had not. */
  readonly readOutside?: boolean;
}

export interface InputAnswers {
  /** By the names that the requests had. */
  readonly responses: JsonObject;
  /** Goes back as it came. */
  readonly state: string | undefined;
}

/**
 * The back end wants to be told something by a person before it goes on, and holds nothing meanwhile: thrown by
 * an adapter, it makes the call wait for input, and be made again with the answers.
 */
export class InputRequired extends Error {
  override readonly name = "InputRequired";
  /** By name, each with `method` and `params`, as the Model Context Protocol has them. */
  readonly requests: JsonObject;
  readonly state: string | undefined;

  constructor(requests: JsonObject, state: string | undefined) {
    super("the back end asks for input");
    this.requests = requests;
    this.state = state;
  }
}

/**
 * The call has to wait, for a time or for something to happen, and holds nothing meanwhile: thrown by an adapter
 * whose tools have `repeat: "resume"`, it puts the call's row back on the queue. The call is made again
 * after that time or when it is woken (`calls/wake.ts`), and goes on from what its adapter has recorded.
 */
export class Parked extends Error {
  override readonly name = "Parked";
  /** From now, as the database's clock counts; undefined: only when it is woken. */
  readonly wakeInMs: number | undefined;
  /** How many of the wakes since it was taken it has heeded. */
  readonly wakesSeen: number;

  constructor(wakeInMs?: number, wakesSeen = 0) {
    super("the call waits");
    this.wakeInMs = wakeInMs;
    this.wakesSeen = wakesSeen;
  }
}

export interface InvocationContext extends CallContext {
  /** Aborts at the attempt's deadline, on cancel and when the client leaves. */
  readonly signal: AbortSignal;
  /** To be called when the first byte of a request is about to leave. */
  readonly onSent?: () => void;
  /** Told how far the call is, where the back end says so and somebody wants to know. */
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  /** Told what happens in a group chat, by whoever's request waits for it. */
  readonly onEvent?: ((event: GroupChatEvent) => void) | undefined;
}

export interface Progress {
  readonly progress: number;
  readonly total?: number;
  /** Redacted. */
  readonly message?: string;
}

/** The raw reply of a back end; the dispatcher caps, stores and redacts it. */
export interface ToolReply {
  readonly mediaType: string;
  /** Text for the model (JSON text stays byte for byte), or bytes that are not text. */
  readonly body: string | Uint8Array;
  /** What is known of bytes that are not text, for whoever sees only that they are there. */
  readonly details?: JsonObject;
  /** What the model reads instead of the body, which is kept whole: a result that is more than text. */
  readonly forModel?: string;
  /** Of a body in parts: so many pictures are among them. */
  readonly pictures?: number;
  /** The back end confirmed an earlier reply instead of sending it again. */
  readonly reused?: "cache";
  /** Nothing was asked of the back end: it is asked later, by another call, or a fallback stands for its answer. */
  readonly unreached?: true;
  /**
   * This is its first answer: it works on by itself, and what comes of it ends the call later. `within` so many
   * milliseconds, else nobody knows.
   */
  readonly worksOn?: { readonly withinMs: number };
}

/** The tool of a call that was made a while ago. */
export interface LateTool {
  readonly name: string;
  readonly uri: ToolUri;
}
