/**
 * Rows of `calls`: how they are written, with SQL that drizzle has no part in since it is on every
 * request's path, and how they are read back.
 */
import { randomUUID } from "node:crypto";
import { getTableName, type InferSelectModel } from "drizzle-orm";
import type { Spent } from "@toolyard/core/budgets/cost";
import { endStates, type Call, type StoredOutcome } from "@toolyard/core/calls/call";
import type { CallFinish, NewCall } from "@toolyard/core/ports/calls";
import type { Database, SqlValue, Statement } from "../database.ts";
import { calls } from "../schema/calls.ts";
import { BrokenColumn, decodeRow } from "../sql.ts";
import { overBudget } from "./budget-fragments.ts";
import { now } from "./fragments.ts";
import type { OnBrokenRow, Reader, Row } from "./rows.ts";

/** States that nothing but late evidence leaves, as a list for `IN`. */
export const ended = `(${endStates.map((state) => `'${state}'`).join(", ")})`;

/** An idempotency key is the caller's for so long. */
export const keyLifetimeMs = 86_400_000;

/** Longest delay of a queue message; longer waits are found by the sweep. */
export const longestDelayMs = 900_000;
/** How long before `run_at` such a row becomes visible to the sweep. */
const sweepAheadMs = 60_000;

/** Slots that running calls of tenant ?1 hold. */
export const heldSlots = `(SELECT COALESCE(SUM(held.slots), 0) FROM calls AS held
  WHERE held.tenant = ?1 AND held.state = 'running' AND held.lease_until > ${now})`;

/**
 * When the row's message was sent: at once, or with its delay. No queue delays longer than 15 minutes, so
 * for such a row nothing was sent, and the sweep must find it at `run_at` without waiting any longer.
 */
export function sentAt(runAt: string): string {
  return `CASE WHEN ${runAt} > ${now} + ${longestDelayMs} THEN ${runAt} - ${sweepAheadMs}
    ELSE MAX(${now}, COALESCE(${runAt}, 0)) END`;
}

/** Columns of a new row, each with its value; numbers are those of `newRowArgs`. */
const newRow = {
  tenant: "?1",
  id: "?2",
  kind: "?3",
  parent_id: "?4",
  root_id: "?5",
  session_id: "?6",
  uri: "?7",
  tool: "?8",
  tool_hash: "?9",
  effect: "?10",
  repeat: "?11",
  state: "?12",
  attempt: "?13",
  lease_until: `${now} + ?14`,
  run_at: "?15",
  deadline: `${now} + ?16`,
  async: "?17",
  caller_id: "?18",
  caller_chain: "?19",
  route: "?20",
  idempotency_key: "?21",
  input_hash: "?22",
  input: "?23",
  input_view: "?24",
  effect_key: "?25",
  error: "?26",
  slots: "?27",
  delivery: "?28",
  request_id: "?29",
  trace_id: "?30",
  created_at: `${now} - COALESCE(?31, 0)`,
  started_at: `${now} - ?31`,
  finished_at: `${now} - ?32`,
  sent_at: sentAt("?15"),
  user_id: "?33",
  reserved_tokens: "?34",
  reserved_micros: "?35",
} as const;

const newRowColumns = Object.keys(newRow).join(", ");

/** A process that has not heard yet that a tenant was erased leaves nothing of it. */
const isThere = "EXISTS (SELECT 1 FROM tenants WHERE id = ?1)";

/** Every constraint that a new row may meet means that it, or its like, is there already. */
export const insertCall: string = `INSERT INTO calls (${newRowColumns})
  SELECT ${Object.values(newRow).join(", ")} WHERE ${isThere} ON CONFLICT DO NOTHING`;

/** The same where a document of a knowledge base names it: that row was written just before. */
export const insertCallOfDocument = insertCall.replace(
  `WHERE ${isThere}`,
  "WHERE EXISTS (SELECT 1 FROM knowledge_documents WHERE tenant = ?1 AND call_id = ?2)",
);

/** The same where the statement just before it, in the same batch, changed something. */
export const insertCallAfterChange = insertCall.replace(`WHERE ${isThere}`, "WHERE changes() > 0");

/** The same where the batch's decision, in `rate_windows`, was to admit; caller and slots come from there. */
export const insertAdmittedCall = `INSERT INTO calls (${newRowColumns})
  SELECT ${Object.values({ ...newRow, caller_id: "decided.caller_id", slots: "COALESCE(decided.slots, ?27)" }).join(", ")}
  FROM rate_windows AS decided
  WHERE decided.tenant = ?1 AND decided.scope = 'tenant' AND decided.request = ?2 AND decided.verdict = 'admitted'
  ON CONFLICT DO NOTHING`;

/** The same for a call made on behalf of call ?36, whose caller is the caller. */
export const insertCallOfParent = `INSERT INTO calls (${newRowColumns})
  SELECT ${Object.values({ ...newRow, caller_id: "parent.caller_id" }).join(", ")}
  FROM calls AS parent WHERE parent.tenant = ?1 AND parent.id = ?36
  ON CONFLICT DO NOTHING`;

