/**
 * How many stored credentials cannot be opened: rows that were moved, changed, or sealed under a key that
 * is gone. Each fails only its own calls, by name (BLIND-5); operators see the number in readiness. Only
 * tenants are looked at of whom this process met such a value, so that asking often costs nothing.
 */
import { credentialAad, type StoredCredential } from "./credential.ts";
import type { CoreDeps } from "../core-deps.ts";

export async function countUnreadableCredentials(deps: Pick<CoreDeps, "repos" | "sealer">): Promise<number> {
  let count = 0;
  for (const tenant of deps.sealer.doubtfulTenants) {
    const unreadable = await countIn(deps, tenant);
    if (unreadable === 0) deps.sealer.trust(tenant);
    count += unreadable;
  }
  return count;
}

async function countIn({ repos, sealer }: Pick<CoreDeps, "repos" | "sealer">, tenant: string): Promise<number> {
  const row = await repos.tenants.get(tenant);
  if (row === undefined) return 0;
  const opens = async (stored: StoredCredential): Promise<boolean> =>
    sealer.open(tenant, row.wrappedKey, credentialAad(stored), stored.sealed).then(
      () => true,
      () => false,
    );
  const opened = await Promise.all((await repos.credentials.all(tenant)).map(opens));
  return opened.filter((isOpen) => !isOpen).length;
}
