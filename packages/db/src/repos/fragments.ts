/** Parts of hand-written SQL. Nothing here comes from outside: what does is bound, never spelled out. */
import type { Listeners } from "@toolyard/core/realtime/connection";
import { tenantSettingsSchema, type TenantSettings, type SettingsCaps } from "@toolyard/core/tenants/settings";
import * as z from "zod";

/** Epoch milliseconds of the database's clock; the same wherever it stands in one statement. */
export const now = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/** Of a call that only something else wakes: later than anything, and still a date. */
export const untilWoken = 253_402_300_799_000;

/** Requests are counted by the minute. */
export const windowMs = 60_000;

export const windowStart = `${now} - ${now} % ${windowMs}`;

const numericSettings = Object.fromEntries(
  Object.entries(tenantSettingsSchema.shape).flatMap(([name, schema]) => {
    if (!(schema instanceof z.ZodDefault)) return [];
    const inner = schema.unwrap();
    return inner instanceof z.ZodNumber ? [[name, { least: inner.minValue, most: inner.maxValue }]] : [];
  }),
);

type NumericSetting = {
  [Name in keyof TenantSettings]-?: TenantSettings[Name] extends number ? Name : never;
}[keyof TenantSettings];

const defaults = tenantSettingsSchema.parse({});

/**
 * A setting of the tenant in row `t`, the operator's cap at most. A value outside of the schema's range counts as not
 * set, as in settings.ts.
 */
export function setting(name: NumericSetting, caps: SettingsCaps): string {
  const value = `json_extract(t.settings, '$.${name}')`;
  const { least, most } = numericSettings[name] ?? {};
  const asked = `CASE WHEN ${value} BETWEEN ${least} AND ${most} THEN ${value} ELSE ${defaults[name]} END`;
  const cap = caps[name];
  return cap === undefined ? asked : `MIN(${asked}, ${cap})`;
}

/** SQL in which caps are spelled out, since they are a process's own and never change: made once for them. */
export function underCaps(make: (caps: SettingsCaps) => string): (caps: SettingsCaps) => string {
  const made = new WeakMap<SettingsCaps, string>();
  return (caps) => {
    const known = made.get(caps);
    if (known !== undefined) return known;
    const sql = make(caps);
    made.set(caps, sql);
    return sql;
  };
}

/** For calls of a tenant that is suspended or gone nothing is done; what is queued stays for the day it is resumed. */
export const isActive = (tenant: string): string =>
  `EXISTS (SELECT 1 FROM tenants AS owner WHERE owner.id = ${tenant} AND owner.status = 'active')`;

/** How often each is there, as JSON for `countOf`. */
export function countsOf(ids: readonly string[]): string {
  const counts: Record<string, number> = {};
  for (const id of ids) counts[id] = (counts[id] ?? 0) + 1;
  return JSON.stringify(counts);
}

/** @param counts of `countsOf` */
export const countOf = (counts: string, id: string): string =>
  `COALESCE(json_extract(${counts}, '$."' || ${id} || '"'), 0)`;

/**
 * A recursive table of those who have something pending in `table`, one step of its index for each, however much they
 * have; none, unless something is due. It ends with a row of null.
 */
export function pendingOf(table: "connection_events" | "webhook_deliveries", owner: string): string {
  const next = (after: string): string => `(
    SELECT ${owner} FROM ${table} INDEXED BY ${table}_pending
    WHERE next_at IS NOT NULL ${after} ORDER BY ${owner} LIMIT 1)`;
  return `pending (${owner}) AS (
    SELECT ${next("")} WHERE EXISTS (SELECT 1 FROM ${table} WHERE next_at IS NOT NULL AND next_at <= ${now})
    UNION ALL
    SELECT ${next(`AND ${owner} > pending.${owner}`)} FROM pending WHERE pending.${owner} IS NOT NULL)`;
}

/** What connections of tenant ?1 listen to, as a number of three bits; null: nobody listens. */
export const hearing =
  "(SELECT MAX(hears & 1) + MAX(hears & 2) + MAX(hears & 4) FROM connections WHERE tenant = ?1 AND hears > 0) AS hearing";

/** Reads `hearing`. */
export function toListeners(row: Readonly<Record<string, unknown>>): { readonly listeners?: Listeners } {
  const bits = Number(row["hearing"] ?? 0);
  return bits === 0 ? {} : { listeners: { calls: (bits & 1) > 0, logs: (bits & 2) > 0, vcp: (bits & 4) > 0 } };
}
