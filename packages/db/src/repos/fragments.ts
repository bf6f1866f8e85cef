/** Parts of hand-written SQL. Nothing here comes from outside: what does is bound, never spelled out. */
import type { Listeners } from "@toolyard/core/realtime/connection";
import { tenantSettingsSchema, type TenantSettings } from "@toolyard/core/tenant-config";
import * as z from "zod";

/** Epoch milliseconds of the database's clock; the same wherever it stands in one statement. */
export const now = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

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

/** A setting of the tenant in row `t`. A value outside of the schema's range counts as not set, as in settings.ts. */
export function setting(name: NumericSetting): string {
  const value = `json_extract(t.settings, '$.${name}')`;
  const { least, most } = numericSettings[name] ?? {};
  return `CASE WHEN ${value} BETWEEN ${least} AND ${most} THEN ${value} ELSE ${defaults[name]} END`;
}

/** For calls of a tenant that is suspended or gone nothing is done; what is queued stays for the day it is resumed. */
export const isActive = (tenant: string): string =>
  `EXISTS (SELECT 1 FROM tenants AS owner WHERE owner.id = ${tenant} AND owner.status = 'active')`;

/** What connections of tenant ?1 listen to, as a number of three bits; null: nobody listens. */
export const hearing =
  "(SELECT MAX(hears & 1) + MAX(hears & 2) + MAX(hears & 4) FROM connections WHERE tenant = ?1 AND hears > 0) AS hearing";

/** Reads `hearing`. */
export function toListeners(row: Readonly<Record<string, unknown>>): { readonly listeners?: Listeners } {
  const bits = Number(row["hearing"] ?? 0);
  return bits === 0 ? {} : { listeners: { calls: (bits & 1) > 0, logs: (bits & 2) > 0, vcp: (bits & 4) > 0 } };
}
