/** A new tenant: its id and its own data key, wrapped by the operator's key vault. */
import type { CoreDeps } from "../core-deps.ts";
import { newId } from "../ids.ts";
import type { Tenant } from "../ports/tenants.ts";
import type { TenantSettings } from "./settings.ts";

export interface TenantRequest {
  readonly name: string;
  readonly settings: Partial<TenantSettings>;
}

export async function createTenant(deps: CoreDeps, request: TenantRequest): Promise<Tenant> {
  const id = newId("tenant");
  const wrappedKey = await deps.sealer.newTenantKey(id);
  return deps.repos.tenants.create({ id, name: request.name, wrappedKey, settings: request.settings });
}
