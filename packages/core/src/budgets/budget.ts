/**
 * Budgets: how much a tenant, a key or a user may use in a window of time, in tokens, in money or in both
 * (CHAT-12, "cost"). What is used comes from calls that have ended, what is reserved from calls that run;
 * the database decides with both at hand, so that no two requests can take the same rest.
 */
import type { Caller } from "../callers/caller.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonValue } from "../json.ts";
import { toRfc3339 } from "../time.ts";

export const budgetScopes = ["tenant", "key", "user"] as const;
export type BudgetScope = (typeof budgetScopes)[number];

/** Windows in UTC that follow each other; `total` never ends. */
export const budgetPeriods = ["minute", "hour", "day", "month", "total"] as const;
export type BudgetPeriod = (typeof budgetPeriods)[number];

export interface Budget {
  readonly id: string;
  readonly name: string;
  readonly scope: BudgetScope;
  /** Id of the key or of the user; empty for the tenant. */
  readonly scopeId: string;
  readonly period: BudgetPeriod;
  /** Null: not limited in this measure. */
  readonly limitTokens: number | null;
  /** In micro-units, as prices are. */
  readonly limitMicros: number | null;
  /** A disabled budget counts on and refuses nobody. */
  readonly enabled: boolean;
  readonly createdAt: number;
}

/** An amount in both measures. */
export interface Amount {
  readonly tokens: number;
  /** Millionths of the unit that prices are in. */
  readonly micros: number;
}

export const nothing: Amount = { tokens: 0, micros: 0 };

export interface BudgetState extends Budget {
  /** By calls that ended in the window of now. */
  readonly used: Amount;
  /** By calls that run, until they end or their lease does. */
  readonly reserved: Amount;
  readonly windowStart: number;
  /** Null: it never ends. */
  readonly windowEnd: number | null;
}

/** Why a call does not fit. */
export interface BudgetRefusal {
  readonly budget: Pick<Budget, "id" | "scope" | "scopeId" | "period">;
  readonly measure: "tokens" | "micros";
  readonly limit: number;
  readonly used: number;
  readonly reserved: number;
  readonly asked: number;
  /** The database's clock, and where the window ends on it. */
  readonly now: number;
  readonly windowEnd: number | null;
}

const lengths = { minute: 60_000, hour: 3_600_000, day: 86_400_000 } as const;

/** Where the window that began at `start` ends; null: nowhere. */
export function windowEnd(period: BudgetPeriod, start: number): number | null {
  switch (period) {
    case "minute":
    case "hour":
    case "day":
      return start + lengths[period];
    case "month": {
      const begun = new Date(start);
      return Date.UTC(begun.getUTCFullYear(), begun.getUTCMonth() + 1);
    }
    case "total":
      return null;
    default:
      return period satisfies never;
  }
}

/** The enabled budgets that a caller's calls count against. */
export function budgetsOf(budgets: readonly Budget[], caller: Caller): readonly Budget[] {
  return budgets.filter(({ enabled, scope, scopeId }) => enabled && isMeant(scope, scopeId, caller));
}

function isMeant(scope: BudgetScope, id: string, caller: Caller): boolean {
  switch (scope) {
    case "tenant":
      return true;
    case "key":
      return caller.id === id;
    case "user":
      return caller.userId === id;
    default:
      return scope satisfies never;
  }
}

/** Asked again after so long where only calls that still run stand in the way. */
const soonMs = 1_000;

/** The refusal as an error: of a request that could not begin, or of a chat that may not go on. */
export function overBudget(code: "budget_exceeded" | "cost_exceeded", refusal: BudgetRefusal): GatewayError {
  const { budget, measure, limit, used, reserved, asked } = refusal;
  const retryAfterMs = retryAfter(refusal);
  const extra: { [key: string]: JsonValue } = {
    budget: budget.id,
    scope: budget.scope,
    period: budget.period,
    measure: measure === "tokens" ? "tokens" : "cost_micros",
    limit,
    used,
    reserved,
    asked,
  };
  return new GatewayError(code, messageOf(refusal), {
    extra,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });
}

function messageOf(refusal: BudgetRefusal): string {
  const { budget, measure, limit, used, reserved, asked, windowEnd: end } = refusal;
  const unit = measure === "tokens" ? "tokens" : "micro-units of cost";
  const whose = budget.scope === "tenant" ? "the tenant" : `${budget.scope} '${budget.scopeId}'`;
  const span = budget.period === "total" ? "in all" : `per ${budget.period}`;
  const standing = `${used} are used and ${reserved} reserved by calls that run, and this one needs up to ${asked}`;
  const later = end === null ? [] : [`wait for the next ${budget.period} (${toRfc3339(end)})`];
  const ways = [
    `Raise it with PATCH /v1/budgets/${budget.id}`,
    ...(measure === "tokens" ? ["lower 'max_tokens'"] : []),
    ...(asked > limit ? [] : isMomentary(refusal) ? ["ask again once those calls have ended"] : later),
  ];
  const what = ways.length === 1 ? ways.join() : `${ways.slice(0, -1).join(", ")}, or ${ways.at(-1)}`;
  return `Budget '${budget.id}' allows ${whose} ${limit} ${unit} ${span}: ${standing}. ${what}.`;
}

/** Whether nothing but what calls have reserved that still run stands in the way. */
export function isMomentary({ limit, used, asked }: BudgetRefusal): boolean {
  return used + asked <= limit;
}

/** Undefined where waiting does not help. */
function retryAfter(refusal: BudgetRefusal): number | undefined {
  const { limit, asked, now, windowEnd: end } = refusal;
  if (asked > limit) return undefined;
  if (isMomentary(refusal)) return soonMs;
  return end === null ? undefined : Math.max(1, end - now);
}
