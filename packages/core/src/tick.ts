/**
 * What has to happen from time to time: work that nobody holds is put back on the queue, old
 * calls are archived, expired rows, sessions and uploads go. Runs on any number of instances at once (design "The tick").
 */
import type { CoreDeps } from "./core-deps.ts";
import { toGatewayError } from "./errors/gateway-error.ts";
import { archiveCalls, expireArchives } from "./calls/archive.ts";
import { clearKnowledge } from "./knowledge/garbage.ts";
import { clearUploads } from "./workspace/uploads.ts";
import { useLateResults } from "./nodes/results.ts";
import { refreshDue } from "./vcp/static/refresh.ts";
import { expireCallbacks, findStrandedResults, useLateCallbacks } from "./vcp/async/upkeep.ts";
import { firingAheadMs } from "./schedules/schedule.ts";
import { createWorkspace } from "./workspace/workspace.ts";
import { sendUnheld } from "./calls/send-unheld.ts";

/** Rows of one kind in one round. */
const sweepLimit = 200;
/** Each of them may have thousands of files, and what comes after them in a round waits for them; another round follows. */
const sessionLimit = 1;
/** How long rounds follow each other: well within the minute until the next tick, and within the function's time. */
const roundsMs = 20_000;

/** @returns whether it may find more at once; what has been tried is not found again so soon */
type Part = () => Promise<boolean>;

/**
 * What one part of it meets is logged, and keeps none of the others from being done.
 * @throws Error what the first part met that could not be done
 */
export async function tick(deps: CoreDeps): Promise<{ readonly resent: number }> {
  const { repos } = deps;
  const until = performance.now() + roundsMs;
  let resent = 0;
  const parts: readonly Part[] = [
    // First, since what fires has a time.
    once(() => fireSchedules(deps)),
    async () => {
      const found = await sendUnheld(deps, sweepLimit);
      resent += found;
      return found >= sweepLimit;
    },
    once(() => useLateResults(deps, sweepLimit)),
    once(() => findStrandedResults(deps, sweepLimit)),
    once(() => useLateCallbacks(deps, sweepLimit)),
    once(() => refreshDue(deps, sweepLimit)),
    counted(() => repos.calls.expire(sweepLimit)),
    counted(() => repos.nodes.expire(sweepLimit)),
    counted(() => repos.subscriptions.expire(sweepLimit)),
    once(() => expireCallbacks(deps, sweepLimit)),
    () => archiveCalls(deps),
    counted(() => expireArchives(deps, sweepLimit)),
    counted(() => createWorkspace(deps).expireSessions(sessionLimit), sessionLimit),
    counted(() => clearUploads(deps, sweepLimit)),
    once(() => clearKnowledge(deps, sweepLimit)),
    counted(() => repos.oauth.expire(sweepLimit)),
  ];
  const failures: unknown[] = [];
  const run = async (part: Part): Promise<boolean> => {
    try {
      return await part();
    } catch (thrown) {
      failures.push(thrown);
      deps.log.log("error", "a part of the tick could not be done", { code: toGatewayError(thrown).code });
      return false;
    }
  };
  let due = parts;
  do {
    const unfinished: Part[] = [];
    for (const part of due) if (await run(part)) unfinished.push(part);
    due = unfinished;
  } while (due.length > 0 && performance.now() < until);
  if (failures.length > 0) throw failures[0];
  return { resent };
}

const once = (part: () => Promise<void>) => async (): Promise<boolean> => {
  await part();
  return false;
};

const counted =
  (part: () => Promise<number>, limit = sweepLimit) =>
  async (): Promise<boolean> =>
    (await part()) >= limit;

/** Most ticks find nothing that is due, and read no code for it. */
async function fireSchedules(deps: CoreDeps): Promise<void> {
  const askedAt = deps.clock.now();
  const found = await deps.repos.schedules.due({ limit: sweepLimit, aheadMs: firingAheadMs });
  tellWrongClock(deps, { askedAt, now: found.now });
  if (found.due.length === 0) return;
  const { fireDue } = await import("./schedules/fire.ts");
  await fireDue(deps, found, sweepLimit);
}

/** Nobody notices so much: leases and firings go by the database's clock, and times that are given out by this machine's. */
const mostApartMs = 5_000;
const toldOfClock = new WeakSet<CoreDeps>();

/** Once for each time that they part. */
function tellWrongClock(deps: CoreDeps, { askedAt, now }: { readonly askedAt: number; readonly now: number }): void {
  const aheadMs = askedAt - now;
  const behindMs = now - deps.clock.now();
  if (Math.max(aheadMs, behindMs) <= mostApartMs) {
    toldOfClock.delete(deps);
    return;
  }
  if (toldOfClock.has(deps)) return;
  toldOfClock.add(deps);
  const seconds = Math.round(Math.max(aheadMs, behindMs) / 1_000);
  deps.log.log("warn", "the clock of this machine and that of the database are apart", {
    reason: `${seconds} s ${aheadMs > behindMs ? "ahead of" : "behind"} the database`,
  });
}
