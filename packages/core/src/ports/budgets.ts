/**
 * Persistence of budgets, prices and usage. Rules and contract as in repos.ts: the tenant comes first, one
 * function is one database round trip, times are epoch milliseconds of the database's clock.
 */
import type { Budget, BudgetState } from "../budgets/budget.ts";
import type { Price, PriceTables } from "../budgets/price.ts";
import type { Page, PageRequest } from "./page.ts";

export type NewBudget = Omit<Budget, "id" | "createdAt">;
export type BudgetChange = Partial<Pick<Budget, "name" | "limitTokens" | "limitMicros" | "enabled">>;

/** Every change raises the config version. A budget of a day or longer begins with what its window has seen. */
export interface BudgetRepo {
  /** @throws GatewayError `conflict` (param `period`) where there is one of this scope and period */
  create(tenant: string, id: string, budget: NewBudget): Promise<BudgetState>;
  update(tenant: string, id: string, change: BudgetChange): Promise<BudgetState | undefined>;
  get(tenant: string, id: string): Promise<BudgetState | undefined>;
  list(tenant: string, page: PageRequest): Promise<Page<BudgetState>>;
  delete(tenant: string, id: string): Promise<boolean>;
}

/** Each table is read with the configuration and replaced as a whole. */
export interface PriceRepo {
  put(tenant: string, prices: PriceTables["own"]): Promise<void>;
  readOperator(): Promise<PriceTables["operator"]>;
  /** For every tenant that has no price of its own for a name; raises all tenants' config versions, a trip for each shard. */
  putOperator(prices: readonly Price[]): Promise<void>;
}

export const usageGroups = ["day", "key", "user", "model", "tool"] as const;
export type UsageGroup = (typeof usageGroups)[number];

export interface UsageQuery {
  readonly groupBy: UsageGroup;
  /** Starts of UTC days; the second is not included. */
  readonly from: number;
  readonly to: number;
  /** One caller's; absent: the whole tenant's. */
  readonly callerId?: string;
}

export interface UsageSum {
  /** A day as `YYYY-MM-DD`, an id or a name; empty where the calls had none. */
  readonly group: string;
  readonly calls: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cachedTokens: number;
  readonly micros: number;
  readonly contextTokens: number;
  readonly contextMicros: number;
  /** Calls some of whose tokens were estimated. */
  readonly estimatedCalls: number;
}

/** Sums over calls that have ended; kept by day when the calls themselves are gone. */
export interface UsageRepo {
  /** In the order of `group`; `page.after` is a group. */
  sum(tenant: string, query: UsageQuery, page: PageRequest): Promise<Page<UsageSum>>;
}
