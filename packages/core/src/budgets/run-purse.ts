/**
 * What one run of an agent has used with all that it runs, held against the agent's own limits. Agents that call
 * agents share it: what is used below counts above. It lives in the process that runs them; what runs elsewhere or
 * later is held against its own limits and the tenant's budgets.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import { nothing, type Amount } from "./budget.ts";

export interface PurseLimits {
  readonly tokens?: number | undefined;
  readonly cost_micros?: number | undefined;
}

export class RunPurse {
  /** When its time is up, by the process's clock. */
  readonly until: number;
  readonly #agent: string;
  readonly #limits: PurseLimits;
  readonly #above: RunPurse | undefined;
  readonly #below: RunPurse[] = [];
  #own: () => Amount = () => nothing;

  constructor(agent: string, limits: PurseLimits & { readonly until: number }, above?: RunPurse) {
    this.#agent = agent;
    this.#limits = limits;
    this.#above = above;
    this.until = Math.min(limits.until, above?.until ?? Number.POSITIVE_INFINITY);
    if (above !== undefined) above.#below.push(this);
  }

  /** @param own what the run itself has used, whenever it is asked */
  meteredBy(own: () => Amount): void {
    this.#own = own;
  }

  get spent(): Amount {
    return this.#below.reduce(
      (sum, { spent }) => ({ tokens: sum.tokens + spent.tokens, micros: sum.micros + spent.micros }),
      this.#own(),
    );
  }

  /** @throws GatewayError `cost_exceeded`, naming the limit of whichever agent is over it */
  check(): void {
    checkSpent(this.#agent, this.#limits, this.spent);
    this.#above?.check();
  }
}

/** @throws GatewayError `cost_exceeded` */
export function checkSpent(agent: string, limits: PurseLimits, { tokens, micros }: Amount): void {
  const used = (what: string, limit: string): GatewayError =>
    new GatewayError(
      "cost_exceeded",
      `Agent '${agent}' has used ${what} with all that it ran (limit '${limit}' of the agent); what was said so far is attached.`,
      { extra: { agent, limit } },
    );
  if (limits.tokens !== undefined && tokens > limits.tokens) {
    throw used(`${tokens} tokens, more than ${limits.tokens},`, "tokens");
  }
  if (limits.cost_micros !== undefined && micros > limits.cost_micros) {
    throw used(`${micros} micro-units, more than ${limits.cost_micros},`, "cost_micros");
  }
}
