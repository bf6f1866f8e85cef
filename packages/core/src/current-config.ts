/** The configuration as it is now, where none came with a request or that has changed it. */
import type { TenantConfig } from "./tenant-config.ts";
import type { CoreDeps } from "./core-deps.ts";

/** @returns undefined: the tenant is gone */
export async function currentConfig(
  deps: Pick<CoreDeps, "repos" | "configs">,
  tenant: string,
): Promise<TenantConfig | undefined> {
  const row = await deps.repos.tenants.get(tenant);
  return row === undefined ? undefined : deps.configs.get(tenant, row.configVersion);
}
