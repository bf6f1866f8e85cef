/**
 * Erasing a tenant removes its rows, its blobs and with them its data key (design "Retention").
 * The tenant is suspended first, so that nothing new begins and what runs is asked to stop, and its row goes last: an
 * erasure that was cut off is taken up again by asking for it once more. Requests that were let in before it, and whose
 * bodies came after it, may have stored something since: a quarter of an hour later a worker looks once more.
 */
import { deleteBelow } from "../delete-blobs.ts";
import type { CoreDeps } from "../core-deps.ts";
import { tenantKey } from "../ports/blob-store.ts";
import { afterErasure } from "../ports/task-queue.ts";

/** Calls looked at that may still be held. */
const pageSize = 100;

/** Whoever carries a call out hears within `cancelPollMs` that it is to stop. Who does not stop by then clears up after itself. */
const stopWithinMs = 10_000;
const lookAgainMs = 200;

/** Longer than a request may take to arrive and a function may run, and as long as a message can wait. */
const lookAfterMs = 900_000;

const allOf = (tenant: string): string => `${tenantKey(tenant)}/`;

/** @returns false where there is no such tenant */
export async function eraseTenant(deps: CoreDeps, tenant: string): Promise<boolean> {
  const suspended = await deps.repos.tenants.update(tenant, { status: "suspended" });
  if (suspended === undefined) return false;
  await awaitStopped(deps, tenant);
  await deleteBelow(deps.blobs, allOf(tenant));
  // Before the rows go: without the tenant's own, nobody could ask for it again.
  await deps.queue.send("short", [{ tenant, callId: afterErasure }], { delayMs: lookAfterMs });
  const erased = await deps.repos.tenants.erase(tenant);
  // Who has not stopped may have stored something since.
  await deleteBelow(deps.blobs, allOf(tenant));
  return erased;
}

/** Carries out that message. */
export async function clearAfterErasure(deps: Pick<CoreDeps, "repos" | "blobs">, tenant: string): Promise<void> {
  if ((await deps.repos.tenants.get(tenant)) !== undefined) return;
  // The row is gone that said on which shard it was.
  await deps.repos.tenants.erase(tenant, { everywhere: true });
  await deleteBelow(deps.blobs, allOf(tenant));
}

/** For whoever finds that the call is gone which it has carried out: what it has stored must go as well. */
export async function clearErased(deps: Pick<CoreDeps, "repos" | "blobs">, tenant: string): Promise<void> {
  if ((await deps.repos.tenants.get(tenant)) === undefined) await deleteBelow(deps.blobs, allOf(tenant));
}

async function awaitStopped({ repos, clock }: CoreDeps, tenant: string): Promise<void> {
  for (let waitedMs = 0; waitedMs < stopWithinMs; waitedMs += lookAgainMs) {
    const { data } = await repos.calls.list(tenant, { state: "running" }, { limit: pageSize, order: "desc" });
    const now = clock.now();
    // What has answered first works on by itself: nobody here holds it.
    if (!data.some(({ leaseUntil, outcome }) => outcome === null && leaseUntil !== null && leaseUntil > now)) return;
    await clock.sleep(lookAgainMs);
  }
}
