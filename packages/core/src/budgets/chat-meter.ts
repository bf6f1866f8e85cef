/**
 * What one chat has used so far, round by round, with the rounds that were cut off and those of which the
 * back end told nothing; and the chat's reservation, which has to cover what it does next (CHAT-12).
 */
import type { Usage } from "../calls/call.ts";
import type { ProviderEvent } from "../chat/providers/provider.ts";
import type { Route } from "../chat/providers/route.ts";
import { addUsage } from "../chat/usage.ts";
import type { Tool } from "../tools/tool.ts";
import type { Clock } from "../ports/clock.ts";
import { overBudget, type Amount, type BudgetRefusal } from "./budget.ts";
import { noCost, priceTokens, roundMicros, tokensOf, type CallCost, type Tokens } from "./cost.ts";
import { tokensOfBytes, tokensOfText, tokensOfTool } from "./estimate.ts";
import { modelPrice, toolPrice, type ModelPrice, type PriceTables } from "./price.ts";

/** What a call that still runs is known to have used: the bill, should it never end by itself. */
export interface Spent {
  readonly usage?: Usage;
  readonly cost: CallCost;
}

export interface ChatMeterOptions {
  readonly prices: PriceTables;
  readonly clock: Pick<Clock, "now">;
  readonly routes: readonly Route[];
  /** What the admission has reserved; undefined: no budget applies. */
  readonly reserved: Amount | undefined;
  /** Tokens that an answer may have, for the reservation of a round. */
  readonly answerTokens: number;
  /** Takes the reservation to this amount, or says which budget has no room for it. */
  readonly reserve: (amount: Amount, spent: Spent) => Promise<BudgetRefusal | undefined>;
}

/** One request to a model back end. */
export interface MeteredRound {
  /** The back end that has begun to answer. */
  answeredBy(route: Route): void;
  see(event: ProviderEvent): void;
  /** Once, however the round ended. */
  end(): void;
}

/** The part of a tool call's cost that lies in the chat's prompts. */
export type ContextCost = Pick<CallCost, "context_tokens" | "context_micros">;

export class ChatMeter {
  readonly #options: ChatMeterOptions;
  #reserved: Amount | undefined;
  #route: Route | undefined;
  #rounds = 0;
  #reported: Usage | undefined;
  readonly #reportedRounds: Usage[] = [];
  #usage: Usage | undefined;
  #estimated = false;
  #tokens: Tokens = { prompt: 0, cached: 0, completion: 0 };
  /** With fractions. */
  #micros = 0;
  /** Of calls that have no row of their own before the chat is settled. */
  #deferredMicros = 0;
  /** Of calls that have one. */
  #recordedMicros = 0;
  /** Rounds up to which a tool's schema has been put on the bill of its calls. */
  readonly #offersCounted = new Map<string, number>();

  constructor(options: ChatMeterOptions) {
    this.#options = options;
    this.#reserved = options.reserved;
    this.#route = options.routes[0];
  }

  /** What back ends said, for the answer. */
  get reported(): { readonly usage: Usage; readonly rounds: readonly Usage[] } | undefined {
    return this.#reported === undefined ? undefined : { usage: this.#reported, rounds: this.#reportedRounds };
  }

