/**
 * Changing a tenant's settings: a merge in which null takes a setting back to its default, within the
 * schema's limits and the operator's caps (CHAT-12).
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
  const numericNames = Object.entries(tenantSettingsSchema.shape).flatMap(([name, field]) =>
    withoutDefault(field) instanceof z.ZodNumber ? [name] : [],
  );
  return z.strictObject(Object.fromEntries(numericNames.map((name) => [name, z.int().min(1).optional()])));
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

/**
 * @returns the settings that differ from the defaults, to be stored
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
  return {
    ...Object.fromEntries(Object.keys(merged).map((name) => [name, checked[name as SettingName]])),
    ...capped(checked, caps),
  };
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

/** Settings, defaults too, that are above a cap are stored at the cap. */
function capped(settings: TenantSettings, caps: SettingsCaps): Partial<TenantSettings> {
  return Object.fromEntries(
    Object.entries(caps).filter(([name, cap]) => {
      const value = settings[name as SettingName];
      return cap !== undefined && typeof value === "number" && value > cap;
    }),
  ) as Partial<TenantSettings>;
}
