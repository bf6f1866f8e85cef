/** What the pipeline is given of a chat, and what it makes of its messages. */
import type { ChatPlan } from "../../budgets/reservation.ts";
import type { JsonObject } from "../../json.ts";
import type { AskedKnowledge } from "../../knowledge/asked.ts";
import type { ChatSource } from "../../chat/events.ts";

export interface ChatToPrepare {
  readonly callId: string;
  readonly messages: readonly JsonObject[];
  readonly plan: ChatPlan;
  /** All steps of the pipeline, or knowledge alone. */
  readonly isWhole: boolean;
  readonly knowledge: AskedKnowledge | undefined;
  readonly wallClockMs: number;
  readonly stop: AbortController;
}

export interface PreparedChat extends PreparedMessages {
  /** What is left of it. */
  readonly wallClockMs: number;
}

export interface PreparedMessages {
  readonly messages: readonly JsonObject[];
  /** Those of `messages` that nobody but the model may get: no tool, no push, no history. */
  readonly hidden: ReadonlySet<JsonObject>;
  /** Passages of knowledge bases that were put in. */
  readonly sources: readonly ChatSource[];
}
