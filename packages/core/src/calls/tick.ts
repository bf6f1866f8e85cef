/**
 * What has to happen from time to time: work that nobody holds is put back on the queue, old
 * calls are archived, expired rows, sessions and uploads go. Runs on any number of instances at once (design "The tick").
 */
import type { CoreDeps } from "../deps.ts";
import { toGatewayError } from "../errors/gateway-error.ts";
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

/**
 * What one part of it meets is logged, and keeps none of the others from being done.
 * @throws Error what the first part met that could not be done
 */
export async function tick(deps: CoreDeps): Promise<{ readonly resent: number }> {
  const { repos } = deps;
  let resent = 0;
  const parts: readonly (() => Promise<unknown>)[] = [
    // First, since what fires has a time.
    () => fireSchedules(deps),
    async () => {
      resent = await sendUnheld(deps, sweepLimit);
    },
    () => useLateResults(deps, sweepLimit),
    () => findStrandedResults(deps, sweepLimit),
    () => useLateCallbacks(deps, sweepLimit),
    () => refreshDue(deps, sweepLimit),
    () => repos.calls.expire(sweepLimit),
    () => repos.nodes.expire(sweepLimit),
    () => repos.subscriptions.expire(sweepLimit),
    () => expireCallbacks(deps, sweepLimit),
    () => archiveCalls(deps),
    () => expireArchives(deps, sweepLimit),
    () => createWorkspace(deps).expireSessions(sweepLimit),
    () => clearUploads(deps, sweepLimit),
    () => clearKnowledge(deps, sweepLimit),
    () => repos.oauth.expire(sweepLimit),
  ];
  const failures: unknown[] = [];
  for (const part of parts) {
    try {
      await part();
    } catch (thrown) {
      failures.push(thrown);
      deps.log.log("error", "a part of the tick could not be done", { code: toGatewayError(thrown).code });
    }
  }
  if (failures.length > 0) throw failures[0];
  return { resent };
}

/** Most ticks find nothing that is due, and read no code for it. */
async function fireSchedules(deps: CoreDeps): Promise<void> {
  const found = await deps.repos.schedules.due({ limit: sweepLimit, aheadMs: firingAheadMs });
  if (found.due.length === 0) return;
  const { fireDue } = await import("../schedules/fire.ts");
  await fireDue(deps, found, sweepLimit);
}
