/**
 * Who works on a call: claims, leases and slots (design "Async"). A lease is a time on the database's
 * clock; `attempt` fences whatever an older claimant still writes.
 */
import { randomUUID } from "node:crypto";
import type { Amount, BudgetRefusal } from "@toolyard/core/budgets/budget";
import type { Spent } from "@toolyard/core/budgets/cost";
import type { Call, UnreadableCall } from "@toolyard/core/calls/call";
import { mostInterruptions } from "@toolyard/core/calls/interruptions";
import { longestLookMs, mostAhead } from "@toolyard/core/calls/look-again";
import type { CallRepo } from "@toolyard/core/ports/calls";
import type { Database, Statement, StatementResult } from "../database.ts";
import { dueSince } from "../schema/calls.ts";
import { overBudget, toRefusal } from "./budget-fragments.ts";
import { heldSlots, keepSpent, longestDelayMs, sentAt, spentArgs, toCall } from "./calls-rows.ts";
import { openBreakers, toOpenBreakers } from "./breakers.ts";
import { hearing, isActive, now, toListeners, untilWoken } from "./fragments.ts";

type Row = StatementResult["rows"][number];
type Claim = Awaited<ReturnType<CallRepo["claim"]>>;

const unheld = `((state = 'queued' AND COALESCE(run_at, 0) <= ${now}) OR (state = 'running' AND lease_until <= ${now}))`;

/** Rows that nobody may run again: they are claimed to be ended, and need no slot and no budget for that. */
const onlyToEnd = `(state = 'running' AND (kind = 'chat' OR (effect = 'write' AND repeat = 'never') OR (effect = 'read' AND NOT async AND repeat <> 'resume')
  OR taken_over + 1 >= ${mostInterruptions}))`;

/** Asked as a queued call begins. One that runs already was admitted, and goes on to what it comes to. */
const overAnyBudget = overBudget({
  tenant: "?1",
  caller: "calls.caller_id",
  user: "calls.user_id",
  tokens: "calls.reserved_tokens",
  micros: "calls.reserved_micros",
  id: "?2",
});

/** What has begun and was parked was admitted then. */
const hasBegun = "(state = 'running' OR (repeat = 'resume' AND started_at IS NOT NULL))";

/** Of the session that the claimed call works in; ids are unique over all tenants, and nobody's caller is ''. */
const sessionOwner = `(SELECT CASE worked.tenant WHEN ?1 THEN worked.caller_id ELSE '' END
  FROM sessions AS worked WHERE worked.id = calls.session_id) AS session_owner`;

/** Sent twice, the second finds its token and changes nothing but the lease. */
const claimCall = `UPDATE calls SET
    attempt = attempt + (write_token IS NOT ?5),
    taken_over = CASE WHEN write_token IS ?5 THEN taken_over WHEN state = 'running' THEN taken_over + 1 ELSE 0 END,
    slots = CASE WHEN write_token IS NOT ?5 AND ${onlyToEnd} THEN 0 ELSE slots END,
    reserved_tokens = CASE WHEN write_token IS NOT ?5 AND ${onlyToEnd} THEN 0 ELSE reserved_tokens END,
    reserved_micros = CASE WHEN write_token IS NOT ?5 AND ${onlyToEnd} THEN 0 ELSE reserved_micros END,
    state = 'running', lease_until = ${now} + ?3, started_at = COALESCE(started_at, ${now}), sent_at = ${now},
    woken = CASE WHEN write_token IS ?5 THEN woken ELSE 0 END, write_token = ?5
  WHERE tenant = ?1 AND id = ?2
    AND ((${unheld} AND ${isActive("?1")} AND (${onlyToEnd} OR slots + ${heldSlots} <= ?4)
        AND (${hasBegun} OR ${overAnyBudget} IS NULL))
      OR write_token = ?5)
  RETURNING *, ${hearing}, ${openBreakers}, ${sessionOwner}`;

const dueSinceOf = (row: string): string => dueSince.replaceAll(/\b(?=run_at|created_at)/g, `${row}.`);

/** Queued calls of the tenant that could have run since before; only counted for those that have to wait. */
const ahead = `(SELECT COUNT(*) FROM (SELECT 1 FROM calls AS earlier
  WHERE earlier.tenant = ?1 AND earlier.state = 'queued' AND ${dueSinceOf("earlier")} < ${dueSinceOf("calls")} LIMIT ?3))`;

const explainClaim = `SELECT CASE
    WHEN state NOT IN ('queued', 'running') THEN 'gone'
    WHEN ${unheld} THEN 'no_slot'
    ELSE 'busy' END AS answer,
    MAX(0, ${now} - MAX(created_at, COALESCE(run_at, 0))) AS waited, CASE WHEN ${unheld} THEN ${ahead} END AS ahead,
    CASE WHEN state = 'queued' AND ${unheld} AND NOT ${hasBegun} THEN ${overAnyBudget} END AS over_budget, attempt, parent_id,
    CASE WHEN state = 'queued' AND (repeat <> 'resume' OR run_at <= ${now} + ${longestDelayMs})
      THEN MAX(0, COALESCE(run_at, 0) - ${now}) ELSE 0 END AS due_in
  FROM calls WHERE tenant = ?1 AND id = ?2 AND ${isActive("?1")}`;

/** The caller of a claim that found no slot sends a message of its own, with a delay; the sweep need not. */
const postponeSweep = `UPDATE calls SET sent_at = MAX(sent_at, ${now} + ${longestLookMs}) WHERE tenant = ?1 AND id = ?2 AND ${unheld}
  AND ${isActive("?1")}`;

