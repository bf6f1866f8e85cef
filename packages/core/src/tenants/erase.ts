/**
 * Erasing a tenant removes its rows, its blobs and with them its data key (design "Retention").
 * The tenant is suspended first, so that nothing new is written meanwhile, and its row goes last: an
 * erasure that was cut off is taken up again by asking for it once more.
 */
import type { CoreDeps } from "../deps.ts";
import { tenantKey } from "../ports/blob-store.ts";

/** Keys read and deleted at a time. */
const batch = 100;

/** @returns false where there is no such tenant */
export async function eraseTenant(deps: CoreDeps, tenant: string): Promise<boolean> {
  const suspended = await deps.repos.tenants.update(tenant, { status: "suspended" });
  if (suspended === undefined) return false;
  await deleteBlobs(deps, tenant);
  const erased = await deps.repos.tenants.erase(tenant);
  // A call that was running when the tenant was suspended may have stored its result since.
  await deleteBlobs(deps, tenant);
  return erased;
}

async function deleteBlobs(deps: CoreDeps, tenant: string): Promise<void> {
  const prefix = `${tenantKey(tenant)}/`;
  for (;;) {
    const found = await deps.blobs.list(prefix, { limit: batch });
    await Promise.all(found.map((blob) => deps.blobs.delete(blob.key)));
    if (found.length < batch) return;
  }
}
