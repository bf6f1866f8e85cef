/**
 * A tenant's settings: what is stored is what it asked for, what holds is that within the operator's caps of
 * today (CHAT-12). A change is a merge in which null takes a setting back to its default.
 */
import * as z from "zod";
import { GatewayError } from "../errors/gateway-error.ts";
import { once } from "../once.ts";
import { tenantSettingsSchema, type TenantSettings } from "../tenant-config.ts";

export type SettingName = keyof TenantSettings;

/** The operator's upper bounds for numeric settings; a setting without one is bounded by its schema. */
export type SettingsCaps = { readonly [Name in SettingName]?: number };

/** Caps as an operator writes them: names of numeric settings, each with the largest value allowed. */
export const settingsCapsSchema = once((): z.ZodType<SettingsCaps> => {
  const numbers = Object.entries(tenantSettingsSchema.shape).flatMap(([name, field]) => {
    const number = withoutDefault(field);
    if (!(number instanceof z.ZodNumber)) return [];
    // Below the least that the setting can be, nothing would be left to hold.
    const cap = z.int().min(number.minValue ?? 1);
    return [[name, cap.optional()] as const];
  });
  return z.strictObject(Object.fromEntries(numbers));
});

/** Values to set; null: back to the default. */
export type SettingsChange = { readonly [Name in SettingName]?: TenantSettings[Name] | null | undefined };

type ChangeShape = { [Name in SettingName]: z.ZodOptional<z.ZodNullable<z.ZodType<TenantSettings[Name]>>> };

/** The settings' own checks without their defaults, so that what is not named stays as it is. */
export const settingsChangeSchema = once(() =>
  z.strictObject(
    Object.fromEntries(
      Object.entries(tenantSettingsSchema.shape).map(([name, field]) => [
        name,
        withoutDefault(field).nullable().optional(),
      ]),
    ) as ChangeShape,
  ),
);

function withoutDefault(field: z.ZodType): z.ZodType {
  return field instanceof z.ZodDefault || field instanceof z.ZodOptional
    ? withoutDefault(field.unwrap() as z.ZodType)
    : field;
}

/** All settings as they hold, defaults included: what is above a cap counts as the cap. */
export function settingsInForce(stored: unknown, caps: SettingsCaps = {}): TenantSettings {
  const settings = tenantSettingsSchema.parse(stored);
  const above = Object.entries(caps).filter(([name, cap]) => {
    const value = settings[name as SettingName];
    return typeof value === "number" && value > cap;
  });
  return { ...settings, ...Object.fromEntries(above) };
}

/**
 * @returns the settings that the tenant has set, to be stored
 * @throws GatewayError `invalid_request` naming a setting above the operator's cap
 */
export function changeSettings(
  stored: Partial<TenantSettings>,
  change: SettingsChange,
  caps: SettingsCaps = {},
): Partial<TenantSettings> {
  const merged: Record<string, unknown> = { ...stored };
  for (const [name, value] of Object.entries(change)) {
    if (value === undefined) continue;
    if (value === null) delete merged[name];
    else merged[name] = withinCap(name as SettingName, value, caps);
  }
  const checked = tenantSettingsSchema.parse(merged);
  return Object.fromEntries(
    Object.keys(merged).map((name) => [name, checked[name as SettingName]]),
  ) as Partial<TenantSettings>;
}

function withinCap(name: SettingName, value: unknown, caps: SettingsCaps): unknown {
  const cap = caps[name];
  if (cap !== undefined && typeof value === "number" && value > cap) {
    throw new GatewayError(
      "invalid_request",
      `Setting '${name}' may be ${cap} at most, the operator's cap; got ${value}.`,
      {
        param: name,
        extra: { cap },
      },
    );
  }
  return value;
}