const overBudgetAtOnce = overBudget({
  tenant: "?1",
  caller: "run.caller_id",
  user: "?33",
  tokens: "?34",
  micros: "?35",
  id: "?2",
});

/**
 * The same for a step of run ?36 while attempt ?37 holds it, whose caller is the caller. It begins where the tenant
 * has a slot of ?38 and its budgets have room; else a worker takes it when they have.
 */
export const insertCallOfRun: string = `INSERT INTO calls (${newRowColumns})
  SELECT ${Object.values({
    ...newRow,
    caller_id: "parent.caller_id",
    state: "CASE WHEN parent.begins THEN ?12 ELSE 'queued' END",
    attempt: "CASE WHEN parent.begins THEN ?13 ELSE 0 END",
    lease_until: `CASE WHEN parent.begins THEN ${now} + ?14 END`,
    started_at: `CASE WHEN parent.begins THEN ${now} - ?31 END`,
  }).join(", ")}
  FROM (SELECT run.caller_id,
      ?12 <> 'running' OR (?27 + ${heldSlots} <= ?38 AND ${overBudgetAtOnce} IS NULL) AS begins
    FROM calls AS run WHERE run.tenant = ?1 AND run.id = ?36 AND run.attempt = ?37 AND run.state = 'running') AS parent
  WHERE true ON CONFLICT DO NOTHING`;

/** The same for a firing of schedule ?36, while that is due at ?37. */
export const insertFiring = `INSERT INTO calls (${newRowColumns})
  SELECT ${Object.values(newRow).join(", ")} FROM schedules AS due
  WHERE due.tenant = ?1 AND due.id = ?36 AND due.next_at = ?37 AND due.paused = 0
  ON CONFLICT DO NOTHING`;

/** @param callerId null where the batch finds it out */
export function newRowArgs(tenant: string, callerId: string | null, call: NewCall): SqlValue[] {
  const { ran } = call;
  const refusal = call.end?.state === "rejected" ? call.end : undefined;
  const isRunning = refusal === undefined && (call.state === "running" || call.end !== undefined);
  return [
    tenant,
    call.id,
    call.kind,
    call.parentId,
    call.rootId,
    call.sessionId,
    call.uri,
    call.tool,
    call.toolHash,
    call.effect,
    call.repeat,
    isRunning ? "running" : call.state,
    isRunning || ran !== undefined ? 1 : 0,
    isRunning ? call.leaseMs : null,
    call.runAt,
    call.deadlineMs,
    call.async ? 1 : 0,
    callerId,
    JSON.stringify(call.callerChain),
    call.route,
    call.idempotencyKey,
    call.inputHash,
    call.input,
    call.inputView,
    call.effectKey,
    jsonOrNull(refusal?.error ?? call.asks),
    call.slots,
    call.delivery,
    call.requestId,
    call.traceId,
    ran?.startedMsAgo ?? (isRunning ? 0 : null),
    refusal === undefined ? null : (ran?.finishedMsAgo ?? 0),
    call.userId,
    call.reserved.tokens,
    call.reserved.micros,
  ];
}

/**
 * The end of a row that is written when all is over; directly after the row itself. What ran comes to its
 * end like any other call, since ends are what is charged; what was refused is written as it is.
 */
export function endOfNewRow(tenant: string, { id, end, ran }: NewCall): readonly Statement[] {
  if (end === undefined || end.state === "rejected") return [];
  const ranMs = ran === undefined ? 0 : ran.startedMsAgo - ran.finishedMsAgo;
  return endStatements(tenant, { id, attempt: 1, finish: end, ranMs });
}

/** What a running call has used so far, ?4 and ?5: its bill if nobody ends it. */
export const keepSpent = `UPDATE calls SET usage = COALESCE(?4, usage), cost = ?5
  WHERE tenant = ?1 AND id = ?2 AND attempt = ?3 AND state = 'running'`;

export function spentArgs({ usage, cost }: Spent): SqlValue[] {
  return [jsonOrNull(usage), JSON.stringify(cost)];
}

/**
 * Which end a call may come to from where it is. `unknown` yields to evidence; a call that waits or
 * queues has not been sent, so it can only be refused or called off.
 */
const mayEnd = `(state = 'running' AND attempt = ?4)
  OR (state = 'unknown' AND attempt = ?4 AND ?3 IN ('completed', 'failed'))
  OR (state IN ('queued', 'input_required') AND attempt = ?4 AND ?3 IN ('rejected', 'cancelled'))`;

const endColumns = `state = ?3, write_token = ?5,
  lease_until = CASE WHEN ?3 = 'running' THEN ${now} + ?16 END,
  outcome_text = ?6, outcome_media_type = ?7, outcome_bytes = ?8, outcome_blob_key = ?9,
  error = ?10, usage = COALESCE(?11, usage), cost = COALESCE(?12, cost),
  input = COALESCE(?14, input), delivery = COALESCE(?15, delivery),
  slots = CASE ?3 WHEN 'input_required' THEN MAX(slots, 1) WHEN 'running' THEN 0 ELSE slots END,
  async = CASE WHEN ?3 = 'running' THEN 1 ELSE async END,
  reserved_tokens = CASE WHEN ?3 = 'running' THEN 0 ELSE reserved_tokens END,
  reserved_micros = CASE WHEN ?3 = 'running' THEN COALESCE(?12 ->> 'micros', 0) ELSE reserved_micros END,
  finished_at = CASE WHEN ?3 IN ('input_required', 'running') THEN NULL WHEN write_token IS ?5 THEN finished_at
    ELSE COALESCE(started_at + ?13, ${now}) END`;

