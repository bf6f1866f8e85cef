/**
 * What a call reserves when it is admitted: enough for what it is going to do first, priced as it will be
 * billed. Where no budget stands behind the caller there is nothing to reserve.
 */
import type { Caller } from "../callers/caller.ts";
import type { Route } from "../chat/providers/route.ts";
import type { ChatRequest } from "../chat/schema.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Clock } from "../ports/clock.ts";
import type { TenantConfig } from "../tenant-config.ts";
import { budgetsOf, nothing, type Amount } from "./budget.ts";
import { priceTokens, roundMicros } from "./cost.ts";
import { tokensOfPrompt } from "./estimate.ts";
import { modelPrice, toolPrice } from "./price.ts";

export interface ChatPlan {
  readonly request: ChatRequest;
  readonly tools: readonly object[] | undefined;
  readonly routes: readonly Route[];
}

/**
 * The first round of a chat; undefined where no budget applies.
 * @throws GatewayError `price_missing` where a budget limits money and the model has no price: unpriced
 * work would go past it
 */
export function reserveChat(
  who: { readonly config: TenantConfig; readonly caller: Caller },
  plan: ChatPlan,
  clock: Pick<Clock, "now">,
): Amount | undefined {
  const { config } = who;
  const budgets = budgetsOf(config.budgets, who.caller);
  if (budgets.length === 0) return undefined;
  const priced = budgets.find(({ limitMicros }) => limitMicros !== null);
  const prompt = tokensOfPrompt(plan.request.messages, plan.tools);
  const completion = answerTokens(plan.request, config);
  let micros = 0;
  for (const route of plan.routes) {
    const price = modelPrice(config.prices, [route.requestedModel, route.model], clock.now());
    if (price === undefined) {
      if (priced !== undefined) throw withoutPrice(route, priced.id);
      continue;
    }
    micros = Math.max(micros, price.per_request + priceTokens(price, { prompt, cached: 0, completion }));
  }
  return { tokens: prompt + completion, micros: roundMicros(micros) };
}

/** A tool call outside a chat. */
export function reserveTool(
  who: { readonly config: TenantConfig; readonly caller: Caller },
  tool: string,
  clock: Pick<Clock, "now">,
): Amount {
  if (budgetsOf(who.config.budgets, who.caller).length === 0) return nothing;
  return { tokens: 0, micros: toolPrice(who.config.prices, tool, clock.now())?.per_call ?? 0 };
}

/** Tokens that the answers of one round may have. */
export function answerTokens({ passthrough, choices }: ChatRequest, { settings }: TenantConfig): number {
  const asked = passthrough["max_completion_tokens"] ?? passthrough["max_tokens"];
  return choices * (typeof asked === "number" && asked > 0 ? Math.ceil(asked) : settings.reserve_tokens);
}

function withoutPrice({ requestedModel }: Route, budget: string): GatewayError {
  return new GatewayError(
    "price_missing",
    `The model '${requestedModel}' has no price, and budget '${budget}' limits cost; add one with PUT /v1/prices (0 is a price).`,
    { param: "model", extra: { budget } },
  );
}
