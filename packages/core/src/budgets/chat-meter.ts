/**
 * What one chat has used so far, round by round, with the rounds that were cut off and those of which the
 * back end told nothing; and the chat's reservation, which has to cover what it does next (CHAT-12).
 */
import type { Usage } from "../calls/usage.ts";
import type { ProviderEvent } from "../chat/providers/provider.ts";
import type { Route } from "../chat/providers/route.ts";
import { addUsage } from "../chat/usage.ts";
import type { Tool } from "../tools/tool.ts";
import type { Clock } from "../ports/clock.ts";
import { overBudget, type Amount, type BudgetRefusal } from "./budget.ts";
import {
  isPossible,
  noCost,
  priceTokens,
  roundMicros,
  tokensOf,
  type CallCost,
  type Tokens,
  type Spent,
} from "./cost.ts";
import { tokensOfBytes, tokensOfText, tokensOfTool, tokensPerAttachment } from "./estimate.ts";
import { modelPrice, toolPrice, type ModelPrice, type PriceTables } from "./price.ts";

export interface ChatMeterOptions {
  readonly prices: PriceTables;
  readonly clock: Pick<Clock, "now">;
  readonly routes: readonly Route[];
  /** What the admission has reserved; undefined: no budget applies. */
  readonly reserved: Amount | undefined;
  /** Is the tool's schema in the prompts? Absent: of every tool. */
  readonly isListed?: (name: string) => boolean;
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

/** What rounds came to. */
interface Bill {
  readonly rounds: number;
  readonly usage: Usage | undefined;
  readonly estimated: boolean;
  readonly tokens: Tokens;
  /** With fractions. */
  readonly micros: number;
}

const noBill: Bill = {
  rounds: 0,
  usage: undefined,
  estimated: false,
  tokens: { prompt: 0, cached: 0, completion: 0 },
  micros: 0,
};

/** A round that is under way. */
interface OpenRound {
  readonly promptTokens: () => number;
  hasBegun: boolean;
  usage: Usage | undefined;
  bytes: number;
}

export class ChatMeter {
  readonly #options: ChatMeterOptions;
  #reserved: Amount | undefined;
  #route: Route | undefined;
  #bill = noBill;
  #open: OpenRound | undefined;
  #reported: Usage | undefined;
  readonly #reportedRounds: Usage[] = [];
  /** Of calls that have no row of their own before the chat is settled. */
  #deferredMicros = 0;
  /** Of calls that have one. */
  #recordedMicros = 0;
  /** Rounds up to which a tool's schema has been put on the bill of its calls. */
  #offersCounted: Map<string, number> | undefined;

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
    return usageOf(this.#bill);
  }

  /** Does a budget stand behind the chat, so that it may not go on by itself? */
  get isLimited(): boolean {
    return this.#reserved !== undefined;
  }

  get cost(): CallCost {
    return costOf(this.#bill);
  }

  /** The chat and all that it ran. */
  get totalMicros(): number {
    return this.cost.micros + this.#deferredMicros + this.#recordedMicros;
  }

  /**
   * The bill so far, the round under way included. Calls that have no row of their own before the chat is
   * settled are on it until then.
   */
  get spent(): Spent | undefined {
    const open = this.#open;
    const bill = open?.hasBegun === true ? this.#withRound(open) : this.#bill;
    if (bill.rounds === 0) return undefined;
    const cost = costOf(bill);
    const usage = usageOf(bill);
    return {
      cost: { ...cost, micros: cost.micros + this.#deferredMicros },
      ...(usage === undefined ? {} : { usage }),
    };
  }

  /** @param promptTokens an estimate, asked for only where it is needed */
  startRound(promptTokens: () => number): MeteredRound {
    const round: OpenRound = { promptTokens, hasBegun: false, usage: undefined, bytes: 0 };
    this.#open = round;
    return {
      answeredBy: (route) => {
        round.hasBegun = true;
        this.#route = route;
      },
      see: (event) => {
        if (event.type === "usage") round.usage = isPossible(event.usage) ? event.usage : undefined;
        else round.bytes += bytesOf(event);
      },
      end: () => {
        this.#open = undefined;
        // A back end that never began to answer has not worked for us.
        if (!round.hasBegun) return;
        this.#bill = this.#withRound(round);
        if (round.usage === undefined) return;
        this.#reported = addUsage(this.#reported, round.usage);
        this.#reportedRounds.push(round.usage);
      },
    };
  }

  /** @param row when the call's row is written: with the chat's settlement, or by itself */
  addCall(cost: CallCost | undefined, row: "deferred" | "recorded"): void {
    const micros = cost?.micros ?? 0;
    if (row === "deferred") this.#deferredMicros += micros;
    else this.#recordedMicros += micros;
  }

  /** A call's share of the prompts: its schema in the rounds since it was called last, its result and the pictures of that. */
  contextOf(
    tool: Pick<Tool, "name" | "description" | "parameters">,
    result: { readonly text: string; readonly pictures: number },
  ): ContextCost {
    this.#offersCounted ??= new Map<string, number>();
    const rounds = this.#bill.rounds - (this.#offersCounted.get(tool.name) ?? 0);
    this.#offersCounted.set(tool.name, this.#bill.rounds);
    const isListed = this.#options.isListed?.(tool.name) ?? true;
    const schema = isListed ? tokensOfTool(tool.parameters) + tokensOfText(tool.name + tool.description) : 0;
    const tokens = rounds * schema + tokensOfText(result.text) + result.pictures * tokensPerAttachment;
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
    const { tokens, micros } = this.#bill;
    const need = {
      tokens: tokens.prompt + tokens.completion + next.tokens,
      micros: roundMicros(micros + next.micros) + this.#deferredMicros,
    };
    if (need.tokens <= this.#reserved.tokens && need.micros <= this.#reserved.micros) return;
    const refusal = await this.#options.reserve(need, this.spent ?? { cost: noCost });
    if (refusal !== undefined) throw overBudget("cost_exceeded", refusal);
    this.#reserved = need;
  }

  #withRound(round: OpenRound): Bill {
    const usage = round.usage ?? estimated(round.promptTokens(), tokensOfBytes(round.bytes));
    const tokens = tokensOf(usage);
    const price = this.#price();
    const { rounds, micros, ...before } = this.#bill;
    return {
      rounds: rounds + 1,
      usage: addUsage(before.usage, usage),
      estimated: before.estimated || round.usage === undefined,
      tokens: {
        prompt: before.tokens.prompt + tokens.prompt,
        cached: before.tokens.cached + tokens.cached,
        completion: before.tokens.completion + tokens.completion,
      },
      micros: micros + (price === undefined ? 0 : price.per_request + priceTokens(price, tokens)),
    };
  }

  #price(): ModelPrice | undefined {
    const route = this.#route;
    if (route === undefined) return undefined;
    return modelPrice(this.#options.prices, [route.requestedModel, route.model], this.#options.clock.now());
  }
}

function usageOf({ usage, estimated: isEstimated }: Bill): Usage | undefined {
  return usage === undefined || !isEstimated ? usage : { ...usage, estimated: true };
}

function costOf({ tokens, micros, estimated: isEstimated }: Bill): CallCost {
  const { prompt, cached, completion } = tokens;
  return {
    ...noCost,
    tokens: prompt + completion,
    micros: roundMicros(micros),
    prompt_tokens: prompt,
    completion_tokens: completion,
    cached_tokens: cached,
    estimated: isEstimated,
  };
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
