/** What the tick does to calls of all tenants: work that nobody holds is found, what is old goes. */
import type { CallRepo, SweepItem } from "@toolyard/core/ports/calls";
import { vcpLogKept } from "@toolyard/core/vcp/nodes/client-types";
import type { SettingsCaps } from "@toolyard/core/tenants/settings";
import type { Shards, Statement } from "../database.ts";
import { calls } from "../schema/calls.ts";
import { decodeRow } from "../sql.ts";
import { keyLifetimeMs } from "./calls-rows.ts";
import { everyShard, mostChanges } from "./every-shard.ts";
import { isActive, now, setting, underCaps } from "./fragments.ts";
import { isForLog } from "./live-connections.ts";

const dayMs = 86_400_000;
/** More than a year, so that a month can be held against that of the year before. */
const usageKeptDays = 400;
/** Longer than any attempt to tell of them goes on. */
const eventsKeptMs = 300_000;
const defaultOfferAgainMs = 60_000;

/**
 * Taking and marking are one statement, so two sweeps never return the same row. Nothing comes with it that a row may
 * hold in a form that cannot be read: one row would keep all the others from being sent.
 */
const sweepCalls = `UPDATE calls SET sent_at = ${now} + MAX(0, ?3 - ?2)
  WHERE rowid IN (
    SELECT rowid FROM (
      SELECT rowid FROM calls WHERE state = 'running' AND lease_until <= ${now} AND sent_at <= ${now} - ?2
        AND ${isActive("calls.tenant")}
      ORDER BY lease_until LIMIT ?1)
    UNION ALL
    SELECT rowid FROM (
      SELECT rowid FROM calls WHERE state = 'queued' AND COALESCE(run_at, 0) <= ${now} AND sent_at <= ${now} - ?2
        AND ${isActive("calls.tenant")}
      ORDER BY sent_at LIMIT ?1)
    LIMIT ?1)
  RETURNING tenant, id, async, kind, effect, repeat, state`;

/** @throws GatewayError `database_unavailable` */
export async function sweep(
  shards: Shards,
  { limit, queuedForMs, offerAgainMs = defaultOfferAgainMs }: Parameters<CallRepo["sweep"]>[0],
): Promise<readonly SweepItem[]> {
  const statement = { sql: sweepCalls, args: [limit, queuedForMs, offerAgainMs] };
  const found = await everyShard(shards, (database) => database.batch([statement]));
  return found
    .flatMap(([swept]) => swept?.rows ?? [])
    .map((row) => {
      const { tenant, id, async, kind, effect, repeat, state } = decodeRow(calls, row);
      return { tenant, id, async, kind, effect, repeat, state };
    });
}

const among = (table: string, where: string): string => `rowid IN (SELECT rowid FROM ${table} WHERE ${where} LIMIT ?1)`;

const forget = (table: string, where: string): string => `DELETE FROM ${table} WHERE ${among(table, where)}`;

/** Sought tenant by tenant: their index begins with the tenant, and nothing else has a day. */
const forgetUsage = `DELETE FROM usage_days WHERE rowid IN (
    SELECT old.rowid FROM tenants AS t CROSS JOIN usage_days AS old
    WHERE old.tenant = t.id AND old.day <= ${now} - ${usageKeptDays * dayMs}
    LIMIT ?1)`;

/** What is still to be sent is not old, and what was tried for days is as old as its last try. */
const forgetDeliveries = underCaps((caps) => {
  const before = `${now} - ${dayMs} * ${setting("calls_retention_days", caps)}`;
  return `DELETE FROM webhook_deliveries WHERE rowid IN (
    SELECT old.rowid FROM tenants AS t CROSS JOIN webhook_deliveries AS old
    WHERE old.tenant = t.id AND old.next_at IS NULL
      AND old.created_at <= ${before} AND COALESCE(old.attempted_at, 0) <= ${before}
    LIMIT ?1)`;
});

const expiry: readonly string[] = [
  `UPDATE calls SET idempotency_key = NULL
    WHERE ${among("calls", `idempotency_key IS NOT NULL AND created_at <= ${now} - ${keyLifetimeMs}`)}`,
  `UPDATE calls SET input = NULL
    WHERE ${among("calls", `input IS NOT NULL AND finished_at IS NOT NULL AND finished_at <= ${now} - ${7 * dayMs}`)}`,
  forget("kept_turns", `expires_at <= ${now}`),
  forget("rate_windows", `window_start <= ${now} - ${dayMs}`),
  // Ids of sessions that expired answer 410 for a month, and then are free.
  forget("sessions", `cleared_at IS NOT NULL AND cleared_at <= ${now} - ${30 * dayMs}`),
  forget("replies", `created_at <= ${now} - 3600000`),
  forget("connections", `expires_at <= ${now}`),
  forget("connection_tickets", `expires_at <= ${now}`),
  // Told by then, or left to what clients read when they come back.
  forget(
    "connection_events",
    `created_at <= ${now} - ${eventsKeptMs} AND (NOT ${isForLog("connection_events")} OR created_at <= ${now} - ${dayMs}
      OR seq <= (SELECT kept.seq FROM connection_events AS kept
        WHERE kept.tenant = connection_events.tenant AND ${isForLog("kept")}
        ORDER BY kept.seq DESC LIMIT 1 OFFSET ${vcpLogKept}))`,
  ),
  forgetUsage,
  forget("queue_messages", `dead_at IS NOT NULL AND dead_at <= ${now} - ${14 * dayMs}`),
];

export async function expire(shards: Shards, caps: SettingsCaps, limit: number): Promise<number> {
  const statements = [forgetDeliveries(caps), ...expiry].map((sql): Statement => ({ sql, args: [limit] }));
  return mostChanges(await everyShard(shards, (database) => database.batch(statements)));
}
