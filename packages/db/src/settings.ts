/**
 * Tenants' settings as stored: JSON of what differs from the defaults. Read key by key, since a row may
 * have been written by newer code; a key that does not fit counts as not set.
 */
import { isJsonObject, parseJson, type JsonObject } from "@toolyard/core/json";
import {
  tenantSettingsSchema,
  type TenantSettings,
  settingsInForce,
  type SettingsCaps,
} from "@toolyard/core/tenants/settings";

const fields = Object.entries(tenantSettingsSchema.shape);

/** Hears the name of each key that was left out; `settings` for a value that is no JSON object at all. */
export type OnBrokenSetting = (key: string) => void;

/** All settings as they hold: with defaults for those that the tenant has not set, none above the operator's cap. */
export function parseSettings(stored: unknown, caps: SettingsCaps, onBroken?: OnBrokenSetting): TenantSettings {
  return settingsInForce(readable(stored, onBroken), caps);
}

/** Only what the tenant has set. */
export function parseOwnSettings(stored: unknown, onBroken?: OnBrokenSetting): Partial<TenantSettings> {
  const set = readable(stored, onBroken);
  const all = tenantSettingsSchema.parse(set);
  return Object.fromEntries(Object.entries(all).filter(([key]) => Object.hasOwn(set, key))) as Partial<TenantSettings>;
}

function readable(stored: unknown, onBroken: OnBrokenSetting = () => undefined): JsonObject {
  const value = typeof stored === "string" ? parseJson(stored) : undefined;
  const kept: JsonObject = {};
  if (!isJsonObject(value)) {
    onBroken("settings");
    return kept;
  }
  for (const [key, schema] of fields) {
    const set = value[key];
    if (set === undefined) continue;
    if (schema.safeParse(set).success) kept[key] = set;
    else onBroken(key);
  }
  return kept;
}
