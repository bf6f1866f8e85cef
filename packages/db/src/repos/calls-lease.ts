/**
 * Who works on a call: claims, leases and slots (design "Async"). A lease is a time on the database's
 * clock; `attempt` fences whatever an older claimant still writes.
 */
import { randomUUID } from "node:crypto";
import type { Amount, BudgetRefusal } from "@toolyard/core/budgets/budget";
import type { Spent } from "@toolyard/core/budgets/chat-meter";
import type { CallRepo } from "@toolyard/core/ports/repos";
import type { Database, Statement } from "../database.ts";
import { overBudget, toRefusal } from "./budget-fragments.ts";
import { keepSpent, sentAt, spentArgs, toCall } from "./calls-rows.ts";
import { openBreakers, toOpenBreakers } from "./breakers.ts";
import { hearing, now, toListeners } from "./fragments.ts";

type Claim = Awaited<ReturnType<CallRepo["claim"]>>;

const unheld = `((state = 'queued' AND COALESCE(run_at, 0) <= ${now}) OR (state = 'running' AND lease_until <= ${now}))`;

/** Rows that nobody may run again: they are claimed to be ended, and need no slot and no budget for that. */
const onlyToEnd = `(state = 'running' AND (kind = 'chat' OR (effect = 'write' AND repeat = 'never') OR (effect = 'read' AND NOT async)))`;

/** Asked as a queued call begins. One that runs already was admitted, and goes on to what it comes to. */
const overAnyBudget = overBudget({
  tenant: "?1",
  caller: "calls.caller_id",
  user: "calls.user_id",
  tokens: "calls.reserved_tokens",
  micros: "calls.reserved_micros",
  id: "?2",
});

const heldSlots = `(SELECT COALESCE(SUM(held.slots), 0) FROM calls AS held
  WHERE held.tenant = ?1 AND held.state = 'running' AND held.lease_until > ${now})`;

/** Sent twice, the second finds its token and changes nothing but the lease. */
const claimCall = `UPDATE calls SET
    attempt = attempt + (write_token IS NOT ?5),
    taken_over = CASE WHEN write_token IS ?5 THEN taken_over ELSE state = 'running' END,
    slots = CASE WHEN write_token IS NOT ?5 AND ${onlyToEnd} THEN 0 ELSE slots END,
    reserved_tokens = CASE WHEN write_token IS NOT ?5 AND ${onlyToEnd} THEN 0 ELSE reserved_tokens END,
    reserved_micros = CASE WHEN write_token IS NOT ?5 AND ${onlyToEnd} THEN 0 ELSE reserved_micros END,
    state = 'running', lease_until = ${now} + ?3, started_at = COALESCE(started_at, ${now}), sent_at = ${now},
    write_token = ?5
  WHERE tenant = ?1 AND id = ?2
    AND ((${unheld} AND (${onlyToEnd} OR slots + ${heldSlots} <= ?4)
        AND (state = 'running' OR ${overAnyBudget} IS NULL))
      OR write_token = ?5)
  RETURNING *, ${hearing}, ${openBreakers}`;

const explainClaim = `SELECT CASE
    WHEN state NOT IN ('queued', 'running') THEN 'gone'
    WHEN ${unheld} THEN 'concurrency_limited'
    ELSE 'busy' END AS answer,
    CASE WHEN state = 'queued' AND ${unheld} THEN ${overAnyBudget} END AS over_budget, attempt,
    CASE WHEN state = 'queued' THEN MAX(0, COALESCE(run_at, 0) - ${now}) ELSE 0 END AS due_in
  FROM calls WHERE tenant = ?1 AND id = ?2`;

/** The caller of a claim that found no slot sends a message of its own; the sweep need not. */
const postponeSweep = `UPDATE calls SET sent_at = MAX(sent_at, ${now}) WHERE tenant = ?1 AND id = ?2 AND ${unheld}`;

export async function claim(
  database: Database,
  tenant: string,
  { id, leaseMs, concurrency }: { readonly id: string; readonly leaseMs: number; readonly concurrency: number },
): Promise<Claim> {
  const [claimed, explained] = await database.batch(
    [
      { sql: claimCall, args: [tenant, id, leaseMs, concurrency, randomUUID()] },
      { sql: explainClaim, args: [tenant, id] },
      { sql: postponeSweep, args: [tenant, id] },
    ],
    { repeatable: true },
  );
  const row = claimed?.rows[0];
  if (row !== undefined)
    return { call: toCall(row), wasRunning: row["taken_over"] === 1, ...toListeners(row), ...toOpenBreakers(row) };
  const explanation = explained?.rows[0];
  const overBudgetNow = explanation?.["over_budget"];
  if (typeof overBudgetNow === "string") {
    return { refusal: toRefusal(overBudgetNow), attempt: Number(explanation?.["attempt"]) };
  }
  const dueInMs = Number(explanation?.["due_in"] ?? 0);
  if (dueInMs > 0) return { dueInMs };
  const answer = explanation?.["answer"];
  return answer === "busy" || answer === "concurrency_limited" ? answer : "gone";
}