  /** The same with estimates for what they did not say, for limits and for the record. */
  get usage(): Usage | undefined {
    if (this.#usage === undefined || !this.#estimated) return this.#usage;
    return { ...this.#usage, estimated: true };
  }

  /** Does a budget stand behind the chat, so that it may not go on by itself? */
  get isLimited(): boolean {
    return this.#reserved !== undefined;
  }

  get cost(): CallCost {
    const { prompt, cached, completion } = this.#tokens;
    return {
      ...noCost,
      tokens: prompt + completion,
      micros: roundMicros(this.#micros),
      prompt_tokens: prompt,
      completion_tokens: completion,
      cached_tokens: cached,
      estimated: this.#estimated,
    };
  }

  /** The chat and all that it ran. */
  get totalMicros(): number {
    return this.cost.micros + this.#deferredMicros + this.#recordedMicros;
  }

  /** Calls that have no row of their own before the chat is settled are on the chat's bill until then. */
  get spent(): Spent | undefined {
    if (this.#rounds === 0) return undefined;
    const { cost, usage } = this;
    return {
      cost: { ...cost, micros: cost.micros + this.#deferredMicros },
      ...(usage === undefined ? {} : { usage }),
    };
  }

  /** @param promptTokens an estimate, asked for only where it is needed */
  startRound(promptTokens: () => number): MeteredRound {
    let hasBegun = false;
    let usage: Usage | undefined;
    let bytes = 0;
    return {
      answeredBy: (route) => {
        hasBegun = true;
        this.#route = route;
      },
      see: (event) => {
        if (event.type === "usage") usage = event.usage;
        else bytes += bytesOf(event);
      },
      end: () => {
        // A back end that never began to answer has not worked for us.
        if (hasBegun) this.#addRound(usage, () => estimated(promptTokens(), tokensOfBytes(bytes)));
      },
    };
  }

  /** @param row when the call's row is written: with the chat's settlement, or by itself */
  addCall(cost: CallCost | undefined, row: "deferred" | "recorded"): void {
    const micros = cost?.micros ?? 0;
    if (row === "deferred") this.#deferredMicros += micros;
    else this.#recordedMicros += micros;
  }

  /** A call's share of the prompts: its schema in the rounds since it was called last, and its result. */
  contextOf(tool: Pick<Tool, "name" | "description" | "parameters">, result: string): ContextCost {
    const rounds = this.#rounds - (this.#offersCounted.get(tool.name) ?? 0);
    this.#offersCounted.set(tool.name, this.#rounds);
    const schema = tokensOfTool(tool.parameters) + tokensOfText(tool.name + tool.description);
    const tokens = rounds * schema + tokensOfText(result);
    const price = this.#price();
    const micros = price === undefined ? 0 : priceTokens(price, { prompt: tokens, cached: 0, completion: 0 });
    return { context_tokens: tokens, context_micros: roundMicros(micros) };
  }

  /** Before these tools are run. @throws GatewayError `cost_exceeded` */
  async admitTools(names: readonly string[]): Promise<void> {
    if (this.#reserved === undefined) return;
    const { prices, clock } = this.#options;
    const micros = names.reduce((sum, name) => sum + (toolPrice(prices, name, clock.now())?.per_call ?? 0), 0);
    if (micros > 0) await this.#cover({ tokens: 0, micros });
  }

  /** Before the model is asked again. @throws GatewayError `cost_exceeded` */
  async admitTurn(promptTokens: () => number): Promise<void> {
    if (this.#reserved === undefined) return;
    const tokens = { prompt: promptTokens(), cached: 0, completion: this.#options.answerTokens };
    const price = this.#price();
    await this.#cover({
      tokens: tokens.prompt + tokens.completion,
      micros: price === undefined ? 0 : price.per_request + priceTokens(price, tokens),
    });
  }

  /** The reservation covers what was spent and what comes now; a trip only where it does not yet. */
  async #cover(next: Amount): Promise<void> {
    if (this.#reserved === undefined) return;
    const need = {
      tokens: this.#tokens.prompt + this.#tokens.completion + next.tokens,
      micros: roundMicros(this.#micros + next.micros) + this.#deferredMicros,
    };
    if (need.tokens <= this.#reserved.tokens && need.micros <= this.#reserved.micros) return;
    const refusal = await this.#options.reserve(need, this.spent ?? { cost: noCost });
    if (refusal !== undefined) throw overBudget("cost_exceeded", refusal);
    this.#reserved = need;
  }

  #addRound(told: Usage | undefined, estimate: () => Usage): void {
    this.#rounds += 1;
    const usage = told ?? estimate();
    if (told === undefined) this.#estimated = true;
    else {
      this.#reported = addUsage(this.#reported, told);
      this.#reportedRounds.push(told);
    }
    this.#usage = addUsage(this.#usage, usage);
    const tokens = tokensOf(usage);
    this.#tokens = {
      prompt: this.#tokens.prompt + tokens.prompt,
      cached: this.#tokens.cached + tokens.cached,
      completion: this.#tokens.completion + tokens.completion,
    };
    const price = this.#price();
    if (price !== undefined) this.#micros += price.per_request + priceTokens(price, tokens);
  }

  #price(): ModelPrice | undefined {
    const route = this.#route;
    if (route === undefined) return undefined;
    return modelPrice(this.#options.prices, [route.requestedModel, route.model], this.#options.clock.now());
  }
}

function estimated(prompt: number, completion: number): Usage {
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

function bytesOf(event: ProviderEvent): number {
  switch (event.type) {
    case "text-delta":
    case "reasoning-delta":
    case "refusal-delta":
      return Buffer.byteLength(event.text);
    case "tool-call-delta":
      return Buffer.byteLength(event.arguments) + (event.name?.length ?? 0);
    case "start":
    case "other-delta":
    case "message":
    case "usage":
    case "response":
      return 0;
    default:
      return event satisfies never;
  }
}
