/** Calls that nobody holds: their holder has died, or their message was lost. */
import type { CoreDeps } from "../core-deps.ts";
import type { SweepItem } from "../ports/calls.ts";
import type { QueueName } from "../ports/task-queue.ts";

/** A queued row whose message has not led to a claim for so long is sent again. */
const queuedForMs = 30_000;

/** @returns how many were sent to workers again */
export async function sendUnheld(
  deps: Pick<CoreDeps, "repos" | "queue" | "timing" | "traces" | "log">,
  limit: number,
): Promise<number> {
  const startedAt = performance.now();
  const items = await deps.repos.calls.sweep({
    limit,
    queuedForMs: Math.min(queuedForMs, deps.timing.leaseMs),
    // Its receiver may die as well: after a lease's time the message counts as lost.
    offerAgainMs: deps.timing.leaseMs,
  });
  if (items.length === 0) return 0;
  for (const queue of ["short", "long"] as const) {
    const messages = items.filter((item) => queueFor(item) === queue).map(({ tenant, id }) => ({ tenant, callId: id }));
    if (messages.length > 0) await deps.queue.send(queue, messages);
  }
  deps.log.log("warn", "sent calls again that nobody held", { count: items.length });
  // Of the many ticks that find nothing to do nobody wants to be told.
  const span = deps.traces?.begin("tick", { kind: "producer", startedMsAgo: performance.now() - startedAt });
  span?.set({ "messaging.batch.message_count": items.length, "messaging.system": "toolyard" });
  span?.end();
  return items.length;
}

/** What somebody has died over, maybe after minutes, takes as long when it is run again; the others are only ended. */
function queueFor({ state, kind, effect, repeat }: SweepItem): QueueName {
  const runsAgain = kind === "tool" && (effect === "read" || repeat !== "never");
  return state === "running" && runsAgain ? "long" : "short";
}
