/**
 * What a scheme implements. The dispatcher has already resolved, permitted, validated, limited and
 * recorded the call; an adapter only carries it out.
 */
import type { JsonObject } from "../json.ts";
import type { CallContext } from "../context.ts";
import type { GroupChatEvent } from "../group-chats/events.ts";
import type { OAuthClient } from "../oauth/client.ts";
import type { Tool } from "./tool.ts";
import type { ToolUri, UriOptions } from "./uri.ts";
import type { ExplainedRequest } from "../blind/explain.ts";
import type { ServiceRuntime } from "../services/runtime.ts";

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

export interface ToolAdapter {
  /** Of a scheme that is read when it is used: before anything is asked of it. */
  load?(): Promise<void>;
  /** The tool at this address in the caller's tenant, or undefined. No I/O: reads the snapshot. */
  resolve(uri: ToolUri, context: CallContext): Tool | undefined;
  /** All tools of this scheme, for listing. */
  list(context: CallContext): readonly Tool[];
  /** Fails by throwing `GatewayError`, with what is known of the request (errors/delivery.ts). */
  invoke(call: ToolCall, context: InvocationContext): Promise<ToolReply>;
  /**
   * Gives a queued call to whoever carries it out without us: its row stays running under a lease that the other
   * one extends, and ends when the result comes in, wherever that is. False where this call has to be waited for:
   * then it is to be invoked.
   */
  handOver?(call: ToolCall, context: InvocationContext): Promise<boolean>;
  /**
   * What came of a call that was handed over, or that nobody waited for any more, in the form of its back end; what
   * must not be shown is then known to the redactor. Undefined where the tool is none of a back end any more.
   */
  readLate?(tool: LateTool, text: string, context: CallContext): Promise<ToolReply | undefined>;
  /** The tool of this name, which models and callers may use instead of the URI. No I/O. */
  find?(name: string, context: CallContext): Tool | undefined;
  /** Options that its URIs take; absent: all of the specification. */
  readonly options?: UriOptions | undefined;
  /** Why there is nothing at this address, for those who manage the tenant. */
  whyMissing?(uri: ToolUri, context: CallContext): string | undefined;
  /** The same for a name that `find` does not know, where it is a name of this adapter's. */
  whyUnknown?(name: string, context: CallContext): string | undefined;
  /** The request that a call would send, for tools that send one of their own. */
  explain?(call: Omit<ToolCall, "id" | "attempt">, context: CallContext): Promise<ExplainedRequest | null>;
  /** Of schemes whose back ends are configured as tool services. */
  readonly services?: ServiceRuntime | undefined;
  /** The OAuth client through which the tool acts for its user, for tools that need the user's own access. */
  userClient?(tool: Tool, context: CallContext): Promise<OAuthClient | undefined>;
}
