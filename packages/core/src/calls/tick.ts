/**
 * What has to happen from time to time: work that nobody holds is put back on the queue, old
 * calls are archived, expired rows, sessions and uploads go. Runs on any number of instances at once (design "The tick").
 */
import type { CoreDeps } from "../deps.ts";
import { archiveCalls, expireArchives } from "./archive.ts";
import { clearKnowledge } from "../knowledge/garbage.ts";
import { clearUploads } from "../workspace/uploads.ts";
import { useLateResults } from "../nodes/results.ts";
import { refreshDue } from "../vcp/static/refresh.ts";
import { expireCallbacks, findStrandedResults, useLateCallbacks } from "../vcp/async/upkeep.ts";
import { firingAheadMs } from "../schedules/schedule.ts";
import { createWorkspace } from "../workspace/workspace.ts";
import { sendUnheld } from "./send-unheld.ts";

const sweepLimit = 200;

export async function tick(deps: CoreDeps): Promise<{ readonly resent: number }> {
  // First, since what fires has a time.
  await fireSchedules(deps);
  const resent = await sendUnheld(deps, sweepLimit);
  await useLateResults(deps, sweepLimit);
  await findStrandedResults(deps, sweepLimit);
  await useLateCallbacks(deps, sweepLimit);
  await refreshDue(deps, sweepLimit);
  await deps.repos.calls.expire(sweepLimit);
  await deps.repos.nodes.expire(sweepLimit);
  await deps.repos.subscriptions.expire(sweepLimit);
  await expireCallbacks(deps, sweepLimit);
  await archiveCalls(deps);
  await expireArchives(deps, sweepLimit);
  await createWorkspace(deps).expireSessions(sweepLimit);
  await clearUploads(deps, sweepLimit);
  await clearKnowledge(deps, sweepLimit);
  await deps.repos.oauth.expire(sweepLimit);
  return { resent };
}

/** Most ticks find nothing that is due, and read no code for it. */
async function fireSchedules(deps: CoreDeps): Promise<void> {
  const found = await deps.repos.schedules.due({ limit: sweepLimit, aheadMs: firingAheadMs });
  if (found.due.length === 0) return;
  const { fireDue } = await import("../schedules/fire.ts");
  await fireDue(deps, found, sweepLimit);
}
