/**
 * The second way in which a model asks for tools: in its text, as opposed to function calls (design "One loop":
 * two dialects of it). Chosen once for a chat; a chat of function calls has none.
 */
import type { JsonObject } from "../json.ts";
import type { ToolOutcome } from "../tools/outcome.ts";
import type { DispatchItem } from "../tools/prepare.ts";
import type { AssembledToolCall } from "./providers/provider.ts";

export interface AskedCall {
  readonly item: DispatchItem;
  /** As clients are shown it. */
  readonly call: Pick<AssembledToolCall, "name" | "arguments">;
  /** Runs before the others of its turn. */
  readonly isFirst: boolean;
}

export interface TextAnswer {
  /** What the client is told of the round; empty: nothing. */
  readonly text: string;
  /** The reply, and what came of its calls, as the model gets them. */
  readonly messages: readonly JsonObject[];
  /** The model is asked again. */
  readonly goesOn: boolean;
}

export interface TextDialect {
  /** Rounds of tools after which the model's next reply is the last. */
  readonly mostRounds: number;
  /** The next piece of a reply. @returns what of it, and of what was held back, the client sees; undefined: just the piece */
  read(text: string): string | undefined;
  /** The reply is whole. @returns what of it was held back and is to be seen */
  endReply(): string;
  /** Does the reply ask for tools? */
  readonly asks: boolean;
  /** What it asks for, in its order. */
  calls(messages: readonly JsonObject[]): Promise<readonly AskedCall[]>;
  /** @param outcomes in the order of the calls */
  answer(reply: JsonObject, outcomes: readonly ToolOutcome[]): Promise<TextAnswer>;
  /** Does its answer have the pictures of this outcome in it? */
  shows(outcome: ToolOutcome): boolean;
  /**
   * What has become known of earlier rounds, put into the messages before the model is asked again.
   * @returns the calls whose results it is
   */
  update(messages: JsonObject[]): Promise<readonly string[]>;
}