/** Fenced by `attempt`. A second time with the same token it changes nothing and still counts its row. */
const finishCall = `UPDATE calls SET ${endColumns}
  WHERE tenant = ?1 AND id = ?2 AND (${mayEnd} OR write_token = ?5)`;

/** Late evidence, whoever brings it. */
export const resolveUnknownCall = `UPDATE calls SET ${endColumns}
  WHERE tenant = ?1 AND id = ?2
    AND ((state = 'unknown' AND ?3 IN ('completed', 'failed')) OR write_token = ?5)`;

export interface RowEnd {
  readonly id: string;
  /** Null where no attempt is asked for. */
  readonly attempt: number | null;
  readonly finish: CallFinish;
  /** Where the end is not now. */
  readonly ranMs?: number;
}

export function endStatements(tenant: string, end: RowEnd): readonly Statement[] {
  return [{ sql: finishCall, args: endArgs(tenant, end) }, ...credentialStatements(tenant, end.id, end.finish)];
}

export function endArgs(tenant: string, { id, attempt, finish, ranMs }: RowEnd): SqlValue[] {
  return [
    tenant,
    id,
    finish.state,
    attempt,
    randomUUID(),
    ...outcomeArgs(finish.outcome),
    jsonOrNull(finish.error),
    jsonOrNull(finish.usage),
    jsonOrNull(finish.cost),
    ranMs ?? null,
    finish.continued?.input ?? null,
    finish.continued?.delivery ?? finish.worksOn?.delivery ?? null,
    finish.worksOn?.withinMs ?? null,
  ];
}

function outcomeArgs(outcome: StoredOutcome | undefined): SqlValue[] {
  if (outcome === undefined) return [null, null, null, null];
  return [outcome.text, outcome.mediaType, outcome.bytes, outcome.blobKey ?? null];
}

function jsonOrNull(value: unknown): string | null {
  return value === undefined ? null : JSON.stringify(value);
}

/**
 * Marks the credentials that a call opened: the user's where there is one, as `fetch` chooses. Once a
 * minute is enough to know, and spares the row a write with every call.
 */
const markCredentials = `UPDATE sys_user_credential SET last_used_at = ${now}
  WHERE tenant = ?1 AND name IN (SELECT value FROM json_each(?2))
    AND COALESCE(last_used_at, 0) < ${now} - 60000
    AND user_id = COALESCE((
      SELECT own.user_id FROM sys_user_credential AS own
      WHERE own.tenant = ?1 AND own.name = sys_user_credential.name AND own.user_id = (
        SELECT link.value ->> 'id' FROM calls, json_each(calls.caller_chain) AS link
        WHERE calls.tenant = ?1 AND calls.id = ?3 AND link.value ->> 'kind' = 'user')), '')`;

/** Nothing where no credential was used. */
function credentialStatements(tenant: string, id: string, { credentialsUsed = [] }: CallFinish): readonly Statement[] {
  if (credentialsUsed.length === 0) return [];
  return [{ sql: markCredentials, args: [tenant, JSON.stringify(credentialsUsed), id] }];
}

/** @throws BrokenColumn */
export function toCall(row: Row): Call {
  return callOf(decodeRow(calls, row));
}

/** What a newer release has begun, and this one cannot tell the end of. */
const told = [calls.state, calls.kind, calls.effect] as const;

function callOf(record: InferSelectModel<typeof calls>): Call {
  for (const { name, enumValues } of told) {
    const known: readonly unknown[] = enumValues;
    if (!known.includes(record[name as "state" | "kind" | "effect"])) throw new BrokenColumn(name, unknownValue);
  }
  const {
    outcomeText: text,
    outcomeMediaType: mediaType,
    outcomeBytes: bytes,
    outcomeBlobKey: blobKey,
    sentAt: _sentAt,
    writeToken: _writeToken,
    woken: _woken,
    archiveId: _archiveId,
    reservedTokens,
    reservedMicros,
    ...call
  } = record;
  const outcome =
    text === null || mediaType === null || bytes === null
      ? null
      : { text, mediaType, bytes, ...(blobKey === null ? {} : { blobKey }) };
  return { ...call, outcome, reserved: { tokens: reservedTokens, micros: reservedMicros } };
}

export type CallReader = Reader<typeof calls, Call>;

const unknownValue = new TypeError("a value that this release does not know");

/** Several calls, of which one that cannot be read keeps no other from being seen. */
export function callReader(onBrokenRow: OnBrokenRow): CallReader {
  return { table: calls, tableName: getTableName(calls), key: calls.id, onBrokenRow, toRecord: callOf };
}

/** Where a tenant's calls are, and how they are read. */
export interface CallSource {
  readonly database: Database;
  readonly reader: CallReader;
}
