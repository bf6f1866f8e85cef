/**
 * What a call has cost. Written by whoever carried the call out, so that no route can forget it; charged
 * by the database as the row ends. A chat's own cost are its model tokens, a tool call's its price; what
 * the call put into the chat's prompts is told beside it and is part of the chat's cost already.
 */
import type { Usage } from "../calls/usage.ts";
import { isJsonObject, type JsonValue } from "../json.ts";
import type { Amount } from "./budget.ts";
import type { ModelPrice } from "./price.ts";

export interface CallCost extends Amount {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly cached_tokens: number;
  /** Of a tool call in a chat: its schema as offered, and its result. */
  readonly context_tokens: number;
  readonly context_micros: number;
  /** Some of the tokens were not told by the back end and were estimated. */
  readonly estimated: boolean;
}

export const noCost: CallCost = {
  tokens: 0,
  micros: 0,
  prompt_tokens: 0,
  completion_tokens: 0,
  cached_tokens: 0,
  context_tokens: 0,
  context_micros: 0,
  estimated: false,
};

/** Prices are for a million tokens. */
const perMtok = 1_000_000;

export interface Tokens {
  readonly prompt: number;
  /** Of `prompt`. */
  readonly cached: number;
  readonly completion: number;
}

/** Far beyond what any model reads or writes at once. */
const mostTokens = 1_000_000_000;

/** A count beyond all bounds would close a budget for its whole period: it is taken as none. */
export function isPossible({
  prompt_tokens: prompt,
  completion_tokens: completion,
  total_tokens: total,
}: Usage): boolean {
  return prompt <= mostTokens && completion <= mostTokens && total <= mostTokens;
}

/** What is billed of a back end's count. */
export function tokensOf(usage: Usage): Tokens {
  const prompt = whole(usage.prompt_tokens);
  // Some count thinking in the total only; it is billed as what was written.
  const completion = Math.max(whole(usage.completion_tokens), whole(usage.total_tokens) - prompt);
  return { prompt, completion, cached: Math.min(prompt, cachedTokens(usage)) };
}

/** OpenAI's spelling, DeepSeek's, and that of Kimi. */
function cachedTokens(usage: Usage): number {
  const details = usage["prompt_tokens_details"];
  const told = isJsonObject(details) ? details["cached_tokens"] : undefined;
  return whole(told ?? usage["prompt_cache_hit_tokens"] ?? usage["cached_tokens"]);
}

function whole(value: JsonValue | undefined): number {
  return typeof value === "number" && Number.isFinite(value) && value > 0 ? Math.ceil(value) : 0;
}

/** Micro-units with their fraction: rounding comes last, once for a call. */
export function priceTokens(price: ModelPrice, { prompt, cached, completion }: Tokens): number {
  const cachedPrice = price.cached_prompt_per_mtok ?? price.prompt_per_mtok;
  const tokens =
    (prompt - cached) * price.prompt_per_mtok + cached * cachedPrice + completion * price.completion_per_mtok;
  return tokens / perMtok;
}

/** A call is never cheaper than what it cost. */
export function roundMicros(micros: number): number {
  // Without the slack, what a fraction's last bit adds would become a whole unit.
  return Math.max(0, Math.ceil(micros - 1e-6));
}

/** The cost of a tool call that reached its tool. */
export function toolCost(micros: number): CallCost {
  return { ...noCost, micros };
}

/** What a call that still runs is known to have used: the bill, should it never end by itself. */
export interface Spent {
  readonly usage?: Usage;
  readonly cost: CallCost;
}