const extendLease = `UPDATE calls SET lease_until = MAX(COALESCE(lease_until, 0), ${now} + ?4)
  WHERE tenant = ?1 AND id = ?2 AND attempt = ?3 AND state = 'running' RETURNING cancel_requested`;

export async function heartbeat(
  database: Database,
  tenant: string,
  held: { readonly id: string; readonly attempt: number; readonly leaseMs: number; readonly spent?: Spent },
): Promise<"ok" | "cancel" | "lost"> {
  const { id, attempt, leaseMs, spent } = held;
  const statements: Statement[] = [{ sql: extendLease, args: [tenant, id, attempt, leaseMs] }];
  if (spent !== undefined) statements.push({ sql: keepSpent, args: [tenant, id, attempt, ...spentArgs(spent)] });
  const [extended] = await database.batch(statements, { repeatable: true });
  const row = extended?.rows[0];
  if (row === undefined) return "lost";
  return row["cancel_requested"] === 1 ? "cancel" : "ok";
}

const fits = overBudget({
  tenant: "?1",
  caller: "calls.caller_id",
  user: "calls.user_id",
  tokens: "?6",
  micros: "?7",
  id: "?2",
});

/** Says first what stands in the way, so that the answer is about what the second found. */
const explainReserve = `SELECT ${fits} AS over_budget
  FROM calls WHERE tenant = ?1 AND id = ?2 AND attempt = ?3 AND state = 'running'`;

const reserveMore = `UPDATE calls SET reserved_tokens = ?6, reserved_micros = ?7,
    usage = COALESCE(?4, usage), cost = ?5
  WHERE tenant = ?1 AND id = ?2 AND attempt = ?3 AND state = 'running' AND ${fits} IS NULL`;

/** Of a call that is not the attempt's any more nothing is asked; its lease says so. */
export async function reserve(
  database: Database,
  tenant: string,
  wanted: { readonly id: string; readonly attempt: number; readonly amount: Amount; readonly spent: Spent },
): Promise<BudgetRefusal | undefined> {
  const { id, attempt, amount, spent } = wanted;
  const args = [tenant, id, attempt, ...spentArgs(spent), amount.tokens, amount.micros];
  const [explained] = await database.batch(
    [
      { sql: explainReserve, args },
      { sql: reserveMore, args },
    ],
    { repeatable: true },
  );
  const over = explained?.rows[0]?.["over_budget"];
  return typeof over === "string" ? toRefusal(over) : undefined;
}

const requeueCall = `UPDATE calls SET state = 'queued', lease_until = NULL, run_at = ?4, sent_at = ${sentAt("?4")},
    write_token = ?5
  WHERE tenant = ?1 AND id = ?2 AND ((state = 'running' AND attempt = ?3) OR write_token = ?5) RETURNING id`;

export async function requeue(
  database: Database,
  tenant: string,
  held: { readonly id: string; readonly attempt: number; readonly runAt: number },
): Promise<boolean> {
  const [requeued] = await database.batch(
    [{ sql: requeueCall, args: [tenant, held.id, held.attempt, held.runAt, randomUUID()] }],
    { repeatable: true },
  );
  return requeued !== undefined && requeued.rows.length > 0;
}

const readSlots = "SELECT slots FROM calls WHERE tenant = ?1 AND id = ?2";

const addSlots = `UPDATE calls SET slots = slots + MAX(0, MIN(?3, ?4 - ${heldSlots}))
  WHERE tenant = ?1 AND id = ?2 AND state = 'running' AND kind = 'chat' RETURNING slots`;

/** Not sent twice: a chat whose reply was lost holds slots that it does not know of until it ends, and no more. */
export async function takeSlots(
  database: Database,
  tenant: string,
  { id, wanted, limit }: { readonly id: string; readonly wanted: number; readonly limit: number },
): Promise<number> {
  const [before, after] = await database.batch([
    { sql: readSlots, args: [tenant, id] },
    { sql: addSlots, args: [tenant, id, wanted, limit] },
  ]);
  const row = after?.rows[0];
  return row === undefined ? 0 : Number(row["slots"]) - Number(before?.rows[0]?.["slots"]);
}
