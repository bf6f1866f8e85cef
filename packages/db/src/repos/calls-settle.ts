/**
 * Writing what calls came to: the batch after the last byte of a chat, the rows of a round, single ends.
 * Each batch may be sent twice: rows carry their own ids, ends carry a token, so that the second
 * sending finds the work of the first.
 */
import type { Spent } from "@toolyard/core/budgets/cost";
import type { CallFinish, NewCall, RecordResult, SettleInput } from "@toolyard/core/ports/calls";
import type { Database, Statement, StatementResult } from "../database.ts";
import {
  endArgs,
  endOfNewRow,
  endStatements,
  insertCall,
  insertCallOfParent,
  keepSpent,
  keyLifetimeMs,
  newRowArgs,
  resolveUnknownCall,
  spentArgs,
  toCall,
} from "./calls-rows.ts";
import { now } from "./fragments.ts";

const keepTurn = `INSERT INTO kept_turns (tenant, caller_id, key, sealed, expires_at)
  SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM tenants WHERE id = ?1)
  ON CONFLICT (tenant, caller_id, key) DO UPDATE SET sealed = excluded.sealed, expires_at = excluded.expires_at`;

const markDelivered = `UPDATE calls SET delivery = 'delivered'
  WHERE tenant = ?1 AND id IN (SELECT value FROM json_each(?2)) AND delivery = 'due'`;

const touchSession = `UPDATE sessions SET last_used_at = ${now} WHERE id = ?2 AND tenant = ?1 AND expired_at IS NULL`;

const beginSession = `INSERT INTO sessions (id, tenant, caller_id, created_by, created_at, last_used_at)
  SELECT ?2, tenant, caller_id, id, created_at, ${now} FROM calls WHERE tenant = ?1 AND id = ?3
  ON CONFLICT (id) DO UPDATE SET last_used_at = excluded.last_used_at
    WHERE tenant = excluded.tenant AND expired_at IS NULL`;

const releaseOldKey = `UPDATE calls SET idempotency_key = NULL
  WHERE tenant = ?1 AND caller_id = ?2 AND route = ?3 AND idempotency_key = ?4 AND created_at <= ${now} - ${keyLifetimeMs}`;

/** The row that kept a new one out, unless the new one is there. */
const readRival = `SELECT rival.* FROM calls AS rival
  WHERE rival.tenant = ?1 AND rival.id IN (
      SELECT id FROM calls WHERE tenant = ?1 AND root_id = ?3 AND effect_key = ?4
      UNION ALL
      SELECT id FROM calls WHERE tenant = ?1 AND caller_id = ?5 AND route = ?6 AND idempotency_key = ?7)
    AND NOT EXISTS (SELECT 1 FROM calls WHERE tenant = ?1 AND id = ?2)
  LIMIT 1`;

/**
 * The chat's own row ends only where this attempt still owns it. What its calls did, the turn that the
 * client will continue and what the model was told have happened either way, and are kept.
 */
export async function settle(database: Database, tenant: string, input: SettleInput): Promise<void> {
  const { callId, attempt, finish, keepTurn: turn, sessionId, beginsSession } = input;
  const statements: Statement[] = [];
  for (const call of input.calls) {
    statements.push({ sql: insertCallOfParent, args: [...newRowArgs(tenant, null, call), callId] });
    statements.push(...endOfNewRow(tenant, call));
  }
  for (const ended of input.finished) statements.push(...endStatements(tenant, ended));
  statements.push(...endStatements(tenant, { id: callId, attempt, finish }));
  if (turn !== undefined) {
    statements.push({ sql: keepTurn, args: [tenant, turn.callerId, turn.key, turn.sealed, turn.expiresAt] });
  }
  if (input.delivered.length > 0) {
    statements.push({ sql: markDelivered, args: [tenant, JSON.stringify(input.delivered)] });
  }
  if (sessionId !== undefined) {
    statements.push(
      beginsSession === true
        ? { sql: beginSession, args: [tenant, sessionId, callId] }
        : { sql: touchSession, args: [tenant, sessionId] },
    );
  }
  await database.batch(statements, { repeatable: true });
}

interface Round {
  readonly callerId: string;
  readonly calls: readonly NewCall[];
  readonly parent?: { readonly id: string; readonly attempt: number; readonly spent: Spent };
}

interface RecordStatements {
  readonly statements: readonly Statement[];
  /** Of the results of these statements. */
  readonly read: (results: readonly StatementResult[]) => readonly RecordResult[];
}

export function recordStatements(tenant: string, { callerId, calls, parent }: Round): RecordStatements {
  const statements: Statement[] = [];
  const rivals = calls.map((call) => {
    const { id, rootId, effectKey, route, idempotencyKey } = call;
    if (idempotencyKey !== null) {
      statements.push({ sql: releaseOldKey, args: [tenant, callerId, route, idempotencyKey] });
    }
    statements.push({ sql: insertCall, args: newRowArgs(tenant, callerId, call) }, ...endOfNewRow(tenant, call));
    if (effectKey === null && idempotencyKey === null) return undefined;
    const args = [tenant, id, rootId, effectKey, callerId, route, idempotencyKey];
    return statements.push({ sql: readRival, args }) - 1;
  });
  if (parent !== undefined) {
    const { id, attempt, spent } = parent;
    statements.push({ sql: keepSpent, args: [tenant, id, attempt, ...spentArgs(spent)] });
  }
  return {
    statements,
    read: (results) =>
      calls.map(({ id }, index) => {
        const rival = results[rivals[index] ?? -1]?.rows[0];
        return rival === undefined ? { id, kind: "recorded" } : { id, kind: "existing", call: toCall(rival) };
      }),
  };
}

export async function record(database: Database, tenant: string, round: Round): Promise<readonly RecordResult[]> {
  if (round.calls.length === 0) return [];
  const { statements, read } = recordStatements(tenant, round);
  return read(await database.batch(statements, { repeatable: true }));
}

export async function finish(
  database: Database,
  tenant: string,
  end: { readonly id: string; readonly attempt: number; readonly finish: CallFinish },
): Promise<boolean> {
  const [ended] = await database.batch(endStatements(tenant, end), { repeatable: true });
  return ended !== undefined && ended.changes > 0;
}

export async function resolveUnknown(
  database: Database,
  tenant: string,
  { id, finish: evidence }: { readonly id: string; readonly finish: CallFinish },
): Promise<boolean> {
  const args = endArgs(tenant, { id, attempt: null, finish: evidence });
  const [resolved] = await database.batch([{ sql: resolveUnknownCall, args }], { repeatable: true });
  return resolved !== undefined && resolved.changes > 0;
}

const amendText = `UPDATE calls SET outcome_text = ?4, outcome_bytes = ?5
  WHERE tenant = ?1 AND id = ?2 AND state = 'completed' AND outcome_blob_key IS NULL AND archive_id IS NULL
    AND outcome_text = ?3`;

/** Whoever was faster has left another text; sent twice, it finds its own. */
export async function amendOutcome(
  database: Database,
  tenant: string,
  { id, before, after }: { readonly id: string; readonly before: string; readonly after: string },
): Promise<boolean> {
  const args = [tenant, id, before, after, Buffer.byteLength(after)];
  const [amended] = await database.batch([{ sql: amendText, args }], { repeatable: true });
  return amended !== undefined && amended.changes > 0;
}
