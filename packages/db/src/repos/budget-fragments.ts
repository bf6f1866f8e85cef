/**
 * SQL of what stands against budgets: what calls that have ended used in the window of now, kept by the
 * meter, and what running calls have reserved, which is their rows. There is no counter to go wrong: a
 * reservation ends with its row's state or its lease.
 */
import { budgetPeriods, budgetScopes, windowEnd, type BudgetRefusal } from "@toolyard/core/budgets/budget";
import { now } from "./fragments.ts";

/** As in the migration `meter`, which writes the windows. */
const windowStart = `CASE b.period
  WHEN 'minute' THEN unixepoch() / 60 * 60000
  WHEN 'hour' THEN unixepoch() / 3600 * 3600000
  WHEN 'day' THEN unixepoch('now', 'start of day') * 1000
  WHEN 'month' THEN unixepoch('now', 'start of month') * 1000
  ELSE 0 END`;

const used = (measure: Measure): string => `CASE WHEN w.window_start >= ${windowStart} THEN w.${measure} ELSE 0 END`;

type Measure = "tokens" | "micros";

/** @param except a call that is not counted, since it asks */
const held = (measure: Measure, except: string): string => `(
  SELECT COALESCE(SUM(held.reserved_${measure}), 0) FROM calls AS held
  WHERE held.tenant = b.tenant AND held.state = 'running' AND held.lease_until > ${now} AND held.id IS NOT ${except}
    AND (b.scope = 'tenant' OR (b.scope = 'key' AND held.caller_id = b.scope_id)
      OR (b.scope = 'user' AND held.user_id = b.scope_id)))`;

/** Rows of `budgets AS b` with what stands against them. */
export const standing = (where: string, except = "NULL"): string => `
  SELECT b.*, ${windowStart} AS window_start,
    ${used("tokens")} AS used_tokens, ${used("micros")} AS used_micros,
    ${held("tokens", except)} AS held_tokens, ${held("micros", except)} AS held_micros, ${now} AS now
  FROM budgets AS b LEFT JOIN budget_windows AS w ON w.tenant = b.tenant AND w.budget_id = b.id
  WHERE ${where}`;

/** Who asks for how much, each as SQL. */
export interface Asking {
  readonly tenant: string;
  readonly caller: string;
  readonly user: string;
  readonly tokens: string;
  readonly micros: string;
  /** The call that asks. */
  readonly id: string;
}

/** Asks first what costs nothing to know: the sum over running calls is only made where there is a limit. */
const excess = ({ tokens, micros }: Asking): string => `CASE
  WHEN ${tokens} > 0 AND limit_tokens IS NOT NULL AND limit_tokens < used_tokens + held_tokens + ${tokens} THEN 'tokens'
  WHEN ${micros} > 0 AND limit_micros IS NOT NULL AND limit_micros < used_micros + held_micros + ${micros} THEN 'micros'
  END`;

/**
 * JSON of a budget without room, for `toRefusal`; NULL where all have it. What costs nothing always fits. One
 * that has none whatever becomes of those that run comes before others.
 */
export const overBudget = (asking: Asking): string => `(
  SELECT json_object('id', id, 'scope', scope, 'scopeId', scope_id, 'period', period, 'measure', measure,
    'limit', CASE measure WHEN 'tokens' THEN limit_tokens ELSE limit_micros END,
    'used', CASE measure WHEN 'tokens' THEN used_tokens ELSE used_micros END,
    'reserved', CASE measure WHEN 'tokens' THEN held_tokens ELSE held_micros END,
    'asked', CASE measure WHEN 'tokens' THEN ${asking.tokens} ELSE ${asking.micros} END,
    'windowStart', window_start, 'now', now)
  FROM (
    SELECT *, ${excess(asking)} AS measure,
      used_tokens + ${asking.tokens} <= COALESCE(limit_tokens, used_tokens + ${asking.tokens})
        AND used_micros + ${asking.micros} <= COALESCE(limit_micros, used_micros + ${asking.micros}) AS is_momentary
    FROM (${standing(
      `b.tenant = ${asking.tenant} AND b.enabled AND (b.scope = 'tenant'
        OR (b.scope = 'key' AND b.scope_id = ${asking.caller}) OR (b.scope = 'user' AND b.scope_id = ${asking.user}))`,
      asking.id,
    )}))
  WHERE measure IS NOT NULL
  ORDER BY is_momentary LIMIT 1)`;

/** @throws TypeError for what `overBudget` has not written */
export function toRefusal(column: unknown): BudgetRefusal {
  const read = JSON.parse(String(column)) as Readonly<Record<string, unknown>>;
  const scope = budgetScopes.find((one) => one === read["scope"]);
  const period = budgetPeriods.find((one) => one === read["period"]);
  const measure = (["tokens", "micros"] as const).find((one) => one === read["measure"]);
  if (scope === undefined || period === undefined || measure === undefined) {
    throw new TypeError("A budget's refusal cannot be read.");
  }
  return {
    budget: { id: String(read["id"]), scope, scopeId: String(read["scopeId"]), period },
    measure,
    limit: Number(read["limit"]),
    used: Number(read["used"]),
    reserved: Number(read["reserved"]),
    asked: Number(read["asked"]),
    now: Number(read["now"]),
    windowEnd: windowEnd(period, Number(read["windowStart"])),
  };
}
