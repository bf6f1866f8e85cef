/** Of the tick: results that nobody knows of, those whose calls should have ended by them, and those past their time. */
import type { CoreDeps } from "../../core-deps.ts";
import type { VcpTask } from "../../ports/vcp-callbacks.ts";
import { completeTask } from "./complete-task.ts";
import { endCall, logUnused } from "./end-call.ts";
import { readResult } from "./results.ts";
import { resultKey } from "./task.ts";

/** Whoever took a callback and died with its result stored left it to this: nobody knows of it yet. */
export async function findStrandedResults(deps: CoreDeps, limit: number): Promise<void> {
  for (const { tenant, task } of await deps.repos.vcpCallbacks.stranded(limit)) {
    await findStranded(deps, tenant, task).catch((thrown: unknown) => logUnused(deps, tenant, task, thrown));
  }
}

async function findStranded(deps: CoreDeps, tenant: string, task: VcpTask): Promise<void> {
  const [row, text] = await Promise.all([deps.repos.tenants.get(tenant), readResult(deps, tenant, task)]);
  if (row === undefined || text === undefined) return deps.repos.vcpCallbacks.passOver(tenant, task);
  await completeTask(deps, await deps.configs.get(tenant, row.configVersion), { task, text });
}

/** Whoever said so and died, or whoever asked for it and died, left its call to this. */
export async function useLateCallbacks(deps: CoreDeps, limit: number): Promise<void> {
  for (const { tenant, task } of await deps.repos.vcpCallbacks.late(limit)) {
    await useLate(deps, tenant, task).catch((thrown: unknown) => logUnused(deps, tenant, task, thrown));
  }
}

async function useLate(deps: CoreDeps, tenant: string, task: VcpTask): Promise<void> {
  const [row, text] = await Promise.all([deps.repos.tenants.get(tenant), readResult(deps, tenant, task)]);
  if (row === undefined || text === undefined) return deps.repos.vcpCallbacks.settle(tenant, task);
  await endCall(deps, await deps.configs.get(tenant, row.configVersion), { task, text });
}

/** The blob first: a row that is left is found again, a blob that is left is not. */
export async function expireCallbacks(deps: CoreDeps, limit: number): Promise<void> {
  for (const { tenant, task } of await deps.repos.vcpCallbacks.takeExpired(limit)) {
    await deps.blobs.delete(resultKey(tenant, task));
    await deps.repos.vcpCallbacks.remove(tenant, task);
  }
}
