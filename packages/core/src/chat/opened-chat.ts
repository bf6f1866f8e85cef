/** What a chat is asked with, and what it is once it may run. */
import type { RuntimeConfig } from "../blind/runtime-config.ts";
import type { Amount } from "../budgets/budget.ts";
import type { RunPurse } from "../budgets/run-purse.ts";
import type { CallerLink } from "../calls/call.ts";
import type { JsonObject } from "../json.ts";
import type { ModelExchange } from "../models/special.ts";
import type { Principal } from "../ports/calls.ts";
import type { Span } from "../ports/traces.ts";
import type { ChatSource } from "./events.ts";
import type { LateResults } from "./late-results.ts";
import type { OriginalRequest } from "./providers/forwardable-body.ts";
import type { AgentVoice, SpokenPart } from "./voice.ts";

export interface ChatInput {
  readonly tenant: string;
  readonly principal: Principal;
  readonly requestId: string;
  readonly traceId: string;
  /** Of the request. */
  readonly span?: Span | undefined;
  /** Path of the route: a repetition is one on the same route. */
  readonly route: string;
  /** Where the route itself says so. */
  readonly vcp?: { readonly showsResults: boolean } | undefined;
  /** The chat whose messages are prepared with the answer; no pipeline works on this one. */
  readonly within?: string | undefined;
  /** Of the run of an agent that a call has asked for. */
  readonly inner?: InnerChat | undefined;
  /** What is asked for where it is no chat. */
  readonly exchange?: ModelExchange | undefined;
  /** The gateway needs it for something else that the caller may do: no scope is asked for. */
  readonly isNeeded?: boolean | undefined;
  /** Parsed JSON, and the bytes it was parsed from. */
  readonly body: unknown;
  readonly rawBody: Uint8Array;
  readonly idempotencyKey?: string;
  /** The SDK says that this is its own retry. */
  readonly isSdkRetry: boolean;
  /** Milliseconds after which the client gives up, or the host ends the invocation. */
  readonly timeLimitMs?: number;
  /** The same, where nothing is said before the end. */
  readonly wholeLimitMs?: number;
  /** Aborted when the client has left, and by the chat itself when it has to stop. */
  readonly stop: AbortController;
}

/** A chat that the gateway itself has asked for: the caller has been counted and let in already. */
export interface InnerChat {
  /** Who is asked, where that is an agent: no model of the name of its model is. */
  readonly agent?: string | undefined;
  readonly parentId: string | null;
  /** Writes are deduplicated under it; null: under the chat. */
  readonly rootId: string | null;
  /** The session that it works in, which is open already. */
  readonly sessionId?: string | undefined;
  /** What came with the request of whoever asks. */
  readonly runtimeConfig?: RuntimeConfig | undefined;
  /** Of the agents above. */
  readonly purse?: RunPurse | undefined;
  readonly via: readonly CallerLink[];
  /** What it is asked has been made of content from outside. */
  readonly readOutside: boolean;
  /** It was tried before, and may have written. */
  readonly isRepeated: boolean;
}

export interface OpenedChat extends SpokenPart {
  readonly callId: string;
  /** Own id, or that of the first of the attempts at this request: their writes are deduplicated under it. */
  readonly rootId: string;
  /** An earlier attempt may have written. */
  readonly writesBefore: boolean;
  readonly route: string;
  /** Undefined where no agent was asked. */
  readonly agent?: AgentVoice | undefined;
  /** The conversation as the back end is to see it. */
  readonly messages: readonly JsonObject[];
  /** Told of in `messages`; the client does not know them. */
  readonly late: LateResults;
  /** Those of `messages` that nobody but the model may get. */
  readonly hidden: ReadonlySet<JsonObject>;
  /** Passages of knowledge bases that are among `messages`. */
  readonly sources: readonly ChatSource[];
  /** Its answer passes as it comes: see models/relay.ts. */
  readonly isRelayed: boolean;
  /** `messages` hold content that a tool brought in from outside. */
  readonly hasReadOutside: boolean;
  readonly slots: number;
  /** What the admission holds against budgets; undefined: no budget applies. */
  readonly reserved: Amount | undefined;
  readonly idempotencyKey: string | undefined;
  readonly wallClockMs: number;
  /** The request as it came. */
  readonly original: OriginalRequest | undefined;
  readonly stop: AbortController;
  readonly credential: (name: string) => Promise<string>;
}
