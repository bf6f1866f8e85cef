/** Changes a tenant. Settings are merged into what is stored at that moment, so two changes at once both count. */
import type { CoreDeps } from "../core-deps.ts";
import { GatewayError, toGatewayError } from "../errors/gateway-error.ts";
import type { Tenant } from "../ports/tenants.ts";
import { tenantSettingsSchema, type TenantSettings, changeSettings, type SettingsChange } from "./settings.ts";

export interface TenantChange {
  readonly name?: string;
  readonly status?: Tenant["status"];
  /** Or what comes of those that are stored; the order of preprocessors does not. */
  readonly settings?: SettingsChange | ((stored: TenantSettings) => Omit<SettingsChange, "preprocessor_order">);
}

/**
 * Wraps the tenant's data key under the master key of today.
 * @returns undefined where there is no such tenant
 * @throws GatewayError `credential_unreadable` where no master key that this process holds opens it
 */
export async function rewrapTenantKey(deps: CoreDeps, id: string): Promise<Tenant | undefined> {
  const tenant = await deps.repos.tenants.get(id);
  if (tenant === undefined) return undefined;
  // Both wrappings hold the same key, so it does not matter which of two at once comes last.
  return deps.repos.tenants.update(id, { wrappedKey: await deps.sealer.rewrapTenantKey(id, tenant.wrappedKey) });
}

/** Changes of others that may come in between; each means that one more configuration change went through. */
const mostTries = 10;

/**
 * @returns undefined where there is no such tenant
 * @throws GatewayError `invalid_request` naming a setting above its cap or an unknown preprocessor, `conflict` where others keep changing it
 */
export async function updateTenant(deps: CoreDeps, id: string, change: TenantChange): Promise<Tenant | undefined> {
  const { settings, ...rest } = change;
  if (settings === undefined) return deps.repos.tenants.update(id, rest);
  if (typeof settings === "object") await checkOrder(deps, id, settings);
  for (let attempt = 1; attempt <= mostTries; attempt += 1) {
    const tenant = await deps.repos.tenants.get(id);
    if (tenant === undefined) return undefined;
    const changed = typeof settings === "object" ? settings : settings(tenantSettingsSchema.parse(tenant.settings));
    const updated = await deps.repos.tenants.update(id, {
      ...rest,
      settings: changeSettings(tenant.settings, changed, deps.settingsCaps),
      expectedConfigVersion: tenant.configVersion,
    });
    if (updated !== undefined) return updated;
  }
  throw new GatewayError("conflict", "The tenant's configuration keeps changing; try again.", { retryAfterMs: 1_000 });
}

/** A wrong order is refused as a whole, so that what runs stays as it is (VCP-24). */
async function checkOrder(
  deps: CoreDeps,
  tenant: string,
  { preprocessor_order: order }: SettingsChange,
): Promise<void> {
  if (order === undefined || order === null || order.length === 0) return;
  const config = await deps.repos.config.load(tenant);
  if (config === undefined) return;
  const { checkPreprocessorOrder } = await import("../vcp/pipeline/preprocessor-order.ts");
  try {
    checkPreprocessorOrder(config, order);
  } catch (thrown) {
    deps.log.log("warn", "order of preprocessors refused", { tenant, error: toGatewayError(thrown).message });
    throw thrown;
  }
}