export async function claim(
  database: Database,
  tenant: string,
  { id, leaseMs, concurrency }: { readonly id: string; readonly leaseMs: number; readonly concurrency: number },
): Promise<Claim> {
  const token = randomUUID();
  const [claimed, explained] = await database.batch(
    [
      { sql: claimCall, args: [tenant, id, leaseMs, concurrency, token] },
      { sql: explainClaim, args: [tenant, id, mostAhead(concurrency)] },
      { sql: postponeSweep, args: [tenant, id] },
    ],
    { repeatable: true },
  );
  const row = claimed?.rows[0];
  if (row !== undefined) {
    const owner = row["session_owner"];
    let call: Call;
    try {
      call = toCall(row);
    } catch (cause) {
      return { unreadable: unreadable(row, cause) };
    }
    return {
      call,
      ...(typeof owner === "string" ? { sessionOwner: owner } : {}),
      ...toListeners(row),
      ...toOpenBreakers(row),
    };
  }
  const explanation = explained?.rows[0];
  const waiting = { waitedMs: Number(explanation?.["waited"]), ahead: Number(explanation?.["ahead"]) };
  const overBudgetNow = explanation?.["over_budget"];
  if (typeof overBudgetNow === "string") {
    const parentId = explanation?.["parent_id"];
    return {
      refusal: toRefusal(overBudgetNow),
      attempt: Number(explanation?.["attempt"]),
      parentId: typeof parentId === "string" ? parentId : null,
      waiting,
    };
  }
  const dueInMs = Number(explanation?.["due_in"] ?? 0);
  if (dueInMs > 0) return { dueInMs };
  const answer = explanation?.["answer"];
  if (answer === "no_slot") return { limit: "concurrency", waiting };
  return answer === "busy" ? answer : "gone";
}

function unreadable(row: Row, cause: unknown): UnreadableCall {
  const parentId = row["parent_id"];
  return {
    attempt: Number(row["attempt"]),
    interruptions: Number(row["taken_over"]),
    effect: row["effect"] === "read" ? "read" : "write",
    parentId: typeof parentId === "string" ? parentId : null,
    cause,
  };
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

/** As though the claim in force had not been made: it came to nothing here, and says nothing about the call. */
const letGoCall = `UPDATE calls SET taken_over = MAX(0, taken_over - (write_token IS NOT ?5)), lease_until = ${now} + ?4,
    sent_at = ${now} + ?4, write_token = ?5
  WHERE tenant = ?1 AND id = ?2 AND attempt = ?3 AND state = 'running' RETURNING id`;

export async function letGo(
  database: Database,
  tenant: string,
  { id, attempt, inMs }: { readonly id: string; readonly attempt: number; readonly inMs: number },
): Promise<boolean> {
  const args = [tenant, id, attempt, inMs, randomUUID()];
  const [released] = await database.batch([{ sql: letGoCall, args }], { repeatable: true });
  return released !== undefined && released.rows.length > 0;
}

const parkedUntil = `CASE WHEN woken > ?7 THEN ${now} ELSE COALESCE(${now} + ?4, ${untilWoken}) END`;

/** Nobody holds it and nothing is held for it, however long it waits. A second time it finds its own token. */
const parkCall = `UPDATE calls SET state = 'queued', async = 1, lease_until = NULL, slots = MAX(slots, 1),
    run_at = CASE WHEN write_token IS ?5 THEN run_at ELSE ${parkedUntil} END,
    sent_at = CASE WHEN write_token IS ?5 THEN sent_at ELSE ${sentAt(`(${parkedUntil})`)} END,
    delivery = COALESCE(?6, delivery), write_token = ?5
  WHERE tenant = ?1 AND id = ?2 AND ((state = 'running' AND attempt = ?3) OR write_token = ?5)
  RETURNING MAX(0, run_at - ${now}) AS due_in`;

export interface ParkedRow {
  readonly id: string;
  readonly attempt: number;
  readonly inMs: number | null;
  readonly delivery?: "due";
  readonly wakesSeen?: number;
}

export function parkStatement(tenant: string, { id, attempt, inMs, delivery, wakesSeen }: ParkedRow): Statement {
  return { sql: parkCall, args: [tenant, id, attempt, inMs, randomUUID(), delivery ?? null, wakesSeen ?? 0] };
}

export async function park(database: Database, tenant: string, held: ParkedRow): Promise<number | undefined> {
  const [parked] = await database.batch([parkStatement(tenant, held)], { repeatable: true });
  const row = parked?.rows[0];
  return row === undefined ? undefined : Number(row["due_in"]);
}

/** As the trigger `calls_wake_parent` does. Whoever wakes sends a message, else the sweep finds the row. */
export const wakeCall = `UPDATE calls SET woken = woken + 1,
    run_at = CASE state WHEN 'queued' THEN MIN(COALESCE(run_at, 0), ${now}) ELSE run_at END,
    sent_at = CASE state WHEN 'queued' THEN ${now} ELSE sent_at END
  WHERE tenant = ?1 AND id = ?2 AND repeat = 'resume' AND (state = 'queued' OR state = 'running')
  RETURNING id`;

export async function wake(database: Database, tenant: string, id: string): Promise<boolean> {
  const [woken] = await database.batch([{ sql: wakeCall, args: [tenant, id] }], { repeatable: true });
  return woken !== undefined && woken.rows.length > 0;
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
