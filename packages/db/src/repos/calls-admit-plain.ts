/**
 * The short way of an admission, for what nearly every request is: a chat of a caller whom this process
 * knows, that brings no key, session or kept turn, asks for no slots and falls under no budget. Nothing has
 * to be looked up then; it is enough that nothing stands in the way. One statement writes the row unless
 * anything does, a second counts it. Where the row was not written the long way finds out why, and decides:
 * this way can only admit, and only what the long way would have admitted.
 *
 * Sent twice, the batch finds its row there, writes and counts nothing, and the long way recognises it.
 */
import type { AdmitInput, NewCall } from "@toolyard/core/ports/repos";
import type { TenantSettings } from "@toolyard/core/tenant-config";
import type { Statement, StatementResult } from "../database.ts";
import { brokeAfterWrite, mattersToRepetition } from "../schema/calls.ts";
import { insertCallWhere, newRowArgs } from "./calls-rows.ts";
import { openBreakers } from "./breakers.ts";
import { hearing, now, windowMs, windowStart } from "./fragments.ts";

// Behind the columns: ?36 config version, ?37 hash of the key, ?38 chats and ?39 requests a minute that the
// tenant may have, ?40 age of repetitions to look for.
const insertUnhindered = insertCallWhere(`
  EXISTS (SELECT 1 FROM tenants WHERE id = ?1 AND status = 'active' AND config_version = ?36)
  AND (?37 IS NULL OR EXISTS (
    SELECT 1 FROM api_keys WHERE hash = ?37 AND tenant = ?1 AND revoked_at IS NULL
      AND (expires_at IS NULL OR expires_at > ${now})
      AND requests_per_minute IS NULL AND concurrent_requests IS NULL))
  AND NOT EXISTS (
    SELECT 1 FROM rate_windows WHERE tenant = ?1 AND scope = 'tenant' AND window_start = ${windowStart} AND count >= ?39)
  AND NOT (?40 IS NOT NULL AND EXISTS (
    SELECT 1 FROM (
      SELECT state, error FROM calls
      WHERE tenant = ?1 AND caller_id = ?18 AND input_hash = ?22 AND route = ?20 AND created_at > ${now} - ?40
        AND ${mattersToRepetition}
      ORDER BY created_at DESC LIMIT 1)
    WHERE ${brokeAfterWrite}))
  AND (SELECT COUNT(*) FROM calls
    WHERE tenant = ?1 AND state = 'running' AND lease_until > ${now} AND kind = 'chat') < ?38`);

const countInserted = `INSERT INTO rate_windows (tenant, scope, window_start, count, request)
  SELECT ?1, 'tenant', ${windowStart}, 1, ?2 WHERE changes() > 0
  ON CONFLICT (tenant, scope) DO UPDATE SET
    count = 1 + CASE WHEN window_start = excluded.window_start THEN count ELSE 0 END,
    window_start = excluded.window_start, request = excluded.request, verdict = NULL
  RETURNING count, window_start + ${windowMs} - ${now} AS reset_ms, ${hearing}, ${openBreakers}`;

export interface ShortWay {
  readonly statements: readonly Statement[];
  readonly known: NonNullable<AdmitInput["known"]>;
  readonly configVersion: number;
}

/** The row that says how many were counted; undefined where the long way has to decide. */
export function countedBy(results: readonly StatementResult[]): StatementResult["rows"][number] | undefined {
  return results[1]?.rows[0];
}

/** @returns undefined where there is more to decide */
export function planShortWay(input: AdmitInput): ShortWay | undefined {
  const { tenant, principal, call, known, expectedConfigVersion, attach } = input;
  if (call === undefined || known === undefined || expectedConfigVersion === undefined) return undefined;
  if (!isPlainChat(call) || asksForMore(input)) return undefined;
  const args = [
    ...newRowArgs(tenant, known.caller.id, call),
    expectedConfigVersion,
    principal.kind === "key" ? principal.hash : null,
    ...limitsOf(known.settings),
    attach?.withinMs ?? null,
  ];
  return {
    statements: [
      { sql: insertUnhindered, args },
      { sql: countInserted, args: [tenant, call.id] },
    ],
    known,
    configVersion: expectedConfigVersion,
  };
}

function isPlainChat({ kind, state, end, idempotencyKey, reserved }: NewCall): boolean {
  return (
    kind === "chat" &&
    state === "running" &&
    end === undefined &&
    idempotencyKey === null &&
    reserved.tokens === 0 &&
    reserved.micros === 0
  );
}

function asksForMore({ limits, slots, attach, turnKeys = [], sessionId, supersedes }: AdmitInput): boolean {
  return (
    !limits.countRequest ||
    slots !== undefined ||
    attach?.to === "any" ||
    turnKeys.length > 0 ||
    sessionId !== undefined ||
    supersedes !== undefined
  );
}

function limitsOf(settings: TenantSettings): readonly [number, number] {
  return [settings.concurrent_requests, settings.requests_per_minute];
}
