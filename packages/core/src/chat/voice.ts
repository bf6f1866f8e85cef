/**
 * Who speaks in a chat that was asked of an agent: what the loop has to know of it. Another agent may go on with
 * the conversation (AGENT-3); then the loop gets that one's voice, and the answer stays one.
 */
import type { Amount } from "../budgets/budget.ts";
import type { CallerLink } from "../calls/call.ts";
import type { JsonObject } from "../json.ts";
import type { DispatchItem } from "../tools/prepare.ts";
import type { LoopLimits } from "./loop-guard.ts";
import type { CallContext } from "../context.ts";
import type { Offer } from "./offer.ts";
import type { Route } from "./providers/route.ts";
import type { ChatRequest } from "./schema.ts";
import type { TextDialect } from "./text-dialect.ts";
import type { AssembledToolCall } from "./providers/provider.ts";

/** What of a chat is its speaker's. */
export interface SpokenPart {
  readonly request: ChatRequest;
  readonly context: CallContext;
  readonly offer: Offer;
  /** Undefined where the model asks for tools by function calls. */
  readonly dialect?: TextDialect | undefined;
  readonly routes: readonly Route[];
}

export interface NextVoice {
  readonly from: string;
  readonly to: string;
  readonly reason: string;
  readonly chat: SpokenPart;
  /** The conversation as the next one is to see it. */
  readonly messages: readonly JsonObject[];
}

export interface AgentVoice {
  readonly limits: LoopLimits;
  /** Who stands behind its calls. */
  readonly via: readonly CallerLink[];
  /** Calls that the conversation itself answers; undefined: it is one of a tool. */
  itemOf(call: Pick<AssembledToolCall, "name" | "arguments">): DispatchItem | undefined;
  /** @param used what the chat has used, with the tools that it ran, whenever it is asked */
  meteredBy(used: () => Amount): void;
  /** Before anything more is done. @throws GatewayError `cost_exceeded` */
  admit(): void;
  /**
   * Who goes on, where the agent has handed over in this round.
   * @throws GatewayError `handoffs_exceeded`, `handoff_loop`, and whatever keeps the next one from speaking
   */
  next(messages: readonly JsonObject[]): Promise<NextVoice | undefined>;
}
